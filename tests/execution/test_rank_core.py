"""What must hold for one process holds for several: the core of the conformance suite, on two ranks and on three."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.errors import EngineStateError, GrammarTimeoutError, JumpforwardError
from shared_runtime.execution.parallel_engine import ParallelEngine
from shared_runtime.execution.rank_group import RankGroup, TorchRankGroup
from shared_runtime.execution.rank_place import RankPlace
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import AcceptResult, SampledRow, StageOptions
from shared_runtime.request_factory import Ask
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from stages import get_stage
from tests.conformance.harness import in_language
from tests.oracles.nfa_oracle import MaskOracle
from tests.ranks import run_on_ranks
from tests.tiny_models import tiny_folder

STAGES: list[dict[str, object]] = [{"stage": 4, "backend": "xgrammar"}, {"stage": 5, "backend": "xgrammar"},
                                   {"stage": 5, "backend": "llguidance"}]
IDS = ["4-xgrammar", "5-xgrammar", "5-llguidance"]
OTHER_LOOPS: list[dict[str, object]] = [
    {"stage": number, "backend": "xgrammar", "overlap": overlap} for number, overlap in ((4, True), (5, False))
    if get_stage(number).capabilities.overlap]
"""Of stages with overlap, the loop that is not their default."""
ALL_DRAFTS = StageOptions(backend_jump="force+draft", spec="ngram")
each_stage = pytest.mark.parametrize("stage", STAGES, ids=IDS)

PATTERNS = (r"[0-9]{4}", r"(red|green|blue), done", r'"[A-Z][a-z]{2,8}"', r"[a-z]{2,6}(-[a-z]{1,3})?!",
            r"\{\"name\": \"[A-Za-z ]{1,12}\", \"age\": [0-9]{1,2}\}", r"(é|ß|ü)+!")
BAD = Constraint.regex("(")


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank says of one request; plain data, since it comes from another process."""

    rid: str
    finish_reason: str
    text: str
    token_ids: tuple[int, ...]
    error: str | None
    retractions: int


@pytest.fixture(scope="module")
def shared_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose 8 heads and 4 key heads two ranks can share."""
    return tiny_folder(tmp_path_factory.mktemp("shared"), tokenizer_from=embedded_folder,
                       num_attention_heads=8, num_key_value_heads=4)


def _engine(group: RankGroup, model: Path, settings: dict[str, object]) -> ParallelEngine:
    values = {"model": str(model), "threads": 1, "limits": GrammarLimits(compile_timeout=120.0, mask_timeout=30.0)}
    return ParallelEngine(EngineConfig(**(values | settings)), group)  # type: ignore[arg-type]  # it checks them


def _told(results: Sequence[Result]) -> list[Told]:
    told = [Told(one.rid, one.finish_reason, one.text, tuple(one.token_ids),
                 None if one.error is None else str(one.error), one.metrics.retractions) for one in results]
    return sorted(told, key=lambda one: one.rid)


def _asks(count: int, max_new_tokens: int) -> dict[str, Ask]:
    """Requests named after what is asked of them; every third pattern meets several seeds."""
    return {f"{index}": Ask(prompt=("Answer: ", "世界 ", "x")[index % 3], constraint=Constraint.regex(
                PATTERNS[index % len(PATTERNS)]), sampling=SamplingParams(
                    max_new_tokens=max_new_tokens, temperature=1.0, seed=100 + index)) for index in range(count)}


def core(group: RankGroup, model: Path, settings: dict[str, object], count: int) -> list[Told]:
    """On one rank: requests that end, that are cut, one aborted, one refused, one free; a pool that is too small."""
    engine = _engine(group, model, settings | {"kv_pool_tokens": 72, "new_token_ratio": 0.1})
    if group.rank > 0:
        results = engine.follow()
    else:
        results = []
        for rid, ask in _asks(count, 30).items():
            engine.submit(ask, f"whole-{rid}")
        for rid, ask in _asks(count, 3).items():
            engine.submit(ask, f"cut-{rid}")
        engine.submit(Ask(prompt="a", constraint=BAD), "bad")
        for name in ("long", "longer"):  # together more than the pool holds: one is retracted
            engine.submit(Ask(prompt=name, sampling=SamplingParams(max_new_tokens=45, ignore_eos=True)), name)
        engine.submit(Ask(prompt="b", constraint=Constraint.regex("[0-9]{60}"),
                          sampling=SamplingParams(max_new_tokens=40)), "aborted")
        while engine.has_work:
            engine.step()
            engine.engine.check_integrity()
            if any(req.rid == "aborted" and len(req.output_ids) > 1 for req in engine.engine.scheduler.queues.running):
                engine.abort("aborted")
            results += [event.result for event in engine.take_events() if event.result is not None]
        engine.close()
    engine.engine.check_integrity()
    return _told(results)


def _holds(ranks: list[list[Told]], tokenizer: Tokenizer, count: int) -> None:
    for other in ranks[1:]:
        assert other == ranks[0]
    told = {one.rid: one for one in ranks[0]}
    assert len(told) == 2 * count + 4
    ended = cut = 0
    for rid, ask in _asks(count, 30).items():
        assert ask.constraint is not None
        for one in (told[f"whole-{rid}"], told[f"cut-{rid}"]):
            if one.finish_reason == "stop":
                ended += 1
                assert in_language(ask.constraint, one.text), one
            else:
                assert one.finish_reason == "length", one
                cut += 1
                spelled = tokenizer.vocabulary.decode(list(one.token_ids))
                assert MaskOracle(ask.constraint.source, tokenizer.vocabulary).viable(spelled), one
    assert ended >= count // 2
    assert cut >= count // 2
    assert [len(told[name].token_ids) for name in ("long", "longer")] == [45, 45]
    assert sum(one.retractions for one in ranks[0]) >= 1
    assert (told["bad"].finish_reason, told["bad"].token_ids) == ("error", ())
    assert told["aborted"].finish_reason == "abort"
    assert 2 <= len(told["aborted"].token_ids) < 40


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*STAGES, {"stage": 5, "backend": "xgrammar", "options": ALL_DRAFTS}, *OTHER_LOOPS],
                         ids=[*IDS, "5-drafts-and-forced-text", *(f"{one['stage']}-other-loop" for one in OTHER_LOOPS)])
def test_the_core_on_two_ranks(stage: dict[str, object], shared_model: Path) -> None:
    ranks = run_on_ranks(2, core, shared_model, stage, 9, timeout_s=300)
    _holds(ranks, Tokenizer.from_folder(shared_model), 9)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("stage", STAGES[:2], ids=["4", "5"])
def test_the_core_on_three_ranks_of_the_real_model(stage: dict[str, object], embedded_folder: Path) -> None:
    ranks = run_on_ranks(3, core, embedded_folder, stage, 4, timeout_s=500)
    _holds(ranks, Tokenizer.from_folder(embedded_folder), 4)


# what ranks tell each other

def test_an_error_is_the_same_on_the_rank_it_is_told_to() -> None:
    """Errors travel: what failed on one rank has failed on all, with its message, place, offset and blame."""
    kinds: list[type[JumpforwardError]] = [JumpforwardError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 12
    for kind in kinds:
        error = kind("it is wrong", where="there", fix="mend it")
        if "offset" in vars(error):
            vars(error)["offset"] = 7
        told = pickle.loads(pickle.dumps(error))
        assert type(told) is kind
        assert (str(told), told.as_dict(), vars(told)) == (str(error), error.as_dict(), vars(error))


def test_ranks_that_do_not_meet_say_so(tmp_path: Path) -> None:
    place = RankPlace(0, 2, 0, f"file://{tmp_path / 'nobody'}")
    with pytest.raises(EngineStateError, match="rank 0 of 2 could not meet the others"):
        TorchRankGroup.connect(torch.device("cpu"), place, timeout_s=0.5)


# ranks that are not alike

def uneven(group: RankGroup, model: Path, settings: dict[str, object]) -> tuple[list[Told], list[str]]:
    """Rank 1 compiles slowly, cannot compile one grammar, and finds one mask too slow.

    Returns:
        What became of the requests; and, turn by turn, who was running.
    """
    engine = _engine(group, model, settings | {"kv_pool_tokens": 512})
    if group.rank == 1:
        _make_odd(engine.parts.policy)
    digits = Constraint.regex("[0-9]{6}")
    running: list[str] = []
    step = engine.engine.step

    def noted_step() -> object:
        record = step()
        running.append(" ".join(req.rid for req in engine.engine.scheduler.queues.running))
        return record

    engine.engine.step = noted_step  # type: ignore[method-assign, assignment]  # to see what each rank runs
    if group.rank > 0:
        results = engine.follow()
    else:
        params = SamplingParams(max_new_tokens=8)
        engine.submit(Ask(prompt="a", constraint=digits, sampling=params), "first")
        engine.submit(Ask(prompt="b", constraint=Constraint.regex("[xyz]{3}"), sampling=params), "fails on one")
        engine.submit(Ask(prompt="c", constraint=Constraint.regex("[a-f]{9}"), sampling=params), "slow mask on one")
        engine.step()
        time.sleep(0.5)  # this rank has compiled everything by now, the other has not
        engine.submit(Ask(prompt="d", constraint=digits, sampling=params), "second")
        results = engine.run()
        engine.submit(Ask(prompt="e", constraint=digits, sampling=params), "third")
        results += engine.run()
        engine.close()
    engine.engine.check_integrity()
    return _told(results), running


def _make_odd(policy: Any) -> None:
    """What befalls one process and not the other: a slow compile, one that fails, a mask that takes too long."""
    compile_it, accept = policy.local.backend.init_value, policy.local.accept

    def slowly(constraint: Constraint) -> object:
        if "xyz" in constraint.source:
            raise MemoryError("no memory on this rank")
        time.sleep(1.0)
        return compile_it(constraint)

    def accept_but_one(batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        results: list[AcceptResult] = accept(batch, rows)
        return [AcceptResult(0, error=GrammarTimeoutError("3 masks in a row were too slow", where="here"))
                if row.req.rid == "slow mask on one" and len(row.req.output_ids) == 2 else result
                for row, result in zip(rows, results, strict=True)]

    policy.local.backend.init_value = slowly
    policy.local.accept = accept_but_one


@each_stage
@pytest.mark.slow
def test_what_befalls_one_rank_befalls_all(stage: dict[str, object], shared_model: Path) -> None:
    ranks = run_on_ranks(2, uneven, shared_model, stage, timeout_s=120)
    assert ranks[0] == ranks[1]
    told = {one.rid: one for one in ranks[0][0]}
    for rid in ("first", "second", "third"):
        assert told[rid].finish_reason == "stop"
        assert told[rid].text.isdigit()
    assert told["fails on one"].finish_reason == "error"
    assert told["fails on one"].token_ids == ()
    assert "no memory on this rank" in str(told["fails on one"].error)
    assert told["slow mask on one"].finish_reason == "error"
    assert "too slow" in str(told["slow mask on one"].error)
    assert len(told["slow mask on one"].token_ids) == 2


