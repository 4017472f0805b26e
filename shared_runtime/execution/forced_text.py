"""Text that must come next, as tokens: how the model's tokenizer spells it, and what of it had better wait."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shared_runtime.errors import ConstraintError, JumpforwardError
from shared_runtime.tokenizer import Tokenizer

CONTEXT_TOKENS = 32
"""So many tokens in front decide how a text is spelled: more than a word has, and encoded in some 20 us."""

_CONTINUATION = bytes(range(0x80, 0xC0))


class Follower(Protocol):
    """What a grammar has to offer here."""

    def accept_token(self, token_id: int) -> None:
        """Move over one token. Raises, and nothing has changed, when it is not allowed."""
        ...

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write one row of a packed mask: int32 words, 32 tokens each, the lowest bit first."""
        ...


class ForcedText:
    """Spells forced text, and knows which of its tokens may be written for good. Keeps nothing of a request.

    Args:
        tokenizer: the model's. Its vocabulary is sorted, in 30 ms, when `write` is first called.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = tokenizer.vocabulary

    def spell(self, before: Sequence[int], forced: bytes) -> tuple[int, ...]:
        """Ids that spell `forced` behind the tokens `before`, none of which is touched; () where there are none.

        As the tokenizer spells it in this place, if a token begins here then; else as it spells `forced` alone. A
        character that `forced` only begins is left out; one that it only ends is spelled byte by byte.
        """
        context = self._context(before)
        whole = _whole_characters(context + forced)
        if len(whole) <= len(context):
            return ()
        in_place = self._behind(whole, len(context))
        if in_place is not None:
            return in_place
        text = whole[len(context):].lstrip(_CONTINUATION)
        rest = whole[len(context):len(whole) - len(text)]
        alone = self._behind(text, 0)
        if alone is None or not set(rest) <= self._vocabulary.byte_tokens.keys():
            return ()
        return (*(self._vocabulary.byte_tokens[byte] for byte in rest), *alone)

    def write(self, grammar: Follower, ids: Sequence[int], most: int) -> int:
        """Move `grammar` over the leading `ids` that can be written for good, at most `most`; says how many.

        Held back is the longest end of `ids` that could still become part of one longer token: one that the grammar
        allows in its place. Without that, a forced piece of a word decides which word it will be: behind a forced
        `ca` the model wrote `cautious`, where by itself it would have written `calm`, one token.
        """
        text = b"".join(self._vocabulary.token_bytes[token_id] for token_id in ids)
        for count, token_id in enumerate(ids[:most]):
            longer = self._longer_than(text)
            if longer.size and self._allows_any(grammar, longer):
                return count
            try:
                grammar.accept_token(token_id)
            except ConstraintError:  # it forces this text, and takes it in other tokens only
                return count
            text = text[len(self._vocabulary.token_bytes[token_id]):]
        return min(len(ids), most)

    def _context(self, before: Sequence[int]) -> bytes:
        """What the last of these tokens spell, from a character's first byte and the last control token on."""
        spelled = b""
        for token_id in reversed(before[-CONTEXT_TOKENS:]):
            if token_id in self._vocabulary.control_ids or token_id >= len(self._vocabulary):
                break
            spelled = self._vocabulary.token_bytes[token_id] + spelled
        return spelled.lstrip(_CONTINUATION)

    def _behind(self, text: bytes, seam: int) -> tuple[int, ...] | None:
        """The tokens of `text` from byte `seam` on; None when one of them lies across it, or nothing spells it."""
        try:
            ids = self._tokenizer.spell(text.decode())
        except (UnicodeDecodeError, JumpforwardError):
            return None
        at = 0
        for index, token_id in enumerate(ids):
            if at >= seam:
                return tuple(ids[index:]) if at == seam else None
            at += len(self._vocabulary.token_bytes[token_id])
        return () if at == seam else None

    @cached_property
    def _sorted(self) -> tuple[list[bytes], NDArray[np.int64], int]:
        """The texts of all tokens that have one, in order; their ids; the length of the longest."""
        pairs = sorted((text, token_id) for token_id, text in enumerate(self._vocabulary.token_bytes) if text)
        texts = [text for text, _ in pairs]
        return texts, np.array([token_id for _, token_id in pairs], dtype=np.int64), max(map(len, texts), default=0)

    def _longer_than(self, text: bytes) -> NDArray[np.int64]:
        """The tokens that begin with `text` and go on."""
        texts, ids, longest = self._sorted
        if len(text) >= longest:
            return ids[:0]
        first = bisect_right(texts, text)
        return ids[first:bisect_right(texts, text, first, key=lambda one: one[:len(text)])]

    def _allows_any(self, grammar: Follower, ids: NDArray[np.int64]) -> bool:
        mask = torch.zeros((1, (self._vocabulary.width + 31) // 32), dtype=torch.int32)
        grammar.fill_vocab_mask(mask, 0)
        words = mask[0].numpy()
        return bool((words[ids // 32] >> (ids % 32).astype(np.int32) & 1).any())


def _whole_characters(text: bytes) -> bytes:
    """Without the first bytes of a character that `text` ends inside."""
    for back in range(1, min(4, len(text)) + 1):
        lead = text[-back]
        if lead >= 0xC0:
            length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
            return text if back >= length else text[:-back]
        if lead < 0x80:
            break
    return text
