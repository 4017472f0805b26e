"""Row 57: drafts are verified without a mask, so what is verified need not be what the grammar takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from shared_runtime import token_chooser
from shared_runtime.constraint import Constraint
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.sampler import SampleOutput
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.verification import Run, verify
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit, Injection

Verify = Callable[[ScheduleBatch, SampleOutput, frozenset[int]], list[Run]]


def takes_the_draft(batch: ScheduleBatch, output: SampleOutput, stop_ids: frozenset[int]) -> list[Run]:
    """Specimen of `verify`: what a draft says counts, whatever was sampled under the mask."""
    return [replace(run, token_ids=run.draft or run.token_ids, matched=len(run.draft))
            for run in verify(batch, output, stop_ids)]


def only_what_was_sampled_comes_out(check: Verify, bench: Bench) -> None:
    """Drafts that the mask forbids, the first of them or the second; one is the id just behind the vocabulary."""
    width = bench.tokenizer.vocabulary.width
    for draft, sampled, run in (((8, 9), (7, 5, 5), (7,)), ((7, 8), (7, 9, 5), (7, 9)), ((width,), (7, 5), (7,))):
        req = request()
        batch = ScheduleBatch(ForwardMode.DECODE, [BatchRow(req, 0, [5, *draft], torch.arange(3), draft=len(draft))])
        found, = check(batch, SampleOutput(list(sampled)), bench.tokenizer.vocabulary.stop_ids)
        hold(found.token_ids == run, f"the draft {draft} comes out as {found.token_ids}, under the mask it is {run}")


def scenario(bench: Bench) -> None:
    """A model that writes digits under a grammar for digits, and guesses: letters, and an id that no token has."""
    digit, letter = bench.tokenizer.encode("7y")
    for draft in ((letter, letter), (digit, letter), (bench.tokenizer.vocabulary.width,)):
        engine = bench.engine(5)
        draft_with(engine, lambda req, draft=draft: draft)  # type: ignore[misc]  # one draft for this turn
        with unbroken(f"the draft {draft} ended the loop"):
            result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]{8}"), saying(digit))])[0]
        hold(result.error is None, f"a draft came out that the grammar refuses: {result.error}")
        hold(result.text == "7" * 8, f"a draft that the model does not say came out: {result.text}")


EXHIBIT: Exhibit[Verify] = Exhibit(
    57, takes_the_draft, {"runtime": verify}, only_what_was_sampled_comes_out, "under the mask it is",
    Injection(token_chooser, "verify", takes_the_draft, scenario, "a draft came out that the grammar refuses"))
