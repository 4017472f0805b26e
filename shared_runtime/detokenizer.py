"""From token ids to text, one token at a time: whole characters only, and never a piece of a stop string.

Works on the bytes that tokens spell, not on decoded windows of ids. A byte is decoded once, so the position
of what has been sent only moves forward (sglang#31598: a position computed anew between two incomplete
characters moved back, and a character was sent twice).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from shared_runtime.errors import EngineStateError
from shared_runtime.stop_strings import StopSearch
from shared_runtime.vocabulary import Vocabulary


class IncrementalDetokenizer:
    """The text of one answer as it grows.

    The pieces that `push` and `flush` return, in order, are the text. The cost of a `push` depends on the
    token and on the stop strings, not on the length of the text.

    Args:
        vocabulary: what tokens spell; control tokens spell nothing.
        stop: stop strings; the first one complete ends the text and is cut off (see `StopSearch`).

    Raises:
        RequestError: a stop string is empty.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stop = tuple(stop)
        self._sent: list[str] = []
        self._flushed = False
        self._restart()

    def _restart(self) -> None:
        # Holds back the bytes of a character that may still be completed; others become U+FFFD, as in
        # `bytes.decode("utf-8", "replace")`.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._search = StopSearch(self._stop)
        self._unsent: list[str] = []

    def push(self, token_id: int) -> str:
        """Take the next token in; the new text that is safe to show.

        Held back: the first bytes of a character that may still be completed, and what may still become a
        stop string. After a stop string the answer is always "".

        Raises:
            IndexError: the id is outside the tokenizer's vocabulary.
            EngineStateError: `flush` has been called.
        """
        if self._flushed:
            raise EngineStateError(f"token {token_id} comes after the end of the text", where="detokenizer")
        self._take(self._spelled(token_id))
        return self._send()

    def flush(self) -> str:
        """The answer is over: what was held back. The bytes of an incomplete character become U+FFFD.

        A second call returns "".
        """
        if not self._flushed:
            self._flushed = True
            self._take(b"", final=True)
            self._unsent.append(self._search.finish())
        return self._send()

    def rebuild(self, token_ids: Sequence[int]) -> None:
        """A stage has rewritten the answer's ids: go on as if `token_ids` had been pushed from the start.

        What was sent stays sent and is not sent again. Text that the new ids add comes with the next `push`
        or `flush`; it may hold a stop string, so look at `matched_stop` afterwards.

        Raises:
            ValueError: the new ids do not spell the text that has been sent; nothing is changed then.
            IndexError: an id is outside the tokenizer's vocabulary; nothing is changed then.
            EngineStateError: `flush` has been called.
        """
        if self._flushed:
            raise EngineStateError("the ids are rewritten after the end of the text", where="detokenizer")
        fresh = IncrementalDetokenizer(self._vocabulary, self._stop)
        for token_id in token_ids:
            fresh._take(fresh._spelled(token_id))
        sent, text = "".join(self._sent), fresh.text
        if not text.startswith(sent):
            raise ValueError(f"the rewritten ids spell {text[:60]!r}, which does not begin with the text "
                             f"already sent, {sent[:60]!r}")
        self._decoder, self._search, self._unsent = fresh._decoder, fresh._search, [text[len(sent):]]

    @property
    def text(self) -> str:
        """All text that is safe to show, without the stop string. All of it sent, except after `rebuild`."""
        self._sent = ["".join(self._sent)]  # joined once, however often it is asked for
        return "".join(self._sent + self._unsent)

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the text, None while there is none."""
        return self._search.matched

    def _take(self, spelled: bytes, final: bool = False) -> None:
        piece = self._search.push(self._decoder.decode(spelled, final))
        if piece:
            self._unsent.append(piece)

    def _send(self) -> str:
        piece = "".join(self._unsent)
        self._unsent.clear()
        if piece:
            self._sent.append(piece)
        return piece

    def _spelled(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._vocabulary):
            raise IndexError(f"token id {token_id} is outside the {len(self._vocabulary)} of the vocabulary")
        return self._vocabulary.token_bytes[token_id]
