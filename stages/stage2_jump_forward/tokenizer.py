"""The vocabulary as an automaton sees it: every token's bytes in one trie, built once.

Upstream mapped text to token ids, by characters, and remembered the map per tokenizer; but two wrappers never
compared equal, so every new regex read the vocabulary again (museum row 3, mended in ca13f3b8c5).
"""

from __future__ import annotations

import threading

from shared_runtime.constrain.regex.token_trie import TokenTrie, build_trie
from shared_runtime.vocabulary import Vocabulary

__all__ = ["ReducedVocabulary", "TokenTrie", "build_trie"]


class ReducedVocabulary:
    """The engine's tokens, and the trie of those that spell text. `builds` counts its builds; never above 1."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.builds = 0
        self._lock = threading.Lock()
        self._trie: TokenTrie | None = None

    def trie(self) -> TokenTrie:
        """The trie, built at the first call. Threads that ask at once get the same one."""
        with self._lock:
            if self._trie is None:
                self.builds += 1
                self._trie = build_trie(self.vocabulary)
            return self._trie
