"""Grammars without a library, for the rows about compiling, waiting and wrapping: they allow everything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import GrammarSyntaxError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import Admission
from shared_runtime.request import Request
from shared_runtime.vocabulary import Vocabulary
from stages.stage4_backends import base_grammar_backend as stage4
from stages.stage4_backends.grammar_queue import GrammarQueue
from stages.stage5_backend_jump import base_grammar_backend as stage5
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.museum.bench import PATIENCE_S, Bench

Compile = Callable[[Constraint], None]
"""Stands for a library's compile: returns, raises, or takes its time."""


def compiles(constraint: Constraint) -> None:
    """A compile that takes no time."""


def refuses(constraint: Constraint) -> None:
    """A compile of a bad grammar."""
    raise GrammarSyntaxError("undefined rule", where=constraint.kind)


class AnyText(stage5.BaseGrammarObject):
    """A grammar of stage 5 that takes every token and remembers them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.ids: list[int] = []

    nbytes = 1
    accepting = True

    def copy(self) -> AnyText:
        """At the beginning."""
        return type(self)(self.vocabulary)

    def _accept_text(self, token_id: int) -> bool:
        self.ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        if k > len(self.ids):
            raise ValueError(f"cannot take back {k} of {len(self.ids)} tokens")
        del self.ids[-k:]

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Everything."""
        mask[row] = -1


class AnyText4(stage4.BaseGrammarObject):
    """The same for stage 4."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self.ids: list[int] = []

    nbytes = 1
    accepting = True

    def copy(self) -> AnyText4:
        """At the beginning."""
        return type(self)(self.vocabulary)

    def _accept_text(self, token_id: int) -> bool:
        self.ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        if k > len(self.ids):
            raise ValueError(f"cannot take back {k} of {len(self.ids)} tokens")
        del self.ids[-k:]

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Everything."""
        mask[row] = -1


class Scripted(stage5.BaseGrammarBackend):
    """A backend of stage 5 whose compiles do what a test says."""

    name = "scripted"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, bench: Bench, compile_it: Compile) -> None:
        super().__init__(bench.context())
        self._compile_it = compile_it

    def init_value(self, constraint: Constraint) -> stage5.Compiled:
        """Run the script."""
        self._compile_it(constraint)
        return stage5.Compiled(AnyText(self.context.vocabulary))


class Scripted4(stage4.BaseGrammarBackend):
    """The same for stage 4."""

    name = "scripted"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, bench: Bench, compile_it: Compile) -> None:
        super().__init__(bench.context())
        self._compile_it = compile_it

    def init_value(self, constraint: Constraint) -> stage4.Compiled:
        """Run the script."""
        self._compile_it(constraint)
        return stage4.Compiled(AnyText4(self.context.vocabulary))


@dataclass
class Clock:
    """A clock that can be put forward."""

    ahead: float = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead


class WaitingRoom(Protocol):
    """Where requests wait for their grammars: the manager of stage 5, the queue of stage 4."""

    def admit(self, req: Request) -> Admission: ...

    def poll(self) -> list[tuple[Request, Admission]]: ...

    def cancel(self, rid: str) -> None: ...

    def reset(self) -> None: ...


@dataclass
class QueueOfStage4:
    """`GrammarQueue` as a waiting room."""

    queue: GrammarQueue

    def admit(self, req: Request) -> Admission:
        """Under the request's own constraint."""
        assert req.constraint is not None
        return self.queue.admit(req, req.constraint)

    def poll(self) -> list[tuple[Request, Admission]]:
        """What is settled."""
        return self.queue.poll()

    def cancel(self, rid: str) -> None:
        """Wait no more."""
        self.queue.cancel(rid)

    def reset(self) -> None:
        """Forget."""
        self.queue.reset()


RoomBuild = Callable[[Bench, Compile, Clock], WaitingRoom]
LIMITS = GrammarLimits(compile_timeout=10.0)


def room_of(manager_class: type[GrammarManager]) -> RoomBuild:
    """How to make the waiting room of stage 5."""
    return lambda bench, compile_it, clock: manager_class(Scripted(bench, compile_it), LIMITS, clock=clock)


def room_of_stage4(bench: Bench, compile_it: Compile, clock: Clock) -> WaitingRoom:
    """Make the waiting room of stage 4."""
    return QueueOfStage4(GrammarQueue(Scripted4(bench, compile_it), LIMITS, clock=clock))


ROOMS: dict[str, RoomBuild] = {"stage4": room_of_stage4, "stage5": room_of(GrammarManager)}


def settle(room: WaitingRoom, count: int) -> list[tuple[Request, Admission]]:
    """Poll until `count` requests are settled, or patience ends: what was settled, in order."""
    settled: list[tuple[Request, Admission]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(settled) < count and time.monotonic() < deadline:
        settled += room.poll()
        time.sleep(0.001)
    return settled


@dataclass
class Gate:
    """A compile that waits until it is opened; counts those that have begun."""

    opened: threading.Event = field(default_factory=threading.Event)
    begun: int = 0

    def __call__(self, constraint: Constraint) -> None:
        """Wait, with an end."""
        self.begun += 1
        self.opened.wait(10 * PATIENCE_S)
