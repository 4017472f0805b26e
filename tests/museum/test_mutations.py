"""A specimen in the place of the real part makes its stage fail, with the symptom; without it the stage does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.museum.bench import Bench, Broken
from tests.museum.exhibit import Exhibit
from tests.museum.exhibits import all_exhibits

INJECTABLE = [exhibit for exhibit in all_exhibits() if exhibit.injection is not None]

each_injection = pytest.mark.parametrize("exhibit", INJECTABLE, ids=lambda exhibit: f"row_{exhibit.row:02}")


@each_injection
def test_the_scenario_passes_as_it_is(exhibit: Exhibit[Any], bench: Bench) -> None:
    assert exhibit.injection is not None
    exhibit.injection.scenario(bench)


@each_injection
def test_the_scenario_fails_with_the_specimen(
        exhibit: Exhibit[Any], bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    injection = exhibit.injection
    assert injection is not None
    monkeypatch.setattr(injection.owner, injection.name, injection.value)
    with pytest.raises(Broken, match=injection.symptom):
        injection.scenario(bench)
