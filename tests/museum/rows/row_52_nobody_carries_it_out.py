"""Row 52: sampling is put off whenever there is a grammar, also in a loop that never comes back to carry it out."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from torch import Tensor

from shared_runtime import scheduler
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.token_chooser import Support, TokenChooser
from shared_runtime.verification import Run
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit, Injection

ChooserClass = type[TokenChooser]


class PutsOffAllWithAGrammar(TokenChooser):
    """Specimen of `TokenChooser`: of a constrained batch the caller gets what is to be sampled later, and no ids."""

    def sample(self, logits: Tensor, batch: ScheduleBatch, support: Support) -> list[Run]:
        """Runs whose tokens are still to come; only the loop with overlap would ask for them."""
        runs = super().sample(logits, batch, support)
        return [replace(run, token_ids=(), matched=0) for run in runs] if batch.has_grammar else runs


def every_pass_brings_its_tokens(chooser_class: ChooserClass, bench: Bench) -> None:
    """Digits under a grammar, with drafts of two: each pass brings at least one token, until there are eight."""
    digit, = bench.tokenizer.encode("7")
    with patch.object(scheduler, "TokenChooser", chooser_class):
        engine = bench.engine(5)
    draft_with(engine, lambda req: (digit, digit))
    with unbroken("a pass with drafts brought no token"):
        asked = Ask("x", Constraint.regex("[0-9]{8}"), saying(digit, max_new_tokens=8))
        result = bench.run(engine, [asked], turns=20)[0]
    hold(result.text == "7" * 8, f"a pass with drafts brought no token: {result.text!r}, {result.error}")
    hold(result.counts["sampled"] == result.metrics.forward_passes, "a pass with drafts brought no token of its own")


def scenario(bench: Bench) -> None:
    """The same with whatever chooser the scheduler makes."""
    every_pass_brings_its_tokens(type(bench.engine(5).scheduler._chooser), bench)


EXHIBIT: Exhibit[ChooserClass] = Exhibit(
    52, PutsOffAllWithAGrammar, {"runtime": TokenChooser}, every_pass_brings_its_tokens, "did not end within 20 turns",
    Injection(scheduler, "TokenChooser", PutsOffAllWithAGrammar, scenario, "did not end within 20"))
