"""Row 63: the cached object is armed "no reasoning", and arming its copy again sets one of two counters."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams
from stages.stage5_backend_jump import decoder, reasoner_grammar_backend
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarObject, ThinkingRows
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import AnyText
from tests.museum.policies import ready
from tests.museum.tiny import THINK_END

ObjectClass = type[ReasonerGrammarObject]


class ArmsOneCounter(ReasonerGrammarObject):
    """Specimen of `ReasonerGrammarObject`: a copy takes both counters over, and arming sets the first alone."""

    def copy(self) -> ArmsOneCounter:
        """With the counters of this one."""
        made = ArmsOneCounter(self.inner.copy(), self._rows)
        made.think_tokens, made.answer_tokens = self.think_tokens, self.answer_tokens
        return made

    def maybe_init_reasoning(self, reasoning: bool, budget: int | None = None) -> None:
        """Arm."""
        self.think_tokens = 0 if reasoning else -1
        if not reasoning:
            self.answer_tokens = 0


def arming_forgets_what_was_before(object_class: ObjectClass, bench: Bench) -> None:
    """The same grammar first without reasoning, then with it."""
    vocabulary = bench.tokenizer.vocabulary
    cached = object_class(AnyText(vocabulary), ThinkingRows.of(vocabulary, 2))
    cached.maybe_init_reasoning(False)
    again = cached.copy()
    again.maybe_init_reasoning(True)
    hold(again.thinking, "the grammar is enforced while the model thinks")
    hold(again.think_tokens == 0, "the reasoning part begins with tokens of another one")


def scenario(bench: Bench) -> None:
    """One regex, first without reasoning, then with it."""
    policy = decoder.GrammarManagerPolicy(bench.context(think_end=THINK_END))
    reqs = [request(Constraint.regex("[0-9]"), rid=str(thinking), sampling=SamplingParams(thinking=thinking))
            for thinking in (False, True)]
    ready(policy, *reqs)
    hold(policy.describe(reqs[1])["thinking"] is True, "the grammar is enforced while the model thinks")


EXHIBIT: Exhibit[ObjectClass] = Exhibit(
    63, ArmsOneCounter, {"stage5": ReasonerGrammarObject}, arming_forgets_what_was_before, "while the model thinks",
    Injection(reasoner_grammar_backend, "ReasonerGrammarObject", ArmsOneCounter, scenario, "while the model thinks"))
