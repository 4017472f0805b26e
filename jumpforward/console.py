"""What reaches the terminal: colours, the progress line, tables, errors. Without a terminal it is plain text."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

_RESET = "\x1b[0m"
_CLEAR_LINE = "\r\x1b[K"
# Blue and yellow stay apart for colour-blind readers; bold keeps them apart without colour vision.
_ORIGIN_STYLE = {
    "sampled": "\x1b[36m",
    "jumped": "\x1b[1;33m",
    "forced": "\x1b[1;33m",
    "draft_accepted": "\x1b[1;35m",
    "reasoning": "\x1b[2m",
}
# Terminals obey control characters, and a model may write any: they are shown as pictures (U+2400 and on).
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_SECONDS_BETWEEN_UPDATES = 0.1


def legend() -> str:
    """What the colours of an answer mean, in those colours."""
    names = ("sampled", "forced", "draft_accepted")
    return ", ".join(f"{_ORIGIN_STYLE[name]}{name.replace('_', ' ')}{_RESET}" for name in names)


def visible(text: str) -> str:
    """`text` with control characters as pictures, so that a terminal shows them instead of obeying them."""
    return text.translate(_VISIBLE)


def is_terminal(stream: TextIO) -> bool:
    """True when a person reads `stream` on a terminal that obeys cursor control."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def wants_colour(stream: TextIO) -> bool:
    """True on a terminal, unless NO_COLOR is set to anything but the empty string."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def tolerate_any_text(stream: TextIO) -> None:
    """Let a stream whose encoding lacks a character print a stand-in for it instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


@dataclass(slots=True)
class TextWriter:
    """Writes an answer as it comes, coloured by how its tokens came.

    Attributes:
        stream: where to. ends_line: whether the last character written was a newline.
    """

    stream: TextIO
    ends_line: bool = True

    def write(self, text: str, origins: Sequence[str] = ()) -> None:
        """Show `text` at once, coloured by how its tokens came, or as "reasoning".

        Of a piece with several origins, the first that is not `sampled` decides.
        """
        if not text:
            return
        self.ends_line = text.endswith("\n")
        if is_terminal(self.stream):
            text = visible(text)
        if origins and wants_colour(self.stream):
            origin = next((name for name in origins if name != "sampled"), "sampled")
            text = f"{_ORIGIN_STYLE.get(origin, '')}{text}{_RESET}"
        self.stream.write(text)
        self.stream.flush()

    def end_line(self) -> None:
        """Start a new line unless we are at the start of one."""
        if not self.ends_line:
            self.write("\n")


@dataclass(slots=True)
class ProgressLine:
    """The engine's progress callback: one line that is rewritten, or a line for each piece of work.

    Attributes:
        stream: where to. seen: pieces of work already announced. shown: a line is on the terminal now.
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    seen: set[str] = field(default_factory=set)
    shown: bool = False
    last_update: float = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        """`done` of `total` of `what` is finished; total 0 when unknown."""
        if not is_terminal(self.stream):
            if what not in self.seen:
                self.seen.add(what)
                self.stream.write(f"{what} ...\n")
                self.stream.flush()
            return
        now = time.monotonic()
        if self.shown and done != total and now - self.last_update < _SECONDS_BETWEEN_UPDATES:
            return
        self.last_update = now
        share = f" {100 * done // total} %" if total > 0 else ""
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(_CLEAR_LINE + f"{what} ...{share}"[:width])
        self.stream.flush()
        self.shown = True

    def clear(self) -> None:
        """Take the line off the terminal; nothing to do without one."""
        if self.shown:
            self.stream.write(_CLEAR_LINE)
            self.stream.flush()
            self.shown = False


def speaks_unicode(stream: TextIO) -> bool:
    """True when box and block characters can be printed."""
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")


def page_width(stream: TextIO) -> int:
    """Columns for tables: those of the terminal, 100 without one; the variable COLUMNS overrides both."""
    columns = os.environ.get("COLUMNS", "")
    if is_terminal(stream) or columns.isdecimal():
        return max(20, shutil.get_terminal_size((100, 24)).columns)
    return 100


def print_rich(*parts: RenderableType, stream: TextIO | None = None) -> None:
    """Print rich tables and texts, one below the other: with colours on a terminal, tables `page_width` wide.

    Texts are never broken into lines: a terminal does that by itself, and what is copied stays what it was.
    """
    from rich.console import Console
    from rich.text import Text

    target = sys.stdout if stream is None else stream
    page = io.StringIO()
    colour = wants_colour(target)
    console = Console(file=page, width=page_width(target), force_terminal=colour, no_color=not colour,
                      color_system="standard" if colour else None, safe_box=True, highlight=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))
    # Written by us and not by rich, which would end the process by itself when the reader has gone.
    target.write(page.getvalue())
    target.flush()
