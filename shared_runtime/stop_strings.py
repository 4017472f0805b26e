"""Search for stop strings in text that arrives in pieces, without showing the beginning of one.

Which stop string counts, when several could: the one that is *complete* first, reading left to right; of
those complete at the same character the longest. This can be decided as the text arrives, so it does not
depend on how the text was cut into pieces: "abcd" and "bc" on "abcd" stop at "bc", and the text is "a".
"""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.errors import RequestError


class StopSearch:
    """The search over one text.

    What is held back is the longest end of the text so far that a stop string begins with. Every match to
    come starts there or later, so a push looks at that and at the new piece, never at the text before.

    Args:
        stop: the stop strings; none means that every piece comes straight back.

    Raises:
        RequestError: a stop string is empty.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if any(not each for each in stop):
            raise RequestError("a stop string is empty", where="stop", fix="leave it out")
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._held = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that was found; nothing is taken in after it."""
        return self._matched

    def push(self, piece: str) -> str:
        """Take the next piece of text in; the text that is now known to come before any stop string."""
        if self._matched is not None:
            return ""
        text = self._held + piece
        found = self._first_complete(text)
        if found is not None:
            self._matched, self._held = found, ""
            return text[:text.index(found)]
        keep = self._open_end(text)
        self._held = text[len(text) - keep:]
        return text[:len(text) - keep]

    def finish(self) -> str:
        """The text is over: what was held back is text after all."""
        held, self._held = self._held, ""
        return held

    def _first_complete(self, text: str) -> str | None:
        ends = [(text.index(stop) + len(stop), -len(stop), stop) for stop in self._stop if stop in text]
        return min(ends)[2] if ends else None

    def _open_end(self, text: str) -> int:
        """Length of the longest end of `text` that some stop string begins with."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0
