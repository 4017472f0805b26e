"""The watch over calls into grammars: who failed ends, with a row that cannot end it otherwise; nobody else notices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from shared_runtime.constrain.using.grammar_watch import GrammarWatch, MaskRow
from shared_runtime.errors import ConstraintError, GrammarTimeoutError
from shared_runtime.grammar_limits import GrammarLimits
from tests.unit.stage5_helpers import SMALL, A, B, request


class Panic(BaseException):
    """As a Rust library throws it."""


@dataclass
class Allows:
    """A grammar that allows one token, or raises."""

    token_id: int
    error: type[BaseException] | None = None
    fills: list[int] = field(default_factory=list)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        self.fills.append(row)
        if self.error is not None:
            raise self.error("from the library")
        mask[row] = 1 << self.token_id


def rows_of(*grammars: Allows, stop_token_ids: tuple[int, ...] = ()) -> list[MaskRow[Allows]]:
    return [MaskRow(request(f"r{row}", stop_token_ids=stop_token_ids), row, grammar)
            for row, grammar in enumerate(grammars)]


def new_watch(seconds: float = math.inf) -> GrammarWatch:
    return GrammarWatch(GrammarLimits(mask_timeout=seconds), SMALL)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, Panic])
def test_who_fails_is_named_and_every_other_row_is_what_it_would_be(error: type[BaseException]) -> None:
    watch, mask = new_watch(), torch.full((3, 1), -1, dtype=torch.int32)
    watch.fill(rows_of(Allows(A), Allows(B, error), Allows(B)), mask)
    assert mask.flatten().tolist() == [1 << A, 1 << A, 1 << B], "the failed row holds one harmless token"
    assert list(watch.failures) == ["r1"]
    assert isinstance(watch.failures["r1"], ConstraintError)
    watch.forget("r1")
    watch.forget("r1")
    assert watch.failures == {}


def test_the_token_of_a_failed_row_is_none_that_could_end_the_request() -> None:
    for stops, harmless in (((), A), ((A,), B), ((A, B), 3)):
        mask = torch.full((1, 1), -1, dtype=torch.int32)
        new_watch().fill(rows_of(Allows(A, Panic), stop_token_ids=stops), mask)
        assert mask.item() == 1 << harmless


def test_a_call_for_all_that_fails_is_followed_by_one_for_each() -> None:
    watch, mask = new_watch(), torch.full((2, 1), -1, dtype=torch.int32)
    rows = rows_of(Allows(A), Allows(B, Panic))

    def together() -> None:
        for row in rows:
            row.grammar.fill_vocab_mask(mask, row.row)

    watch.fill(rows, mask, together)
    assert list(watch.failures) == ["r1"]
    assert mask[0].item() == 1 << A
    assert (rows[0].grammar.fills, rows[1].grammar.fills) == ([0, 0], [1, 1])


def test_a_failed_request_is_not_asked_again() -> None:
    watch, mask = new_watch(), torch.full((2, 1), -1, dtype=torch.int32)
    rows = rows_of(Allows(A), Allows(B))

    def fails() -> None:
        raise Panic

    assert watch.attempt(rows[1].req, fails) is None
    watch.fill(rows, mask, together=lambda: pytest.fail("one of them has failed"))
    assert (rows[0].grammar.fills, rows[1].grammar.fills) == ([0], [])
    assert mask[1].item() == 1 << A


def test_what_is_asked_for_all_is_answered_by_the_first_that_can_and_else_by_us() -> None:
    watch = new_watch()
    rows = rows_of(Allows(A), Allows(B), Allows(3))

    def question(grammar: Allows) -> int:
        if grammar.token_id == A:
            raise Panic
        return grammar.token_id

    assert watch.ask_any(rows, question, lambda: -1) == B
    assert list(watch.failures) == ["r0"]
    assert watch.ask_any(rows[:1], question, lambda: -1) == -1


def test_three_slow_masks_in_a_row_end_a_request_and_two_do_not() -> None:
    watch, mask = new_watch(seconds=0), torch.full((1, 1), -1, dtype=torch.int32)
    rows = rows_of(Allows(A))
    for _ in range(2):
        watch.fill(rows, mask)
    assert watch.failures == {}
    watch.forget("r0")
    for _ in range(3):
        watch.fill(rows, mask)
    assert isinstance(watch.failures["r0"], GrammarTimeoutError)


def test_an_interrupt_by_the_user_is_not_taken_for_a_fault() -> None:
    watch, mask = new_watch(), torch.full((1, 1), -1, dtype=torch.int32)
    with pytest.raises(KeyboardInterrupt):
        watch.fill(rows_of(Allows(A, KeyboardInterrupt)), mask)
    with pytest.raises(KeyboardInterrupt):
        watch.fill(rows_of(Allows(A)), mask, together=lambda: Allows(A, KeyboardInterrupt).fill_vocab_mask(mask, 0))
    assert watch.failures == {}
