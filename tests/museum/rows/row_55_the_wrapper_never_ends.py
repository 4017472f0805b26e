"""Row 55: the wrapper has the base class's answer to `is_terminated`, and the grammar inside it has another."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams
from stages.stage5_backend_jump import reasoner_grammar_backend
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarObject, ThinkingRows
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import AnyText
from tests.museum.tiny import THINK_END

ObjectClass = type[ReasonerGrammarObject]


class NeverTerminated(ReasonerGrammarObject):
    """Specimen of `ReasonerGrammarObject`: it does not pass on that the inner grammar has ended."""

    def copy(self) -> NeverTerminated:
        """At the beginning."""
        return NeverTerminated(self.inner.copy(), self._rows)

    def is_terminated(self) -> bool:
        """What a class that knows of no end would say."""
        return False


def the_wrapper_says_what_the_grammar_says(object_class: ObjectClass, bench: Bench) -> None:
    """An answer behind reasoning, up to its stop token."""
    vocabulary = bench.tokenizer.vocabulary
    letter, = bench.tokenizer.encode("x")
    think_end, = bench.tokenizer.encode(THINK_END)
    inner = AnyText(vocabulary)
    wrapper = object_class(inner, ThinkingRows.of(vocabulary, think_end))
    wrapper.maybe_init_reasoning(True)
    for token_id in (letter, think_end, letter, min(vocabulary.stop_ids)):
        hold(not wrapper.is_terminated(), "the wrapper ends before the grammar inside it")
        wrapper.accept_token(token_id)
    hold(inner.is_terminated() and wrapper.is_terminated(),
         "the grammar inside has ended and the wrapper lets itself be asked for a mask")


def scenario(bench: Bench) -> None:
    """An answer that ends with its grammar alone, as `ignore_eos` takes away the other reason."""
    engine = bench.engine(5, options=bench.context(think_end=THINK_END).options)
    params = SamplingParams(ignore_eos=True, thinking=False, max_new_tokens=8)
    result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]"), params)])[0]
    hold(result.error is None, f"an ended grammar was asked for a mask: {result.error}")


EXHIBIT: Exhibit[ObjectClass] = Exhibit(
    55, NeverTerminated, {"stage5": ReasonerGrammarObject}, the_wrapper_says_what_the_grammar_says,
    "lets itself be asked for a mask",
    Injection(reasoner_grammar_backend, "ReasonerGrammarObject", NeverTerminated, scenario, "ended grammar was asked"))
