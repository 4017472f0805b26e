"""Random patterns of the dialect, texts that match them, and prefixes that end anywhere, inside characters too."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat

ATOMS = ("a", "b", "c", "-", " ", "é", "ß", "中", "文", "🌈", r"\n", r"\.", r"\x41", r"\u4e2d", ".", "[abc]", "[^a]",
         "[a-c0-9]", "[^\\n]", "[à-ÿ]", "[一-鿿]", "[🌀-🌟]", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\w.-]",
         r"[^\W\d]", "(?i:ab)", "[-a]", "[]a]")
QUANTIFIERS = ("*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}", "{0}", "*?", "+?", "??", "{1,2}?")


def random_pattern(rng: random.Random, depth: int = 3, atoms: tuple[str, ...] = ATOMS) -> str:
    """A pattern with groups at most `depth` deep. Some match nothing at all."""
    branches = ["".join(_part(rng, depth, atoms) for _ in range(rng.choice((0, 1, 1, 2, 2, 3))))
                for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return "|".join(branches)


def _part(rng: random.Random, depth: int, atoms: tuple[str, ...]) -> str:
    if depth > 0 and rng.random() < 0.35:
        opening = rng.choice(("(", "(?:", "(?s:", "(?i:"))
        part = opening + random_pattern(rng, depth - 1, atoms) + ")"
    else:
        part = rng.choice(atoms)
    return part + rng.choice(QUANTIFIERS) if rng.random() < 0.35 else part


def random_text(rng: random.Random, node: Node) -> str:
    """A text of the language; unbounded repeats run a few times past their lower bound."""
    match node:
        case Empty():
            return ""
        case CharSet(intervals):
            # ASCII first, so that texts stay near what people write; every interval has its turn.
            first, last = rng.choice(intervals)
            return chr(rng.randint(first, min(last, first + 200)) if rng.random() < 0.8
                       else rng.randint(first, last))
        case Concat(parts):
            return "".join(random_text(rng, part) for part in parts)
        case Alternate(branches):
            return random_text(rng, rng.choice(branches))
        case Repeat(item, low, high):
            most = low + 3 if high is None else min(high, low + 3)
            return "".join(random_text(rng, item) for _ in range(rng.randint(low, most)))


def random_prefix(rng: random.Random, node: Node) -> bytes:
    """The first bytes of a text of the language; half of the cuts that can fall inside a character do."""
    data = random_text(rng, node).encode()
    inside = [cut for cut in range(1, len(data)) if 0x80 <= data[cut] <= 0xBF]
    if inside and rng.random() < 0.5:
        return data[:rng.choice(inside)]
    return data[:rng.randint(0, len(data))]


def patterns(depth: int = 3, atoms: tuple[str, ...] = ATOMS) -> st.SearchStrategy[str]:
    """Hypothesis: patterns of the dialect."""
    leaves = st.sampled_from(atoms)

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({}){}".format, inner, st.sampled_from(QUANTIFIERS)),
            st.builds("({}|{})".format, inner, inner),
            st.builds("{}{}".format, inner, inner),
        )

    return st.recursive(leaves, grow, max_leaves=2 ** depth)


def texts_of(pattern: str) -> st.SearchStrategy[str]:
    """Hypothesis: texts of the pattern's language, which must not be empty."""
    tree = normalise(pattern).tree
    return st.randoms(use_true_random=False).map(lambda rng: random_text(rng, tree))
