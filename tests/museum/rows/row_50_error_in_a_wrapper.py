"""Row 50: the reasoning wrapper is put around the object that says "invalid", which then is not found any more."""

from __future__ import annotations

from collections.abc import Callable

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, JumpforwardError
from shared_runtime.policy import StageContext, StageOptions
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarBackend, Compiled
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarBackend, ReasonerGrammarObject
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, Broken, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import AnyText, Scripted, refuses
from tests.museum.tiny import THINK_END

Wrapper = Callable[[StageContext, BaseGrammarBackend, int], BaseGrammarBackend]


class InvalidGrammar(AnyText):
    """Stands for upstream's object that says "invalid": it is told from a grammar by its identity alone."""


class WrapsErrors(ReasonerGrammarBackend):
    """Specimen of `ReasonerGrammarBackend`: whatever comes from the inner backend is wrapped."""

    def init_value(self, constraint: Constraint) -> Compiled:
        """A grammar, or "invalid" in a wrapper."""
        try:
            return super().init_value(constraint)
        except JumpforwardError:
            return Compiled(ReasonerGrammarObject(InvalidGrammar(self.context.vocabulary), self._rows))


def an_error_comes_through_the_wrapper(wrapper: Wrapper, bench: Bench) -> None:
    """A backend that refuses, with reasoning."""
    try:
        wrapper(bench.context(), Scripted(bench, refuses), 2).init_value(Constraint.ebnf("root ::= undefined"))
    except ConstraintError:
        return
    raise Broken("an invalid grammar is accepted when it is wrapped")


def scenario(bench: Bench) -> None:
    """A bad regex on a model that reasons."""
    engine = bench.engine(5, options=StageOptions(think_end=THINK_END))
    result = bench.run(engine, [Ask("x", Constraint.regex("("))])[0]
    hold(result.error is not None, f"an invalid grammar was accepted under reasoning: {result.text!r}")


EXHIBIT: Exhibit[Wrapper] = Exhibit(
    50, WrapsErrors, {"stage5": ReasonerGrammarBackend}, an_error_comes_through_the_wrapper,
    "accepted when it is wrapped",
    Injection(decoder, "ReasonerGrammarBackend", WrapsErrors, scenario, "accepted under reasoning"))
