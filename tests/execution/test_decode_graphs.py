"""Padded decode passes, with everything of CUDA graphs but the recording: on a CPU each play runs the pass anew."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.execution.decode_buckets import (
    Bucket,
    GatheredAttention,
    StaticBatch,
    bucket_of,
    lengths,
    row_counts,
)
from shared_runtime.execution.decode_graphs import DecodeGraphs, Pass, played_anew
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import MIXED, in_language, run
from tests.conftest import EngineFactory
from tests.model_driver import ModelDriver
from tests.tiny_models import LLAMA_CONFIG, random_weights

ROWS, LENGTHS = row_counts(12), lengths(600)


def _batch(seq_lens: list[int], mode: ForwardMode = ForwardMode.DECODE, extend: list[int] | None = None,
           logits: int | None = None) -> ForwardBatch:
    n = len(seq_lens)
    ids = torch.arange(n)
    return ForwardBatch(mode, ids, torch.tensor(seq_lens) - 1, ids + 1, ids, seq_lens, extend or [1] * n,
                        torch.arange(logits or n))


def test_the_sizes_are_few_and_end_with_the_largest() -> None:
    assert row_counts(1) == [1]
    assert row_counts(3) == [1, 2, 3]
    assert row_counts(12) == [1, 2, 4, 8, 12]
    assert row_counts(65) == [1, 2, 4, *range(8, 65, 8), 65]
    assert lengths(100) == [100]
    assert lengths(128) == [128]
    assert lengths(600) == [128, 256, 512, 600]
    assert len(row_counts(65)) * len(lengths(8192)) < 100


@pytest.mark.parametrize(("seq_lens", "bucket"), [
    ([1], Bucket(1, 128)), ([128], Bucket(1, 128)), ([129], Bucket(1, 256)), ([5, 7, 300], Bucket(4, 512)),
    ([600] * 9, Bucket(12, 600)), ([3] * 13, None), ([601], None),
])
def test_a_decode_pass_takes_the_smallest_size_it_fits_into(seq_lens: list[int], bucket: Bucket | None) -> None:
    assert bucket_of(_batch(seq_lens), ROWS, LENGTHS) == bucket


def test_what_is_no_plain_decode_is_not_padded() -> None:
    assert bucket_of(_batch([5, 5], ForwardMode.EXTEND), ROWS, LENGTHS) is None
    assert bucket_of(_batch([5, 5], extend=[1, 3], logits=4), ROWS, LENGTHS) is None  # drafts are verified
    assert bucket_of(_batch([5, 5], logits=1), ROWS, LENGTHS) is None


def test_padding_reads_and_writes_the_scratch_slot_alone() -> None:
    static = StaticBatch(8, torch.device("cpu"))
    static.fill(_batch([9] * 8), 8)  # what an earlier pass has left
    static.fill(_batch([5, 7]), 4)
    assert static.out_slots[:4].tolist() == [1, 2, 0, 0]
    assert static.positions[:4].tolist() == [4, 6, 0, 0]
    driver = ModelDriver(*_decoder())
    driver.runner.req_to_token.table[:] = 3  # everybody else's
    pool, tables = driver.runner.kv_pool, driver.runner.req_to_token
    bucket = Bucket(4, 64)
    attention = GatheredAttention(pool, tables, torch.float32).of(static, bucket)
    (piece,) = attention.pieces  # type: ignore[attr-defined]  # it is a PassAttention
    assert piece.slots[0].tolist() == [3] * 5 + [0] * 59
    assert piece.slots[2:].unique().tolist() == [0]
    assert torch.isfinite(piece.mask[2:, 0, 0, 0]).all()  # a row that saw nothing would be NaN


def _decoder() -> tuple[ModelConfig, Decoder]:
    config = ModelConfig.from_json(LLAMA_CONFIG)
    return config, Decoder(config, random_weights(config), exact=False)


def _graphs(driver: ModelDriver) -> DecodeGraphs:
    runner = driver.runner
    graphs = DecodeGraphs(runner.decoder, runner.req_to_token,
                          GatheredAttention(runner.kv_pool, runner.req_to_token, runner.decoder.dtype), played_anew)
    runner.graphs = graphs
    return graphs


def test_padded_passes_give_the_logits_of_plain_ones() -> None:
    """fp32: the sums run over more zeros, so the last bits may differ, and nothing else."""
    config, decoder = _decoder()
    plain, padded = ModelDriver(config, decoder), ModelDriver(config, decoder)
    graphs = _graphs(padded)
    rng = random.Random(0)
    prompts = {f"r{n}": [rng.randrange(300) for _ in range(rng.randrange(1, 150))] for n in range(7)}
    plain.feed(prompts), padded.feed(prompts)
    for step in range(6):
        company = {name: [rng.randrange(300)] for name in prompts if rng.random() < 0.8 or step == 0}
        expected, found = plain.feed(company), padded.feed(company)
        for name in company:
            assert (expected[name] - found[name]).abs().max() < 1e-4
    assert graphs.played == 6
    assert padded.runner.forward_passes == plain.runner.forward_passes == 7


def test_a_row_that_is_not_a_number_stays_its_own() -> None:
    """Padding writes to the scratch slot, which every padded place reads: what is there must stay finite."""
    config, decoder = _decoder()
    driver = ModelDriver(config, decoder)
    _graphs(driver)
    driver.feed({"sick": [1] * 20, "one": [2] * 10, "two": [3] * 5})
    driver.runner.kv_pool.k[0][driver.runner.req_to_token.table[0, :20]] = float("nan")
    for _ in range(3):
        logits = driver.feed({"sick": [5], "one": [6], "two": [7]})
    assert torch.isnan(logits["sick"]).all()
    assert torch.isfinite(logits["one"]).all()
    assert torch.isfinite(logits["two"]).all()
    assert torch.isfinite(driver.runner.kv_pool.k[0][0]).all()


def test_the_logits_of_a_pass_are_not_overwritten_by_the_next() -> None:
    """A recording writes its logits to one place: whoever still looks at the last pass's must have a copy."""
    config, decoder = _decoder()
    driver = ModelDriver(config, decoder)
    output: dict[str, Tensor] = {}

    def record(run: Pass) -> Pass:
        def play() -> Tensor:
            logits = run()
            return output.setdefault("place", torch.empty_like(logits)).copy_(logits)
        return play

    runner = driver.runner
    runner.graphs = DecodeGraphs(decoder, runner.req_to_token,
                                 GatheredAttention(runner.kv_pool, runner.req_to_token, decoder.dtype), record)
    driver.feed({"a": [1, 2, 3]})
    first = driver.feed({"a": [4]})["a"]
    kept = first.clone()
    driver.feed({"a": [5]})
    assert torch.equal(first, kept)


def test_each_shape_is_recorded_once_and_a_device_that_cannot_goes_on_without(
        caplog: pytest.LogCaptureFixture) -> None:
    config, decoder = _decoder()
    driver = ModelDriver(config, decoder)
    runner = driver.runner
    recorded: list[int] = []

    def record(run: Pass) -> Pass:
        recorded.append(1)
        if len(recorded) > 2:
            raise RuntimeError("this driver records nothing more\nat length")
        return run

    runner.graphs = DecodeGraphs(decoder, runner.req_to_token,
                                 GatheredAttention(runner.kv_pool, runner.req_to_token, decoder.dtype), record)
    driver.feed({"a": [1, 2, 3], "b": [1], "c": [1]})
    for _ in range(3):
        driver.feed({"a": [4]})
        driver.feed({"a": [4], "b": [5]})
    assert (len(recorded), runner.graphs.played) == (2, 6)
    expected = driver.feed({"a": [4], "b": [5], "c": [6]})
    assert all(torch.isfinite(one).all() for one in expected.values())
    assert caplog.messages == ["no CUDA graphs from here on: this driver records nothing more"]
    driver.feed({"a": [4]})
    assert (len(recorded), runner.graphs.played) == (3, 6)


def test_the_rotary_table_does_not_move_once_passes_are_recorded() -> None:
    config, decoder = _decoder()
    driver = ModelDriver(config, decoder)
    _graphs(driver)
    before = decoder._rotary._cos.data_ptr()
    driver.feed({"a": list(range(200))})
    driver.feed({"a": [1]})
    decoder._rotary.at(torch.tensor([0]), longest=driver.runner.req_to_token.max_len)
    assert decoder._rotary._cos.data_ptr() == before


@pytest.mark.parametrize("stage", [1, 4, 5])
def test_a_grammar_does_not_change_the_way_through_the_model(stage: int, make_engine: EngineFactory) -> None:
    """Museum row 27: as many passes are played from recordings with a grammar as without, and the text is right."""
    counts = []
    for constraint in (None, Constraint.regex("[0-9]{40}")):
        engine = make_engine(stage=stage)
        _record_decodes(engine)
        params = SamplingParams(max_new_tokens=8, ignore_eos=True)
        engine.generate(["one ", "two "], sampling=params, constraint=constraint)
        graphs = engine.parts.runner.graphs
        assert graphs is not None
        counts.append((graphs.played, engine.parts.runner.forward_passes))
    assert counts[0][0] > 0
    assert counts[0][0] - counts[0][1] == counts[1][0] - counts[1][1]


@pytest.mark.parametrize("stage", [2, 5])
def test_the_engine_serves_the_same_over_padded_passes(stage: int, make_engine: EngineFactory) -> None:
    plain, padded = make_engine(stage=stage), make_engine(stage=stage)
    _record_decodes(padded)
    expected, found = run(plain, MIXED), run(padded, MIXED)
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert all(in_language(ask.constraint, one.text) for ask, one in zip(MIXED, found, strict=True)
               if one.finish_reason == "stop")
    graphs = padded.parts.runner.graphs
    assert graphs is not None
    assert graphs.played > 5


def _record_decodes(engine: Engine) -> None:
    runner = engine.parts.runner
    runner.graphs = DecodeGraphs(runner.decoder, runner.req_to_token, GatheredAttention(
        runner.kv_pool, runner.req_to_token, runner.decoder.dtype), played_anew)


def test_a_cpu_records_nothing(make_engine: EngineFactory, tiny_model: Path) -> None:
    assert make_engine(cuda_graphs=True).parts.runner.graphs is None
