"""What stands beside `anyOf`, `oneOf` or `allOf`, said in their branches: for a library that reads only the one.

Two schemas become one only where that is certain to mean both: keywords of one side alone are kept, equal ones are the
same, bounds are tightened. What would change its meaning in the other's company (`additionalProperties` looks at the
`properties` beside it) stays where it is, and is warned of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas

_TIGHTEN: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "required": lambda mine, yours: list(dict.fromkeys([*mine, *yours]))}
# Keywords that say something about each other: they are not taken apart, nor brought together from two sides.
_TOGETHER = (("properties", "patternProperties", "additionalProperties", "propertyNames"),
             ("items", "prefixItems"), ("contains", "minContains", "maxContains"), ("if", "then", "else"))
_ALONE = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf", "$dynamicRef", "$recursiveRef",
                    "unevaluatedProperties", "unevaluatedItems"})


def conjoined_schema(schema: object) -> object:
    """The same language with as little beside `anyOf`, `oneOf` and `allOf` as can be.

    Args:
        schema: as `tidy_schema` gives it.
    """
    if not isinstance(schema, dict):
        return schema
    own = map_subschemas(schema, conjoined_schema)
    beside = {key: value for key, value in own.items() if key not in ("anyOf", "oneOf", "allOf", "$defs")}
    defs = {key: value for key, value in own.items() if key == "$defs"}
    parts: Any = [own[key] for key in ("anyOf", "oneOf", "allOf") if key in own]
    if len(parts) != 1:
        return own
    if "allOf" in own:
        whole: Schema | bool | None = beside
        for part in parts[0]:
            whole = None if whole is None else conjoin(whole, part)
        return own if whole is None or isinstance(whole, bool) else whole | defs
    key = "anyOf" if "anyOf" in own else "oneOf"
    branches = [conjoin(beside, branch) for branch in parts[0]]
    fitting = [branch for branch in branches if branch is not False]
    return own if None in branches or not fitting else {key: fitting} | defs


def conjoin(mine: Schema | bool, yours: Schema | bool) -> Schema | bool | None:
    """One schema for what fits both; None where that cannot be said for certain."""
    if isinstance(mine, bool) or isinstance(yours, bool):
        return False if mine is False or yours is False else yours if mine is True else mine
    if not mine or not yours or mine == yours:
        return yours or mine
    if (_ALONE & (mine.keys() | yours.keys())) or any(
            not mine.keys().isdisjoint(group) and not yours.keys().isdisjoint(group) for group in _TOGETHER):
        return None
    both: dict[str, Any] = mine | yours
    for key in mine.keys() & yours.keys():
        if key == "type":
            kinds = _common(mine[key], yours[key])
            if not kinds:
                return False
            both[key] = kinds if len(kinds) > 1 else kinds[0]
        elif key in _TIGHTEN:
            both[key] = _TIGHTEN[key](mine[key], yours[key])
        elif mine[key] != yours[key]:
            return None
    return both


def _common(mine: object, yours: object) -> list[str]:
    """The types in both; an integer is a number."""
    one, other = ([str(kind) for kind in (named if isinstance(named, list) else [named])] for named in (mine, yours))
    return [kind for kind in dict.fromkeys([*one, *other])
            if all(kind in named or (kind == "integer" and "number" in named) for named in (one, other))]
