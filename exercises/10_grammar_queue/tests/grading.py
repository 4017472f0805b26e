"""What is graded: combinations, and a whole stage with good and bad grammars."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case, expect

from .common import (
    QueueClass,
    Table,
    a_compile_that_nobody_waits_for_is_given_up,
    all_who_wait_get_the_grammar,
    stage_4_answers,
)


def the_order_is_that_of_arrival(part: QueueClass) -> None:
    """Two keys, asked for in turn."""
    table = Table(part)
    for index in range(6):
        table.admit(f"r{index}", "ab"[index % 2])
    table.ends("b")
    table.ends("a")
    got = table.poll()
    wanted = [("r0", "A"), ("r2", "A"), ("r4", "A"), ("r1", "B"), ("r3", "B"), ("r5", "B")]
    expect(got == wanted, f"'a' was handed in before 'b', both are ready: poll says {got}, expected {wanted}")


def ready_counts_at_the_limit(part: QueueClass) -> None:
    """It is over, and nobody has polled for a while."""
    table = Table(part)
    table.admit("r1", "a")
    table.ends("a")
    table.now += 60
    got = table.poll()
    expect(got == [("r1", "A")], f"'a' was ready long ago, nobody polled meanwhile: poll says {got}")


def a_limit_after_an_abort(part: QueueClass) -> None:
    """The first who asked has gone; the limit is the compile's, not the request's."""
    table = Table(part)
    table.admit("r1", "a")
    table.now += 6
    table.admit("r2", "a")
    table.queue.cancel("r1")
    table.now += 5
    got = [rid for rid, _ in table.poll()]
    expect(got == ["r2"], f"'a' was handed in 11 s ago, the time limit is 10 s: poll settles {got}, expected ['r2']")


CASES = [
    *each(all_who_wait_get_the_grammar, {"twenty requests, one grammar": (20,)}),
    Case("a compile that nobody waits for", a_compile_that_nobody_waits_for_is_given_up),
    Case("two grammars, asked for in turn", the_order_is_that_of_arrival),
    Case("ready, and seen late", ready_counts_at_the_limit),
    Case("a time limit after an abort", a_limit_after_an_abort),
    *each(stage_4_answers, {
        "stage 4, equal and different grammars": (["[0-9]{3}", "[a-c]{2}", "[0-9]{3}"],),
        "stage 4, only bad grammars": (["(", "[z-a]", "("],),
        "stage 4, no grammars": ([],),
    }),
]
