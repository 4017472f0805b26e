"""Random walks through a grammar's masks, and what must hold at every step of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from shared_runtime.conformance.deviations import shipped_deviations
from shared_runtime.conformance.target import Target
from shared_runtime.constrain.using.walk import Walk
from shared_runtime.vocabulary import Vocabulary

# Tokens of these alone bring a JSON text to its end; without a liking for them a walk stays in its first string.
CLOSING = frozenset(b'{}[]",: 0123456789')


def random_walk(walk: Walk, vocabulary: Vocabulary, rng: random.Random, steps: int, *,
                liked: frozenset[int] = CLOSING) -> Iterator[tuple[bytes, set[int]]]:
    """The text so far and the tokens allowed there, at most `steps` times; between two, one of them is taken.

    `liked` are byte values: half of the time a token that consists of them is taken where there is one.
    """
    text = b""
    for _ in range(steps):
        if walk.terminated:
            return
        allowed = walk.allowed()
        yield text, allowed
        ids = sorted(allowed - vocabulary.stop_ids)
        if not ids:
            return
        preferred = [i for i in ids if liked.issuperset(vocabulary.token_bytes[i])] if rng.random() < 0.6 else []
        token_id = rng.choice(preferred or ids)
        refusal = walk.feed(token_id)
        assert refusal is None, f"after {text!r} the mask allows {token_id} and the grammar says: {refusal}"
        text += vocabulary.token_bytes[token_id]


def lead(walk: Walk, vocabulary: Vocabulary, text: str) -> None:
    """Take the walk to `text`, in the longest tokens that are allowed."""
    rest = text.encode()
    while rest:
        ways = [i for i in walk.allowed() if (spelled := vocabulary.token_bytes[i]) and rest.startswith(spelled)]
        assert ways, f"{text!r}: nothing allowed goes on with {rest!r}"
        token_id = max(ways, key=lambda i: len(vocabulary.token_bytes[i]))
        assert walk.feed(token_id) is None
        rest = rest[len(vocabulary.token_bytes[token_id]):]


def narrows(target: Target) -> bool:
    """Whether the target is listed for allowing fewer spellings than there are."""
    return any(row.about == "spellings" and row.backend == target.backend and target.spec.id in row.stages
               for row in shipped_deviations())


def hold_to_oracle(target: Target, allowed: set[int], expected: set[int], prefix: bytes) -> None:
    """The mask is the oracle's; where fewer spellings are listed, it may hold a single one of its tokens instead."""
    extra, missing = sorted(allowed - expected)[:5], sorted(expected - allowed)[:5]
    if narrows(target) and len(allowed) == 1 and not extra:
        return
    assert allowed == expected, f"after {prefix!r}: extra {extra}, missing {missing}"
