"""PocketRE, a grammar library of somebody else's: what exercise 8 adapts. Read it, and leave it as it is.

Its reader and its automaton are borrowed from `shared_runtime`, so that it fits on a page; its habits are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.char_fsm import make_deterministic_fsm
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import ConstraintError
from shared_runtime.grammar_limits import GrammarLimits

WINDOW = 8
"""So many tokens a matcher can take back."""


class PatternError(Exception):
    """A pattern that cannot be compiled.

    Attributes:
        position: character offset in the pattern, None where there is none.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class Jammed(Exception):  # the library's own name
    """A matcher was given a token that was not possible. It is of no use any more."""


@dataclass(frozen=True)
class Tokens:
    """What tokens spell.

    Attributes:
        texts: per token id, its bytes. end: the id of the one token that ends a text.
    """

    texts: Sequence[bytes]
    end: int


class Program:
    """A compiled pattern. Any number of matchers share it, in any threads.

    Attributes:
        size: memory in bytes, about.
    """

    def __init__(self, dfa: ByteAutomaton, tokens: Tokens) -> None:
        self.dfa = dfa
        self.tokens = tokens
        self.lengths = np.array([len(text) for text in tokens.texts])
        self.letters = np.zeros((len(tokens.texts), max(1, int(self.lengths.max(initial=0)))), dtype=np.uint8)
        for row, text in zip(self.letters, tokens.texts, strict=True):
            row[:len(text)] = np.frombuffer(text, dtype=np.uint8)
        self.size = int(dfa.table.nbytes + self.letters.nbytes)
        self._bits: dict[int, bytes] = {}

    def bits(self, state: int) -> bytes:
        """What `Matcher.possible` says in a state. A token without a text leads nowhere else: it is possible."""
        if state not in self._bits:
            flags = self._behind(state) != DEAD
            flags[self.tokens.end] = self.dfa.accepting[state]
            self._bits[state] = np.packbits(flags).tobytes()
        return self._bits[state]

    def _behind(self, state: int) -> NDArray[np.int64]:
        states = np.full(len(self.lengths), state, dtype=np.int64)
        for at in range(self.letters.shape[1]):
            going = (self.lengths > at) & (states != DEAD)
            states[going] = self.dfa.table[states[going], self.letters[going, at]]
        return states


def compile_pattern(pattern: str, tokens: Tokens) -> Program:
    """A program.

    Raises:
        PatternError: the pattern is no regular expression that can be compiled.
    """
    budget = Budget(GrammarLimits())
    try:
        chars = make_deterministic_fsm(normalise(pattern).tree, budget)
        return Program(spell_in_utf8(chars.alphabet.intervals, chars.rows, chars.finals, budget), tokens)
    except ConstraintError as error:
        raise PatternError(error.message, getattr(error, "offset", None)) from None


class Matcher:
    """A place in a program, at its beginning at first. For one thread."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._states = [0]
        self._jammed = False

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return bool(self.program.dfa.accepting[self._here()])

    def possible(self) -> bytes:
        """A bit for each token: the first token is the *highest* bit of the first byte. 1 = it may come.

        The bit of the end token says whether the text may end here.
        """
        return self.program.bits(self._here())

    def feed(self, token_id: int) -> None:
        """Move over a token, the end token left out.

        Raises:
            Jammed: it is not possible here. From now on every method raises that.
        """
        state = self.program.dfa.walk(self._here(), self.program.tokens.texts[token_id])
        if state == DEAD:
            self._jammed = True
            raise Jammed(f"token {token_id} is not possible here")
        self._states = [*self._states, state][-1 - WINDOW:]

    def unwind(self, count: int) -> None:
        """Take the last tokens back.

        Raises:
            ValueError: more than `WINDOW`, or more than came.
        """
        self._here()
        if not 0 <= count < len(self._states):
            raise ValueError(f"cannot unwind {count} tokens, {len(self._states) - 1} are kept")
        del self._states[len(self._states) - count:]

    def certain(self) -> bytes:
        """The bytes that every text goes on with. They may begin and end inside a character; b"" for none."""
        text, state, seen = bytearray(), self._here(), set[int]()
        while state not in seen and not self.program.dfa.accepting[state]:
            seen.add(state)
            ways = np.flatnonzero(self.program.dfa.table[state] != DEAD)
            if len(ways) != 1:
                break
            text.append(int(ways[0]))
            state = int(self.program.dfa.table[state, ways[0]])
        return bytes(text)

    def _here(self) -> int:
        if self._jammed:
            raise Jammed("this matcher has jammed before")
        return self._states[-1]
