"""The mask oracle for EBNF: which tokens keep a beginning of a text of the language, by the small recogniser."""

from __future__ import annotations

from jumpforward.recognisers.ebnf import EbnfRecogniser, Place
from shared_runtime.vocabulary import Vocabulary
from tests.oracles.utf8 import meet, spellable_intervals, split_text, tail_intervals


class EbnfMaskOracle:
    """Which tokens may follow a prefix. Exact where every character of the grammar can be spelled.

    Args:
        grammar: the grammar's text. vocabulary: the tokens.
    """

    def __init__(self, grammar: str, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.recogniser = EbnfRecogniser(grammar, max_items=50_000_000)
        self._spellable = spellable_intervals(vocabulary.spellable_bytes)
        self._tails: dict[tuple[int, bytes], bool] = {}
        self._split = [split_text(spelled) if spelled else None for spelled in vocabulary.token_bytes]

    def allowed(self, prefix: bytes) -> set[int]:
        """The ids that may come next, stop ids included where the text may end. Empty for a dead prefix."""
        parts = split_text(prefix)
        place = None if parts is None else self.recogniser.after(parts[0])
        if parts is None or place is None or not self._open(place, parts[1]):
            return set()
        if parts[1]:
            return {token_id for token_id, spelled in enumerate(self.vocabulary.token_bytes)
                    if spelled and 0x80 <= spelled[0] <= 0xBF and self._goes_on(place, split_text(parts[1] + spelled))}
        found = {token_id for token_id, split in enumerate(self._split) if self._goes_on(place, split)}
        return found | self.vocabulary.stop_ids if place.complete else found

    def _goes_on(self, place: Place, split: tuple[str, bytes] | None) -> bool:
        if split is None:
            return False
        at = self.recogniser.after(split[0], place)
        return at is not None and self._open(at, split[1])

    def _open(self, place: Place, tail: bytes) -> bool:
        """Whether a character that begins with `tail` may come; True without a tail."""
        if not tail:
            return True
        key = (id(place), tail)
        if key not in self._tails:
            possible = meet(tail_intervals(tail), self._spellable)
            self._tails[key] = any(meet((one,), possible) for one in self.recogniser.next_characters(place))
        return self._tails[key]
