"""The trial that the backend's jump has to win, pass for pass, on the real model: nine requests, each mode.

The recorded figures, and how they were taken: `benchmarks/workloads/jump_trials.json`. A mode must need no more passes
than recorded for any request, and write the recorded text.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shared_runtime.assembly import LoadedModel
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.policy import StageOptions
from shared_runtime.quality import Likelihood, Spelling, log_likelihood, spelling_of
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams

# One process runs them all, one after the other: they share their results, and the first waits for many passes.
pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(1500), pytest.mark.xdist_group("trial")]

TRIAL: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "workloads" / "jump_trials.json").read_text(encoding="utf-8"))
REQUESTS = TRIAL["requests"]
MODES = ("none", "draft", "force", "force+draft")


def _constraint(name: str) -> Constraint:
    asked = TRIAL["constraints"][name]
    return {"regex": Constraint.regex, "json_schema": Constraint.json_schema,
            "ebnf": Constraint.ebnf}[asked["kind"]](asked["source"])


class Trial:
    """The requests' results, way by way: a mode, with `+ngram` behind it or without."""

    def __init__(self) -> None:
        self._loaded: LoadedModel | None = None

    @functools.cached_property
    def scorer(self) -> Engine:
        """An engine that masks nothing."""
        return self._engine(stage=1)

    def _engine(self, **settings: Any) -> Engine:
        engine = Engine(EngineConfig(model="embedded", exact=True, kv_pool_tokens=2048, **settings),
                        loaded=self._loaded)
        self._loaded = engine.parts.loaded
        return engine

    def results(self, way: str, backend: str = "xgrammar") -> list[Result | None]:
        """One a request, in order; None where the backend cannot serve the constraint as it was recorded."""
        return self._decoded(way, backend)

    @functools.cache  # noqa: B019  # lives as long as the module's tests
    def _decoded(self, way: str, backend: str) -> list[Result | None]:
        mode = way.removesuffix("+ngram")
        engine = self._engine(stage=5, backend=backend, options=StageOptions(
            backend_jump=mode, spec="none" if way == mode else "ngram"))  # type: ignore[arg-type]  # a test's text
        return self._run(engine, ("regex", "json_schema", *(["ebnf"] if backend == "xgrammar" else [])))

    def retokenized(self, stage: int) -> list[Result | None]:
        """By a stage that jumps in the scheduler; stage 2 knows regular expressions only."""
        if stage == 2:
            return self._run(self._engine(stage=2), ("regex",))
        return self._run(self._engine(stage=stage, backend="xgrammar"), ("regex", "json_schema", "ebnf"))

    def _run(self, engine: Engine, kinds: Sequence[str]) -> list[Result | None]:
        """One a request, in order; None for constraints of other kinds."""
        results: list[Result | None] = []
        for request in REQUESTS:
            constraint = _constraint(request["constraint"])
            if constraint.kind not in kinds:
                results.append(None)
                continue
            messages = [{"role": "user", "content": TRIAL["prompts"][request["prompt"]]}]
            result = engine.generate_one(messages=messages, constraint=constraint,
                                         sampling=SamplingParams(max_new_tokens=TRIAL["max_new_tokens"]))
            engine.check_integrity()
            results.append(result)
        engine.close()
        return results

    def quality(self, results: list[Result | None]) -> tuple[float, float]:
        """Share of canonical tokens and nats a byte, each the mean over the requests."""
        spelled: list[Spelling] = []
        scored: list[Likelihood] = []
        for result in results:
            if result is not None:
                spelled.append(spelling_of(self.scorer.tokenizer, result.token_ids))
                scored.append(log_likelihood(self.scorer, result.prompt_ids, result.token_ids))
        return (sum(one.canonical_share for one in spelled) / len(spelled),
                -sum(one.logprob_per_byte for one in scored) / len(scored))


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    made = Trial()
    yield made
    made.scorer.close()


@pytest.mark.parametrize("way", MODES)
def test_no_request_needs_more_passes_than_recorded(way: str, trial: Trial) -> None:
    for request, result in zip(REQUESTS, trial.results(way), strict=True):
        assert result is not None
        assert result.metrics.forward_passes <= request["passes"][way], request["prompt"]
        assert result.finish_reason == "stop"
        assert result.text == request["forced_text" if "force" in way else "text"]
        assert result.metrics.forward_passes <= len(result.token_ids)


def test_the_readme_tells_these_figures(trial: Trial) -> None:
    readme = (Path(__file__).parents[2] / "stages" / "stage5_backend_jump" / "README.md").read_text(encoding="utf-8")
    for prompt in TRIAL["prompts"]:
        cells = [" / ".join(str(result.metrics.forward_passes) for request, result in zip(
            REQUESTS, trial.results(way), strict=True) if result is not None and request["prompt"] == prompt)
            for way in MODES]
        cells.append(" / ".join(str(request["passes"]["retokenize"]) for request in REQUESTS
                                if request["prompt"] == prompt))
        assert f"| {' | '.join(cells)} |" in readme
    for way, mean in TRIAL["means"].items():
        if way != "draft":
            assert f" {mean['canonical_share']} |" in readme
            assert f" {mean['nats_per_byte']} |" in readme


@pytest.mark.parametrize("stage", [2, 4])
def test_jumping_in_the_scheduler_takes_one_pass_more_than_the_trial(stage: int, trial: Trial) -> None:
    """The trial jumped before the prompt's own pass; a stage that jumps looks for it before a decode step."""
    for request, result in zip(REQUESTS, trial.retokenized(stage), strict=True):
        if result is not None:
            assert result.metrics.forward_passes == request["passes"]["retokenize"] + 1, request["prompt"]
            assert result.finish_reason == "stop"


@pytest.mark.parametrize(("backend", "way"), [
    ("xgrammar", "draft"), ("xgrammar", "draft+ngram"), ("xgrammar", "none+ngram"),
    ("llguidance", "draft"), ("llguidance", "draft+ngram")])
def test_a_draft_is_token_for_token_plain_masking_in_fewer_passes(backend: str, way: str, trial: Trial) -> None:
    for one, other in zip(trial.results("none", backend), trial.results(way, backend), strict=True):
        if one is not None and other is not None:
            assert other.token_ids == one.token_ids
            assert other.metrics.forward_passes <= one.metrics.forward_passes


def test_drafts_change_no_token_of_forced_text_either(trial: Trial) -> None:
    for way in ("force+draft", "force+ngram", "force+draft+ngram"):
        for one, other in zip(trial.results("force"), trial.results(way), strict=True):
            assert one is not None
            assert other is not None
            assert other.token_ids == one.token_ids
            assert other.metrics.forward_passes <= one.metrics.forward_passes


@pytest.mark.parametrize("way", MODES)
def test_passes_saved_and_the_quality_of_the_text_are_those_recorded(way: str, trial: Trial) -> None:
    saved = [math.log(request["passes"]["none"] / result.metrics.forward_passes)
             for request, result in zip(REQUESTS, trial.results(way), strict=True) if result is not None]
    share, nats = trial.quality(trial.results(way))
    recorded = TRIAL["means"][way]
    assert math.exp(sum(saved) / len(saved)) >= recorded["passes_saved"] - 0.005
    assert share >= recorded["canonical_share"] - 0.002
    # The texts are those of the trial; its scores came from another implementation of the model.
    assert nats <= recorded["nats_per_byte"] + 0.01


def test_forcing_restores_the_spelling_where_the_prompt_names_no_word(trial: Trial) -> None:
    """Plain masking spells what it does not expect in fragments; the gain is small where the prompt names the words."""
    def nats(way: str, prompt: str) -> float:
        chosen = [result if request["prompt"] == prompt else None
                  for request, result in zip(REQUESTS, trial.results(way), strict=True)]
        return trial.quality(chosen)[1]

    gain = {prompt: nats("none", prompt) / nats("force", prompt) for prompt in TRIAL["prompts"]}
    assert gain["no keys"] > 1.5
    assert gain["schema in prompt"] < gain["no keys"]


def test_one_library_masks_so_that_plain_text_is_the_forced_text(trial: Trial) -> None:
    plain, forced = trial.results("none", "llguidance"), trial.results("force", "llguidance")
    assert [result and result.text for result in plain] == [result and result.text for result in forced]
    share, _ = trial.quality(plain)
    assert share > 0.95
