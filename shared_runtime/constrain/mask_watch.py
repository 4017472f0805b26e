"""Fills a batch's masks so that one grammar's fault ends one request: a library that raises, or that is too slow.

A cheap compile is no promise of cheap masks: one library compiled `(([a-z ]+)*)*!` in 16 ms and then took up to 2.9 s a
mask. Nothing can stop such a call, but it need not come again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from shared_runtime.constrain.bitmask import set_bit
from shared_runtime.constrain.failures import own_error
from shared_runtime.errors import GrammarTimeoutError, JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.vocabulary import Vocabulary

_SLOW_MASKS = 3
_BLAME_S = 1.0


class Fillable(Protocol):
    """What a grammar has to offer here."""

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write one row of a packed mask."""
        ...


@dataclass(frozen=True, slots=True)
class MaskEntry:
    """Row `row` of the mask is for request `rid`, whose grammar is `grammar`."""

    rid: str
    row: int
    grammar: Fillable


class MaskWatch:
    """Fills rows together; after a slow step row by row for a second, to find out whose fault it is.

    Args:
        limits: `mask_timeout` holds for a row; three too slow ones in a row are one too many.

    Attributes:
        failures: per request id, what it is to end with.
    """

    def __init__(self, limits: GrammarLimits, vocabulary: Vocabulary) -> None:
        self.failures: dict[str, JumpforwardError] = {}
        self._limit = limits.mask_timeout
        self._slow: dict[str, int] = {}
        self._blaming_since = -math.inf
        self._harmless = next((token_id for token_id, text in enumerate(vocabulary.token_bytes)
                               if text and token_id not in vocabulary.stop_ids), 0)

    def fill(self, entries: Sequence[MaskEntry], mask: Tensor, together: Callable[[], None]) -> None:
        """Fill the rows of `entries`; `together` does it in one call, with the same result."""
        started = time.perf_counter()
        if started - self._blaming_since < _BLAME_S:
            self._one_by_one(entries, mask)
            return
        try:
            together()
        except Exception:  # of one grammar, whatever its library throws: find out whose
            self._one_by_one(entries, mask)
        if time.perf_counter() - started > self._limit:
            self._blaming_since = started

    def forget(self, rid: str) -> None:
        """The request has ended."""
        self.failures.pop(rid, None)
        self._slow.pop(rid, None)

    def _one_by_one(self, entries: Sequence[MaskEntry], mask: Tensor) -> None:
        for entry in entries:
            started = time.thread_time()  # of this thread alone: a busy machine is no fault of the grammar's
            try:
                entry.grammar.fill_vocab_mask(mask, entry.row)
            except Exception as error:
                self.failures[entry.rid] = own_error(error, where=f"request {entry.rid}")
            slow = self._slow.get(entry.rid, 0) + 1 if time.thread_time() - started > self._limit else 0
            self._slow[entry.rid] = slow
            if slow >= _SLOW_MASKS:
                self.failures[entry.rid] = GrammarTimeoutError(
                    f"{slow} masks in a row took longer than {self._limit:g} s", where=f"request {entry.rid}",
                    fix="simplify the grammar, raise mask_timeout or try another --backend")
            if entry.rid in self.failures:  # what is sampled from this row is thrown away
                mask[entry.row] = 0
                set_bit(mask[entry.row], self._harmless, True)
