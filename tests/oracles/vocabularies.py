"""Small vocabularies for the oracles: id 0 is the end of text, the rest are the tokens given."""

from __future__ import annotations

from collections.abc import Iterable

from shared_runtime.vocabulary import Vocabulary

END = 0


def vocabulary_of(tokens: Iterable[bytes]) -> Vocabulary:
    """Ids 1, 2, ... spell the tokens in their order; id 0 is control token and stop token."""
    spelled = (b"", *tokens)
    return Vocabulary(spelled, control_ids=frozenset({END}), stop_ids=frozenset({END}), width=len(spelled))


def every_byte(*longer: bytes) -> Vocabulary:
    """The 256 single bytes (id = byte + 1), then the longer tokens."""
    return vocabulary_of([*(bytes([value]) for value in range(256)), *longer])
