"""The workloads are of their schema; the schema slice says of itself what is valid."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.mask_engines import engine_named, measure_engine
from benchmarks.plan import ENGINES
from benchmarks.workloads import FOLDER, all_workloads, schema_slice
from shared_runtime.tokenizer import Tokenizer

FILES = sorted(path for path in FOLDER.glob("*.json") if path.stem not in ("jump_trials", "schema_slice"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workload_is_of_the_schema(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    schema = json.loads(FOLDER.with_name("workload.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, schema)
    assert data["name"] == path.stem


def test_waves_are_full_and_hold_every_request() -> None:
    for workload in all_workloads():
        for batch in (1, 3, 16):
            waves = workload.waves(batch)
            assert all(len(wave) == batch for wave in waves)
            assert set(workload.questions) <= {one for wave in waves for one in wave}
        assert [one for wave in workload.waves(1) for one in wave] == list(workload.questions)


def test_the_trial_is_told_once() -> None:
    known = {one.name: one for one in all_workloads()}
    assert len(known["nine_requests"].questions) == 9
    assert len(known["card_regex"].questions) == 3
    assert set(known["card_regex"].questions) < set(known["nine_requests"].questions)


def test_a_schema_says_what_is_valid() -> None:
    cases = schema_slice()
    assert len(cases) >= 30
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        schema = json.loads(case.constraint.source)
        jsonschema.Draft202012Validator.check_schema(schema)
        for text in case.valid:
            jsonschema.validate(json.loads(text), schema)
        assert case.valid
        assert case.invalid
        for text in case.invalid:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_alone_is_walked_text_by_text(engine: str, tiny_model: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny_model)
    cases = [case for case in schema_slice() if case.name in ("timer", "tree", "ci", "unicode_keys")]
    row = measure_engine(engine, engine_named(engine, tokenizer), tokenizer, cases)
    assert row.counts["schemas"] == 4
    assert not row.wrong
    bounded = engine in ("stage1_fsm", "outlines")  # a regex cannot hold a tree
    assert set(row.refused) == ({"tree"} if bounded else set())
    assert row.counts["ok"] == 4 - bounded
    assert row.counts["masks"] > row.counts["tokens"] / 2
    assert set(row.tbm_us) == {"p50", "p90", "p99", "p99.9"}
    assert len(row.ttfm_ms) == 4
