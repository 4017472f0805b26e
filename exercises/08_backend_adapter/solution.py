"""Exercise 8: a backend of your own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from exercises.pocketre import Matcher, PatternError, Program, Tokens, compile_pattern
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constrain.using.bitmask import pack_bits
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary
from stages.stage4_backends.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper


class Grammar(BaseGrammarObject):
    """A matcher, and the ids that it has taken."""

    def __init__(self, vocabulary: Vocabulary, program: Program) -> None:
        super().__init__(vocabulary)
        self.program = program
        self.matcher = Matcher(program)
        self.ids: list[int] = []

    @property
    def nbytes(self) -> int:
        """Of the program, which all copies share."""
        return self.program.size

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        return self.matcher.complete

    def copy(self) -> BaseGrammarObject:
        """At the beginning."""
        return type(self)(self.vocabulary, self.program)

    def possible(self) -> NDArray[np.uint8]:
        """[tokens] 0 or 1, as the library has it."""
        bits = np.frombuffer(self.matcher.possible(), dtype=np.uint8)
        return np.unpackbits(bits, count=len(self.program.tokens.texts))

    def _accept_text(self, token_id: int) -> bool:
        if not self.possible()[token_id]:  # asked first: a matcher that is fed the wrong token is lost
            return False
        self.matcher.feed(token_id)
        self.ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        if k > len(self.ids):
            raise ValueError(f"cannot take back {k} of {len(self.ids)} tokens")
        del self.ids[len(self.ids) - k:]
        self.matcher = Matcher(self.program)  # the library's way back has a limit, a replay has none
        for token_id in self.ids:
            self.matcher.feed(token_id)

    def allowed(self) -> NDArray[np.uint8]:
        """[words x 32] 0 or 1: what may come next."""
        flags = np.zeros(32 * -(-self.vocabulary.width // 32), dtype=np.uint8)
        flags[:len(self.program.tokens.texts)] = self.possible()
        flags[[token_id for token_id, text in enumerate(self.program.tokens.texts) if not text]] = 0
        flags[sorted(self.vocabulary.stop_ids)] = self.accepting
        return flags

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write a row."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        mask[row] = pack_bits(self.allowed())

    def try_jump_forward(self) -> JumpHelper | None:
        """What is certain."""
        return JumpHelper.of(self.matcher.certain())


class Backend(BaseGrammarBackend):
    """PocketRE behind the interface of stage 4."""

    name = "pocketre"
    kinds = frozenset({"regex", "choice"})
    grammar: type[Grammar] = Grammar

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self.tokens = Tokens(context.vocabulary.token_bytes, min(context.vocabulary.stop_ids))

    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile a constraint."""
        pattern = constraint.source if constraint.kind == "regex" else escape_choice(constraint.choices)
        try:
            program = compile_pattern(pattern, self.tokens)
        except PatternError as error:
            raise GrammarSyntaxError(str(error), offset=error.position) from None
        return Compiled(self.grammar(self.context.vocabulary, program))
