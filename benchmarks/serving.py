"""One run of a workload on an engine, turn by turn, and what can be counted in it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.workloads import Question, Workload
from shared_runtime.engine import Engine
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import StepRecord


@dataclass(frozen=True, slots=True)
class Run:
    """A workload, served once.

    Attributes:
        seconds: until every answer was finished. step_ms: of the loop's turns. results: in order.
        records: of the turns, when the engine has a trace.
    """

    seconds: float
    step_ms: list[float]
    results: list[Result]
    records: list[StepRecord] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(len(one.token_ids) for one in self.results)

    @property
    def bytes(self) -> int:
        """Of all answers."""
        return sum(len(one.text.encode()) for one in self.results)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each answer."""
        return [len(one.token_ids) for one in self.results]


def serve(engine: Engine, workload: Workload, batch: int) -> Run:
    """The whole workload, `batch` requests at a time, behind an empty prefix cache.

    Raises:
        JumpforwardError: a request cannot be served.
    """
    params = SamplingParams(max_new_tokens=workload.max_new_tokens)
    return _run(engine, [[(one, params) for one in wave] for wave in workload.waves(batch)])


def serve_free(engine: Engine, workload: Workload, batch: int, lengths: Sequence[int]) -> Run:
    """The same prompts without their constraints, each answer as long as `lengths` says: the denominator."""
    source = iter(lengths)
    return _run(engine, [[(Question(one.prompt, None), SamplingParams(max_new_tokens=next(source), ignore_eos=True))
                          for one in wave] for wave in workload.waves(batch)])


def counts_of(run: Run) -> dict[str, int]:
    """What no machine changes, from the results and the trace.

    `steps` are the loop's passes, `forward_passes` what its requests took part in; `fed` tokens were read by passes,
    `recomputed` of them at positions that had been read before; `cached` prompt tokens were found in the prefix cache;
    `mask_rows` were filled; `requeued` requests left the batch.
    """
    counts = Counter[str]()
    for result in run.results:
        counts.update(result.counts)
        counts["cached"] += result.metrics.cached_tokens
    places: set[tuple[str, int]] = set()
    for record in run.records:
        counts["steps"] += record.mode != "idle"
        counts["mask_rows"] += len(record.grammars_filled)
        counts["requeued"] += len(record.requeued)
        for row in record.requests:
            counts["fed"] += len(row.fed)
            places |= {(row.rid, place) for place in range(row.kv_len - len(row.fed), row.kv_len)}
    counts["recomputed"] = counts["fed"] - len(places)
    return dict(counts) | {"requests": len(run.results), "tokens": run.tokens, "bytes": run.bytes}


def compiles_of(engine: Engine) -> int:
    """Grammars that the engine's stage has compiled so far, by its own count."""
    policy: Any = engine.parts.policy
    counters: dict[int, Callable[[], int]] = {
        1: lambda: policy.cache.builds, 2: lambda: policy.fsm_cache.misses, 3: lambda: policy.cache.cache.misses,
        4: lambda: policy.queue.builds, 5: lambda: policy.manager.builds}
    return counters[engine.parts.stage.id]()


def allowed_mass(run: Run) -> float | None:
    """Mean probability of what the mask allowed, before masking, over the steps that had one; None without any."""
    found = [row.allowed_mass for record in run.records for row in record.requests
             if row.allowed_mass is not None and row.state_before]
    return sum(found) / len(found) if found else None


def share_of_phase(run: Run, phase: str) -> float:
    """Share of the turns' time that one phase of the loop took."""
    total = sum(sum(record.ms.values()) for record in run.records)
    return sum(record.ms.get(phase, 0.0) for record in run.records) / total if total else 0.0


def _run(engine: Engine, waves: Sequence[Sequence[tuple[Question, SamplingParams]]]) -> Run:
    engine.parts.memory.cache.reset()
    steps: list[float] = []
    records: list[StepRecord] = []
    results: list[Result] = []
    started = time.perf_counter()
    for wave in waves:
        names = [engine.add_request(messages=question.messages, sampling=params, constraint=question.constraint)[0]
                 for question, params in wave]
        for took, record in _turns(engine):
            steps.append(took)
            records += [record] if record is not None else []
        found = {event.rid: event.result for event in engine.take_events(names) if event.result is not None}
        results += [found[name] for name in names]
    seconds = time.perf_counter() - started
    for result in results:
        if result.error is not None:
            raise result.error
    return Run(seconds, steps, results, records)


def _turns(engine: Engine) -> Iterator[tuple[float, StepRecord | None]]:
    """Until nothing is left to do: milliseconds and record of each turn."""
    while engine.has_work:
        before = time.perf_counter()
        record = engine.step()
        yield 1e3 * (time.perf_counter() - before), record
