"""The terminal stepper, by its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static

from jumpforward.stepper.recording import Recording, record
from jumpforward.stepper.terminal import Stepper
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams


@pytest.fixture(scope="module")
def recording(tiny_model: Path) -> Recording:
    return record(EngineConfig(model=str(tiny_model), stage=2, exact=True), "Describe a cat.",
                  constraint=Constraint.regex(r'\{"name": "[a-z]{1,8}", "age": [0-9]{1,2}\}'),
                  sampling=SamplingParams(max_new_tokens=60))


def _drive(recording: Recording, scenario: Callable[[Stepper, Any], Awaitable[None]]) -> None:
    async def run() -> None:
        app = Stepper(recording)
        async with app.run_test(size=(140, 44)) as pilot:
            await scenario(app, pilot)

    asyncio.run(run())


def _shown(app: Stepper, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).render())


def test_keys_move_through_the_turns(recording: Recording) -> None:
    async def scenario(app: Stepper, pilot: Any) -> None:
        last = len(recording.frames) - 1
        for keys, index in ((["right"], 1), (["n"], 2), (["left"], 1), (["p", "p"], 0), (["end"], last),
                            (["right"], last), (["home"], 0)):
            await pilot.press(*keys)
            assert app.index == index, keys

    _drive(recording, scenario)


def test_every_pane_shows_its_part(recording: Recording) -> None:
    async def scenario(app: Stepper, pilot: Any) -> None:
        await pilot.press("j")
        frame = recording.frames[app.index]
        assert "jump" in frame.marks
        assert "turn 2 of" in _shown(app, "head")
        assert "is written, not sampled" in _shown(app, "says-text")
        assert "before" in _shown(app, "says-text")
        assert "".join(token.text for token in recording.tokens_at(app.index)).replace(" ", "␣") in _shown(
            app, "answer-text")
        assert "what the model wanted" in _shown(app, "mask-text")
        assert f"automaton state {frame.state}" in _shown(app, "state-text")
        assert "radix tree" in _shown(app, "loop-text")

    _drive(recording, scenario)


def test_seeking_goes_round_and_says_when_there_is_nothing(recording: Recording) -> None:
    async def scenario(app: Stepper, pilot: Any) -> None:
        jumps = [index for index, frame in enumerate(recording.frames) if "jump" in frame.marks]
        visited = []
        for _ in range(len(jumps) + 1):
            await pilot.press("j")
            visited.append(app.index)
        assert visited == [*jumps, jumps[0]]
        await pilot.press("d")
        assert app.index == jumps[0]

    _drive(recording, scenario)


def test_playing_moves_by_itself_and_stops_at_a_key(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumpforward.stepper.terminal._SECONDS_A_TURN", 0.01)

    async def scenario(app: Stepper, pilot: Any) -> None:
        await pilot.press("space")
        for _ in range(500):
            if app.index == len(recording.frames) - 1 and "playing" not in _shown(app, "head"):
                break
            await pilot.pause(0.01)
        assert app.index == len(recording.frames) - 1
        assert "playing" not in _shown(app, "head"), "it stops at the end"
        await pilot.press("space", "left")
        assert "playing" not in _shown(app, "head")

    _drive(recording, scenario)


def test_a_narrow_terminal_works(recording: Recording) -> None:
    async def run() -> None:
        app = Stepper(recording)
        async with app.run_test(size=(40, 15)) as pilot:
            await pilot.press("right", "end")

    asyncio.run(run())
