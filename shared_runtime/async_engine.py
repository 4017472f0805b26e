"""An engine on a thread of its own, for code that lives in an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
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
class _Caller:
    """One `stream` call: its event loop, the ids it was given, and the queue its events go to."""

    loop: asyncio.AbstractEventLoop
    accepted: asyncio.Future[list[str]]
    events: asyncio.Queue[Item]

    def tell(self, what: Callable[[], object]) -> bool:
        """Do something in the caller's loop; False when the loop is gone, and nobody waits any more."""
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:  # closed; asking before would leave a moment in which it closes
            return False
        return True

    def send(self, item: Item) -> bool:
        """Hand over an event or an error."""
        return self.tell(lambda: self.events.put_nowait(item))

    def refuse(self, error: BaseException) -> None:
        """The request was not taken, or the engine has ended."""
        self.tell(lambda: None if self.accepted.done() else self.accepted.set_exception(error))
        self.send(error)


@dataclass(slots=True)
class _Command:
    """Something for the engine's thread to do, and whom to tell when it will not be done."""

    do: Callable[[], None]
    caller: _Caller | None = None


class AsyncEngine:
    """Many callers, one loop: requests of all tasks run in one batch. Use as an async context manager.

    The engine is touched by its own thread only. Callers put commands into a queue, the thread carries them out
    between turns, and events come back through each caller's event loop. When the loop of the engine fails, every
    waiting caller gets the error.
    """

    def __init__(self, config: EngineConfig | None = None, *, progress: Progress | None = None) -> None:
        self._engine = Engine(config, progress=progress)
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._callers: dict[str, _Caller] = {}
        self._lock = threading.Lock()  # between "is it open?" and putting a command in, nothing may close it
        self._ended: BaseException | None = None
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
        loop = asyncio.get_running_loop()
        caller = _Caller(loop, loop.create_future(), asyncio.Queue())
        self._send(_Command(lambda: self._add(caller, prompt, messages, sampling, constraint), caller))
        open_rids = set(await caller.accepted)
        try:
            while open_rids:
                item = await caller.events.get()
                if isinstance(item, BaseException):
                    open_rids.clear()
                    raise item
                if item.finished:
                    open_rids.discard(item.rid)
                yield item
        finally:
            if open_rids and self._ended is None:
                self._send(_Command(lambda: self._abort(open_rids)))

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
            self._end(error)
        else:
            self._end(EngineStateError("the engine was closed while the request ran", where="engine"))

    def _obey(self) -> bool:
        """Carry out what callers asked; wait for the next command when there is nothing else to do."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work)
            except queue.Empty:
                return True
            if command is None:
                return False
            command.do()

    def _add(self, caller: _Caller, prompt: str | None, messages: Sequence[Message] | None,
             sampling: SamplingParams | None, constraint: Constraint | None) -> None:
        try:
            rids = self._engine.add_request(prompt, messages=messages, sampling=sampling, constraint=constraint)
        except Exception as error:  # this caller's, whatever it is
            caller.refuse(error)
            return
        self._callers.update(dict.fromkeys(rids, caller))

        def accept() -> None:
            if caller.accepted.cancelled():
                self._send(_Command(lambda: self._abort(rids)))
            else:
                caller.accepted.set_result(rids)

        if not caller.tell(accept):
            self._abort(rids)

    def _abort(self, rids: Collection[str]) -> None:
        for rid in rids:
            if self._callers.pop(rid, None) is not None:
                self._engine.abort(rid)

    def _publish(self) -> None:
        gone: list[str] = []
        for event in self._engine.take_events():
            caller = self._callers.get(event.rid)
            if event.finished:
                self._callers.pop(event.rid, None)
            if caller is not None and not caller.send(event) and not event.finished:
                gone.append(event.rid)
        self._abort(gone)

    def _end(self, error: BaseException) -> None:
        """The loop is over: nobody may put a command in any more, and whoever waits is told."""
        with self._lock:
            self._ended = error
        for caller in {id(each): each for each in self._callers.values()}.values():
            caller.refuse(error)
        self._callers.clear()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            if command is not None and command.caller is not None:
                command.caller.refuse(error)

    # on the callers' threads

    def _send(self, command: _Command) -> None:
        with self._lock:
            if self._ended is not None:
                raise EngineStateError("the engine's loop has ended", where="engine",
                                       fix=f"make a new one ({self._ended})")
            self._commands.put(command)
