"""Row 54: the rows of drafts begin with zeros, a thinking wrapper fills none, and rolling back is for answers only."""

from __future__ import annotations

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from stages.stage5_backend_jump import reasoner_grammar_backend
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarObject, ThinkingRows
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import AnyText
from tests.museum.tiny import THINK_END

ObjectClass = type[ReasonerGrammarObject]


class KnowsTheAnswerOnly(ReasonerGrammarObject):
    """Specimen of `ReasonerGrammarObject`: what belongs to the reasoning part is left as it is."""

    def copy(self) -> KnowsTheAnswerOnly:
        """At the beginning."""
        return KnowsTheAnswerOnly(self.inner.copy(), self._rows)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The inner grammar's row; nothing while thinking."""
        if not self.thinking:
            self.inner.fill_vocab_mask(mask, row)

    def rollback(self, k: int) -> None:
        """Of the inner grammar."""
        self.inner.rollback(k)


def accept_and_roll_back_change_nothing(object_class: ObjectClass, bench: Bench) -> None:
    """Two tokens of reasoning, its end, two tokens of the answer; then any number of them back and forth again."""
    vocabulary = bench.tokenizer.vocabulary
    a, b = bench.tokenizer.encode("xy")
    think_end, = bench.tokenizer.encode(THINK_END)
    ids = [a, b, think_end, b, a]
    grammar = object_class(AnyText(vocabulary), ThinkingRows.of(vocabulary, think_end))
    grammar.maybe_init_reasoning(True)

    def seen() -> tuple[object, ...]:
        row = torch.zeros((1, (vocabulary.width + 31) // 32), dtype=torch.int32)
        grammar.fill_vocab_mask(row, 0)
        return (grammar.thinking, grammar.think_tokens, grammar.answer_tokens, grammar.accepted, row.tolist())

    before = [seen()]
    hold(any(before[0][-1][0]), "every token is forbidden while the model thinks")  # type: ignore[index]  # a list
    for token_id in ids:
        grammar.accept_token(token_id)
        before.append(seen())
    for k in range(len(ids) + 1):
        with unbroken(f"{k} tokens cannot be taken back"):
            if k:
                grammar.rollback(k)
        hold(seen() == before[len(ids) - k], f"taking back {k} tokens does not restore what was")
        for token_id in ids[len(ids) - k:]:
            grammar.accept_token(token_id)


def scenario(bench: Bench) -> None:
    """A model that ends its thinking and answers with digits, and guesses so beforehand, with a letter behind."""
    digit, letter = bench.tokenizer.encode("7y")
    think_end, = bench.tokenizer.encode(THINK_END)
    engine = bench.engine(5, options=bench.context(think_end=THINK_END).options)
    draft_with(engine, lambda req: (think_end, digit, digit, letter) if len(req.output_ids) == 1 else ())
    params = saying(digit, thinking=True, thinking_budget=1)
    with unbroken("a draft over the end of thinking cannot be taken back"):
        result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]{4}"), params)])[0]
    hold(result.error is None, f"a draft over the end of thinking cannot be taken back: {result.error}")
    hold(result.counts["accepted"] == 3, f"{result.counts['accepted']} of three right drafts were taken")


EXHIBIT: Exhibit[ObjectClass] = Exhibit(
    54, KnowsTheAnswerOnly, {"stage5": ReasonerGrammarObject}, accept_and_roll_back_change_nothing,
    "every token is forbidden while the model thinks",
    Injection(reasoner_grammar_backend, "ReasonerGrammarObject", KnowsTheAnswerOnly, scenario, "cannot be taken back"))
