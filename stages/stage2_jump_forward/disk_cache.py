"""Indexes on disk, so that a restart compiles nothing twice (upstream: ca13f3b8c5, #63).

Upstream pickled what it kept, under a key without a version: a map from before a repair was used after it (museum
row 20). Here a file is a line of JSON and plain arrays, and is used only if it holds the very index that the automaton
and the tokens have; else that is built again. A checksum shows damage, but whoever forges a file can make one. So all
of it is checked: far less work than a build that takes seconds, and what may be saved is the difference.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex import byte_automaton
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from shared_runtime.constrain.regex.token_functions import TokenFunctions
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.verified_file import read_verified, version_of, write_verified

from .fsm import RegexFSM
from .tokenizer import ReducedVocabulary

FORMAT = 1


class DiskCache:
    """One file an index; `loads` counts the files that were used."""

    def __init__(self, folder: Path, reduced: ReducedVocabulary, limits: GrammarLimits) -> None:
        self._folder, self._reduced = folder, reduced
        code = version_of(Path(__file__).parent, Path(byte_automaton.__file__).parent)
        self._key = {"format": FORMAT, "code": code, "vocabulary": reduced.vocabulary.fingerprint,
                     "limits": asdict(limits)}
        self.loads = 0

    def path(self, pattern: str) -> Path:
        """Where the index of `pattern` lies: another version, vocabulary or limit is another file."""
        return self._folder / f"{hashlib.sha256(self._head(pattern)).hexdigest()}.fsm"

    def load(self, pattern: str, dfa: ByteAutomaton, budget: Budget) -> RegexFSM | None:
        """The index of `pattern`, whose automaton is `dfa`; None when it has to be built. `budget` pays the check."""
        states, width = len(dfa.table), -(-self._reduced.vocabulary.width // 8)
        payload = read_verified(self.path(pattern), self._head(pattern), most=16 + states * (8 + width))
        if payload is None or len(payload) < 16:
            return None
        n_rows, n_masks = np.frombuffer(payload, "<i8", 2).tolist()
        if min(n_rows, n_masks) < 1 or len(payload) != 16 + 8 * n_rows + width * n_masks:
            return None
        rows = np.frombuffer(payload, "<i4", 2 * n_rows, 16).reshape(n_rows, 2)
        masks = list(np.frombuffer(payload, np.uint8, -1, 16 + 8 * n_rows).reshape(n_masks, width))
        index: dict[int, int] = dict(rows.tolist())
        if rows.min() < 0 or (rows.max(axis=0) >= (states, n_masks)).any() or len(index) != n_rows:
            return None
        functions = TokenFunctions.of(dfa, self._reduced.trie(), budget)
        if functions is None or not functions.agree_with(index, masks, dfa.accepting):
            return None
        self.loads += 1
        return RegexFSM(self._reduced.vocabulary, dfa, index, masks)

    def save(self, pattern: str, fsm: RegexFSM) -> None:
        """Keep an index for the next process."""
        rows = np.array(list(fsm.rows.items()), dtype="<i4")
        counts = np.array([len(rows), len(fsm.masks)], dtype="<i8")
        write_verified(self.path(pattern), self._head(pattern),
                       counts.tobytes() + rows.tobytes() + np.stack(fsm.masks).tobytes())

    def _head(self, pattern: str) -> bytes:
        return json.dumps({**self._key, "pattern": pattern}, sort_keys=True).encode() + b"\n"
