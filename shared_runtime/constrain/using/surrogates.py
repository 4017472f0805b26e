"""Takes out of a packed mask what would be half of a surrogate pair: no UTF-8 text holds one (bytes ED A0 to ED BF)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from shared_runtime.constrain.using.bitmask import pack_bits
from shared_runtime.vocabulary import Vocabulary

_HALF = re.compile(rb"\xed[\xa0-\xbf]")


@dataclass(frozen=True)
class SurrogateFilter:
    """For libraries that take any three bytes of the right pattern for a character. Immutable.

    Attributes:
        never: [words] int32, the tokens with half of a pair inside. after_ed: [words] int32, those that make one
            behind a byte ED. Bits as in a packed mask: 32 tokens a word, the lowest first.
    """

    never: Tensor
    after_ed: Tensor

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> SurrogateFilter:
        """Read a vocabulary once."""
        spelled = vocabulary.token_bytes
        return cls(never=_bits(vocabulary.width, [_HALF.search(text) is not None for text in spelled]),
                   after_ed=_bits(vocabulary.width, [b"\xa0" <= text[:1] <= b"\xbf" for text in spelled]))

    def strip(self, words: Tensor, before: bytes) -> None:
        """Clear the bits of one row, in place, for a text that so far ends in `before`."""
        words &= ~self.never
        if before.endswith(b"\xed"):
            words &= ~self.after_ed


def _bits(width: int, chosen: list[bool]) -> Tensor:
    flags = np.zeros((width + 31) // 32 * 32, dtype=np.uint8)
    flags[:len(chosen)] = chosen
    return pack_bits(flags)
