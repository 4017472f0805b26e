"""One engine on each rank, all in step: rank 0 takes requests and says what happens in each turn.

The scheduler's decisions follow from the requests and from what was sampled, never from a clock, so ranks that are told
the same make the same ones; what a stage decides by time (which grammars are ready) it agrees on itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from shared_runtime.assembly import EngineParts
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine, Message, Progress
from shared_runtime.errors import EngineStateError, JumpforwardError
from shared_runtime.execution.rank_group import AGREE_ON_IDS, RankDivergenceError, RankGroup
from shared_runtime.request_factory import Ask
from shared_runtime.result import Result, StreamEvent, refused
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import StepRecord


@dataclass(slots=True)
class Turn:
    """What rank 0 tells the others before a turn: new requests with ids, requests to end, or that all is over."""

    asks: list[tuple[str, Ask]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    over: bool = False


class ParallelEngine:
    """This rank's engine. Rank 0 calls `add_request`, `step` and `close`; every other rank calls `follow`.

    As a context manager it closes for all ranks, unless a turn has failed: then nobody knows where the others are, and
    they end when this process does.

    Args:
        config: the settings, the same on every rank but for `trace`.
        ranks: the processes that share the model.
        progress: as `Engine` takes it.

    Raises:
        CheckpointError, ConfigError: see `assemble`.

    Before each turn the ranks compare what they have written so far. Ranks that differ end there with a report, in the
    time of one message, instead of hanging in a collective call that the others never make.
    """

    def __init__(self, config: EngineConfig, ranks: RankGroup, *, progress: Progress | None = None) -> None:
        self.engine = Engine(config, progress=progress, ranks=ranks)
        self._ranks = ranks
        self._next = Turn()
        self._count = 0
        self._in_turn = False
        self._refused: list[Result] = []

    def __enter__(self) -> ParallelEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._in_turn or self._ranks.rank > 0:
            self.engine.close()
        else:
            self.close()

    @property
    def parts(self) -> EngineParts:
        """What this rank's engine is made of."""
        return self.engine.parts

    def add_request(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
                    sampling: SamplingParams | None = None, constraint: Constraint | None = None) -> list[str]:
        """Rank 0: `submit` in the words of `Engine.add_request`."""
        return self.submit(Ask(prompt, messages, None, sampling, constraint))

    def submit(self, ask: Ask, rid: str | None = None) -> list[str]:
        """Rank 0: a request for the next turn; a wrong one shows there, as an error of that request alone.

        Returns:
            The ids of its `n` answers, as `Engine.add_request`. A request that is refused has one result, under the
            id of the whole.
        """
        self._count += 1
        name = rid or f"req-{self._count}"
        self._next.asks.append((name, ask))
        answers = 1 if ask.sampling is None else ask.sampling.n
        return [name] if answers == 1 else [f"{name}/{index}" for index in range(answers)]

    def abort(self, rid: str) -> None:
        """Rank 0: end a request in the next turn; nothing happens when it has ended by then."""
        self._next.aborts.append(rid)

    @property
    def has_work(self) -> bool:
        """Rank 0: whether a turn has something to do."""
        return self.engine.has_work or bool(self._next.asks or self._next.aborts)

    def step(self) -> StepRecord | None:
        """Rank 0: one turn, on all ranks.

        Raises:
            RankDivergenceError: the ranks are not in step.
            RankLostError: a rank has gone.
        """
        turn, self._next = self._next, Turn()
        self._in_turn = True
        record = self._carry_out(self._ranks.from_first(turn))
        self._in_turn = False
        return record

    def run(self) -> list[Result]:
        """Rank 0: turns until everything has ended; the results in the order they ended."""
        results = []
        while self.has_work:
            self.step()
            results += _results(self.take_events())
        return results

    def take_events(self) -> list[StreamEvent]:
        """What is new on this rank since the last call, refused requests included."""
        refused_now, self._refused = self._refused, []
        return [StreamEvent(rid=one.rid, index=0, text="", start=0, token_ids=[], origins=[], finished=True, result=one)
                for one in refused_now] + self.engine.take_events()

    def follow(self) -> list[Result]:
        """Another rank: do as rank 0 says until it closes; the results that this rank has seen.

        Raises:
            RankDivergenceError, RankLostError: as `step`.
        """
        results: list[Result] = []
        while True:
            turn = self._ranks.from_first(Turn())
            if turn.over:
                self.engine.close()
                return results
            self._carry_out(turn)
            results += _results(self.take_events())

    def close(self) -> None:
        """Rank 0: tell the others that all is over."""
        self._ranks.from_first(Turn(over=True))
        self.engine.close()

    def _carry_out(self, turn: Turn) -> StepRecord | None:
        for name, ask in turn.asks:
            try:
                self.engine.submit(ask, name)
            except JumpforwardError as error:
                self._refused.append(refused(name, ask.prompt or "", error))
        for name in turn.aborts:
            with suppress(EngineStateError):  # it has ended meanwhile
                self.engine.abort(name)
        self._compare()
        return self.engine.step()

    def _compare(self) -> None:
        """Every rank must have written the same tokens.

        Raises:
            RankDivergenceError: naming the ranks and the requests that differ.
        """
        mine = {req.rid: list(req.output_ids) for req in self.engine.scheduler.queues.in_memory}
        digest = hashlib.sha256(repr(mine).encode()).hexdigest()
        if len(set(self._ranks.from_each(digest))) == 1:
            return
        everyone = self._ranks.from_each(mine)
        differing = sorted({rid for seen in everyone for rid in seen
                            if any(other.get(rid) != seen[rid] for other in everyone)})
        rid = differing[0]
        shown = ", ".join(f"rank {rank} ends with {seen.get(rid, [])[-3:]}" for rank, seen in enumerate(everyone))
        raise RankDivergenceError(f"the ranks have written different tokens for {rid}: {shown}", where="ranks",
                                  fix=AGREE_ON_IDS)


def _results(events: list[StreamEvent]) -> list[Result]:
    return [event.result for event in events if event.result is not None]
