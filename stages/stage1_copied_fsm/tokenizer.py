"""The vocabulary as an automaton sees it: every token's bytes in one trie, built once.

Upstream mapped text to token ids, by characters, and remembered the map per tokenizer; but two wrappers never
compared equal, so every new regex read the vocabulary again (museum row 3, mended in ca13f3b8c5).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared_runtime.vocabulary import Vocabulary


@dataclass(frozen=True)
class TokenTrie:
    """A trie over the bytes of all tokens that spell text. Nodes are numbered breadth first; 0 is the root.

    Attributes:
        byte: [nodes] int64, the byte on the edge into a node; of no meaning at the root.
        first_child, n_children: [nodes] int64; the children of a node have consecutive numbers.
        ends: [nodes] bool, whether some token ends at the node.
        node_of: [width] int64, per token id the node where it ends; 0 for an id that spells no text.
    """

    byte: NDArray[np.int64]
    first_child: NDArray[np.int64]
    n_children: NDArray[np.int64]
    ends: NDArray[np.bool_]
    node_of: NDArray[np.int64]


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


def build_trie(vocabulary: Vocabulary) -> TokenTrie:
    """The trie of a vocabulary. Left out: control tokens, the stop set, and tokens without bytes.

    A level is one sort of (parent node, byte) pairs, so nodes come out breadth first and siblings side by side.
    """
    hidden = vocabulary.control_ids | vocabulary.stop_ids
    ids = np.array([i for i, spelled in enumerate(vocabulary.token_bytes) if spelled and i not in hidden],
                   dtype=np.int64)
    spelled = [vocabulary.token_bytes[i] for i in ids]
    lengths = np.array([len(text) for text in spelled], dtype=np.int64)
    offsets = np.cumsum(lengths) - lengths
    text = np.frombuffer(b"".join(spelled), dtype=np.uint8).astype(np.int64)
    node = np.zeros(len(ids), dtype=np.int64)
    edges, parents, count = [np.zeros(1, dtype=np.int64)], [np.full(1, -1, dtype=np.int64)], 1
    for depth in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > depth)
        pairs, which = np.unique(node[longer] * 256 + text[offsets[longer] + depth], return_inverse=True)
        node[longer] = count + which
        edges.append(pairs % 256)
        parents.append(pairs // 256)
        count += len(pairs)
    n_children = np.bincount(np.concatenate(parents)[1:], minlength=count)
    ends = np.zeros(count, dtype=np.bool_)
    ends[node] = True
    node_of = np.zeros(vocabulary.width, dtype=np.int64)
    node_of[ids] = node
    return TokenTrie(
        byte=np.concatenate(edges),
        first_child=1 + np.cumsum(n_children) - n_children, n_children=n_children,
        ends=ends, node_of=node_of)
