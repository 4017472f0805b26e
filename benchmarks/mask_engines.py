"""Mask engines alone, without a model: time to first mask and time between masks over a set of schemas.

MaskBench's method (guidance-ai/jsonschemabench): each text is walked token by token; before each token its mask is
computed, and a token that the mask lacks ends the walk. What a library needs once per vocabulary is not counted.
The engines are called as our stages call them, so a few microseconds of each mask are ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from benchmarks.ledger import EngineRow, percentiles
from benchmarks.workloads import SchemaCase
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageContext
from shared_runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from stages.stage1_copied_fsm.fsm import RegexFSM


class Walker(Protocol):
    """A place in a grammar."""

    def mask(self) -> Callable[[int], bool]:
        """Compute the mask here, and say how to look a token up in it."""
        ...

    def accept(self, token_id: int) -> None:
        """Move over a token that the mask allows."""
        ...


MakeWalker = Callable[[Constraint], Callable[[], Walker]]
"""From a constraint, by compiling it, to what makes walkers at its beginning."""


def engine_named(name: str, tokenizer: Tokenizer, limits: GrammarLimits | None = None) -> MakeWalker:
    """One of `plan.ENGINES`, with everything done that is done once per vocabulary.

    Raises:
        ConfigError: there is no such engine.
        ImportError: its library is missing.
    """
    context = StageContext(tokenizer.vocabulary, tokenizer, torch.device("cpu"), limits or GrammarLimits())
    make = _own_fsm(context) if name == "stage1_fsm" else _library(name, context)
    make(Constraint.json_schema({"type": "boolean"}))().mask()
    return make


def measure_engine(name: str, make: MakeWalker, tokenizer: Tokenizer, cases: Sequence[SchemaCase],
                   progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None) -> EngineRow:
    """Walk every text of every schema."""
    counts = dict.fromkeys(("schemas", "ok", "refused", "wrong", "tokens", "masks"), 0)
    refused: dict[str, str] = {}
    wrong: dict[str, str] = {}
    first_ms: list[float] = []
    between_us: list[float] = []
    for index, case in enumerate(cases):
        progress(f"masks of {name}", index, len(cases))
        counts["schemas"] += 1
        started = time.perf_counter()
        try:
            start = make(case.constraint)
            start().mask()
        except JumpforwardError as error:
            refused[case.name] = error.message
            continue
        first_ms.append(1e3 * (time.perf_counter() - started))
        for text, allowed in [(one, True) for one in case.valid] + [(one, False) for one in case.invalid]:
            ids = tokenizer.spell(text)
            through, took = _walk(start(), [*ids, min(tokenizer.vocabulary.stop_ids)])
            between_us += took
            counts["masks"] += len(took)
            counts["tokens"] += len(ids)
            if through is not allowed:
                wrong[case.name] = f"{'refuses' if allowed else 'lets through'} {text}"
    counts |= {"refused": len(refused), "wrong": len(wrong), "ok": len(cases) - len(refused) - len(wrong)}
    return EngineRow(name, counts, percentiles(first_ms), percentiles(between_us), refused, wrong)


def _walk(walker: Walker, ids: Sequence[int]) -> tuple[bool, list[float]]:
    """Whether the masks let all of `ids` through, and the microseconds of each mask; the last id ends the text."""
    took: list[float] = []
    for index, token_id in enumerate(ids):
        started = time.perf_counter()
        allows = walker.mask()
        took.append(1e6 * (time.perf_counter() - started))
        if not allows(token_id):
            return False, took
        if index + 1 < len(ids):
            walker.accept(token_id)
    return True, took


def _library(name: str, context: StageContext) -> MakeWalker:
    from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarObject

    backend = REGISTRY.create(name, context)

    class LibraryWalker:
        def __init__(self, grammar: BaseGrammarObject) -> None:
            self._grammar = grammar
            self._mask = grammar.allocate_vocab_mask(context.vocabulary.width, 1, context.device)

        def mask(self) -> Callable[[int], bool]:
            self._grammar.fill_vocab_mask(self._mask, 0)
            return lambda token_id: bool(int(self._mask[0, token_id // 32]) >> token_id % 32 & 1)

        def accept(self, token_id: int) -> None:
            self._grammar.accept_token(token_id)

    def make(constraint: Constraint) -> Callable[[], Walker]:
        compiled = backend.init_value(constraint).grammar
        return lambda: LibraryWalker(compiled.copy())

    return make


def fsm_builder(context: StageContext) -> Callable[[Constraint], RegexFSM]:
    """Compiles regexes and JSON schemas as stage 1 does (schemas through stage 3's regex: stage 1 had none)."""
    from shared_runtime.constrain.libraries.regex_index import schema_regex
    from stages.stage1_copied_fsm.fsm import build_fsm
    from stages.stage1_copied_fsm.regex import make_byte_automaton
    from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary

    vocabulary = ReducedVocabulary(context.vocabulary)

    def build(constraint: Constraint) -> RegexFSM:
        budget = Budget(context.limits)
        pattern = (schema_regex(constraint.source, context.options.whitespace) if constraint.kind == "json_schema"
                   else constraint.source)
        return build_fsm(make_byte_automaton(pattern, budget), vocabulary, budget)

    return build


def _own_fsm(context: StageContext) -> MakeWalker:
    build = fsm_builder(context)

    class FSMWalker:
        def __init__(self, fsm: RegexFSM) -> None:
            self._fsm, self._state = fsm, 0

        def mask(self) -> Callable[[int], bool]:
            allowed = self._fsm.allowed(self._state)
            return lambda token_id: bool(allowed[token_id])

        def accept(self, token_id: int) -> None:
            self._state = self._fsm.next_state(self._state, token_id)

    def make(constraint: Constraint) -> Callable[[], Walker]:
        fsm = build(constraint)
        return lambda: FSMWalker(fsm)

    return make
