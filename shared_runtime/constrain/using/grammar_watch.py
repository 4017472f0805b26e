"""Calls grammars so that one grammar's fault ends one request: a library that raises, or that is too slow.

A library may fail at any call, with anything: an exception of its own, a panic that is no `Exception`. Whatever it is,
the request whose grammar it was ends with it, and no other request notices.

A cheap compile is no promise of cheap masks: one library compiled `(([a-z ]+)*)*!` in 16 ms and then took up to 2.9 s a
mask. Nothing can stop such a call, but it need not come again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, TypeVar

from torch import Tensor

from shared_runtime.constrain.compiling.failures import library_fault
from shared_runtime.constrain.using.bitmask import set_bit
from shared_runtime.errors import GrammarTimeoutError, JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.request import Request
from shared_runtime.vocabulary import Vocabulary

_SLOW_MASKS = 3
_BLAME_S = 1.0


class Fillable(Protocol):
    """What a grammar has to offer here."""

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write one row of a packed mask."""
        ...


P = ParamSpec("P")
T = TypeVar("T")
G = TypeVar("G", bound=Fillable)


@dataclass(frozen=True, slots=True)
class MaskRow(Generic[G]):
    """The `count` rows of a mask from `row` on are for `req`, whose grammar is `grammar`."""

    req: Request
    row: int
    grammar: G
    count: int = 1


class GrammarWatch:
    """Stands between a stage and its requests' grammars.

    Args:
        limits: `mask_timeout` holds for a row; three too slow ones in a row are one too many.

    Attributes:
        failures: per request id, what it is to end with.
    """

    def __init__(self, limits: GrammarLimits, vocabulary: Vocabulary) -> None:
        self.failures: dict[str, JumpforwardError] = {}
        self._limit = limits.mask_timeout
        self._vocabulary = vocabulary
        self._slow: dict[str, int] = {}
        self._blaming_since = -math.inf

    def attempt(self, req: Request, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `call`, a call into the grammar of `req`, returns; None when it raises, and then `req` has failed."""
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            self.failures[req.rid] = library_fault(error, req.rid)
            return None

    def ask_any(self, rows: Sequence[MaskRow[G]], question: Callable[[G], T], otherwise: Callable[[], T]) -> T:
        """The answer to what is asked for the whole batch, of the first grammar that does not fail; else `otherwise`.

        A failed request's row must be masked as well: what is sampled from it is thrown away, but must not end it.
        """
        for row in rows:
            if row.req.rid not in self.failures:
                try:
                    return question(row.grammar)
                except BaseException as error:
                    self.failures[row.req.rid] = library_fault(error, row.req.rid)
        return otherwise()

    def fill(self, rows: Sequence[MaskRow[G]], mask: Tensor, together: Callable[[], None] | None = None) -> None:
        """Fill the mask's rows; `together` does it in one call, with the same result.

        When it fails, and for a second after it took long, row by row tells whose fault it is. So it must leave the
        grammars where they stand whatever happens: one that moves in order to be asked, as along a draft, cannot be
        asked a second time.
        """
        started = time.perf_counter()
        if together is None or started - self._blaming_since < _BLAME_S or self._any_failed(rows):
            self._one_by_one(rows, mask)
            return
        try:
            together()
        except BaseException as error:  # of one grammar: find out whose
            library_fault(error, "")
            self._one_by_one(rows, mask)
        if time.perf_counter() - started > self._limit:
            self._blaming_since = started

    def forget(self, rid: str) -> None:
        """The request has ended."""
        self.failures.pop(rid, None)
        self._slow.pop(rid, None)

    def _any_failed(self, rows: Sequence[MaskRow[G]]) -> bool:
        return bool(self.failures) and any(row.req.rid in self.failures for row in rows)

    def _one_by_one(self, rows: Sequence[MaskRow[G]], mask: Tensor) -> None:
        for row in rows:
            rid = row.req.rid
            started = time.thread_time()  # of this thread alone: a busy machine is no fault of the grammar's
            if rid not in self.failures:
                self.attempt(row.req, row.grammar.fill_vocab_mask, mask, row.row)
            slow = self._slow.get(rid, 0) + 1 if time.thread_time() - started > self._limit * row.count else 0
            self._slow[rid] = slow
            if slow >= _SLOW_MASKS and rid not in self.failures:
                self.failures[rid] = GrammarTimeoutError(
                    f"{slow} masks in a row took longer than {self._limit:g} s", where=f"request {rid}",
                    fix="simplify the grammar, raise mask_timeout or try another --backend")
            if rid in self.failures:
                mask[row.row] = 0
                set_bit(mask[row.row], self._harmless(row.req), True)

    def _harmless(self, req: Request) -> int:
        """The one token of a row that has failed. It is thrown away: the request ends with its error, so it must be
        no token at which it could end otherwise."""
        ends = self._vocabulary.stop_ids.union(req.sampling.stop_token_ids)
        return next((token_id for token_id, text in enumerate(self._vocabulary.token_bytes)
                     if text and token_id not in ends), 0)
