"""The mask oracle's cross-check: partial matching of the `regex` package, on texts, never on bytes.

It asks the normalised pattern, on which the package is right (as written it errs on lazy quantifiers and `\\w`). It
knows nothing about unspellable bytes: a rest that no token can spell still counts as possible here. Nested
ambiguous repeats take it exponential time.
"""

from __future__ import annotations

import regex

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat
from shared_runtime.vocabulary import Vocabulary
from tests.oracles.utf8 import split_text, tail_intervals


class PartialOracle:
    """Which tokens may follow a prefix, as `regex.fullmatch(..., partial=True)` sees it.

    Args:
        pattern: a regex of the dialect.
        vocabulary: the tokens.
    """

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        normal = normalise(pattern)
        self.vocabulary = vocabulary
        self._match = regex.compile(normal.explicit_text).fullmatch
        # Between two neighbouring cuts all characters are in the same classes: one of them speaks for all.
        self._cuts = sorted(_cuts(normal.tree))

    def accepts(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._match(text) is not None

    def viable(self, prefix: bytes) -> bool:
        """Whether some text that begins with the bytes matches."""
        parts = split_text(prefix)
        if parts is None:
            return False
        text, tail = parts
        return any(self._match(text + char, partial=True) is not None for char in self._endings(tail))

    def allowed(self, prefix: bytes) -> set[int]:
        """The ids that may come next, stop ids included where the text may end. Empty for a dead prefix."""
        if not self.viable(prefix):
            return set()
        found = {token_id for token_id, spelled in enumerate(self.vocabulary.token_bytes)
                 if spelled and self.viable(prefix + spelled)}
        parts = split_text(prefix)
        if parts is not None and not parts[1] and self.accepts(parts[0]):
            found |= self.vocabulary.stop_ids
        return found

    def _endings(self, tail: bytes) -> list[str]:
        """Characters that the tail may become, one of each kind the pattern tells apart."""
        if not tail:
            return [""]
        return [chr(code) for first, last in tail_intervals(tail)
                for code in [first, *(cut for cut in self._cuts if first < cut <= last)]]


def _cuts(node: Node) -> set[int]:
    match node:
        case Empty():
            return set()
        case CharSet(intervals):
            return {edge for first, last in intervals for edge in (first, last + 1)}
        case Concat(parts):
            return {cut for part in parts for cut in _cuts(part)}
        case Alternate(branches):
            return {cut for branch in branches for cut in _cuts(branch)}
        case Repeat(item):
            return _cuts(item)
