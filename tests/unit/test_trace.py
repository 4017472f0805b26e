"""The trace: every record fits the schema, tells the truth, and costs nothing when it is off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import shared_runtime.trace as trace_module
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import PHASES, Candidate, Event, RequestRecord, StepRecord, TokenRecord
from tests.conftest import EngineFactory

SCHEMA = json.loads(Path(trace_module.__file__).with_name("trace.schema.json").read_text(encoding="utf-8"))
PARAMS = SamplingParams(max_new_tokens=6)


def test_every_record_fits_the_schema(make_engine: EngineFactory, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    engine = make_engine(trace=path, trace_tree=True, chunked_prefill_size=4, kv_pool_tokens=40, new_token_ratio=0.1)
    engine.generate(["one two three four five six", "世界 a", "x"] * 2, sampling=SamplingParams(max_new_tokens=20),
                    constraint=[Constraint.regex("[a-z]{20}"), None, Constraint.regex("(")] * 2)
    engine.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for line in lines:
        validator.validate(json.loads(line))
    records = [json.loads(line) for line in lines]
    assert [record["step"] for record in records] == list(range(len(records)))
    assert {record["mode"] for record in records} >= {"extend", "decode"}
    assert any(record["retracted"] for record in records)
    assert all(set(record["ms"]) <= set(PHASES) for record in records)


def test_the_schema_notices_a_wrong_record() -> None:
    record = StepRecord(step=0).as_dict()
    record["kv"] = {"size": 1, "free": 1, "evictable": 0, "protected": 0}
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(record)
    for broken in ({**record, "mode": "sleep"}, {**record, "extra": 1}, {**record, "kv": {}}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(broken)


def test_records_tell_what_the_constraint_did(make_engine: EngineFactory) -> None:
    engine = make_engine(trace=True)
    name, = engine.add_request("x", sampling=SamplingParams(max_new_tokens=20), constraint=Constraint.regex("[0-9]{3}"))
    records = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        records.append(record)
    result = engine.take_events()[-1].result
    assert result is not None
    parts = [record.requests[0] for record in records]
    assert [record.mode for record in records] == ["extend"] + ["decode"] * 3
    assert [part.n_allowed for part in parts] == [10, 10, 10, 1]
    assert all(part.allowed_mass is not None and 0 < part.allowed_mass < 1 for part in parts)
    assert [part.tokens[0].id for part in parts] == result.token_ids
    assert [part.tokens[0].origin for part in parts] == ["sampled"] * 4
    assert [part.finish for part in parts] == [None, None, None, "stop"]
    assert all(before != after for before, after in ((part.state_before, part.state_after) for part in parts))
    assert records[-1].ended == [name]
    for part in parts:
        assert part.top_masked[0].id == part.tokens[0].id
        assert part.top_raw[0].prob >= part.top_raw[-1].prob
        assert len(part.slots) == len(part.fed)
    assert [record.grammars_filled for record in records] == [[0]] * 4
    assert all(record.has_grammar for record in records)


def test_the_order_of_events_is_numbered(make_engine: EngineFactory) -> None:
    engine = make_engine(trace=True)
    engine.add_request("x", sampling=PARAMS)
    events = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        events += record.events
    assert [event.seq for event in events] == list(range(len(events)))
    assert [event.name for event in events] == ["launch", "mask_ready", "sampled", "results_processed"] * 6
    engine.take_events()


def test_a_free_row_keeps_its_whole_mass(make_engine: EngineFactory) -> None:
    engine = make_engine(trace=True)
    engine.add_request("x", sampling=PARAMS)
    record = engine.step()
    assert record is not None
    part = record.requests[0]
    assert part.n_allowed == len(engine.tokenizer.vocabulary)
    assert part.allowed_mass == pytest.approx(1.0, abs=1e-4)
    assert record.has_grammar is False
    while engine.has_work:
        engine.step()


def test_without_a_trace_no_record_is_created(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[str] = []

    def count(kind: type, original: Callable[..., None]) -> None:
        def counting(self: object, *args: object, **kwargs: object) -> None:
            created.append(kind.__name__)
            original(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counting)

    count(StepRecord, StepRecord.__init__)
    count(RequestRecord, RequestRecord.__init__)
    count(Candidate, Candidate.__init__)
    count(TokenRecord, TokenRecord.__init__)
    count(Event, Event.__init__)
    engine = make_engine()
    engine.generate("x", sampling=PARAMS, constraint=Constraint.regex("[a-z]{9}"))
    assert created == []
    traced = make_engine(trace=True)
    traced.generate("x", sampling=PARAMS)
    assert set(created) >= {"StepRecord", "RequestRecord", "Candidate", "TokenRecord", "Event"}


def test_tracing_changes_no_token(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=10, temperature=0.9, seed=4)
    constraint = Constraint.regex("[a-z ]{30}")
    plain, traced = (make_engine(trace=trace).generate_one("x", sampling=params, constraint=constraint)
                     for trace in (None, True))
    assert plain.token_ids == traced.token_ids


def test_a_trace_that_cannot_be_written_names_the_file(make_engine: EngineFactory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_engine(trace=tmp_path / "missing" / "trace.jsonl")
    assert "missing" in str(caught.value.where)
