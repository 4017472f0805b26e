"""`jumpforward diff`: two stages' folders, file by file. What history left alone is listed, and nothing more."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jumpforward.console import wants_colour
from jumpforward.exit_codes import OK

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m", "d": "\x1b[1m"}
_RESET = "\x1b[0m"
_BAR = 30


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file in two folders; None where a folder does not have it."""

    name: str
    old: str | None
    new: str | None

    @property
    def unchanged(self) -> bool:
        """Whether both folders have it, byte for byte the same."""
        return self.old == self.new

    def lines(self, older: str, newer: str) -> list[str]:
        """A unified diff, without newlines; [] when nothing changed."""
        names = (f"{older}/{self.name}" if self.old is not None else "/dev/null",
                 f"{newer}/{self.name}" if self.new is not None else "/dev/null")
        return list(difflib.unified_diff((self.old or "").splitlines(), (self.new or "").splitlines(), *names,
                                         lineterm=""))

    def counts(self) -> tuple[int, int]:
        """Lines added and lines taken away."""
        body = self.lines("", "")[2:]
        return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)


def show_diff(older: str, newer: str, *, stat: bool) -> int:
    """Print it; returns the exit code.

    Raises:
        ConfigError: there is no such stage.
    """
    import stages

    root = Path(stages.__file__).parent
    names = (stages.get_stage(older).name, stages.get_stage(newer).name)
    changes = folder_changes(root / names[0], root / names[1])
    written = stat_lines(changes, *names) if stat else diff_lines(changes, *names)
    colour = wants_colour(sys.stdout)
    for line in written:
        style = _COLOURS.get(line[:1]) if colour and not stat else None
        sys.stdout.write(f"{style}{line}{_RESET}\n" if style else f"{line}\n")
    return OK


def folder_changes(older: Path, newer: Path) -> list[FileChange]:
    """Every file of either folder, by name; what Python left there (`__pycache__`) does not count."""
    names = sorted({path.relative_to(folder).as_posix() for folder in (older, newer)
                    for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts})
    return [FileChange(name, _read(older / name), _read(newer / name)) for name in names]


def _read(path: Path) -> str | None:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else None


def diff_lines(changes: list[FileChange], older: str, newer: str) -> Iterator[str]:
    """The unified diff of each file that differs, then the names of those that do not."""
    for change in changes:
        if not change.unchanged:
            yield f"diff {older}/{change.name} {newer}/{change.name}"
            yield from change.lines(older, newer)
    yield from _unchanged(changes)


def stat_lines(changes: list[FileChange], older: str, newer: str) -> Iterator[str]:
    """A line for each file that differs: how many lines came and went."""
    counted = [(change, *change.counts()) for change in changes if not change.unchanged]
    most = max((added + removed for _, added, removed in counted), default=1) or 1
    width = max((len(change.name) for change, _, _ in counted), default=0)
    for change, added, removed in counted:
        scale = min(1.0, _BAR / most)
        bar = "+" * _length(added, scale) + "-" * _length(removed, scale)
        fate = "new in" if change.old is None else "gone in" if change.new is None else ""
        yield f"{change.name:<{width}}  {f'+{added}':>5} {f'-{removed}':>5}  {bar}{f'  {fate} {newer}' if fate else ''}"
    added, removed = sum(added for _, added, _ in counted), sum(removed for _, _, removed in counted)
    yield f"{len(counted)} files differ between {older} and {newer}: {added} lines added, {removed} taken away"
    yield from _unchanged(changes)


def _length(lines: int, scale: float) -> int:
    return max(1, round(lines * scale)) if lines else 0


def _unchanged(changes: list[FileChange]) -> Iterator[str]:
    names = [change.name for change in changes if change.unchanged]
    if names:
        yield f"unchanged: {', '.join(names)}"
