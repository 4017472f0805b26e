"""Row 39: the next pass is on its way when the stop token is seen, and asks an ended grammar for its mask."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

from shared_runtime import scheduler
from shared_runtime.constraint import Constraint
from shared_runtime.finisher import Finisher
from shared_runtime.policy import AcceptResult
from shared_runtime.request import FinishReason, Request
from shared_runtime.trace import TokenOrigin
from shared_runtime.vocabulary import Vocabulary
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection

FinisherClass = type[Finisher]


class EndsAStepLater(Finisher):
    """Specimen of `Finisher`: a request that ends runs one step longer; what that step brings is thrown away."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._ended: dict[str, FinishReason] = {}

    def emit(self, req: Request, token_ids: Sequence[int], accepted: AcceptResult,
             origins: Sequence[TokenOrigin]) -> list[int]:
        """Append what came, or nothing when the end was a step ago."""
        ended = self._ended.pop(req.rid, None)
        if ended is not None:
            req.finish = ended
            return []
        emitted = super().emit(req, token_ids, accepted, origins)
        if req.finish is not None and req.finish.kind == "stop":
            self._ended[req.rid], req.finish = req.finish, None
        return emitted


def an_ended_grammar_is_asked_for_nothing(finisher_class: FinisherClass, bench: Bench) -> None:
    """A constrained answer that ends with a stop token, in every loop, and in stages that make masks in other ways."""
    for stage, overlap in ((1, False), (4, False), (4, True), (5, False), (5, True)):
        with patch.object(scheduler, "Finisher", finisher_class):
            engine = bench.engine(stage, overlap=overlap)
        with unbroken(f"stage {stage} is asked for the mask of a grammar that has ended"):
            result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]{2}"))])[0]
        hold(result.metrics.masks == len(result.token_ids), f"{result.metrics.masks} masks, {result.token_ids}")


def scenario(bench: Bench) -> None:
    """The same in stage 4 alone, with a free request that must not notice."""
    engine = bench.engine(4)
    with unbroken("the loop died one step after a stop token"):
        bench.run(engine, [Ask("x", Constraint.regex("[0-9]{2}")), Ask("y")])


EXHIBIT: Exhibit[FinisherClass] = Exhibit(
    39, EndsAStepLater, {"runtime": Finisher}, an_ended_grammar_is_asked_for_nothing, "a grammar that has ended",
    Injection(scheduler, "Finisher", EndsAStepLater, scenario, "one step after a stop token"))
