"""The reachability oracle: a token is allowed iff acceptance can still be reached by tokens. Small vocabularies."""

from __future__ import annotations

from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.vocabulary import Vocabulary
from tests.oracles.byte_derivatives import Derivatives, Never, Rest, byte_regex

MAX_TOKENS = 300
MAX_STATES = 2_000


class ByteReachability:
    """Which tokens may follow a prefix when every byte to come has to be spelled by a token.

    Args:
        pattern: a regex of the dialect.
        vocabulary: at most `MAX_TOKENS` tokens; bytes may be missing, or be there only inside longer tokens.

    Raises:
        ValueError: the vocabulary is too large for a search over all of it in each state.
    """

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        if len(vocabulary) > MAX_TOKENS:
            raise ValueError(f"{len(vocabulary)} tokens; this search is for at most {MAX_TOKENS}")
        self.vocabulary = vocabulary
        self._start = byte_regex(normalise(pattern).tree)
        self._automaton = Derivatives()
        self._next: dict[Rest, dict[int, Rest]] = {}
        self._reaching: set[Rest] = set()

    def viable(self, prefix: bytes) -> bool:
        """Whether tokens can complete the bytes to a text of the language."""
        state = self._automaton.walk(self._start, prefix)
        self._explore(state)
        return state in self._reaching

    def allowed(self, prefix: bytes) -> set[int]:
        """The ids that may come next, stop ids included where the text may end. Empty for a dead prefix."""
        if not self.viable(prefix):
            return set()
        state = self._automaton.walk(self._start, prefix)
        found = {token_id for token_id, target in self._next[state].items() if target in self._reaching}
        return found | self.vocabulary.stop_ids if state.nullable else found

    def _explore(self, state: Rest) -> None:
        """Follow every token from here on, then search backward from the accepting states."""
        stack = [state]
        while stack:
            here = stack.pop()
            if here in self._next or isinstance(here, Never):
                continue
            if len(self._next) >= MAX_STATES:
                # Half a graph would answer the next question wrongly.
                self._next.clear()
                raise ValueError(f"more than {MAX_STATES} states")
            steps = {token_id: self._automaton.walk(here, spelled)
                     for token_id, spelled in enumerate(self.vocabulary.token_bytes) if spelled}
            self._next[here] = {token_id: target for token_id, target in steps.items()
                                if not isinstance(target, Never)}
            stack += self._next[here].values()
        self._reaching |= {known for known in self._next if known.nullable}
        grown = True
        while grown:
            reached = {known for known, steps in self._next.items()
                       if known not in self._reaching and not self._reaching.isdisjoint(steps.values())}
            self._reaching |= reached
            grown = bool(reached)
