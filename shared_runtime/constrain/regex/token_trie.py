"""The tokens' bytes as a trie: what an automaton is walked over, all tokens at once.

Upstream let numba run through the vocabulary token by token, for every state anew.
"""

from __future__ import annotations

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
