"""What an invariant works with: engines on a tiny model, requests, small vocabularies, and ends to all waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.kv_memory import KVMemory
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import StageContext, StageOptions, StagePolicy
from shared_runtime.radix_cache import RadixCache
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.scheduler import Scheduler
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from tests.conformance.harness import Ask

R = TypeVar("R")
PATIENCE_S = 4.0
"""How long a call may take before it counts as one that never returns; the right ones take milliseconds."""


class Broken(AssertionError):
    """An invariant does not hold; the message names the symptom."""


def hold(holds: bool, symptom: str) -> None:
    """Raise `Broken` with the symptom unless `holds`."""
    if not holds:
        raise Broken(symptom)


@contextmanager
def unbroken(symptom: str) -> Iterator[None]:
    """An exception in here is the symptom."""
    try:
        yield
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{symptom}: {type(error).__name__}: {error}") from error


def in_time(call: Callable[[], R], symptom: str) -> R:
    """What `call` returns or raises; `Broken` with the symptom when it does neither."""
    outcome: list[R] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    hold(not thread.is_alive(), symptom)
    if errors:
        raise errors[0]
    return outcome[0]


def vocabulary_of(*tokens: bytes, stops: int = 1) -> Vocabulary:
    """Stop tokens are 0 .. `stops` - 1, the given tokens follow, and there is no padding."""
    ids = frozenset(range(stops))
    return Vocabulary((b"",) * stops + tokens, control_ids=ids, stop_ids=ids, width=stops + len(tokens))


def request(constraint: Constraint | None = None, *, rid: str = "r", sampling: SamplingParams | None = None,
            prompt_ids: Sequence[int] = (5,)) -> Request:
    """A request that no loop has seen."""
    return Request(rid=rid, prompt_ids=list(prompt_ids), prompt="", sampling=sampling or SamplingParams(), seed=0,
                   constraint=constraint, metrics=RequestMetrics(arrival=0.0, prompt_tokens=len(prompt_ids)))


def sampled(*reqs: Request) -> ScheduleBatch:
    """A decode batch in which each request gets a token."""
    return ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=list(reqs))


@dataclass
class Bench:
    """One for each test.

    Attributes:
        model: folder of a tiny model with 256 byte tokens, a few merges and two stop tokens, 0 and 1.
        tokenizer: its tokenizer. scratch: an empty folder. device: of the engines.
    """

    model: Path
    tokenizer: Tokenizer
    scratch: Path
    device: str = "cpu"
    _engines: list[Engine] = field(default_factory=list)

    def engine(self, stage: int, **settings: object) -> Engine:
        """An engine on the tiny model, without overlap unless it is asked for.

        Its books are for the invariant to check: a specimen may spoil them.
        """
        settings = {"overlap": False, "kv_pool_tokens": 512, "model": str(self.model), "device": self.device} | settings
        engine = Engine(EngineConfig(stage=stage, **settings))  # type: ignore[arg-type]  # EngineConfig checks them
        self._engines.append(engine)
        return engine

    def engine_with(self, build: Callable[[StageContext], StagePolicy], **settings: object) -> Engine:
        """An engine whose loop asks the policy that `build` makes."""
        engine = self.engine(1, **settings)
        parts = engine.parts
        policy = build(replace(self.context(), memory=parts.memory))
        engine.scheduler = Scheduler(engine.config, engine.tokenizer.vocabulary, parts.runner, parts.memory, policy,
                                     parts.tracer, parts.ranks)
        return engine

    def context(self, vocabulary: Vocabulary | None = None, **options: object) -> StageContext:
        """What a policy is built from, outside an engine."""
        return StageContext(vocabulary or self.tokenizer.vocabulary, self.tokenizer, torch.device("cpu"),
                            options=StageOptions(**options), memory=memory())  # type: ignore[arg-type]  # as above

    def run(self, engine: Engine, asks: Sequence[Ask], turns: int = 200) -> list[Result]:
        """The asks together to their end; `Broken` when that is not reached.

        Turns in which the loop only naps, because something compiles, count a twentieth.
        """
        names = [engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0] for ask in asks]
        done: dict[str, Result] = {}
        spent = 0
        while spent < 20 * turns:
            if not engine.has_work:
                return [done[name] for name in names]
            spent += 1 if engine.scheduler.queues.compiling else 20
            engine.step()
            done |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
        raise Broken(f"{len(names) - len(done)} of {len(names)} requests did not end within {turns} turns")

    def close(self) -> None:
        """Close what was made."""
        for engine in self._engines:
            engine.close()


def memory(slots: int = 64, rows: int = 4) -> KVMemory:
    """A small KV pool with a radix tree over it."""
    pool = TokenToKVPool(size=slots, n_layers=1, n_kv_heads=1, head_dim=4, dtype=torch.float32,
                         device=torch.device("cpu"))
    tables = ReqToTokenPool(size=rows, max_len=slots, device=torch.device("cpu"))
    return KVMemory(pool, tables, RadixCache(pool))
