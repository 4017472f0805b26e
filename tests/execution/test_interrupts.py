"""Ctrl-C between any two lines of a turn: the books balance, nobody is lost, and who goes on gets his very tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import shared_runtime
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.policy import StageOptions
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conftest import EngineFactory

RUNTIME = Path(shared_runtime.__file__).parent
POINTS = 10
PARAMS = SamplingParams(max_new_tokens=12)
CONSTRAINT = Constraint.regex("abcd[0-9]{2}efgh[0-9]{20}")
PROMPTS = ["one two three four five six seven", "one two three", "one two three four nine", "eleven"]
SETTINGS: dict[str, dict[str, object]] = {
    "1": {"stage": 1},
    "2": {"stage": 2},
    "4 overlap": {"stage": 4, "overlap": True},
    "5": {"stage": 5, "overlap": False},
    "5 overlap": {"stage": 5},
    "5 overlap force+draft": {"stage": 5, "options": StageOptions(backend_jump="force+draft")},
}


@dataclass
class Interrupt:
    """Raises KeyboardInterrupt at the `at`-th line that is run in the runtime, the model left out; counts them."""

    at: int | None = None
    seen: int = 0
    where: str = ""
    _files: dict[str, bool] = field(default_factory=dict)

    def __enter__(self) -> Interrupt:
        sys.settrace(self._call)
        return self

    def __exit__(self, *unused: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            path = Path(name)
            self._files[name] = RUNTIME in path.parents and "model" not in path.relative_to(RUNTIME).parts
        return self._line if self._files[name] else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{Path(frame.f_code.co_filename).relative_to(RUNTIME)}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def _serve(engine: Engine, interrupt: Interrupt) -> dict[str, Result]:
    """The results of four requests, of which two come while the others run."""
    results: dict[str, Result] = {}
    waiting = list(PROMPTS)
    while waiting or engine.has_work:
        for prompt in waiting[:2]:
            engine.add_request(prompt, sampling=PARAMS, constraint=CONSTRAINT, rid=prompt)
            waiting.remove(prompt)
        for _ in range(3):
            try:
                with interrupt:
                    engine.step()
            except KeyboardInterrupt:
                engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return results


@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupt_between_any_two_lines_leaves_an_engine_that_works(name: str, make_engine: EngineFactory) -> None:
    settings = {"kv_pool_tokens": 96, "chunked_prefill_size": 16, "exact": True, **SETTINGS[name]}
    engine = make_engine(**settings)
    _serve(engine, Interrupt())  # what is compiled or allocated the first time
    engine.parts.memory.cache.reset()
    counted = Interrupt()
    expected = {rid: result.token_ids for rid, result in _serve(engine, counted).items()}
    assert expected.keys() == set(PROMPTS)
    for point in range(1, counted.seen, max(1, counted.seen // POINTS)):
        interrupt = Interrupt(at=point)
        results = _serve(engine, interrupt)
        assert interrupt.where
        engine.check_integrity()
        assert engine.parts.memory.room == 96, interrupt.where
        assert results.keys() == set(PROMPTS), interrupt.where
        for rid, result in results.items():
            if result.finish_reason != "error":
                assert result.token_ids == expected[rid], interrupt.where
        assert [one.token_ids for one in engine.generate(PROMPTS, sampling=PARAMS, constraint=CONSTRAINT)] == [
            expected[prompt] for prompt in PROMPTS], interrupt.where
