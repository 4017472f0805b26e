"""An engine on a thread of its own, for code that lives in an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine, Message, Progress
from shared_runtime.errors import EngineStateError
from shared_runtime.result import Result, StreamEvent
from shared_runtime.sampling_params import SamplingParams

Item = StreamEvent | BaseException


@dataclass(slots=True)
class _Subscriber:
    """Where a request's events go: a queue that lives in its owner's event loop."""

    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Item]

    def send(self, item: Item) -> None:
        """Hand over from the engine's thread; an owner whose loop is gone wants nothing any more."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.events.put_nowait, item)


class AsyncEngine:
    """Many callers, one loop: requests of all tasks run in one batch. Use as an async context manager.

    The engine is touched by its own thread only. Callers put commands into a queue, the thread carries them out
    between turns, and events come back through each caller's event loop. When the loop of the engine fails, every
    waiting caller gets the error.
    """

    def __init__(self, config: EngineConfig | None = None, *, progress: Progress | None = None) -> None:
        self._engine = Engine(config, progress=progress)
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._subscribers: dict[str, _Subscriber] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="jumpforward-engine", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> AsyncEngine:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await asyncio.to_thread(self.close)

    async def generate(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
                       sampling: SamplingParams | None = None, constraint: Constraint | None = None) -> list[Result]:
        """Run one request to its end; its `n` results in order. Cancelling the task aborts the request.

        Raises:
            RequestError: it was refused. A constraint that fails later shows in the result's `error`.
        """
        results: dict[int, Result] = {}
        async for event in self.stream(prompt, messages=messages, sampling=sampling, constraint=constraint):
            if event.result is not None:
                results[event.index] = event.result
        return [results[index] for index in sorted(results)]

    async def stream(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
                     sampling: SamplingParams | None = None,
                     constraint: Constraint | None = None) -> AsyncGenerator[StreamEvent]:
        """Yield what is new of one request, turn by turn. Closing the iterator aborts it.

        Raises:
            RequestError: at the first step, when it was refused.
            EngineStateError: the engine is closed, or its loop failed.
        """
        subscriber = _Subscriber(asyncio.get_running_loop(), asyncio.Queue())
        accepted: asyncio.Future[list[str]] = subscriber.loop.create_future()
        self._send(lambda: self._add(subscriber, accepted, prompt, messages, sampling, constraint))
        open_rids = set(await accepted)
        try:
            while open_rids:
                item = await subscriber.events.get()
                if isinstance(item, BaseException):
                    open_rids.clear()
                    raise item
                if item.finished:
                    open_rids.discard(item.rid)
                yield item
        finally:
            if open_rids:
                self._send(lambda: self._abort(open_rids))

    def close(self) -> None:
        """Abort what runs, end the thread, close the engine. Closing twice is closing once."""
        self._commands.put(None)
        self._thread.join()
        self._engine.close()

    # on the engine's thread

    def _serve(self) -> None:
        try:
            while self._obey():
                if self._engine.has_work:
                    self._engine.step()
                    self._publish()
        except BaseException as error:  # whatever ends the loop must reach those who wait for it
            self._fail(error)
        else:
            self._fail(EngineStateError("the engine was closed while the request ran", where="engine"))

    def _obey(self) -> bool:
        """Carry out what callers asked; wait for the next command when there is nothing else to do."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _add(self, subscriber: _Subscriber, accepted: asyncio.Future[list[str]], prompt: str | None,
             messages: Sequence[Message] | None, sampling: SamplingParams | None,
             constraint: Constraint | None) -> None:
        try:
            rids = self._engine.add_request(prompt, messages=messages, sampling=sampling, constraint=constraint)
        except Exception as error:
            self._reply(subscriber, accepted, error)
            return
        self._subscribers.update(dict.fromkeys(rids, subscriber))
        self._reply(subscriber, accepted, rids)

    def _reply(self, subscriber: _Subscriber, accepted: asyncio.Future[list[str]],
               answer: list[str] | Exception) -> None:
        def settle() -> None:
            if accepted.cancelled():
                if isinstance(answer, list):
                    self._send(lambda: self._abort(answer))
            elif isinstance(answer, list):
                accepted.set_result(answer)
            else:
                accepted.set_exception(answer)

        subscriber.loop.call_soon_threadsafe(settle)

    def _abort(self, rids: Sequence[str] | set[str]) -> None:
        for rid in rids:
            if self._subscribers.pop(rid, None) is not None:
                self._engine.abort(rid)

    def _publish(self) -> None:
        for event in self._engine.take_events():
            subscriber = self._subscribers.get(event.rid)
            if event.finished:
                self._subscribers.pop(event.rid, None)
            if subscriber is not None:
                subscriber.send(event)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        for subscriber in {id(each): each for each in self._subscribers.values()}.values():
            subscriber.send(error)
        self._subscribers.clear()

    # on the callers' threads

    def _send(self, command: Callable[[], None]) -> None:
        if not self._thread.is_alive():
            raise EngineStateError("the engine's loop has ended", where="engine",
                                   fix=f"make a new one ({self._failure})")
        self._commands.put(command)
