"""Drafts by prompt lookup: what followed the last few tokens when they stood in the text before.

Saxena, "Prompt Lookup Decoding" (2023). It needs no second model, and pays where an answer repeats its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shared_runtime.request import Request


@dataclass(slots=True)
class _Index:
    """Where each n-gram of a request's text last ended; grows with the text.

    Attributes:
        ends: n-gram -> position behind its newest occurrence that has a token behind it.
        indexed: tokens of the text that are in. tail: the last of them, to notice a text that was rewritten.
    """

    ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0
    tail: tuple[int, ...] = ()


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

    def draft(self, req: Request, room: int, ahead: Sequence[int] = ()) -> tuple[int, ...]:
        """What followed the longest n-gram that the text ends with, when it stood there last.

        Tokens `ahead` count as the text's end; what they repeat is not looked for inside of them.
        """
        index = self._indexes.setdefault(req.rid, _Index())
        ids = req.all_ids
        self._extend(index, ids)
        end_of_text = [*ids[-self._sizes[0]:], *ahead]
        for size in self._sizes:
            end = index.ends.get(tuple(end_of_text[-size:])) if len(end_of_text) >= size else None
            if end is not None:
                return tuple(ids[end:end + room])
        return ()

    def forget(self, req: Request) -> None:
        """Drop the request's index."""
        self._indexes.pop(req.rid, None)

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
