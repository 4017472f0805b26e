"""Row 9: usage is computed from the ids that go in, and a jump puts the answer among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shared_runtime import engine as engine_module
from shared_runtime.constrain.using.reasoning import ReasoningPart
from shared_runtime.request import FinishReason, Request
from shared_runtime.result import Result, result_of
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import THREE_AND_SIX, ask

ResultOf = Callable[[Request, int, ReasoningPart | None], Result]


def usage_from_input_ids(req: Request, index: int, thinks: ReasoningPart | None) -> Result:
    """Specimen of `result_of`: everything up to the last jump went in as a prompt."""
    went_in = max((at + 1 for at, origin in enumerate(req.origins) if origin == "jumped"), default=0)
    req.metrics = replace(req.metrics, prompt_tokens=len(req.prompt_ids) + went_in,
                          emitted_tokens=len(req.output_ids) - went_in)
    return result_of(req, index, thinks)


def usage_is_of_the_prompt_and_of_the_answer(result: ResultOf, bench: Bench) -> None:
    """A prompt of five, three sampled tokens, six jumped."""
    req = request(prompt_ids=range(10, 15))
    req.output_ids, req.origins = list(range(20, 29)), list(THREE_AND_SIX)
    req.finish, req.metrics.finished, req.metrics.emitted_tokens = FinishReason("length"), 1.0, 9
    metrics = result(req, 0, None).metrics
    hold(metrics.prompt_tokens == 5, f"a prompt of 5 tokens is reported as {metrics.prompt_tokens}")
    hold(metrics.emitted_tokens == 9, f"an answer of 9 tokens is reported as {metrics.emitted_tokens}")


def scenario(bench: Bench) -> None:
    """An answer with a jump in stage 2."""
    result = bench.run(bench.engine(2), [ask("[a-z]{2}: true, false")])[0]
    assert result.counts["jumped"] > 0
    hold(result.metrics.prompt_tokens == len(result.prompt_ids),
         f"a prompt of {len(result.prompt_ids)} tokens is reported as {result.metrics.prompt_tokens}")


EXHIBIT: Exhibit[ResultOf] = Exhibit(
    9, usage_from_input_ids, {"runtime": result_of}, usage_is_of_the_prompt_and_of_the_answer, "is reported as 14",
    Injection(engine_module, "result_of", usage_from_input_ids, scenario, "a prompt of 1 tokens is reported as"))
