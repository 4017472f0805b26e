"""Checks of exercise 4. What is right is asked of stage 2's own map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.jumps import ask, automaton, preferring

Forced = Callable[[NDArray[np.int32], NDArray[np.bool_], int], bytes]


def what_is_forced_is_what_stage_2_says(part: Forced, pattern: str, come: bytes) -> None:
    """Behind some bytes that have come."""
    dfa = automaton(pattern)
    state = dfa.walk(0, come)
    before = dfa.table.copy()
    wanted, got = JumpForwardMap.of(dfa).forced(state), part(dfa.table, dfa.accepting, state)
    expect(bool((dfa.table == before).all()), "it wrote into the table, which is the caller's")
    expect(type(got) is bytes, f"it must return bytes, and returns {type(got).__name__}")
    inside = " (inside a character)" if 0x80 <= (wanted or b"\0")[0] < 0xC0 else ""
    shown = got if len(got) < 60 else got[:20] + b"... %d bytes" % len(got)
    expect(got == wanted, f"regex {pattern!r}, behind {come!r}{inside}: yours gives {shown!r}, expected {wanted!r}")


def a_dead_end_is_left(part: Forced) -> None:
    """Three states in a circle, none of which accepts."""
    table = np.full((4, 256), -1, dtype=np.int32)
    for state, target in enumerate((1, 2, 0)):
        table[state, ord("a") + state] = target
    got = part(table, np.zeros(4, dtype=np.bool_), 0)
    expect(len(got) <= 4, f"a circle that nothing leads out of: yours gives {len(got)} bytes")


def map_with(part: Forced) -> type:
    """A `JumpForwardMap` that asks the learner's function."""

    @dataclass(frozen=True)
    class Asking:
        dfa: ByteAutomaton | dict[int, tuple[int, int]]

        @classmethod
        def of(cls, dfa: ByteAutomaton) -> Asking:
            return cls(dfa)

        def forced(self, state: int) -> bytes:
            return part(self.dfa.table, self.dfa.accepting, state) if isinstance(self.dfa, ByteAutomaton) else b""

        @property
        def nbytes(self) -> int:
            return 1000

    return Asking


def stage_2_jumps_as_before(part: Forced, pattern: str, model_likes: str) -> None:
    """One request through stage 2, with its own map and with the learner's."""
    with bench() as made:
        first = made.engine(2)
        wanted = ask(pattern, max_new_tokens=30, logit_bias=preferring(first, model_likes))
        right = made.run(first, [wanted])[0]
        with in_place(decoder, "JumpForwardMap", map_with(part)):
            got = made.run(made.engine(2), [wanted])[0]
    expect(got.error is None, f"in stage 2, regex {pattern!r}: the request ended with an error: {got.error}")
    expect(got.text == right.text,
           f"in stage 2, regex {pattern!r}: the answer is {got.text!r}, expected {right.text!r}")
    expect(got.counts["jumped"] == right.counts["jumped"],
           f"in stage 2, regex {pattern!r}: {got.counts['jumped']} tokens came by jumps, expected "
           f"{right.counts['jumped']}")


def picture(part: Forced) -> list[Row]:
    """A few places in a few regexes."""
    rows = []
    for pattern, come in (("ab(cde)?", b""), ("ab(cde)?", b"ab"), ("ab(cde)?", b"abc"), ('"name": "[a-z]+"', b""),
                          ("霍格沃兹|霍比特人", b""), ("霍格沃兹|霍比特人", "霍".encode() + b"\xe6\xa0")):
        dfa = automaton(pattern)
        state = dfa.walk(0, come)
        rows.append(Row(f"{pattern}  behind {come.decode('utf-8', 'replace')!r}",
                        _drawn(part(dfa.table, dfa.accepting, state)), _drawn(JumpForwardMap.of(dfa).forced(state))))
    return rows


def _drawn(text: bytes) -> str:
    return repr(text[:40])[1:] if text else "nothing"
