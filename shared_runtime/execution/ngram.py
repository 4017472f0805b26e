"""Drafts by prompt lookup: what followed the last few tokens when they stood in the text before.

Saxena, "Prompt Lookup Decoding" (2023). It needs no second model, and pays where an answer repeats its prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_runtime.execution.draft_source import DraftLength
from shared_runtime.request import Request


@dataclass(slots=True)
class _Index:
    """Where each n-gram of a request's text last ended; grows with the text.

    Attributes:
        ends: n-gram -> position behind its newest occurrence that has a token behind it.
        indexed: tokens of the text that are in. tail: the last of them, to notice a text that was rewritten.
        length: how long the request's drafts may be. offered, taken_before: to learn from what became of a draft.
    """

    ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0
    tail: tuple[int, ...] = ()
    length: DraftLength = field(default_factory=DraftLength)
    offered: int = 0
    taken_before: int = 0


class NGramDrafts:
    """`DraftSource` by prompt lookup.

    Args:
        longest: longest n-gram looked for, in tokens; longer ones are tried first. shortest: shortest one.
    """

    name = "ngram"

    def __init__(self, *, longest: int = 4, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-grams from {shortest} to {longest} tokens")
        self._sizes = range(longest, shortest - 1, -1)
        self._indexes: dict[str, _Index] = {}

    def draft(self, req: Request, room: int) -> tuple[int, ...]:
        """What followed the longest n-gram that the text ends with, when it stood there last."""
        index = self._indexes.setdefault(req.rid, _Index())
        self._learn(index, req)
        ids = req.all_ids
        self._extend(index, ids)
        limit = min(room, index.length.allowed())
        found: tuple[int, ...] = ()
        for size in self._sizes:
            end = index.ends.get(tuple(ids[-size:])) if len(ids) >= size else None
            if end is not None:
                found = tuple(ids[end:end + limit])
                break
        index.offered, index.taken_before = len(found), req.metrics.accepted_tokens
        return found

    def forget(self, req: Request) -> None:
        """Drop the request's index."""
        self._indexes.pop(req.rid, None)

    @staticmethod
    def _learn(index: _Index, req: Request) -> None:
        index.length.learn(index.offered, req.metrics.accepted_tokens - index.taken_before)
        index.offered = 0

    def _extend(self, index: _Index, ids: list[int]) -> None:
        """Index the n-grams that have got a token behind them since the last call."""
        if tuple(ids[max(0, index.indexed - len(index.tail)):index.indexed]) != index.tail:
            index.ends, index.indexed = {}, 0  # a stage rewrote the text: positions are not what they were
        for end in range(max(1, index.indexed), len(ids)):
            for size in self._sizes:
                if end >= size:
                    index.ends[tuple(ids[end - size:end])] = end
        index.indexed = len(ids)
        index.tail = tuple(ids[-self._sizes[0]:])
