"""An answer as it comes: the text on standard output, a reasoning part beside it on standard error."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from jumpforward.console import ProgressLine, TextWriter

if TYPE_CHECKING:
    from shared_runtime.constrain.using.reasoning import ReasoningPart
    from shared_runtime.result import StreamEvent


@dataclass(slots=True)
class ReasoningSplit:
    """Tells the reasoning part of one answer from what comes behind it, piece by piece.

    Attributes:
        part: which token ends it. token_ids: the output so far. told: characters that have been told apart.
    """

    part: ReasoningPart
    token_ids: list[int] = field(default_factory=list)
    told: int = 0

    def split(self, event: StreamEvent) -> tuple[str, str]:
        """What of `event.text` is reasoning, and what is answer; the token between them is in neither."""
        self.token_ids[event.start:] = event.token_ids
        bounds, begin = self.part.bounds(self.token_ids), self.told
        self.told += len(event.text)
        if bounds is None:  # text never runs ahead of the ids
            return event.text, ""
        return event.text[:max(0, bounds[0] - begin)], event.text[max(0, bounds[1] - begin):]


@dataclass(slots=True)
class AnswerStream:
    """Streams a single answer; several ones would run into each other, so each is shown when it is whole.

    As a context manager it ends the line, also where an error cuts the text short.

    Attributes:
        answers: how many there will be. silent: show nothing. progress: the line that must go before text comes.
        reasoning: for answers that begin with a reasoning part. It goes to standard error: what a program reads from
            standard output is in the constraint's language.
    """

    answers: int
    silent: bool
    progress: ProgressLine
    reasoning: ReasoningPart | None = None
    writer: TextWriter = field(default_factory=lambda: TextWriter(sys.stdout))
    aside: TextWriter = field(default_factory=lambda: TextWriter(sys.stderr))
    held: dict[int, list[StreamEvent]] = field(default_factory=dict)
    splits: dict[int, ReasoningSplit] = field(default_factory=dict)

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._end_lines()

    def show(self, event: StreamEvent) -> None:
        """Print what is new, or keep it until its answer is whole."""
        if self.silent:
            return
        if self.answers == 1:
            self._write(event)
            return
        self.held.setdefault(event.index, []).append(event)
        if event.finished:
            self.progress.clear()
            self.writer.write(f"[answer {event.index + 1} of {self.answers}]\n")
            for piece in self.held.pop(event.index):
                self._write(piece)
            self._end_lines()

    def _write(self, event: StreamEvent) -> None:
        thought, text = "", event.text
        if self.reasoning is not None:
            split = self.splits.setdefault(event.index, ReasoningSplit(self.reasoning))
            title = "[reasoning]\n" if split.told == 0 else ""
            thought, text = split.split(event)
            if thought:
                self.progress.clear()
                self.aside.write(title + thought, ["reasoning"])
        if text:
            self.progress.clear()
            self.aside.end_line()
            self.writer.write(text, event.origins)

    def _end_lines(self) -> None:
        self.aside.end_line()
        self.writer.end_line()
