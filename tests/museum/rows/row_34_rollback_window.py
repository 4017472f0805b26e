"""Row 34: the way back after a jump is limited to ten tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stages.stage4_backends.base_grammar_backend import BaseGrammarObject
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import AnyText, AnyText4
from tests.museum.jumps import ask, preferring

Move = Callable[[Bench, Sequence[int], Sequence[int]], "list[int]"]
"""(bench, old ids, new ids) -> the ids that a grammar which took the old ones is behind afterwards."""

_right = BaseGrammarObject.jump_and_retokenize


def within_ten_tokens(self: BaseGrammarObject, old_output_ids: Sequence[int], new_output_ids: Sequence[int],
                      next_state: int) -> bool:
    """Specimen of `BaseGrammarObject.jump_and_retokenize`: the matcher keeps ten steps."""
    common = 0
    for old, new in zip(old_output_ids, new_output_ids, strict=False):
        if old != new:
            break
        common += 1
    if len(old_output_ids) - common > 10:
        raise RuntimeError("Check failed: num_tokens <= max_rollback_tokens")
    return _right(self, old_output_ids, new_output_ids, next_state)


def move_of_stage4(retokenize: Callable[[BaseGrammarObject, Sequence[int], Sequence[int], int], bool]) -> Move:
    """How a method of stage 4 moves a grammar."""

    def move(bench: Bench, old: Sequence[int], new: Sequence[int]) -> list[int]:
        grammar = AnyText4(bench.tokenizer.vocabulary)
        assert all(map(grammar.accept_token, old))
        assert retokenize(grammar, old, new, -1)
        return grammar.ids

    return move


def move_of_stage5(bench: Bench, old: Sequence[int], new: Sequence[int]) -> list[int]:
    """How stage 5 moves a grammar."""
    grammar = AnyText(bench.tokenizer.vocabulary)
    for token_id in old:
        grammar.accept_token(token_id)
    assert grammar.jump_and_retokenize(old, new, -1)
    return grammar.ids


def any_rollback_that_is_needed_works(move: Move, bench: Bench) -> None:
    """Eleven tokens of one character become three."""
    old = bench.tokenizer.encode("x") * 11
    new = [*bench.tokenizer.encode("name"), *old[:2]]
    with unbroken("a long way back is not possible"):
        ids = move(bench, old, new)
    hold(ids == new, "the grammar is not behind the new tokens")


def scenario(bench: Bench) -> None:
    """Twelve letters that come one by one and are six tokens after the jump."""
    engine = bench.engine(4, backend="outlines")
    with unbroken("a jump killed the loop"):
        result = bench.run(engine, [ask("([a-b][b-c]){6}: true", logit_bias=preferring(engine, "b") | {
            engine.tokenizer.encode("a")[0]: 2000.0})])[0]
    hold(result.text.endswith(": true") and result.error is None, f"a jump ended in {result.text!r}: {result.error}")


EXHIBIT: Exhibit[Move] = Exhibit(
    34, move_of_stage4(within_ten_tokens), {"stage4": move_of_stage4(_right), "stage5": move_of_stage5},
    any_rollback_that_is_needed_works, "max_rollback_tokens",
    Injection(BaseGrammarObject, "jump_and_retokenize", within_ten_tokens, scenario, "max_rollback_tokens"))
