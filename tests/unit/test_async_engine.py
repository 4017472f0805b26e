"""The async front: tasks share one batch, cancelling aborts, failures reach those who wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from pathlib import Path

import pytest

from shared_runtime.async_engine import AsyncEngine
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import EngineStateError, RequestError
from shared_runtime.sampling_params import SamplingParams

PARAMS = SamplingParams(max_new_tokens=8)


def _config(tiny_model: Path) -> EngineConfig:
    return EngineConfig(model=str(tiny_model), kv_pool_tokens=1024)


def _run(coroutine: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, timeout=60))


def test_tasks_run_in_one_batch_and_get_their_own_results(tiny_model: Path) -> None:
    prompts = [f"Task {index}" for index in range(5)]
    reference = Engine(_config(tiny_model)).generate(prompts, sampling=PARAMS)

    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            answers = await asyncio.gather(*(engine.generate(prompt, sampling=PARAMS) for prompt in prompts))
        assert [answer[0].token_ids for answer in answers] == [result.token_ids for result in reference]

    _run(body())


def test_streamed_pieces_are_the_text(tiny_model: Path) -> None:
    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            pieces, text = "", None
            async for event in engine.stream("x", sampling=PARAMS, constraint=Constraint.regex("(ab){3}")):
                pieces += event.text
                if event.result is not None:
                    text = event.result.text
            assert pieces == text == "ababab"

    _run(body())


def test_cancelling_a_task_aborts_its_request_and_leaves_the_others(tiny_model: Path) -> None:
    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            endless = asyncio.create_task(
                engine.generate("x", sampling=SamplingParams(max_new_tokens=1000, ignore_eos=True)))
            other = asyncio.create_task(engine.generate("y", sampling=PARAMS))
            await asyncio.sleep(0.05)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            assert (await other)[0].finish_reason == "length"
            again = await engine.generate("z", sampling=PARAMS)
            assert again[0].finish_reason == "length"
            assert not engine._engine.has_work, "the cancelled request is still running"

    _run(body())


def test_a_refused_request_raises_and_the_engine_goes_on(tiny_model: Path) -> None:
    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            with pytest.raises(RequestError):
                await engine.generate("", sampling=PARAMS)
            bad = await engine.generate("x", sampling=PARAMS, constraint=Constraint.regex("("))
            assert bad[0].finish_reason == "error"
            assert (await engine.generate("x", sampling=PARAMS))[0].finish_reason == "length"

    _run(body())


def test_closing_releases_whoever_waits(tiny_model: Path) -> None:
    async def body() -> None:
        engine = AsyncEngine(_config(tiny_model))
        waiting = asyncio.create_task(
            engine.generate("x", sampling=SamplingParams(max_new_tokens=1000, ignore_eos=True)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(engine.close)
        with pytest.raises(EngineStateError):
            await waiting
        with pytest.raises(EngineStateError):
            await engine.generate("x", sampling=PARAMS)

    _run(body())


def test_a_defect_in_the_loop_reaches_those_who_wait(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(engine: Engine) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Engine, "step", explode)

    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            with pytest.raises(ZeroDivisionError):
                await engine.generate("x", sampling=PARAMS)

    _run(body())


def _slowed(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3) -> None:
    original = Engine.step

    def step(engine: Engine) -> object:
        time.sleep(seconds)
        return original(engine)

    monkeypatch.setattr(Engine, "step", step)


def test_a_caller_whose_event_loop_is_gone_takes_nobody_with_it(
        tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _slowed(monkeypatch)
    engine = AsyncEngine(_config(tiny_model))

    def impatient() -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run(asyncio.wait_for(engine.generate("short", sampling=PARAMS), 0.05))

    async def body() -> None:
        patient = asyncio.create_task(engine.generate("patient", sampling=SamplingParams(max_new_tokens=4)))
        await asyncio.sleep(0.1)
        for _ in range(2):
            await asyncio.to_thread(impatient)
        assert (await patient)[0].finish_reason == "length"
        assert (await engine.generate("after", sampling=SamplingParams(max_new_tokens=2)))[0].finish_reason == "length"
        await asyncio.to_thread(engine.close)

    _run(body())


def test_a_request_that_comes_while_the_engine_closes_is_told(
        tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _slowed(monkeypatch)

    async def body() -> None:
        engine = AsyncEngine(_config(tiny_model))
        first = asyncio.create_task(engine.generate("x", sampling=SamplingParams(max_new_tokens=50)))
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await asyncio.sleep(0.05)
        for late in (engine.generate("y", sampling=PARAMS), first):
            with pytest.raises(EngineStateError):
                await late
        await closing

    _run(body())


def test_a_request_behind_a_failing_turn_gets_the_error_too(
        tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(engine: Engine) -> None:
        time.sleep(0.3)
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Engine, "step", explode)

    async def body() -> None:
        async with AsyncEngine(_config(tiny_model)) as engine:
            first = asyncio.create_task(engine.generate("x", sampling=PARAMS))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(engine.generate("y", sampling=PARAMS))
            for task in (first, second):
                with pytest.raises(ZeroDivisionError):
                    await task

    _run(body())
