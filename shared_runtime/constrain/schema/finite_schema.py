"""Which parts of a JSON schema no finite text can fill: `{"$ref": "#"}` as a required property needs itself for ever.

A library follows such a part, token by token, and never comes to an end. So a part that nothing can finish is made
`false`, which is the same language, and a schema that nothing can finish is refused.
"""

from __future__ import annotations

from typing import Any

from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas
from shared_runtime.errors import UnsatisfiableConstraintError


def finite_part(schema: object) -> object:
    """The schema with `false` for each part that no finite value fits, and without such branches.

    Args:
        schema: as `tidy_schema` gives it, so every reference leads to an entry of `$defs`.

    Raises:
        UnsatisfiableConstraintError: no finite value fits it; names the part that cannot be filled.
    """
    defs: dict[str, Any] = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    done: set[str] = set()
    while new := {name for name, entry in defs.items() if name not in done and _blame(entry, done) is None}:
        done |= new
    why = _blame(schema, done)
    if why is not None:
        if isinstance(schema, dict) and "$ref" in schema:
            why = _blame(defs[schema["$ref"].removeprefix("#/$defs/")], done)
        raise UnsatisfiableConstraintError(f"no text can ever be finished: {why}", where="json_schema",
                                           fix="make the part optional, or give it another branch")
    return _pruned(schema, done)


def _pruned(schema: object, done: set[str]) -> object:
    if not isinstance(schema, dict):
        return schema
    if _blame(schema, done) is not None:
        return False
    kept: Schema = map_subschemas({key: value for key, value in schema.items() if key != "$defs"},
                                  lambda inner: _pruned(inner, done))
    for key in ("anyOf", "oneOf"):
        if isinstance(branches := kept.get(key), list):
            kept[key] = [branch for branch in branches if branch is not False]
    defs = {name: _pruned(entry, done) for name, entry in schema.get("$defs", {}).items() if name in done}
    return kept | ({"$defs": defs} if defs else {})


def _blame(node: Any, done: set[str], at: str = "") -> str | None:
    """Why no finite value fits a schema, when the entries `done` of `$defs` can be filled; None when one may."""
    if not isinstance(node, dict):
        return None if node else f"nothing fits {at or 'the schema'}: it is `false`, or comes to that"
    if "$ref" in node and node["$ref"].removeprefix("#/$defs/") not in done:
        return f"{at or 'it'} needs another of what it is inside of ({node['$ref']})"
    for index, branch in enumerate(node.get("allOf", ())):
        if why := _blame(branch, done, f"{at}/allOf/{index}"):
            return why
    for key in ("anyOf", "oneOf"):
        ways = [_blame(branch, done, f"{at}/{key}/{index}") for index, branch in enumerate(node.get(key, ()))]
        if ways and None not in ways:
            return ways[0]
    kinds = node.get("type", ())
    reasons = [_blame_type(kind, node, done, at) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return reasons[0] if reasons and None not in reasons else None


def _blame_type(kind: str, node: Any, done: set[str], at: str) -> str | None:
    if kind == "object":
        others = None if "patternProperties" in node else _blame(node.get("additionalProperties", True), done)
        for name in node.get("required", ()):
            if name in node.get("properties", {}):
                why = _blame(node["properties"][name], done, f"{at}/properties/{name}")
            else:
                why = others and f"`{name}` is required and not among the properties ({at}/required)"
            if why:
                return why
    if kind == "array":
        first = node.get("prefixItems", [])
        for index, inner in enumerate(first[:int(node.get("minItems", 0))]):
            if why := _blame(inner, done, f"{at}/prefixItems/{index}"):
                return why
        if node.get("minItems", 0) > len(first):
            if node.get("items") is False:
                return f"minItems asks for more items than may come ({at}/minItems)"
            return _blame(node.get("items", True), done, f"{at}/items")
    return None
