"""What a peer is to the bench: somebody else's loop that answers a wave of questions with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.workloads import Question
from shared_runtime.constraint import Constraint


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its text, its tokens with the stop token, and the forward passes it took part in."""

    text: str
    tokens: int
    passes: int


class Loop(Protocol):
    """A loop of somebody else's. What it raises beside `NotHereError` is taken as "cannot serve this"."""

    def prepare(self, constraint: Constraint) -> None:
        """Compile a constraint, so that answering does not.

        Raises:
            NotHereError: it has no such constraints.
        """
        ...

    def begin(self) -> None:
        """Forget what was kept of earlier prompts: a run begins behind an empty cache, as ours does."""
        ...

    def answer(self, wave: Sequence[Question], most: int, *, least: int = 1) -> list[Answer]:
        """Answer the questions together, each in `least` to `most` tokens."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...
