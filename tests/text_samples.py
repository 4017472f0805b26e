"""Texts that find tokenizers out: blanks before digits, line ends, scripts, joined emoji, JSON documents."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

PIECES = (
    " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "0", "1", "12", "2030", "3.14", "the", " the", "he", "in", "'s",
    "'LL",
    "é", "e\N{COMBINING ACUTE ACCENT}", "中文", "あ", "한국", "مرحبا", "नमस्ते", "👩‍👩‍👧", "🇩🇪", "\N{NO-BREAK SPACE}",
    "\N{ZERO WIDTH SPACE}", "\N{ZERO WIDTH NO-BREAK SPACE}", "\u2028", "\U0010ffff", "_", "-", ".", ",", ": ", '"',
    "{", "}", "[", "]", "<", "|", ">", "<|", "|>", "A", "zZ", "?!", "\\n", "α", "٣", "½", "²",
)

KEYS = ("name", "age", "id 1", "größe", "x", "items")


def random_texts(count: int, seed: int) -> Iterator[str]:
    """`count` texts of up to twelve pieces each."""
    rng = random.Random(seed)
    for _ in range(count):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randrange(13)))


def random_documents(count: int, seed: int) -> Iterator[str]:
    """`count` JSON documents, half of them indented."""
    rng = random.Random(seed)
    for index in range(count):
        value = {key: _value(rng, 2) for key in rng.sample(KEYS, 3)}
        yield json.dumps(value, ensure_ascii=bool(rng.getrandbits(1)), indent=2 if index % 2 else None)


def _value(rng: random.Random, depth: int) -> object:
    kind = rng.randrange(6 if depth else 4)
    if kind == 0:
        return rng.randrange(100_000)
    if kind == 1:
        return round(rng.uniform(-100, 100), rng.randrange(4))
    if kind == 2:
        return rng.choice([True, False, None])
    if kind == 3:
        return "".join(rng.choice(PIECES) for _ in range(rng.randrange(5)))
    if kind == 4:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): _value(rng, depth - 1) for _ in range(rng.randrange(4))}
