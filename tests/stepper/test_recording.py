"""A recording holds what happened, in data and in words, and survives a file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from torch import Tensor

from jumpforward.cli import main
from jumpforward.stepper import recording as recording_module
from jumpforward.stepper.recording import Recording, load, record
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy

SCHEMA = json.loads(Path(recording_module.__file__).with_name("recording.schema.json").read_text())
SHIP = Constraint.regex(r'\{"name": "[a-z]{1,8}", "age": [0-9]{1,2}\}')


@pytest.fixture(scope="module")
def five(tiny_model: Path) -> dict[int, Recording]:
    return {stage: record(EngineConfig(model=str(tiny_model), stage=stage, exact=True), "Describe a cat.",
                          constraint=SHIP, sampling=SamplingParams(max_new_tokens=60)) for stage in range(1, 6)}


def _origins(recording: Recording) -> dict[str, int]:
    found: dict[str, int] = {}
    for token in recording.tokens_at(len(recording.frames) - 1):
        found[token.origin] = found.get(token.origin, 0) + 1
    return found


@pytest.mark.parametrize("stage", range(1, 6))
def test_the_frames_add_up_to_the_result(five: dict[int, Recording], stage: int) -> None:
    recording = five[stage]
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(recording.as_dict())))
    tokens = recording.tokens_at(len(recording.frames) - 1)
    text = "".join(token.text for token in tokens if not token.text.startswith("<control"))
    assert text == recording.answer
    assert recording.frames[-1].passes == recording.counts["forward_passes"]
    assert _origins(recording).get("jumped", 0) == recording.counts["jumped"]
    assert sum(frame.mask is not None for frame in recording.frames) == recording.counts["masks"]
    assert recording.frames[-1].finish is not None
    assert all(frame.says for frame in recording.frames)


@pytest.mark.parametrize("stage", range(1, 6))
def test_the_automaton_follows_the_answer(five: dict[int, Recording], stage: int) -> None:
    recording = five[stage]
    assert recording.picture is not None
    states = [frame.state for frame in recording.frames]
    assert None not in states
    if recording.frames[-1].finish == "stop":
        final = str(recording.picture["text"]).partition("accepts in ")[2].partition(".")[0]
        assert str(states[-1]) in final.split(", ")


def test_the_words_name_what_the_stage_did(five: dict[int, Recording]) -> None:
    said = {stage: " ".join(line for frame in one.frames for line in frame.says) for stage, one in five.items()}
    for stage in (2, 3, 4):
        assert "is written, not sampled" in said[stage]
        assert any("jump" in frame.marks for frame in five[stage].frames)
    for stage in (1, 5):
        assert "is written, not sampled" not in said[stage]
        assert not any("jump" in frame.marks for frame in five[stage].frames)
    assert all("The grammar allows" in said[stage] for stage in said)


def test_a_free_request_has_no_mask_and_no_picture(tiny_model: Path) -> None:
    recording = record(EngineConfig(model=str(tiny_model)), "Hello", sampling=SamplingParams(max_new_tokens=3))
    assert recording.picture is None
    assert all(frame.mask is None and frame.state is None for frame in recording.frames)
    assert recording.request["constraint"] is None


def test_a_request_that_cannot_be_served_is_its_error(tiny_model: Path) -> None:
    with pytest.raises(Exception, match=r"json_object") as caught:
        record(EngineConfig(model=str(tiny_model)), "Hello", constraint=Constraint.json_object())
    assert type(caught.value).__name__ == "UnsupportedConstraintError"


@pytest.mark.parametrize("most", [2, 4])
def test_a_jump_that_ends_the_answer_is_in_the_last_frame(tiny_model: Path, most: int) -> None:
    """There is no pass any more in whose record it would stand."""
    recording = record(EngineConfig(model=str(tiny_model), stage=2), "Describe a cat.", constraint=SHIP,
                       sampling=SamplingParams(max_new_tokens=most))
    last = recording.frames[-1]
    assert (last.mode, last.finish, last.marks) == ("idle", "length", ["jump"])
    assert "is written, not sampled, and no pass reads it" in last.says[0]
    tokens = recording.tokens_at(len(recording.frames) - 1)
    assert ("".join(token.text for token in tokens), len(tokens)) == (recording.answer, most)


def test_a_request_that_fails_on_its_way_is_recorded_up_to_there(tiny_model: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong is what one wants to step through; here a mask that leaves nothing from the third pass on."""
    real, calls = CopiedFSMPolicy.constrain, itertools.count(1)

    def forbids(self: CopiedFSMPolicy, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        rows = real(self, logits, batch, positions)
        if next(calls) >= 3:
            logits.fill_(-torch.inf)
        return rows

    monkeypatch.setattr(CopiedFSMPolicy, "constrain", forbids)
    recording = record(EngineConfig(model=str(tiny_model)), "Hello", constraint=SHIP)
    assert [frame.finish for frame in recording.frames] == [None, None, "error"]
    assert "leaves no token" in recording.frames[-1].says[-1]


@pytest.mark.parametrize("mode", ["draft", "force"])
def test_a_backend_jump_is_told(tiny_model: Path, mode: Any) -> None:
    recording = record(EngineConfig(model=str(tiny_model), stage=5, exact=True,
                                    options=StageOptions(backend_jump=mode)),
                       "Describe a cat.", constraint=SHIP, sampling=SamplingParams(max_new_tokens=60))
    said = " ".join(line for frame in recording.frames for line in frame.says)
    assert ("was verified in this pass" if mode == "draft" else "is forced by the grammar") in said
    assert any(("draft" if mode == "draft" else "jump") in frame.marks for frame in recording.frames)


def test_a_file_gives_the_same_recording(five: dict[int, Recording], tmp_path: Path) -> None:
    for stage, recording in five.items():
        recording.save(tmp_path / f"{stage}.json")
        loaded = load(tmp_path / f"{stage}.json")
        assert json.dumps(loaded.as_dict()) == json.dumps(recording.as_dict())


@pytest.mark.parametrize(("text", "said"), [
    ("", "no JSON"), ("{", "no JSON"), ("[]", "no recording"), ("{}", "no recording"), ("[" * 100_000, "no JSON"),
    ('{"schema": "jumpforward.recording/2"}', "no recording")])
def test_a_file_that_is_none_is_an_error_that_says_so(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        load(tmp_path / "bad.json")
    assert "--save" in str(caught.value)
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "nosuch.json")


def test_a_broken_frame_is_named(five: dict[int, Recording], tmp_path: Path) -> None:
    value = json.loads(json.dumps(five[2].as_dict()))
    value["frames"][3]["tokens"] = [{"id": -1, "text": "x", "origin": "sampled"}]
    (tmp_path / "bad.json").write_text(json.dumps(value))
    with pytest.raises(ConfigError, match="frames/3/tokens/0/id"):
        load(tmp_path / "bad.json")


def test_the_command_saves_and_prints(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["step", "--stage", "2", "--model", str(tiny_model), "--regex", "(yes|no) sir", "Well?",
             "--save", str(tmp_path / "one.json")]
    assert main(words) == 0
    assert "saved" in capsys.readouterr().err
    assert main(["step", str(tmp_path / "one.json")]) == 0, "without a terminal the turns are printed"
    shown = capsys.readouterr().out
    assert shown.count("turn ") == len(load(tmp_path / "one.json").frames)
    assert "The grammar allows" in shown
    assert main(["step", str(tmp_path / "nosuch.json")]) == 2
    assert main([*words[:-1], str(tmp_path / "no" / "folder.json")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_prompt_may_speak_of_a_json_file(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["step", "--model", str(tiny_model), "--regex", "(yes|no)", "Write me a cat.json"]
    assert main(words) == 0
    assert "The grammar allows" in capsys.readouterr().out


def test_step_follows_one_answer_and_says_so(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", "--model", str(tiny_model), "--n", "2", "Hello"]) == 2
    assert "--n" in capsys.readouterr().err
