"""Is a text in a grammar's language? Asked of the real masks, token by token, as a decoder would meet them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from shared_runtime.constrain.using.walk import GrammarWalker, Walk
from shared_runtime.constraint import Constraint
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.tokenizer import Tokenizer

Got = Literal["accepted", "rejected", "incomplete"]

RANDOM_SPELLINGS = 4
# A search gives up after this many returns to an earlier place: a text of n bytes has up to 2^n spellings.
MAX_RETURNS = 512


@dataclass(frozen=True, slots=True)
class TextCheck:
    """What the masks made of a text.

    Attributes:
        got: `accepted`; `incomplete`, a beginning of a text of the language; or `rejected`.
        byte: of `rejected`, the offset of the first byte that no allowed token gives; of `incomplete`, the length.
        reason: why, for people; of an accepted text, what is odd about it.
        spellings_agree: False when another way to spell the text in tokens is treated differently.
        spellable: False when no sequence of tokens spells the text at all.
    """

    got: Got
    byte: int | None = None
    reason: str | None = None
    spellings_agree: bool = True
    spellable: bool = True


@dataclass(frozen=True, slots=True)
class _Step:
    """A way through the text: the last token, and the way before it."""

    before: _Step | None
    token_id: int
    at: int

    def ids(self) -> list[int]:
        found: list[int] = []
        step: _Step | None = self
        while step is not None:
            found.append(step.token_id)
            step = step.before
        return found[::-1]


class TextChecker:
    """Checks texts under one policy's masks."""

    def __init__(self, walker: GrammarWalker, tokenizer: Tokenizer) -> None:
        self._walker = walker
        self._tokenizer = tokenizer
        self._vocabulary = tokenizer.vocabulary

    def check(self, constraint: Constraint, text: str, *, all_tokenizations: bool = False) -> TextCheck:
        """Walk the text's canonical tokens; where one is refused, look for another spelling from there on.

        Args:
            constraint: the grammar.
            text: what to look at.
            all_tokenizations: also walk the text's bytes one by one, and some random ways to cut it into tokens.

        Raises:
            ConstraintError: the grammar is refused.
        """
        try:
            ids = self._tokenizer.spell(text)
        except UnsatisfiableConstraintError as error:
            self._walker.start(constraint).close()
            return TextCheck("rejected", byte=self._unspellable_at(text), reason=str(error), spellable=False)
        data = text.encode()
        found = self._canonical(constraint, data, ids)
        if not all_tokenizations or not found.spellings_agree:
            return found
        for spelling in self._spellings(data):
            got, at = self._follow(constraint, spelling)
            if (got == "accepted") != (found.got == "accepted"):
                how = got if got == "accepted" else f"{got} at byte {at}"
                return TextCheck("accepted", reason=f"spelled {self._shown(spelling)} it is {how}, in its canonical "
                                 f"tokens {found.got}", spellings_agree=False)
        return found

    def _canonical(self, constraint: Constraint, data: bytes, ids: list[int]) -> TextCheck:
        with self._walker.start(constraint) as walk:
            step: _Step | None = None
            at = 0
            for token_id in ids:
                mask = None if walk.terminated else walk.mask()
                if mask is None or not mask[token_id] or walk.feed(token_id) is not None:
                    return self._search(constraint, data, step, at, self._refusal(token_id, at, mask))
                at += len(self._vocabulary.token_bytes[token_id])
                step = _Step(step, token_id, at)
            if walk.terminated or walk.accepting:
                return TextCheck("accepted")
            return TextCheck("incomplete", byte=len(data), reason=f"more must follow: {self._options(walk.mask())}")

    def _search(self, constraint: Constraint, data: bytes, start: _Step | None, at: int, refusal: str) -> TextCheck:
        """Every way on from `start` whose tokens are allowed, the longest tokens first."""
        furthest, reason = at, refusal
        seen: set[int] = set()
        ends_open = False
        stack: list[_Step | None] = [start]
        for _ in range(MAX_RETURNS):
            if not stack:
                break
            step = stack.pop()
            with self._walker.start(constraint) as walk:
                for token_id in [] if step is None else step.ids():
                    walk.feed(token_id)
                at = 0 if step is None else step.at
                while at not in seen:
                    seen.add(at)
                    mask = None if walk.terminated else walk.mask()
                    if at > furthest:
                        furthest, reason = at, f"nothing allowed goes on from byte {at}: {self._options(mask)}"
                    if at == len(data):
                        if self._complete(walk, mask):
                            return TextCheck("accepted", reason=f"by another spelling: {refusal}",
                                             spellings_agree=False)
                        ends_open = True
                        break
                    ways = [] if mask is None else self._ways(data, at, mask, step)
                    if not ways or walk.feed(ways[0].token_id) is not None:
                        break
                    stack += ways[:0:-1]
                    step, at = ways[0], ways[0].at
        if ends_open:
            return TextCheck("incomplete", byte=len(data), reason="more must follow", spellings_agree=False)
        return TextCheck("rejected", byte=furthest, reason=reason)

    def _complete(self, walk: Walk, mask: Tensor | None) -> bool:
        return walk.terminated or (mask is not None and any(bool(mask[stop]) for stop in self._vocabulary.stop_ids))

    def _ways(self, data: bytes, at: int, mask: Tensor, before: _Step | None) -> list[_Step]:
        """The allowed tokens that the text goes on with, the longest first."""
        return [_Step(before, token_id, end) for token_id, end in self._prefixes(data, at) if mask[token_id]]

    def _prefixes(self, data: bytes, at: int) -> Iterator[tuple[int, int]]:
        for end in range(min(len(data), at + self._longest), at, -1):
            for token_id in self._by_bytes.get(data[at:end], ()):
                yield token_id, end

    def _follow(self, constraint: Constraint, ids: Sequence[int]) -> tuple[Got, int]:
        """What becomes of one spelling, and the bytes that were taken."""
        with self._walker.start(constraint) as walk:
            taken = walk.feed_allowed(ids)
            at = len(self._vocabulary.decode(list(ids[:taken])))
            if taken < len(ids):
                return "rejected", at
            return ("accepted" if walk.terminated or walk.accepting else "incomplete"), at

    def _spellings(self, data: bytes) -> Iterator[list[int]]:
        single = self._vocabulary.byte_tokens
        if data and all(byte in single for byte in data):
            yield [single[byte] for byte in data]
        rng = random.Random(data)
        for _ in range(RANDOM_SPELLINGS if len(data) > 1 else 0):
            ids: list[int] = []
            at = 0
            while at < len(data) and (ways := list(self._prefixes(data, at))):
                token_id, at = rng.choice(ways)
                ids.append(token_id)
            if at == len(data):
                yield ids

    @cached_property
    def _by_bytes(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        hidden = self._vocabulary.control_ids | self._vocabulary.stop_ids
        for token_id, spelled in enumerate(self._vocabulary.token_bytes):
            if spelled and token_id not in hidden:
                found.setdefault(spelled, []).append(token_id)
        return found

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)

    def _unspellable_at(self, text: str) -> int:
        """Bytes before the first character that no tokens spell."""
        at = 0
        for character in text:
            spelled = character.encode("utf-8", "surrogatepass")
            if "\ud800" <= character <= "\udfff" or not self._vocabulary.spellable_bytes.issuperset(spelled):
                return at
            at += len(spelled)
        return at

    def _refusal(self, token_id: int, at: int, mask: Tensor | None) -> str:
        spelled = _quoted(self._vocabulary.token_bytes[token_id])
        return f"token {token_id} ({spelled}) is not allowed at byte {at}: {self._options(mask)}"

    def _options(self, mask: Tensor | None) -> str:
        """What may come, in a few words: the shortest tokens tell most."""
        if mask is None:
            return "the grammar has ended"
        ids = [int(i) for i in mask.nonzero().squeeze(1)]
        if not ids:
            return "the grammar is stuck, no token at all is allowed"
        spelled = [self._vocabulary.token_bytes[i] for i in ids if i not in self._vocabulary.stop_ids]
        shown = [_quoted(one) for one in sorted(spelled, key=lambda one: (len(one), one))[:5]]
        ending = ["the end"] if len(spelled) < len(ids) else []
        more = f" and {len(spelled) - 5} more" if len(spelled) > 5 else ""
        return f"the grammar allows {', '.join([*ending, *shown])}{more}"

    def _shown(self, ids: Sequence[int]) -> str:
        pieces = [self._vocabulary.shown(i) for i in ids[:12]]
        return repr("|".join(pieces) + ("|..." if len(ids) > 12 else ""))


def _quoted(spelled: bytes) -> str:
    """A token's text in quotes; bytes as bytes where they are no whole characters."""
    try:
        return repr(spelled.decode())
    except UnicodeDecodeError:
        return repr(spelled)
