"""A wrapper for models that reason before they answer: the grammar starts behind the end-of-think token.

Works around any backend, because it asks nothing of one but the interface of `base_grammar_backend.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper
from .utils import filter_tokens, new_bitmask


@dataclass(frozen=True)
class ThinkingRows:
    """The two masks of the reasoning part, as packed rows of one int32 each 32 tokens.

    Attributes:
        end_id: the end-of-think token.
        free: everything but the stop set: an answer that ended here would not be in the constraint's language.
            (Upstream leaves the row alone, so that a constrained request can end without an answer.)
        spent: nothing but `end_id`: the budget is used up.
    """

    end_id: int
    free: Tensor
    spent: Tensor

    @classmethod
    def of(cls, vocabulary: Vocabulary, end_id: int) -> ThinkingRows:
        """The rows over a vocabulary. Padding ids stay forbidden, control tokens stay what they are in free text."""
        rows = new_bitmask(vocabulary.width, 2, torch.device("cpu"))
        never = [*vocabulary.stop_ids, *range(len(vocabulary), vocabulary.width)]
        filter_tokens(rows, 0, never, allowed=False)
        filter_tokens(rows, 1, [end_id], allowed=True)
        return cls(end_id, rows[0], rows[1])


class ReasonerGrammarObject(BaseGrammarObject):
    """A place that is before the end-of-think token (thinking), or behind it, in the inner grammar.

    Attributes:
        inner: the backend's grammar. It sees the answer's tokens only.
        think_tokens: tokens of the reasoning part so far, its end not counted; -1 when there is no such part.
        answer_tokens: tokens behind the end of thinking; -1 while thinking.
        budget: most `think_tokens`, None for no limit.
    """

    def __init__(self, inner: BaseGrammarObject, rows: ThinkingRows) -> None:
        super().__init__(inner.vocabulary)
        self.inner = inner
        self._rows = rows
        self.think_tokens = -1
        self.answer_tokens = 0
        self.budget: int | None = None

    @property
    def thinking(self) -> bool:
        """True before the end-of-think token."""
        return self.answer_tokens < 0

    @property
    def nbytes(self) -> int:
        """The inner grammar's."""
        return self.inner.nbytes

    @property
    def accepting(self) -> bool:
        """Reasoning alone is no answer."""
        return not self.thinking and self.inner.accepting

    def copy(self) -> ReasonerGrammarObject:
        """At the beginning and not armed: what this one has been through must not show (museum row 63)."""
        return ReasonerGrammarObject(self.inner.copy(), self._rows)

    def maybe_init_reasoning(self, reasoning: bool, budget: int | None = None) -> None:
        """Arm a grammar that has accepted nothing. Both counters are set, whatever they were."""
        self.think_tokens, self.answer_tokens = (0, -1) if reasoning else (-1, 0)
        self.budget = budget
        self.inner.maybe_init_reasoning(reasoning, budget)

    def _accept(self, token_id: int) -> bool:
        if not self.thinking:
            self.inner.accept_token(token_id)  # its errors come through as they are
            self.answer_tokens += 1
            self.finished = self.inner.is_terminated()
            return True
        if token_id == self._rows.end_id:
            self.answer_tokens = 0
            return True
        spent = self.budget is not None and self.think_tokens >= self.budget
        if spent or token_id in self.vocabulary.stop_ids or not 0 <= token_id < len(self.vocabulary):
            return False
        self.think_tokens += 1
        return True

    def rollback(self, k: int) -> None:
        """Take back tokens of both parts and the end between them; the phase comes back with them."""
        if k > self.accepted:
            raise ValueError(f"cannot take back {k} of {self.accepted} tokens")
        answered = max(0, self.answer_tokens)
        ended = int(self.think_tokens >= 0 and not self.thinking)
        from_answer = min(k, answered)
        if from_answer:
            self.inner.rollback(from_answer)
            self.answer_tokens -= from_answer
            self.finished = self.inner.is_terminated()
        if k > answered:
            self.answer_tokens = -1
            self.think_tokens -= k - answered - ended
        self.accepted -= k

    def is_terminated(self) -> bool:
        """The inner grammar's; thinking never is the end."""
        return not self.thinking and self.inner.is_terminated()

    def _accept_text(self, token_id: int) -> bool:
        return self.inner._accept_text(token_id)

    def _rollback_text(self, k: int) -> None:
        self.inner._rollback_text(k)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The thinking rows, or the inner grammar's."""
        if not self.thinking:
            self.inner.fill_vocab_mask(mask, row)
        elif self.budget is not None and self.think_tokens >= self.budget:
            mask[row] = self._rows.spent
        else:
            mask[row] = self._rows.free

    def fill_vocab_mask_batched(self, entries: Sequence[tuple[int, BaseGrammarObject]], mask: Tensor) -> None:
        """Thinking rows here, all others in one call of the inner backend."""
        answering: list[tuple[int, BaseGrammarObject]] = []
        for row, grammar in entries:
            if not isinstance(grammar, ReasonerGrammarObject):
                answering.append((row, grammar))
            elif grammar.thinking:
                grammar.fill_vocab_mask(mask, row)
            else:
                answering.append((row, grammar.inner))
        if answering:
            answering[0][1].fill_vocab_mask_batched(answering, mask)

    def fill_vocab_mask_drafted(self, mask: Tensor, row: int, draft: Sequence[int]) -> int:
        """While thinking a token at a time, for the end of thinking may be among them; then the inner grammar's."""
        if self.thinking:
            return super().fill_vocab_mask_drafted(mask, row, draft)
        return self.inner.fill_vocab_mask_drafted(mask, row, draft)

    def forced_bytes(self) -> bytes:
        """No text is forced while thinking."""
        return b"" if self.thinking else self.inner.forced_bytes()

    def allocate_vocab_mask(self, width: int, rows: int, device: torch.device) -> Tensor:
        """The inner grammar's."""
        return self.inner.allocate_vocab_mask(width, rows, device)

    def move_vocab_mask(self, mask: Tensor, device: torch.device) -> Tensor:
        """The inner grammar's."""
        return self.inner.move_vocab_mask(mask, device)

    def apply_vocab_mask(self, logits: Tensor, mask: Tensor, rows: Sequence[int] | None = None) -> None:
        """The inner grammar's."""
        self.inner.apply_vocab_mask(logits, mask, rows)

    def try_jump_forward(self) -> JumpHelper | None:
        """The inner grammar's; none while thinking."""
        return None if self.thinking else self.inner.try_jump_forward()

    def jump_forward_str_state(self, helper: JumpHelper) -> tuple[str, int]:
        """The inner grammar's."""
        return self.inner.jump_forward_str_state(helper)


class ReasonerGrammarBackend(BaseGrammarBackend):
    """Wraps every grammar of another backend. Errors of that backend pass through (museum row 50)."""

    def __init__(self, context: StageContext, inner: BaseGrammarBackend, end_id: int) -> None:
        super().__init__(context)
        self.name, self.kinds = inner.name, inner.kinds
        self.inner = inner
        self._rows = ThinkingRows.of(context.vocabulary, end_id)

    def init_value(self, constraint: Constraint) -> Compiled:
        """The inner backend's value, wrapped."""
        compiled = self.inner.init_value(constraint)
        return Compiled(ReasonerGrammarObject(compiled.grammar, self._rows), compiled.warnings)

    def reset(self) -> None:
        """The inner backend's."""
        self.inner.reset()
