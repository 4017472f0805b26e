"""Row 62: a verified run is booked as a whole, and only then the end is found in the middle of it."""

from __future__ import annotations

from shared_runtime import verification
from shared_runtime.verification import Run
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.drafts import draft_with, saying
from tests.museum.exhibit import Exhibit, Injection

RunClass = type[Run]


class BooksAllThatWasRight(Run):
    """Specimen of `Run`: keys and values of every draft that was right count, emitted or not."""

    @property
    def kept_draft(self) -> int:
        """Drafts that were right."""
        return self.matched


def booked_is_what_was_emitted(run_class: RunClass, bench: Bench) -> None:
    """A run of four tokens, three of them drafted, of which the end leaves one to four."""
    for emitted in range(1, 5):
        run = run_class(request(), 0, (7, 7, 7, 7), (7, 7, 7), 3, emitted=emitted)
        hold(run.kept_draft == emitted - 1, f"{emitted} tokens come out, and {run.kept_draft + 1} are booked")


def scenario(bench: Bench) -> None:
    """A stop string that is complete in the middle of a draft."""
    a, = bench.tokenizer.encode("a")
    engine = bench.engine(1)
    draft_with(engine, lambda req: (a, a, a, a))
    with unbroken("there are keys and values of tokens that nobody wrote"):
        result = bench.run(engine, [Ask("x", sampling=saying(a, max_new_tokens=9, stop=("aaa",)))])[0]
    hold(len(result.token_ids) == 3, f"{len(result.token_ids)} tokens up to a stop string of three")
    engine.check_integrity()


EXHIBIT: Exhibit[RunClass] = Exhibit(
    62, BooksAllThatWasRight, {"runtime": Run}, booked_is_what_was_emitted, "1 tokens come out, and 4 are booked",
    Injection(verification, "Run", BooksAllThatWasRight, scenario, "of tokens that nobody wrote"))
