"""The workloads: requests as data, each with the reason it is there and what misleads in its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

from shared_runtime.constraint import Constraint, ConstraintKind

FOLDER = Path(__file__).with_name("workloads")
_OTHERS = ("jump_trials", "schema_slice")
"""Files of other shapes: a recorded trial, and the schemas for the mask engines."""


_FIRST = "ship_card"


@dataclass(frozen=True, slots=True)
class Question:
    """One request: what is asked, and the language of the answer (None for free text)."""

    prompt: str
    constraint: Constraint | None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a conversation."""
        return [{"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that are measured together.

    Attributes:
        name, why, trap: what it is, why it is there, and what misleads in its result.
        questions: the requests. max_new_tokens: of each answer.
        batches: how many at a time, in a full run. quick: the same in a quick run; () leaves it out there.
    """

    name: str
    why: str
    trap: str
    questions: tuple[Question, ...]
    max_new_tokens: int
    batches: tuple[int, ...]
    quick: tuple[int, ...]

    @property
    def kinds(self) -> set[ConstraintKind]:
        """The kinds of constraint in it."""
        return {one.constraint.kind for one in self.questions if one.constraint is not None}

    def waves(self, batch: int) -> list[list[Question]]:
        """The requests in groups of `batch`; they are repeated until the last group is full."""
        count = -(-len(self.questions) // batch)
        source = cycle(self.questions)
        return [list(islice(source, batch)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class SchemaCase:
    """A schema for the mask engines, and JSON texts that they must let through or refuse."""

    name: str
    constraint: Constraint
    valid: tuple[str, ...]
    invalid: tuple[str, ...]


def all_workloads() -> list[Workload]:
    """Every workload, those of the quick run first, and first of them the one that every stage can serve quickly."""
    found = [_workload(json.loads(path.read_text(encoding="utf-8")))
             for path in sorted(FOLDER.glob("*.json")) if path.stem not in _OTHERS]
    return sorted(found, key=lambda one: (one.name != _FIRST, not one.quick, one.name))


def schema_slice() -> list[SchemaCase]:
    """The schemas for the mask engines."""
    data = json.loads((FOLDER / "schema_slice.json").read_text(encoding="utf-8"))
    return [SchemaCase(one["id"], Constraint.json_schema(one["schema"]), _texts(one["valid"]), _texts(one["invalid"]))
            for one in data["schemas"]]


def _workload(data: dict[str, Any]) -> Workload:
    if "from" in data:
        trial = json.loads((FOLDER / data["from"]).read_text(encoding="utf-8"))
        questions = [Question(trial["prompts"][one["prompt"]], _constraint(trial["constraints"][one["constraint"]]))
                     for one in trial["requests"] if one["constraint"] in data["constraints"]]
        longest = trial["max_new_tokens"]
    else:
        questions = [Question(one["prompt"], _constraint(one["constraint"])) for one in data["requests"]]
        longest = data["max_new_tokens"]
    return Workload(data["name"], data["why"], data["trap"], tuple(questions), longest,
                    tuple(data["batches"]["full"]), tuple(data["batches"]["quick"]))


def _constraint(data: dict[str, Any] | None) -> Constraint | None:
    if data is None:
        return None
    if data["kind"] == "choice":
        return Constraint.choice(data["choices"])
    source = data["source"]
    return Constraint(cast(ConstraintKind, data["kind"]),
                      source=source if isinstance(source, str) else json.dumps(source, ensure_ascii=False))


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    return tuple(json.dumps(one, ensure_ascii=False) for one in values)
