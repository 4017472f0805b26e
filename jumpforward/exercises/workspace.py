"""The learner's folder: their answers, `adapters.py` that says where each is, and how far they have come.

One small file, `progress.json`, holds the progress. Answers are never overwritten without a copy of what was there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jumpforward.exercises.catalogue import ROOT, Exercise
from shared_runtime.errors import ConfigError

DEFAULT = ROOT / "my_exercises"
"""Ignored by git, so that homework does not get into a pull request."""

_HEAD = '''"""Where your answers are: one function an exercise, which returns your part.

You may move and rename your code as you like; only this file has fixed names. Delete a function to have the part
looked up in the file that the exercise's page names.
"""

from typing import Any
'''


@dataclass(slots=True)
class Progress:
    """How far a learner has come, by slug, so that exercises may be renumbered.

    Attributes:
        done: passed both sets. given_up: saw the solution before that. hints: how many hints were shown.
        current: the one that was begun or named last; None before the first.
    """

    done: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    hints: dict[str, int] = field(default_factory=dict)
    current: str | None = None


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with a learner's answers."""

    folder: Path

    @property
    def _state(self) -> Path:
        return self.folder / "progress.json"

    def answer(self, exercise: Exercise) -> Path:
        """The file that an answer is in, unless `adapters.py` says otherwise."""
        return self.folder / f"{exercise.slug}.py"

    def prepare(self, exercise: Exercise, exercises: Sequence[Exercise]) -> bool:
        """Put the starter there, and the adapters, where they are missing; True when there was no answer yet."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            adapters = self.folder / "adapters.py"
            if not adapters.exists():
                adapters.write_text(_HEAD + "".join(map(_adapter, exercises)), encoding="utf-8")
            if self.answer(exercise).exists():
                return False
            shutil.copyfile(exercise.starter, self.answer(exercise))
        except OSError as error:
            raise self._unwritable(error) from None
        return True

    def reset(self, exercise: Exercise) -> Path | None:
        """The starter again; returns where the old answer was kept, None when there was none."""
        answer = self.answer(exercise)
        kept: Path | None = None
        try:
            if answer.exists():
                kept = next(path for number in range(1, 1000)
                            if not (path := answer.with_suffix(f".py.{number}")).exists())
                answer.rename(kept)
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(exercise.starter, answer)
        except OSError as error:
            raise self._unwritable(error) from None
        return kept

    def moved(self, exercise: Exercise) -> bool:
        """Whether `adapters.py` takes the part from somewhere else than `answer`."""
        try:
            text = (self.folder / "adapters.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return f"def {exercise.slug}(" in text and _adapter(exercise).strip() not in text

    def saved(self) -> dict[Path, int]:
        """When each file was written last. An editor may take one away meanwhile, or leave a link to nowhere."""
        found = {}
        for path in self.folder.glob("**/*.py"):
            with suppress(OSError):
                found[path] = path.stat().st_mtime_ns
        return found

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot write your answers: {error.strerror}", where=str(self.folder),
                           fix="choose another folder with --answers")

    def progress(self) -> Progress:
        """What is done.

        Raises:
            ConfigError: the file is damaged.
        """
        try:
            data = json.loads(self._state.read_text(encoding="utf-8"))
            return Progress(set(map(str, data["done"])), set(map(str, data["given_up"])),
                            {str(slug): int(count) for slug, count in data["hints"].items()},
                            None if data.get("current") is None else str(data["current"]))
        except FileNotFoundError:
            return Progress()
        except NotADirectoryError as error:
            raise self._unwritable(error) from None
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            raise ConfigError("this file cannot be read", where=str(self._state),
                              fix="delete it; passed exercises are found again by `jumpforward exercises check`"
                              ) from None

    def save(self, progress: Progress) -> None:
        """Keep the progress: the whole file or the old one, never half."""
        text = json.dumps({"done": sorted(progress.done), "given_up": sorted(progress.given_up),
                           "hints": progress.hints, "current": progress.current}, indent=1) + "\n"
        fresh = self._state.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._state)
        except OSError as error:
            raise self._unwritable(error) from None


def _adapter(exercise: Exercise) -> str:
    return (f"\n\ndef {exercise.slug}() -> Any:\n    from {exercise.slug} import {exercise.part}\n\n"
            f"    return {exercise.part}\n")
