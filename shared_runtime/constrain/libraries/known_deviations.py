"""What a backend's library silently gets wrong: a stage's list of it, looked up at admission."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shared_runtime.constrain.schema.json_schema_checks import AskedSchema, features
from shared_runtime.errors import UnsupportedConstraintError


class ListedDeviationError(UnsupportedConstraintError):
    """A constraint that the library is known to get wrong, and that is refused for it."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """One entry of the list.

    Attributes:
        feature: of a schema (see `json_schema_checks`), "" for what no schema shows.
        effect: what comes out. upstream: where it is told or discussed.
        refuse: the library refuses it, so it is refused without `strict`, too.
        schema, accepts, refuses: a reproducer, JSON text: the library lets `accepts` through, which `schema` forbids,
            or keeps out `refuses`, which it allows.
    """

    id: str
    backend: str
    library: str
    version: str
    feature: str
    effect: str
    upstream: str
    refuse: bool = False
    schema: str = ""
    accepts: str = ""
    refuses: str = ""


@cache
def read_deviations(path: Path) -> tuple[Deviation, ...]:
    """A stage's list: `[[deviation]]` tables with the fields of `Deviation`."""
    return tuple(Deviation(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["deviation"])


def warnings_of(path: Path, backend: str, asked: Iterable[AskedSchema], *, strict: bool) -> tuple[str, ...]:
    """What the backend's library will get wrong of these schemas, one text each.

    Args:
        path: the list. backend: whose library. strict: refuse, do not warn.

    Raises:
        ListedDeviationError: it gets something wrong and `strict` is set, or nothing useful would be left.
    """
    known = {entry.feature: entry for entry in read_deviations(path) if entry.backend == backend and entry.feature}
    found: dict[str, str] = {}
    for where, schema in asked:
        for feature in features(schema):
            entry = known.get(feature.name)
            if entry is None:
                continue
            said = f"{entry.library} {entry.version}: {entry.effect} ({where}{feature.path})"
            if entry.refuse or strict:
                raise ListedDeviationError(f"{said}; see {entry.upstream}", where="constraint",
                                           fix="write the schema without it, or use another --backend")
            found.setdefault(entry.id, said)
    return tuple(found.values())
