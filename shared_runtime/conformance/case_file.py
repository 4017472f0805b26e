"""Case files: one JSON object a line, a grammar and the texts that must and must not be in its language.

A line that cannot be used is reported with its number, and the others go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeGuard, get_args

from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint, ConstraintKind
from shared_runtime.errors import ConfigError, JumpforwardError, RequestError

Expect = Literal["ok", "ok_or_error", "error", "error_preferred", "behaviour"]
CaseKind = ConstraintKind | Literal["behaviour"]

_ALL_STAGES = (1, 2, 3, 4, 5)
# A longer line is no case but a mistake, and reading it could fill the memory.
MAX_LINE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a case file.

    Attributes:
        line: its number, from 1. id: unique in the file unless the file repeats it.
        kind: of the grammar; `behaviour` rows describe steps that no text can state.
        constraint: the grammar; None for `behaviour`.
        accept, reject, optional: texts that must be, must not be, and may be in the language.
        expect: what a decoder may do with the grammar. stages: the generations that it concerns.
    """

    line: int
    id: str
    kind: CaseKind
    constraint: Constraint | None
    accept: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    expect: Expect = "ok"
    stages: tuple[int, ...] = _ALL_STAGES

    @property
    def fingerprint(self) -> str:
        """A name for the grammar alone: the same in every file, whatever the case is called."""
        return "" if self.constraint is None else fingerprint(self.constraint)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no case, and why; or one that is, with a warning."""

    line: int
    message: str
    usable: bool = False


def fingerprint(constraint: Constraint) -> str:
    """The first 16 hexadecimal digits of a SHA-256 over kind, source and choices."""
    whole = json.dumps([constraint.kind, constraint.source, constraint.choices])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def read_cases(path: Path) -> Iterator[Case | BadLine]:
    """The lines of a case file, in order; blank lines are left out. A repeated id is warned of before its case.

    Raises:
        ConfigError: the file cannot be read.
    """
    first_seen: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            for number, raw in _lines(file):
                if not raw.strip():
                    continue
                case = parse_case(raw, number)
                if isinstance(case, Case):
                    earlier = first_seen.setdefault(case.id, number)
                    if earlier != number:
                        yield BadLine(number, f"the id {case.id!r} is that of line {earlier}; both are checked",
                                      usable=True)
                yield case
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", where="--cases") from None


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        yield number, raw
        while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES + 1)  # what is left of an endless line


def parse_case(raw: bytes, line: int) -> Case | BadLine:
    """One line's case, or what is wrong with it."""
    try:
        return _case(_object(raw), line)
    except JumpforwardError as error:
        return BadLine(line, str(error))


def _object(raw: bytes) -> dict[str, object]:
    if len(raw) > MAX_LINE_BYTES:
        raise RequestError(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        row = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RequestError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"not JSON: {error.msg} at position {error.pos}") from None
    except (RecursionError, ValueError) as error:  # nested too deep; a number of too many digits
        raise RequestError(f"JSON that cannot be read: {error}") from None
    if not isinstance(row, dict):
        raise RequestError(f"a case is a JSON object, not {_named(row)}")
    return row


def _case(row: dict[str, object], line: int) -> Case:
    kind = row.get("kind")
    kinds = (*CONSTRAINT_KINDS, "behaviour")
    if not _is_kind(kind):
        raise RequestError(f"{kind!r:.60} is not one of {', '.join(kinds)}", where="kind")
    expect = row.get("expect", "behaviour" if kind == "behaviour" else "ok")
    if not _is_expect(expect):
        raise RequestError(f"{expect!r:.60} is not one of {', '.join(get_args(Expect))}", where="expect")
    name = row.get("id", f"line-{line}")
    if not isinstance(name, str) or not name:
        raise RequestError("an id is a text that is not empty", where="id")
    return Case(line=line, id=name, kind=kind, constraint=_constraint(kind, row), expect=expect,
                accept=_texts(row, "accept"), reject=_texts(row, "reject"), optional=_texts(row, "optional_accept"),
                stages=_stages(row))


def _is_kind(value: object) -> TypeGuard[CaseKind]:
    return isinstance(value, str) and (value in CONSTRAINT_KINDS or value == "behaviour")


def _is_expect(value: object) -> TypeGuard[Expect]:
    return isinstance(value, str) and value in get_args(Expect)


def _constraint(kind: CaseKind, row: dict[str, object]) -> Constraint | None:
    grammar = row.get("grammar")
    match kind:
        case "behaviour":
            return None
        case "json_object":
            return Constraint.json_object()
        case "choice":
            return Constraint.choice(_texts(row, "grammar"))
        case "regex" | "ebnf":
            if not isinstance(grammar, str):
                raise RequestError(f"a {kind} is a text, not {_named(grammar)}", where="grammar")
            return Constraint(kind, source=grammar)
        case "json_schema" | "structural_tag":
            allowed = (str, dict, bool) if kind == "json_schema" else (str, dict)
            if not isinstance(grammar, allowed):
                raise RequestError(f"a {kind} is a JSON object or its text, not {_named(grammar)}", where="grammar")
            text = grammar if isinstance(grammar, str) else json.dumps(grammar, ensure_ascii=False)
            return Constraint(kind, source=text)


def _texts(row: dict[str, object], name: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise RequestError("a list of texts is needed", where=name)
    return tuple(value)


def _stages(row: dict[str, object]) -> tuple[int, ...]:
    value = row.get("stages", list(_ALL_STAGES))
    if not isinstance(value, list) or not all(type(one) is int and one in _ALL_STAGES for one in value):
        raise RequestError("a list of numbers from 1 to 5 is needed", where="stages")
    return tuple(value)


def _named(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number",
             float: "a number", type(None): "null"}
    return names[type(value)]
