"""Growth curves: what a cost does when batch, context, grammar or cache grow tenfold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from benchmarks.bare_pass import bare_forward_times
from benchmarks.curve import Point
from benchmarks.denominators import kv_bytes, weight_bytes
from benchmarks.ledger import percentiles
from benchmarks.mask_engines import MakeWalker, engine_named, fsm_builder
from benchmarks.serving import serve, serve_free
from benchmarks.workloads import Question, Workload, all_workloads
from shared_runtime.assembly import LoadedModel
from shared_runtime.config import EngineConfig
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.model.locate import locate_model
from shared_runtime.policy import READY, StageContext, StageOptions
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarBackend

CONTEXT = 256
"""Tokens of each request where the batch grows."""

_LIMITS = GrammarLimits(compile_timeout=120.0)
_MASKS = 256
"""Most masks of a point: along a text from its beginning, and again."""

_LONG_ENOUGH_MS = 200.0

_WORDS = ("item", "line", "part")

_Measured = tuple[dict[str, int], list[float]]


@dataclass(frozen=True, slots=True)
class CurveSpec:
    """A curve to be measured.

    Attributes:
        name, why: which cost, and why it is watched. unit: what is counted on the curve's axis.
        of: engines or stages, a line each. sizes: the points.
    """

    name: str
    why: str
    unit: str
    of: tuple[str, ...]
    sizes: tuple[int, ...]


_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_STATES = (10, 30, 100, 300, 1000, 3000, 10_000)
_ENGINES = ("stage1_fsm", "outlines", "xgrammar", "llguidance")

CURVES = (
    CurveSpec("bare pass by batch", "a decode pass reads its weights once, however many requests take part",
              "requests", ("model",), _BATCHES),
    CurveSpec("turn by batch", "a turn of the loop around that pass: masks, sampling, bookkeeping",
              "requests", ("free", "stage1", "stage5"), _BATCHES),
    CurveSpec("bare pass by context", "keys and values are read anew for every token",
              "tokens of context", ("model",), (128, 256, 512, 1024, 2048, 4096)),
    CurveSpec("masks of a batch", "stage 1 masks row after row in Python, stage 5 fills and applies one mask",
              "requests", ("stage1", "stage5 xgrammar", "stage5 llguidance"), _BATCHES),
    CurveSpec("compile by states", "from a regex to its first mask; an index over the vocabulary is paid for here",
              "states", _ENGINES, _STATES),
    CurveSpec("mask by states", "a mask must not cost more because its grammar is large",
              "states", _ENGINES, _STATES),
    CurveSpec("hit by grammars", "finding one grammar among all that were compiled",
              "grammars in the cache", ("stage5 llguidance",), (1, 10, 100, 1000, 10_000)),
)


@dataclass(frozen=True, slots=True)
class GrowthCell:
    """One point to be measured."""

    curve: str
    of: str
    size: int

    @property
    def key(self) -> str:
        """As `Point.key`."""
        return f"growth/{self.curve}/{self.of}/{self.size}"


def growth_plan(curves: Sequence[str] = (), most: int | None = None) -> list[GrowthCell]:
    """Every point of the curves, or of those named, smallest sizes first; none larger than `most`."""
    return [GrowthCell(one.name, of, size) for one in CURVES if not curves or one.name in curves
            for of in one.of for size in one.sizes if most is None or size <= most]


@dataclass(slots=True)
class Growth:
    """Measures points, with one model in memory.

    Attributes:
        config: of the engines. repeats: of each timed thing.
    """

    config: EngineConfig
    repeats: int = 10
    _loaded: LoadedModel | None = None
    _known: StageContext | None = None
    _made: dict[str, MakeWalker] = field(default_factory=dict)

    def measure(self, cell: GrowthCell) -> Point:
        """The cell's point.

        Raises:
            ImportError: a library is missing. JumpforwardError: an engine cannot serve the grammar.
        """
        how: dict[str, Callable[[str, int], _Measured]] = {
            "bare pass by batch": lambda _of, size: self._bare(size, CONTEXT),
            "bare pass by context": lambda _of, size: self._bare(1, size),
            "turn by batch": self._turn, "masks of a batch": self._masks_of_batch,
            "compile by states": self._compile, "mask by states": self._mask, "hit by grammars": self._hit}
        counts, ms = how[cell.curve](cell.of, cell.size)
        return Point(cell.curve, cell.of, cell.size, counts, {"min": round(min(ms), 4)} | percentiles(ms))

    @contextmanager
    def _engine(self, stage: int, backend: str | None = None) -> Iterator[Engine]:
        options = StageOptions(jump_forward=False)
        with Engine(replace(self.config, stage=stage, backend=backend, overlap=False, options=options, trace=None),
                    loaded=self._loaded) as engine:
            self._loaded = engine.parts.loaded
            yield engine
            engine.check_integrity()

    def _bare(self, batch: int, context: int) -> _Measured:
        with self._engine(5) as engine:
            counts = {"rows": batch, "weight_bytes": weight_bytes(engine),
                      "kv_bytes": kv_bytes(engine, batch * context)}
            return counts, bare_forward_times(engine, batch, context, self.repeats)

    def _turn(self, of: str, size: int) -> _Measured:
        """Turns that only decode: a row of each request in every one."""
        one = Workload("card", "", "", (_card(),) * size, 1 + self.repeats, (size,), ())
        with self._engine(1 if of == "stage1" else 5) as engine:
            serve(engine, replace(one, questions=one.questions[:1], max_new_tokens=2), 1)  # compiles
            lengths = [one.max_new_tokens] * size
            run = serve_free(engine, one, size, lengths) if of == "free" else serve(engine, one, size)
        return ({"tokens": run.tokens, "masks": sum(result.counts["masks"] for result in run.results),
                 "turns": len(run.step_ms)}, run.step_ms[-self.repeats:])

    def _masks_of_batch(self, of: str, size: int) -> _Measured:
        """Filling and applying, as the stage's policy does; nothing else of a turn."""
        context, constraint = self._context, _card().constraint
        assert constraint is not None
        logits = torch.zeros(size, context.vocabulary.width)
        if of == "stage1":
            fsm = fsm_builder(context)(constraint)

            def row_by_row() -> None:
                for row in range(size):
                    logits[row].masked_fill_(~torch.from_numpy(fsm.allowed(0)), -torch.inf)

            return {"rows": size, "mask_bytes": logits.numel()}, self._timed(row_by_row)
        compiled = self._backend(of).init_value(constraint).grammar
        grammars = [compiled.copy() for _ in range(size)]
        mask = compiled.allocate_vocab_mask(context.vocabulary.width, size, context.device)

        def fill_and_apply() -> None:
            compiled.fill_vocab_mask_batched(list(enumerate(grammars)), mask)
            compiled.apply_vocab_mask(logits, mask, range(size))

        return {"rows": size, "mask_bytes": 4 * mask.numel()}, self._timed(fill_and_apply)

    def _compile(self, of: str, size: int) -> _Measured:
        times, make = [], self._maker(of)
        for word in _WORDS:  # a library may know a pattern that it has seen
            constraint = record_regex(size, word)
            started = time.perf_counter()
            make(constraint)().mask()
            times.append(1e3 * (time.perf_counter() - started))
        first = record_regex(size)
        return {"states": states_of(first), "characters": len(first.source)}, times

    def _mask(self, of: str, size: int) -> _Measured:
        constraint = record_regex(size)
        start, ids = self._maker(of)(constraint), self._context.tokenizer.spell(record_text(size))
        times: list[float] = []
        while len(times) < _MASKS:
            walker = start()
            for token_id in ids[:_MASKS - len(times)]:
                before = time.perf_counter()
                allows = walker.mask()
                times.append(1e3 * (time.perf_counter() - before))
                if not allows(token_id):
                    raise ValueError(f"{of} refuses its own text")
                walker.accept(token_id)
        return {"states": states_of(constraint), "masks": len(times)}, times

    def _hit(self, of: str, size: int) -> _Measured:
        """Admitting a request whose grammar is there: the look-up, and the request's own copy."""
        from stages.stage5_backend_jump.grammar_manager import GrammarManager

        manager = GrammarManager(self._backend(of), _LIMITS)
        for number in range(size):
            manager.admit(_request(number))
            while not manager.poll():  # one at a time: the queue is not what is measured
                continue
        times, kept = [], len(manager.cache)  # its memory is limited: the oldest may be gone
        for request in [_request(size - 1 - number * 7919 % kept) for number in range(_MASKS)]:
            before = time.perf_counter()
            answer = manager.admit(request)
            times.append(1e3 * (time.perf_counter() - before))
            if answer is not READY:
                raise ValueError(f"{request.constraint} was compiled and is not there")
        return {"grammars": len(manager.cache), "builds": manager.builds, "bytes": manager.cache.total_bytes}, times

    @property
    def _context(self) -> StageContext:
        if self._known is None:
            tokenizer = Tokenizer.from_folder(locate_model(self.config.model))
            self._known = StageContext(tokenizer.vocabulary, tokenizer, torch.device("cpu"), _LIMITS)
        return self._known

    def _backend(self, of: str) -> BaseGrammarBackend:
        from stages.stage5_backend_jump.base_grammar_backend import REGISTRY

        return REGISTRY.create(of.partition(" ")[2], self._context)

    def _maker(self, name: str) -> MakeWalker:
        if name not in self._made:
            self._made[name] = engine_named(name, self._context.tokenizer, _LIMITS)
        return self._made[name]

    def _timed(self, body: Callable[[], object]) -> list[float]:
        """Milliseconds of each run but the first: of what is short so many that a slice of another process's is one."""
        times: list[float] = []
        while len(times) <= self.repeats or sum(times) < _LONG_ENOUGH_MS:
            before = time.perf_counter()
            body()
            times.append(1e3 * (time.perf_counter() - before))
        return times[1:]


def record_regex(states: int, word: str = _WORDS[0]) -> Constraint:
    """A regex of numbered lines, whose automaton has about so many states: 16 a line."""
    return Constraint.regex("".join(f"{word} {line:04}: (yes|no); " for line in range(_lines(states)))[:-1])


def record_text(states: int) -> str:
    """A text of that regex."""
    return "".join(f"item {line:04}: {'no' if line % 3 else 'yes'}; " for line in range(_lines(states)))[:-1]


def states_of(constraint: Constraint) -> int:
    """States of the automaton over bytes."""
    from stages.stage1_copied_fsm.regex import make_byte_automaton

    return len(make_byte_automaton(constraint.source, Budget(_LIMITS)).table)


def _lines(states: int) -> int:
    return max(1, round(states / 16))


def _card() -> Question:
    return next(one for one in all_workloads() if one.name == "ship_card").questions[0]


def _request(number: int) -> Request:
    return Request(f"r{number}", [1], "", SamplingParams(max_new_tokens=1), 0,
                   constraint=Constraint.choice([f"answer {number}", "none"]))
