"""`jumpforward run`: one request on one stage, streamed, with what it cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jumpforward.answer_stream import AnswerStream
from jumpforward.console import ProgressLine, legend, wants_colour
from jumpforward.decoding_request import StageRequest
from jumpforward.exit_codes import INTERRUPTED, OK
from jumpforward.interrupt import Interrupt
from jumpforward.options import Prompt
from jumpforward.rank_options import RankOptions
from jumpforward.ranks import follow, note_on_ranks, parallel_engine, place_of, start_ranks
from jumpforward.result_json import answer_json, request_json
from jumpforward.validity import is_valid
from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from shared_runtime.config import EngineConfig
    from shared_runtime.engine import Engine
    from shared_runtime.execution.parallel_engine import ParallelEngine
    from shared_runtime.execution.rank_group import TorchRankGroup
    from shared_runtime.execution.rank_place import RankPlace
    from shared_runtime.result import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(StageRequest):
    """Everything `run` was asked for."""

    prompt: str
    as_json: bool
    trace: Path | None
    ranks: RankOptions = field(default_factory=RankOptions)
    words: Sequence[str] = ()


def run(request: RunRequest) -> int:
    """Serve it and print; returns the exit code. One of several ranks that is not the first prints nothing.

    Raises:
        JumpforwardError: the request cannot be served.
    """
    constraint, sampling = request.constraint.constraint(), request.sampling.params()
    place, progress = place_of(request.ranks), ProgressLine()
    starts_others = place is None and (request.ranks.tp or 1) > 1
    if not starts_others and (place is None or place.rank == 0):
        progress(f"loading {request.engine.model}", 0, 0)
    config = request.config(request.trace)
    if request.ranks.token_sync is False:
        config = replace(config, sync_token_ids=False)
    try:
        if starts_others:
            return start_ranks(config, request.ranks.tp or 1, request.words, progress)
        if place is not None and place.rank > 0:
            return follow(config, place, request.ranks)
        prompt = request.how.prompt(request.prompt)
        engine, group = _engine(config, place, request.ranks, progress)
        thinks = constraint is not None and sampling.thinking
        stream = AnswerStream(sampling.n, silent=request.as_json, progress=progress,
                              reasoning=engine.parts.thinks if thinks else None)
        with group or nullcontext(), engine, stream:
            stage = engine.parts.stage
            results, interrupted = _serve(engine, prompt, sampling, constraint, stream)
    finally:
        progress.clear()
    if request.as_json:
        json.dump({
            "request": request_json(prompt, sampling, constraint, request.engine.model),
            "stage": stage.id, "backend": config.backend or next(iter(stage.capabilities.backends), None),
            "dtype": request.engine.dtype, "exact": request.engine.exact,
            "answers": [answer_json(result, constraint) for result in results],
        }, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        for result in results:
            print(summary(result, constraint, n=sampling.n), file=sys.stderr)
        if group is not None:
            print(note_on_ranks(group), file=sys.stderr)
    return INTERRUPTED if interrupted else OK


def _engine(config: EngineConfig, place: RankPlace | None, ranks: RankOptions,
            progress: ProgressLine) -> tuple[Engine | ParallelEngine, TorchRankGroup | None]:
    """An engine alone, or the first of several with the group that they talk in."""
    from shared_runtime.engine import Engine

    if place is None:
        return Engine(config, progress=progress), None
    return parallel_engine(config, place, ranks, progress)


def _serve(engine: Engine | ParallelEngine, prompt: Prompt, sampling: SamplingParams, constraint: Constraint | None,
           stream: AnswerStream) -> tuple[list[Result], bool]:
    """Turn the loop until every answer has ended; Ctrl-C aborts them between two turns."""
    results: list[Result] = []
    with Interrupt() as interrupt:
        names = engine.add_request(prompt.text, messages=prompt.messages, sampling=sampling, constraint=constraint)
        aborted = False
        while len(results) < len(names):
            if interrupt.requested and not aborted:
                aborted = True
                ended = {result.rid for result in results}
                for name in names:
                    if name not in ended:
                        engine.abort(name)
            engine.step()
            for event in engine.take_events():
                stream.show(event)
                if event.result is not None:
                    if event.result.error is not None:
                        raise event.result.error
                    results.append(event.result)
    return sorted(results, key=lambda result: result.index), aborted


def summary(result: Result, constraint: Constraint | None, *, n: int = 1) -> str:
    """What an answer cost, in a few lines of plain text."""
    counts, ms, metrics = result.counts, result.ms, result.metrics
    title = "" if n == 1 else f"answer {result.index + 1} of {n}\n"
    ways = ", ".join(f"{name.replace('_', ' ')} {counts.get(name, 0)}" for name in
                     ("sampled", "jumped", "forced", "accepted") if counts.get(name, 0) or name == "sampled")
    matched = "" if result.matched is None else f" ({result.matched!r})"
    lines = [
        f"tokens          {len(result.token_ids)} ({ways}); prompt {metrics.prompt_tokens}, "
        f"{metrics.cached_tokens} of them cached",
        f"forward passes  {counts['forward_passes']}",
        f"finish reason   {result.finish_reason}{matched}",
    ]
    if constraint is not None:
        lines.append(f"constraint      {constraint.text}: {verdict(is_valid(constraint, result.answer))}")
        lines.append(f"grammar         compile {ms['compile']:.1f} ms, mask {ms['mask_per_step']:.2f} ms a step, "
                     f"{counts.get('masks', 0)} masks")
    times = [f"total {ms['total']:.0f} ms"]
    if metrics.ttft_s is not None:
        times.insert(0, f"TTFT {metrics.ttft_s * 1e3:.0f} ms")
    if metrics.tpot_s is not None:
        times.insert(1, f"TPOT {metrics.tpot_s * 1e3:.1f} ms")
    lines.append(f"time            {', '.join(times)}")
    lines += [f"warning         {text}" for text in result.warnings]
    if wants_colour(sys.stdout) and wants_colour(sys.stderr):
        lines.append(f"colours         {legend()}")
    return title + "\n".join(lines)


def verdict(valid: bool | None) -> str:
    """The independent check in a word."""
    return {True: "valid", False: "not valid", None: "not checked"}[valid]
