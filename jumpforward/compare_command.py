"""`jumpforward compare`: one request through every stage that exists, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from jumpforward.compare_view import comparison_view
from jumpforward.console import ProgressLine, page_width, print_rich, speaks_unicode
from jumpforward.decoding_request import DecodingRequest
from jumpforward.default_request import PROMPT, REGEX
from jumpforward.exit_codes import OK
from jumpforward.options import Prompt
from jumpforward.result_json import JsonObject, request_json
from jumpforward.validity import is_valid
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError, JumpforwardError
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from shared_runtime.assembly import LoadedModel
    from shared_runtime.engine import Engine
    from shared_runtime.policy import BackendJump, StageSpec


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to decode: a stage and its settings, a row of the table."""

    stage: int
    backend: str | None
    overlap: bool = False
    backend_jump: BackendJump = "none"


@dataclass(slots=True)
class Row:
    """What a variant made of the request; with `error` everything after `dtype` is empty."""

    stage: int
    backend: str | None
    overlap: Literal["on", "off"]
    backend_jump: BackendJump
    dtype: str
    text: str | None = None
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    valid: bool | None = None
    counts: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest(DecodingRequest):
    """Everything `compare` was asked for; without a prompt it is the default request."""

    prompt: str | None
    as_json: bool


def compare(request: CompareRequest) -> int:
    """Run the request through every stage and print the table or the JSON; returns the exit code.

    Raises:
        JumpforwardError: no stage at all can serve it.
    """
    prompt, constraint = _asked(request)
    sampling = request.sampling.params()
    if sampling.n != 1:
        raise ConfigError("compare shows one answer of each stage", where="--n", fix="leave it out")
    progress = ProgressLine()
    try:
        rows = _rows(request, prompt, sampling, constraint, progress)
    finally:
        progress.clear()
    asked = request_json(prompt, sampling, constraint, request.engine.model)
    if request.as_json:
        json.dump({"request": asked, "rows": [asdict(row) for row in rows]}, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        print_rich(*comparison_view(prompt, constraint, rows, width=page_width(sys.stdout),
                                    unicode=speaks_unicode(sys.stdout)))
    return OK


def variants(specs: Sequence[StageSpec], backend: str | None = None) -> list[Variant]:
    """The rows of the table, oldest stage first: each with its own backend, or with `backend` if it has it.

    A stage has a row for its own way, and one for every other way that its capabilities name: overlap, and each
    backend jump.

    Raises:
        ConfigError: no stage has the backend.
    """
    known = {name for spec in specs for name in spec.capabilities.backends}
    if backend is not None and backend not in known:
        raise ConfigError(f"no stage has a backend {backend!r}", where="--backend",
                          fix=f"use one of: {', '.join(sorted(known))}")
    return [variant for spec in sorted(specs, key=lambda spec: spec.id)
            for variant in _ways(spec, _backend_of(spec, backend))]


def _ways(spec: StageSpec, backend: str | None) -> list[Variant]:
    can = spec.capabilities
    ways = [Variant(spec.id, backend, overlap=can.overlaps_by_default)]
    if can.overlap and not can.overlaps_by_default:
        ways.append(Variant(spec.id, backend, overlap=True))
    # Overlap is off where the backend jumps: the two exclude each other, and the row says what ran.
    jumps: list[BackendJump] = [jump for jump in ("draft", "force") if jump in can.jump_forward]
    if len(jumps) > 1:
        jumps.append("force+draft")
    return ways + [Variant(spec.id, backend, backend_jump=jump) for jump in jumps]


def _backend_of(spec: StageSpec, wanted: str | None) -> str | None:
    backends = spec.capabilities.backends
    return wanted if wanted in backends else next(iter(backends), None)


def _asked(request: CompareRequest) -> tuple[Prompt, Constraint | None]:
    constraint = request.constraint.constraint()
    if request.prompt is not None:
        return request.how.prompt(request.prompt), constraint
    return request.how.prompt(PROMPT), constraint or Constraint.regex(REGEX)


def _rows(request: CompareRequest, prompt: Prompt, sampling: SamplingParams, constraint: Constraint | None,
          progress: ProgressLine) -> list[Row]:
    progress(f"loading {request.engine.model}", 0, 0)
    from stages import all_stages

    bench = _Bench(request, prompt, sampling, constraint, progress)
    rows, errors = [], []
    for variant in variants(all_stages(), request.grammar.backend):
        row = Row(variant.stage, variant.backend, "on" if variant.overlap else "off", variant.backend_jump,
                  request.engine.dtype)
        try:
            bench.fill(row, variant)
        except JumpforwardError as error:
            row.error = error.as_dict()
            errors.append(error)
        rows.append(row)
    if len(errors) == len(rows):
        raise errors[0]
    return rows


@dataclass(slots=True)
class _Bench:
    """Serves one request again and again. The model is loaded by the first engine, for all."""

    request: CompareRequest
    prompt: Prompt
    sampling: SamplingParams
    constraint: Constraint | None
    progress: ProgressLine
    loaded: LoadedModel | None = None

    def fill(self, row: Row, variant: Variant) -> None:
        """Serve it by `variant`, and write into `row` what came of it.

        Raises:
            JumpforwardError: this stage cannot serve it.
        """
        from shared_runtime.engine import Engine

        request = self.request
        options = replace(request.decoding.complete(request.grammar.stage_options()),
                          backend_jump=variant.backend_jump)
        config = request.engine.config(variant.stage, backend=variant.backend, options=options,
                                       overlap=variant.overlap)
        with Engine(config, progress=self.progress, loaded=self.loaded) as engine:
            if self.loaded is None:
                self.loaded = engine.parts.loaded
            self.progress(f"stage {variant.stage}", 0, 0)
            _warm_up(engine)
            result = engine.generate_one(self.prompt.text, messages=self.prompt.messages, sampling=self.sampling,
                                         constraint=self.constraint)
        row.text, row.token_ids, row.finish_reason = result.text, result.token_ids, result.finish_reason
        row.counts, row.ms = result.counts, result.ms
        row.valid = is_valid(self.constraint, result.answer)


def _warm_up(engine: Engine) -> None:
    """A small request, so that `compile` is the grammar's time and not that of loading its library.

    It has a seed of its own: the engine draws the next one for the request that counts, as for the first of `run`.
    """
    with suppress(JumpforwardError):  # what is wrong here is told by the request that counts
        engine.generate_one("x", constraint=Constraint.choice(["a", "b"]),
                            sampling=SamplingParams(max_new_tokens=1, seed=0))
