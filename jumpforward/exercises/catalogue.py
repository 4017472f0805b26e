"""What exercises there are: one folder each, `exercises/NN_slug/`, described by its `exercise.toml`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumpforward.result_json import schema_text
from shared_runtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = re.compile(r"(\d\d)_([a-z][a-z0-9_]*)")
HINTS = ("Nudge", "Idea", "Sketch")
"""The headings of every `hints.md`, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """A classic mistake as a whole answer; grading must refuse it.

    Attributes:
        file: the answer. mistake: what is wrong, for people. says: regex of the first failing case's message.
        museum: the row of the museum that it is, None for none.
    """

    file: Path
    mistake: str
    says: str
    museum: int | None


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise.

    Attributes:
        folder: its files. number, slug: from the folder's name. title, difficulty: for people.
        minutes: how long it takes somebody who has the prerequisites.
        stages: the generations it is about; () for the loop that all share.
        part: the name that an answer defines. replaces: the part of the product that it stands in for.
        packages: modules that must be importable. time_limit_s, memory_mb: of one check.
        wrong: answers that must fail.
        programs: those that its tests start, so that answers may, too.
        starter_says: regex of what the check says of the starter: the symptom, where the task is to find a bug.
    """

    folder: Path
    number: int
    slug: str
    title: str
    minutes: int
    difficulty: str
    stages: tuple[int, ...]
    part: str
    replaces: str
    prerequisites: tuple[str, ...]
    packages: tuple[str, ...]
    time_limit_s: int
    memory_mb: int
    wrong: tuple[WrongAnswer, ...]
    starter_says: str = "^not written yet"
    programs: tuple[str, ...] = ()

    @property
    def starter(self) -> Path:
        """What the learner begins with."""
        return self.folder / "starter.py"

    @property
    def solution(self) -> Path:
        """An answer that passes."""
        return self.folder / "solution.py"

    @property
    def summary(self) -> str:
        """How long it takes and what one should know, in a line that its README begins with."""
        about = f"stage{'s' * (len(self.stages) > 1)} {', '.join(map(str, self.stages))}" if self.stages else "the loop"
        known = f" You should know: {'; '.join(self.prerequisites)}." if self.prerequisites else ""
        return f"About {self.minutes} minutes, {self.difficulty}, {about}.{known}"

    def text(self, name: str) -> str:
        """One of its pages."""
        return (self.folder / name).read_text(encoding="utf-8")

    def hints(self) -> list[str]:
        """The hints, from the least to the most that is given away.

        Raises:
            ConfigError: `hints.md` does not have the three headings.
        """
        parts = re.split(r"^## (.+)$", self.text("hints.md"), flags=re.MULTILINE)
        if tuple(parts[1::2]) != HINTS:
            raise ConfigError(f"hints.md has the headings {parts[1::2]}", where=str(self.folder),
                              fix=f"give it {', '.join(f'## {name}' for name in HINTS)}")
        return [text.strip() for text in parts[2::2]]


def exercises_folder() -> Path:
    """Where the exercises are.

    Raises:
        ConfigError: this is no clone of the repository: the exercises are graded by its tests.
    """
    folder = ROOT / "exercises"
    if not folder.is_dir():
        raise ConfigError(f"there are no exercises at {folder}", where="exercises",
                          fix="run this in a clone of the repository, installed with `make setup`")
    return folder


def all_exercises(folder: Path | None = None) -> list[Exercise]:
    """Every exercise, by number. Raises ConfigError for one that is not described as it must be."""
    base = folder or exercises_folder()
    found = [read_exercise(path.parent) for path in sorted(base.glob("*/exercise.toml"))]
    for what in ("number", "slug", "title"):
        values = [getattr(exercise, what) for exercise in found]
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise ConfigError(f"two exercises have the {what} {sorted(twice)[0]!r}", where=str(base), fix="rename one")
    return found


def find_exercise(exercises: Sequence[Exercise], word: str) -> Exercise:
    """One exercise by number or slug.

    Raises:
        ConfigError: there is none; names those that there are.
    """
    for exercise in exercises:
        if word == exercise.slug or (word.isdecimal() and int(word) == exercise.number):
            return exercise
    known = ", ".join(f"{exercise.number} {exercise.slug}" for exercise in exercises)
    raise ConfigError(f"there is no exercise {word!r}", where="exercises", fix=f"there are: {known}")


def read_exercise(folder: Path) -> Exercise:
    """The exercise in a folder. Raises ConfigError naming the field that lacks; `verify` looks closer."""
    name = _FOLDER.fullmatch(folder.name)
    path = folder / "exercise.toml"
    if name is None:
        raise ConfigError(f"{folder.name} is no NN_slug", where=str(folder), fix="rename the folder")
    try:
        return _described(folder, name, tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(error), where=str(path), fix="mend the TOML") from None
    except (KeyError, TypeError) as error:
        raise ConfigError(f"a field lacks or is wrong: {error}", where=str(path),
                          fix="see jumpforward/schemas/exercise.schema.json") from None


def metadata_problem(exercise: Exercise) -> str | None:
    """What its `exercise.toml` has that the schema does not allow, naming the field; None for nothing."""
    import jsonschema  # here: it takes a second, and learners need not wait for it

    data = tomllib.loads(exercise.text("exercise.toml"))
    try:
        jsonschema.validate(data, json.loads(schema_text("exercise")))
    except jsonschema.ValidationError as error:
        field = ".".join(str(part) for part in error.absolute_path) or "the file"
        return f"exercise.toml: {field}: {error.message}"
    return None


def _described(folder: Path, name: re.Match[str], data: Mapping[str, Any]) -> Exercise:
    return Exercise(
        folder, int(name[1]), name[2], data["title"], data["minutes"], data["difficulty"], tuple(data["stages"]),
        data["part"], data["replaces"], tuple(data["prerequisites"]), tuple(data.get("packages", ())),
        data.get("time_limit_s", 30), data.get("memory_mb", 1024),
        tuple(_wrong(folder, entry) for entry in data["wrong"]),
        data.get("starter_says", "^not written yet"), tuple(data.get("programs", ())))


def _wrong(folder: Path, entry: Mapping[str, Any]) -> WrongAnswer:
    return WrongAnswer(folder / "wrong" / entry["file"], entry["mistake"], entry["says"], entry.get("museum"))
