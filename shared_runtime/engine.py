"""The front of the machine: requests in, text and results out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import torch

from shared_runtime.assembly import EngineParts, LoadedModel, assemble
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.errors import EngineStateError, JumpforwardError, RequestError
from shared_runtime.execution.event_loop import EventScheduler
from shared_runtime.execution.overlap_loop import DelayedScheduler
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.policy import OverlapScheme
from shared_runtime.request import Request
from shared_runtime.request_factory import Ask, RequestFactory, pair_up
from shared_runtime.result import Result, StreamEvent, refused, result_of
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.scheduler import Scheduler
from shared_runtime.trace import StepRecord

Message = Mapping[str, str]
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Live:
    """A request whose result has not been handed over, and how much of it has been streamed."""

    req: Request
    index: int
    sent: list[int] = field(default_factory=list)
    reencoded: int = 0


class Engine:
    """One model, one stage, one loop. Use as a context manager, from one thread.

    Args:
        config: the settings; None takes the defaults (embedded model, stage 1, CPU, fp32).
        progress: called with (what, done, total) during long work: conversion, loading, compiling; total 0 when
            it is unknown.
        ranks: the processes that share the model, of which this one is one (`ParallelEngine`); None for one alone.
        loaded: another engine's `parts.loaded`, so that the model is not loaded again.

    Raises:
        ConfigError, CheckpointError: see `assemble`.
    """

    def __init__(self, config: EngineConfig | None = None, *, progress: Progress | None = None,
                 ranks: RankGroup | None = None, loaded: LoadedModel | None = None) -> None:
        self.config = config or EngineConfig()
        self.parts: EngineParts = assemble(self.config, progress, ranks or SingleRank(), loaded)
        self.tokenizer = self.parts.tokenizer
        loop = _loop_of(self.parts.stage.capabilities.scheme(self.config.overlap))
        self.scheduler = loop(self.config, self.tokenizer.vocabulary, self.parts.runner, self.parts.memory,
                              self.parts.policy, self.parts.tracer, self.parts.ranks)
        self._factory = RequestFactory(self.config, self.parts.model, self.tokenizer)
        self._live: dict[str, _Live] = {}
        self._results: dict[str, Result] = {}
        self._closed = False

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    # a turn at a time

    def add_request(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
                    prompt_ids: Sequence[int] | None = None, sampling: SamplingParams | None = None,
                    constraint: Constraint | None = None, rid: str | None = None) -> list[str]:
        """Hand in one request, as a raw prompt, a conversation or token ids.

        Returns:
            The ids of its `n` answers, in order: `rid` itself when n is 1, else `rid/0`, `rid/1`, ...

        Raises:
            RequestError: it cannot be served; nothing was added. What is wrong with a constraint shows later, in
                the result: finding out may take a compile.
        """
        return self.submit(Ask(prompt, messages, prompt_ids, sampling, constraint), rid or self._new_rid())

    def submit(self, ask: Ask, rid: str) -> list[str]:
        """`add_request` of an `Ask`, under a given id.

        Raises:
            RequestError: as `add_request`.
        """
        self._check_open()
        reqs = self._factory.make(ask, rid)
        for req in reqs:
            if req.rid in self._live:
                raise RequestError(f"request id {req.rid!r} is in use", where="rid", fix="choose another, or none")
        for index, req in enumerate(reqs):
            self._live[req.rid] = _Live(req, index)
            self.scheduler.add(req)
        return [req.rid for req in reqs]

    def step(self) -> StepRecord | None:
        """One turn of the loop; its record when the engine has a trace."""
        self._check_open()
        try:
            record = self.scheduler.step()
        except BaseException:
            self._collect()  # what the failed turn has ended
            raise
        self._collect()
        return record

    @property
    def has_work(self) -> bool:
        """True while `step` has something to do."""
        return self.scheduler.has_work

    def abort(self, rid: str) -> None:
        """End a request at the next turn with finish reason `abort`; nothing happens when it has ended.

        Raises:
            EngineStateError: no request of that id is known.
        """
        live = self._live.get(rid)
        if live is None:
            raise EngineStateError(f"no request {rid!r}", where="abort", fix="use an id that add_request returned")
        self.scheduler.abort(live.req)

    def take_events(self, rids: Collection[str] | None = None) -> list[StreamEvent]:
        """What is new since the last call, of `rids` or of every request.

        A finished request's event carries its result; the engine then forgets the request.
        """
        wanted = list(self._live) if rids is None else [rid for rid in self._live if rid in rids]
        events = []
        for rid in wanted:
            live, result = self._live[rid], self._results.pop(rid, None)
            if result is not None:
                del self._live[rid]
            event = _event(live, result)
            if event.text or event.token_ids or event.finished:
                events.append(event)
        return events

    # whole requests

    def generate(self, prompts: str | Sequence[str] | None = None, *,
                 messages: Sequence[Message] | Sequence[Sequence[Message]] | None = None,
                 sampling: SamplingParams | Sequence[SamplingParams | None] | None = None,
                 constraint: Constraint | Sequence[Constraint | None] | None = None) -> list[Result]:
        """Run requests together to their end.

        Args:
            prompts: one raw prompt or several; or messages: one conversation or several.
            sampling, constraint: one for all, or one a prompt.

        Returns:
            Results prompt by prompt, `n` for each. A request that cannot be served has a result with `error`;
            the others are not touched by it.
        """
        results: dict[str, Result | None] = {}
        asks = pair_up(prompts, messages, sampling, constraint)
        before = set(self._live)
        try:
            for ask in asks:
                rid = self._new_rid()
                try:
                    results.update(dict.fromkeys(self.submit(ask, rid)))
                except JumpforwardError as error:
                    results[rid] = refused(rid, ask.prompt or "", error)
            self._run([rid for rid, result in results.items() if result is None])
        except BaseException:
            self._forget(self._live.keys() - before)  # also what an interrupt left half handed in
            raise
        return [result or self._take(rid) for rid, result in results.items()]

    def generate_one(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
                     sampling: SamplingParams | None = None, constraint: Constraint | None = None) -> Result:
        """Run one request to its end; of `n` answers, the first.

        Raises:
            JumpforwardError: what ended it, when it could not be served.
        """
        names = self.add_request(prompt, messages=messages, sampling=sampling, constraint=constraint)
        self._run(names)
        first, *_ = [self._take(name) for name in names]
        if first.error is not None:
            raise first.error
        return first

    def stream(self, prompt: str | None = None, *, messages: Sequence[Message] | None = None,
               sampling: SamplingParams | None = None,
               constraint: Constraint | None = None) -> Generator[StreamEvent]:
        """Run one request and yield what is new after every turn. Closing the iterator aborts the request.

        Raises:
            JumpforwardError: at the first `next`, when the request cannot be served; later, when it fails.
        """
        names = set(self.add_request(prompt, messages=messages, sampling=sampling, constraint=constraint))
        try:
            while names:
                self.step()
                for event in self.take_events(names):
                    if event.result is not None:
                        names.discard(event.rid)
                        if event.result.error is not None:
                            raise event.result.error
                    yield event
        finally:
            self._forget(names)

    def check_integrity(self) -> None:
        """Prove that the KV pool's books balance.

        Raises:
            IntegrityError: naming the difference.
        """
        self.parts.memory.check(self.scheduler.queues.in_memory, self.scheduler.in_flight)

    def close(self) -> None:
        """Stop taking requests, wait for a pass on its way, close the trace. Closing twice is closing once."""
        if not self._closed:
            self._closed = True
            self.scheduler.close()
            self.parts.tracer.close()

    # inside

    def _run(self, rids: Collection[str]) -> None:
        """Turn the loop until `rids` have ended; when a turn fails, they end with it."""
        try:
            while any(rid not in self._results for rid in rids):
                self.step()
        except BaseException:
            self._forget(rids)
            raise

    def _forget(self, rids: Collection[str]) -> None:
        """Nobody waits for `rids` any more: end them now, and keep nothing of them."""
        for rid in rids:
            live = self._live.pop(rid, None)
            if live is not None:
                self.scheduler.abort(live.req)
            self._results.pop(rid, None)
        with torch.inference_mode():
            self.scheduler.carry_out_aborts()
        self._collect()

    def _collect(self) -> None:
        ended = self.scheduler.ended
        while ended:  # taken out when it is noted: an interrupt in between loses nobody
            req = ended[0]
            if req.rid in self._live:
                self._results[req.rid] = result_of(req, self._live[req.rid].index, self.parts.thinks)
            ended.popleft()

    def _new_rid(self) -> str:
        rid = self._factory.new_rid()
        while any(name == rid or name.startswith(f"{rid}/") for name in self._live):
            rid = self._factory.new_rid()  # a caller has chosen this one
        return rid

    def _take(self, rid: str) -> Result:
        del self._live[rid]
        return self._results.pop(rid)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineStateError("the engine is closed", where="engine", fix="make a new one")


def _loop_of(scheme: OverlapScheme | None) -> type[Scheduler]:
    if scheme is None:
        return Scheduler
    return EventScheduler if scheme == "event" else DelayedScheduler


def _event(live: _Live, result: Result | None) -> StreamEvent:
    req = live.req
    text, req.unsent = req.unsent, ""
    start = len(live.sent)
    if live.reencoded != req.metrics.reencoded_tokens:  # a stage has spelled the text with other ids
        live.reencoded = req.metrics.reencoded_tokens
        pairs = zip(live.sent, req.output_ids, strict=False)
        start = next((index for index, (was, becomes) in enumerate(pairs) if was != becomes),
                     min(len(live.sent), len(req.output_ids)))
    live.sent[start:] = req.output_ids[start:]
    return StreamEvent(rid=req.rid, index=live.index, text=text, start=start, token_ids=req.output_ids[start:],
                       origins=req.origins[start:], finished=result is not None, result=result)
