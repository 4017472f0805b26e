"""Whether two regexes have a text in common."""

from __future__ import annotations

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.char_fsm import CharFSM, make_deterministic_fsm
from shared_runtime.constrain.regex.regex_tree import Node
from shared_runtime.grammar_limits import GrammarLimits


def small_budget() -> Budget:
    """What a question at admission may cost."""
    return Budget(GrammarLimits(compile_timeout=1.0, max_states=2_000))


def overlap(first: Node, second: Node, budget: Budget) -> bool:
    """Whether some text is in both languages, by a walk through both automata side by side.

    Raises:
        GrammarTimeoutError: past a limit of `budget`.
    """
    one, other = (make_deterministic_fsm(tree, budget) for tree in (first, second))
    seen, ahead = {(0, 0)}, [(0, 0)]
    shared = _shared_keys(one, other)
    while ahead:
        left, right = ahead.pop()
        if left in one.finals and right in other.finals:
            return True
        for mine, yours in shared:
            budget.work()
            pair = (one.rows[left].get(mine, -1), other.rows[right].get(yours, -1))
            if -1 not in pair and pair not in seen:
                seen.add(pair)
                ahead.append(pair)
    return False


def _shared_keys(one: CharFSM, other: CharFSM) -> set[tuple[int, int]]:
    """The pairs of keys that one character may have in the two alphabets."""
    return {(mine, yours) for first, last, mine in one.alphabet.intervals
            for start, end, yours in other.alphabet.intervals if first <= end and start <= last}
