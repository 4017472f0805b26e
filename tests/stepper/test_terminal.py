"""The terminal stepper, by its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.widgets import Static

from jumpforward.stepper.pipeline import pipeline_of
from jumpforward.stepper.pipeline_terminal import PipelineStepper
from jumpforward.stepper.recording import Recording, record
from jumpforward.stepper.terminal import Stepper
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def recording(tiny_model: Path) -> Recording:
    return record(EngineConfig(model=str(tiny_model), stage=2, exact=True), "Describe a cat.",
                  constraint=Constraint.regex(r'\{"name": "[a-z]{1,8}", "age": [0-9]{1,2}\}'),
                  sampling=SamplingParams(max_new_tokens=60))


def _drive(recording: Recording, scenario: Callable[[Stepper, Any], Awaitable[None]],
           size: tuple[int, int] = (140, 44)) -> None:
    async def run() -> None:
        app = Stepper(recording)
        async with app.run_test(size=size) as pilot:
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


def _visible(app: Stepper) -> list[str]:
    return [name for name in ("says", "mask", "state", "loop") if app.query_one(f"#{name}").region.area]


@pytest.mark.parametrize("size", [(80, 24), (40, 15), (200, 20)])
def test_a_small_terminal_shows_one_pane_at_a_time(recording: Recording, size: tuple[int, int]) -> None:
    async def scenario(app: Stepper, pilot: Any) -> None:
        await pilot.press("j")
        seen = [_visible(app)]
        for key in ("v", "v", "v", "v", "3"):
            await pilot.press(key)
            seen.append(_visible(app))
        assert seen == [["says"], ["mask"], ["state"], ["loop"], ["says"], ["state"]]
        assert app.query_one("#state").region.height >= size[1] - 9, "what is shown has the room of all"

    _drive(recording, scenario, size)


def test_a_large_terminal_shows_all_panes_whatever_was_chosen(recording: Recording) -> None:
    async def scenario(app: Stepper, pilot: Any) -> None:
        for key in ("right", "v", "4"):
            await pilot.press(key)
            assert _visible(app) == ["says", "mask", "state", "loop"]
        await pilot.resize_terminal(80, 24)
        assert _visible(app) == ["loop"]

    _drive(recording, scenario)


def test_every_key_is_in_the_help(recording: Recording) -> None:
    """Shown over the rest, and gone with the next key, which does nothing else."""
    async def scenario(app: Stepper, pilot: Any) -> None:
        await pilot.press("question_mark")
        shown = str(app.screen.query_one("#help Static", Static).render())
        for binding in app.BINDINGS:
            assert isinstance(binding, Binding)
            for key in binding.key.split(","):
                assert key in shown.replace("?", "question_mark") or key in ("question_mark", "f1"), key
        await pilot.press("n")
        assert app.index == 0
        await pilot.press("n")
        assert app.index == 1

    _drive(recording, scenario)


def test_the_gate_is_shown_with_its_reason(tiny_model: Path) -> None:
    config = EngineConfig(model=str(tiny_model), stage=5, exact=True, options=StageOptions(backend_jump="draft"))
    made = record(config, "Describe a cat.", constraint=Constraint.regex("[a-z](sloop|schooner)"),
                  sampling=SamplingParams(max_new_tokens=20))

    async def scenario(app: Stepper, pilot: Any) -> None:
        await pilot.press("g")
        frame = made.frames[app.index]
        assert frame.gate in ("backend_jump", "drafts")
        assert f"off, gate: {frame.gate}" in _shown(app, "loop-text")
        assert f"(gate: {frame.gate})" in _shown(app, "says-text")
        assert "had to wait" in _shown(app, "says-text")

    _drive(made, scenario)


def test_the_compile_is_stepped_and_a_typed_regex_compiled(tiny_model: Path) -> None:
    vocabulary = Tokenizer.from_folder(tiny_model).vocabulary

    async def run() -> None:
        app = PipelineStepper("(yes|no)", lambda typed: pipeline_of(typed, vocabulary))
        async with app.run_test(size=(80, 24)) as pilot:
            async def settled() -> str:
                await app.workers.wait_for_complete()
                await pilot.pause()
                return str(app.query_one("#list-text", Static).render())

            assert "7 more" in await settled()
            await pilot.press("n", "n", "n")
            shown = await settled()
            assert "minimal FSM" in shown
            assert "jump map" not in shown, "what is behind is not told yet"
            await pilot.press("slash", "end", "backspace", "enter")
            assert "unterminated" in await settled()
            await pilot.press("slash", "end", "x", ")", "enter")
            assert "7 more" in await settled()
            await pilot.press("end")
            assert "the last step" in await settled()
            assert app.pipeline is not None
            assert app.pipeline.pattern == "(yes|nox)"

    asyncio.run(run())
