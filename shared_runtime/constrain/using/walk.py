"""Walks a stage's real masks without a model: the masks a request would be sampled under, token by token."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, JumpforwardError
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import Admission, AdmitState, SampledRow, StagePolicy
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.vocabulary import Vocabulary


class GrammarWalker:
    """Starts walks under one policy. Between walks nothing is kept but what the policy caches."""

    def __init__(self, policy: StagePolicy, vocabulary: Vocabulary, *, patience: float = 30.0) -> None:
        self._policy = policy
        self._vocabulary = vocabulary
        self._patience = patience
        self._numbers: Iterator[int] = itertools.count()

    def start(self, constraint: Constraint, sampling: SamplingParams | None = None) -> Walk:
        """A walk at the beginning of `constraint`.

        Raises:
            ConstraintError: the stage refuses the constraint, and why.
        """
        req = Request(rid=f"walk-{next(self._numbers)}", prompt_ids=[0], prompt="", seed=0, constraint=constraint,
                      sampling=sampling or SamplingParams(), metrics=RequestMetrics(arrival=time.perf_counter()))
        admission = self._policy.admit(req)
        if admission.state is AdmitState.COMPILING:
            admission = self._wait(req)
        if admission.state is AdmitState.REJECTED:
            self._policy.release(req, "error")
            raise admission.error or ConstraintError(f"{constraint.text} was rejected without a reason")
        return Walk(self._policy, self._vocabulary, req)

    def _wait(self, req: Request) -> Admission:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            for polled, admission in self._policy.poll():
                if polled is req:
                    return admission
            time.sleep(0.001)
        self._policy.cancel(req.rid)
        raise GrammarTimeoutError(f"no grammar after {self._patience:g} s", where=req.rid)


class Walk:
    """One text in the making under a grammar. Use as a context manager, or `close` it."""

    def __init__(self, policy: StagePolicy, vocabulary: Vocabulary, req: Request) -> None:
        self._policy = policy
        self._vocabulary = vocabulary
        self.req = req
        self.terminated = False

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def mask(self) -> Tensor:
        """[width] bool: the tokens that may come next."""
        logits = torch.zeros((1, self._vocabulary.width))
        batch = ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=[self.req])
        self._policy.constrain(logits, batch, [len(self.req.output_ids)])
        return torch.isfinite(logits[0])

    def allowed(self) -> set[int]:
        """The ids of `mask`."""
        return set(self.mask().nonzero().squeeze(1).tolist())

    @property
    def accepting(self) -> bool:
        """True when the text so far is complete: the mask holds a stop id."""
        mask = self.mask()
        return any(bool(mask[stop]) for stop in self._vocabulary.stop_ids)

    def feed(self, token_id: int) -> JumpforwardError | None:
        """Give the grammar a token, as after sampling it; returns the grammar's refusal, None when it took it."""
        batch = ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=[self.req])
        result = self._policy.accept(batch, [SampledRow(self.req, (token_id,))])[0]
        if result.error is not None or result.n_accepted == 0:
            return result.error or ConstraintError(f"token {token_id} was not accepted")
        self.req.output_ids.append(token_id)
        self.req.origins.append("sampled")
        self.terminated = result.terminated
        return None

    def feed_allowed(self, token_ids: Sequence[int]) -> int:
        """Feed tokens as long as the mask allows them; returns how many it did."""
        for count, token_id in enumerate(token_ids):
            if self.terminated or not self.mask()[token_id] or self.feed(token_id) is not None:
                return count
        return len(token_ids)

    def close(self) -> None:
        """Let the policy forget the walk."""
        self._policy.release(self.req, "abort")
