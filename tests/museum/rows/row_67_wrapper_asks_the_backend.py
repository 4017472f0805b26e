"""Row 67: the reasoning wrapper takes mask functions from the backend, and only one backend has them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageContext, StageOptions
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarBackend, Compiled
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarBackend
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import Scripted, compiles
from tests.museum.tiny import THINK_END

Wrapper = Callable[[StageContext, BaseGrammarBackend, int], BaseGrammarBackend]


class MaskFunctionsOfTheBackend(ReasonerGrammarBackend):
    """Specimen of `ReasonerGrammarBackend`: what xgrammar's backend happens to have is taken for the interface."""

    def init_value(self, constraint: Constraint) -> Compiled:
        """Wrap, with the backend's mask functions."""
        inner: Any = self.inner
        self.mask_functions = (inner.allocate_vocab_mask, inner.move_vocab_mask, inner.apply_vocab_mask)
        return super().init_value(constraint)


def any_backend_can_be_wrapped(wrapper: Wrapper, bench: Bench) -> None:
    """One with nothing but the interface."""
    with unbroken("a backend that has the whole interface cannot be wrapped"):
        wrapper(bench.context(), Scripted(bench, compiles), 2).init_value(Constraint.regex("a"))


def scenario(bench: Bench) -> None:
    """Reasoning with every backend."""
    for backend in decoder.STAGE.capabilities.backends:
        engine = bench.engine(5, backend=backend, options=StageOptions(think_end=THINK_END))
        result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]"))])[0]
        hold(result.error is None, f"reasoning with {backend}: every grammar request is refused: {result.error}")


EXHIBIT: Exhibit[Wrapper] = Exhibit(
    67, MaskFunctionsOfTheBackend, {"stage5": ReasonerGrammarBackend}, any_backend_can_be_wrapped,
    "cannot be wrapped: AttributeError",
    Injection(decoder, "ReasonerGrammarBackend", MaskFunctionsOfTheBackend, scenario,
              "every grammar request is refused"))
