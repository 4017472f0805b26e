"""Structural tags as data: free text in which certain beginnings start a constrained part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shared_runtime.errors import GrammarSyntaxError, UnsupportedConstraintError

_FIX = 'give {"structures": [{"begin": ..., "schema": ..., "end": ...}], "triggers": [...]}'


@dataclass(frozen=True, slots=True)
class Structure:
    """One tag: its beginning, the schema (JSON text) of what is inside, and its end.

    `trigger` is the one trigger that `begin` starts with: free text may not contain it otherwise. `where` and
    `end_at` are the places of schema and end in the request.
    """

    begin: str
    schema: str
    end: str
    trigger: str
    where: str
    end_at: str


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """The tags of a request, and the texts after which one of them has to follow."""

    structures: tuple[Structure, ...]
    triggers: tuple[str, ...]


def read_structural_tag(source: str) -> StructuralTag:
    """Read the `structures` + `triggers` form (upstream's of #3566), and check what no library checks in full.

    Raises:
        GrammarSyntaxError: not JSON, a field is missing or of the wrong type, no trigger, a trigger that prefixes
            another or no `begin`, or a `begin` that no trigger prefixes.
        UnsupportedConstraintError: the `format` form, which is of another generation.
    """
    try:
        data = json.loads(source)
    except ValueError as error:
        raise GrammarSyntaxError(f"not JSON: {error}", where="structural_tag", fix=_FIX) from None
    if not isinstance(data, dict):
        raise GrammarSyntaxError("must be a JSON object", where="structural_tag", fix=_FIX)
    if "format" in data:
        raise UnsupportedConstraintError("the `format` form came later (#10691)", first_stage=5,
                                         where="structural_tag.format", fix="use --stage 5, or " + _FIX)
    structures = data.get("structures")
    if not isinstance(structures, list) or not structures:
        _triggers(data.get("triggers"), "structural_tag.triggers")
        raise GrammarSyntaxError("must be a list of at least one structure", where="structural_tag.structures",
                                 fix=_FIX)
    return make_tag("structural_tag", data.get("triggers"), [
        (f"structural_tag.structures[{index}]", "schema", item) for index, item in enumerate(structures)])


def make_tag(where: str, triggers: object, items: Sequence[tuple[str, str, object]]) -> StructuralTag:
    """Check triggers and tags, in whichever form they came.

    Args:
        where: the place of both. items: per tag its place, where in it the schema stands, and its `begin`, `schema` and
            `end`.

    Raises:
        GrammarSyntaxError: as `read_structural_tag`.
    """
    known = _triggers(triggers, f"{where}.triggers")
    structures = tuple(_structure(item, at, schema_at, known) for at, schema_at, item in items)
    unused = [one for one in known if all(structure.trigger != one for structure in structures)]
    if unused:
        raise GrammarSyntaxError(f"no tag begins with {unused[0]!r}: a text that holds it could never go on",
                                 where=f"{where}.triggers", fix="take it out")
    return StructuralTag(structures, known)


def _triggers(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise GrammarSyntaxError("must be a list of at least one text, none of them empty", where=where, fix=_FIX)
    unique = tuple(dict.fromkeys(value))
    for one in unique:
        for other in unique:
            if one != other and other.startswith(one):
                raise GrammarSyntaxError(f"{one!r} prefixes {other!r}: which one a text starts is undecidable",
                                         where=where, fix="keep the shorter one")
    return unique


def _structure(item: object, where: str, schema_at: str, triggers: tuple[str, ...]) -> Structure:
    if not isinstance(item, dict):
        raise GrammarSyntaxError("must be a JSON object", where=where, fix=_FIX)
    for name in ("begin", "end"):
        if not isinstance(item.get(name), str):
            raise GrammarSyntaxError("must be a text", where=f"{where}.{name}", fix=_FIX)
    if not isinstance(item.get("schema"), dict | bool):
        raise GrammarSyntaxError("must be a JSON schema", where=f"{where}.{schema_at}", fix=_FIX)
    trigger = next((trigger for trigger in triggers if item["begin"].startswith(trigger)), None)
    if trigger is None:
        raise GrammarSyntaxError(f"no trigger is the beginning of {item['begin']!r}: the tag could never start",
                                 where=f"{where}.begin", fix=f"begin it with one of: {', '.join(triggers)}")
    return Structure(item["begin"], json.dumps(item["schema"], ensure_ascii=False), item["end"], trigger,
                     f"{where}.{schema_at}", f"{where}.end")
