"""The committed recordings and traces are what a run of now gives: ids, origins, counts and texts exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jumpforward.stepper.recording import load
from scripts.site import record
from scripts.site.page import RECORDINGS

_UNSTEADY = {"ms", "step", "seq", "events"}
"""Times; and numbers of turns and events, which idle turns during a compile move."""
_OF_LIBRARIES = {"state", "map_state"}
"""What libraries call their states: numbers that differ from process to process."""


def steady(value: Any) -> Any:
    """A recording without what differs from run to run."""
    if isinstance(value, dict):
        return {name: steady({key: two for key, two in one.items() if key not in _OF_LIBRARIES}
                             if name in ("grammar", "state_before", "state_after") else one)
                for name, one in value.items() if name not in _UNSTEADY}
    return [steady(one) for one in value] if isinstance(value, list) else value


def first_difference(old: Any, new: Any, place: str = "") -> str | None:
    """Where two values differ; probabilities and log-probabilities may by 1e-3."""
    if isinstance(old, float) and isinstance(new, float):
        return None if abs(old - new) <= 1e-3 else f"{place}: {old} and {new}"
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(old.get(name), new.get(name), f"{place}/{name}") for name in sorted({*old, *new})]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(one, other, f"{place}/{at}") for at, (one, other) in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else f"{place}: {old!r} and {new!r}"
    return next((found for pair in pairs if (found := first_difference(*pair)) is not None), None)


def test_every_recording_is_one_and_has_a_way_to_be_made_again() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.json")} == set(record.STAGES)
    assert {path.stem for path in RECORDINGS.glob("*.jsonl")} == set(record.TRACES)
    for path in RECORDINGS.glob("*.json"):
        made = load(path)
        assert (made.settings["dtype"], made.settings["exact"]) == ("fp32", True)
    assert sum(path.stat().st_size for path in RECORDINGS.iterdir()) < 400_000


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("name", record.STAGES)
def test_a_recording_is_what_a_run_gives(name: str, embedded_folder: Path) -> None:
    old = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    new = json.loads(json.dumps(record.make(name).as_dict()))
    versions = (old.pop("versions"), new.pop("versions"))
    difference = first_difference(steady(old), steady(new))
    if difference is not None and versions[0] != versions[1]:
        pytest.skip(f"recorded with other versions {versions[0]}; the first difference is at {difference}")
    assert difference is None


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("name", record.TRACES)
def test_a_trace_is_what_a_run_gives(name: str, embedded_folder: Path) -> None:
    old = [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    new = [json.loads(line) for line in record.trace(name).splitlines()]
    assert first_difference(steady(old), steady(new)) is None
    assert [[event["name"] for event in turn["events"]] for turn in old] == [
        [event["name"] for event in turn["events"]] for turn in new]


def test_a_difference_is_seen() -> None:
    recording = json.loads((RECORDINGS / "stage2.json").read_text(encoding="utf-8"))
    other = json.loads(json.dumps(recording))
    other["frames"][3]["tokens"][0]["id"] += 1
    assert first_difference(steady(recording), steady(other)) is not None
