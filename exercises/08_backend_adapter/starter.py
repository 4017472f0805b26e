"""Exercise 8: a backend of your own."""

from __future__ import annotations

from exercises import pocketre
from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageContext
from stages.stage4_backends.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled

__all__ = ["Backend", "BaseGrammarObject", "pocketre"]


class Backend(BaseGrammarBackend):
    """PocketRE behind the interface of stage 4."""

    name = "pocketre"
    kinds = frozenset({"regex", "choice"})

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)  # self.context.vocabulary says what tokens spell

    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile a constraint.

        Raises:
            GrammarSyntaxError: PocketRE refuses it; with the position.
        """
        raise NotImplementedError("TODO: compile it, and write the class of its grammar, a BaseGrammarObject")
