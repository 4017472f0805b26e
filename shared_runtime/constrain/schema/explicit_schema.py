"""A tidied JSON schema, said so that xgrammar 0.2.9 overlooks less of it.

That library reads one keyword of a schema first (`$ref`, `enum`, `anyOf`, ...) and one type, and drops much of the
rest. So here a schema for several types, or for none, becomes one branch per type; a constant that is an object or a
list is described by its parts, so that it is spaced like everything else; a pattern is written out as the text between
the quotation marks, where the library copies it as it is; and the names of further properties become a pattern, since
under `additionalProperties` the library takes `"\\u0061"` for another name than `"a"`.
"""

from __future__ import annotations

import math
from typing import Any

from shared_runtime.constrain.regex.charset import NOTHING, CharSet
from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.regex.regex_tree import Node, render, repeat
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.schema.counted_strings import marked_pattern
from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas
from shared_runtime.constrain.schema.json_text import JSON_CHARACTER, JSON_UNSAFE, any_text_but, json_text
from shared_runtime.constrain.schema.tidy_schema import BRANCHES, KEYWORDS


def explicit_schema(schema: object, speller: Speller) -> object:
    """The schema in the library's terms: of the same language, as far as the library can say it.

    Strings with a length have a pattern that `counted_strings.write_out` replaces in the library's grammar.

    Args:
        schema: as `tidy_schema` gives it.

    Raises:
        ConstraintError: a pattern is not of the dialect, or the vocabulary spells no text that it matches.
    """
    if not isinstance(schema, dict):
        return schema
    own: Schema = map_subschemas(schema, lambda inner: explicit_schema(inner, speller))
    defs = {"$defs": own.pop("$defs")} if "$defs" in own else {}
    return _node(own, speller) | defs


def _node(own: dict[str, Any], speller: Speller) -> Schema:
    if "const" in own:
        own = {"enum": [own["const"]], **{key: value for key, value in own.items() if key not in ("const", "enum")}}
    if "enum" in own and any(map(_composite, own["enum"])):
        return {"anyOf": [_literal(value) for value in own["enum"]]}
    if any(key in own for key in BRANCHES):
        return own
    named = own.get("type", [kind for kind in KEYWORDS if kind != "integer"])
    kinds = named if isinstance(named, list) else [named]
    asked = {kind: {key: own[key] for key in KEYWORDS[kind] if key in own} for kind in kinds
             if kind != "integer" or "number" not in kinds}
    if not any(asked.values()):
        return {"type": own["type"]} if "type" in own else {}
    if not _may_be_whole(own):
        asked.pop("object", None)
    free = [kind for kind, asks in asked.items() if not asks]
    branches = [_typed(kind, {"type": kind, **asks}, speller) for kind, asks in asked.items() if asks]
    branches += [{"type": kind} for kind in free]
    return branches[0] if len(branches) == 1 else {"anyOf": branches or [False]}


def _may_be_whole(own: dict[str, Any]) -> bool:
    """Whether an object may have all that is required of it; where it may not, the library forgets what it lacks."""
    shut = own.get("additionalProperties", True) is False and "patternProperties" not in own
    return not any(own.get("properties", {}).get(name, not shut) is False for name in own.get("required", ()))


def _typed(kind: str, own: dict[str, Any], speller: Speller) -> Schema:
    match kind:
        case "string":
            return _string(own, speller)
        case "object":
            return _object(own, speller)
        case "integer":  # the library refuses a bound that is none
            inward = {"minimum": math.ceil, "exclusiveMinimum": math.floor, "maximum": math.floor,
                      "exclusiveMaximum": math.ceil}
            return {key: inward[key](value) if key in inward else value for key, value in own.items()}
        case _:
            return own


def _string(own: dict[str, Any], speller: Speller) -> Schema:
    """By pattern or by format. Under a length the library lets control characters through, and no escapes."""
    if "pattern" in own:
        return own | {"pattern": _anchored(json_text(search_tree(own["pattern"])), speller)}
    if "format" in own:
        return own
    low, most = int(own.get("minLength", 0)), own.get("maxLength")
    high = None if most is None else int(most)
    marked = marked_pattern(low, high) if high is None or low <= high else None
    return {"type": "string", "pattern": marked or _anchored(repeat(JSON_CHARACTER, low, high), speller)}


def _object(own: dict[str, Any], speller: Speller) -> Schema:
    """An object that says of every name what it holds. Where names have patterns, the library knows no others.

    Further names hold nothing that JSON escapes: with the escapes, twenty properties took 12 MB and not 0.3.
    """
    patterns, properties = own.get("patternProperties", {}), own.get("properties", {})
    others = own.get("additionalProperties", True)
    if patterns:
        patterns = {_anchored(json_text(search_tree(pattern)), speller): inner
                    for pattern, inner in patterns.items() if inner is not False}
        own |= {"patternProperties": patterns, "additionalProperties": False}
    elif "propertyNames" not in own:
        properties = properties | {name: others for name in own.get("required", ()) if name not in properties}
        if properties and others is not False:
            own |= {"patternProperties": {_anchored(any_text_but(properties), speller, less=JSON_UNSAFE): others},
                    "additionalProperties": False}
    return own | {"properties": {name: inner for name, inner in properties.items() if inner is not False}}


def _anchored(tree: Node, speller: Speller, less: CharSet = NOTHING) -> str:
    return f"^({render(speller.restrict(tree, less), negated_classes=False)})$"


def _composite(value: object) -> bool:
    return isinstance(value, dict | list)


def _literal(value: object) -> Schema:
    """The schema of one value, by its parts."""
    match value:
        case dict():
            return {"type": "object", "properties": {name: _literal(inner) for name, inner in value.items()},
                    "required": list(value), "additionalProperties": False}
        case []:
            return {"type": "array", "maxItems": 0}
        case list():
            return {"type": "array", "prefixItems": [_literal(inner) for inner in value], "items": False,
                    "minItems": len(value)}
        case _:
            return {"const": value}
