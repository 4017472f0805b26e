"""A JSON schema without what libraries trip over though it asks for nothing, and with one way to say a thing.

The same language, in fewer words: annotations and unknown keywords are gone, and so is what asserts nothing where it
stands (`uniqueItems: false`, `then` without `if`); a list of `items`, as older drafts write a tuple, is `prefixItems`;
formats that some library gets wrong are patterns; and each reference, by pointer or by anchor, leads to an entry of
`$defs` at the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared_runtime.constrain.schema.json_schema_rules import resolve
from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas
from shared_runtime.constrain.schema.schema_formats import FORMATS

_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
               "maxProperties", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
    "array": ("items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems",
              "unevaluatedItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": _NUMBER, "integer": _NUMBER, "boolean": (), "null": (),
}
"""Per type, the keywords that say something about its values."""

BRANCHES = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Keywords that may say by themselves what a value is."""

ASSERTIONS = frozenset({"type", *BRANCHES, "not", "if", "then", "else", "$dynamicRef", "$recursiveRef"}).union(
    *KEYWORDS.values())
_EVALUATE = (*BRANCHES, "if", "dependentSchemas", "contains", "$dynamicRef", "$recursiveRef")
_SAYS_NOTHING: tuple[tuple[str, object], ...] = (
    ("uniqueItems", False), ("required", []), ("properties", {}), ("patternProperties", {}), ("dependentRequired", {}),
    ("dependentSchemas", {}), ("dependencies", {}), ("minLength", 0), ("minItems", 0), ("minProperties", 0),
    ("items", True), ("additionalProperties", True), ("unevaluatedItems", True), ("unevaluatedProperties", True),
    ("propertyNames", True), ("not", False))
_MENDED_FORMATS = ("date", "date-time", "ipv4", "email")  # 30 February; 01.2.3.4; no dot in an email's domain
_ONLY_WITH = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}


def kinds_of(value: object) -> set[str]:
    """The types of a JSON value; an integer is a number, too, and so is 1.0 an integer."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def tidy_schema(schema: object) -> object:
    """The same language, tidied; `schema` is one that `check_schema` has passed."""
    if not isinstance(schema, dict):
        return schema
    return _Writer(schema).write()


@dataclass
class _Writer:
    """`names`: per reference, as it is written, its entry under `$defs`."""

    root: Schema
    names: dict[str, str] = field(default_factory=dict)

    def write(self) -> Schema | bool:
        body = self._node(self.root)
        if not isinstance(body, dict):
            return False
        written: Schema = {}
        while len(written) < len(self.names):  # an entry may bring others
            for ref, name in list(self.names.items())[len(written):]:
                written[name] = self._node(resolve(ref, self.root))
        if "#" in self.names:
            body = {"$ref": f"#/$defs/{self.names['#']}"}
        return body | ({"$defs": written} if written else {})

    def _entry(self, ref: str) -> str:
        """The reference's last word as a name, numbered where another has it already."""
        if ref not in self.names:
            word = "".join(char for char in ref.rpartition("/")[2] if char.isalnum()) or "root"
            self.names[ref] = f"{word}{len(self.names)}" if word in self.names.values() else word
        return self.names[ref]

    def _node(self, schema: object) -> object:
        if not isinstance(schema, dict):
            return schema
        own: dict[str, Any] = {key: value for key, value in schema.items() if key in ASSERTIONS}
        if isinstance(own.get("items"), list):
            own = {("prefixItems" if key == "items" else key): value for key, value in own.items()}
            own |= {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
        if "type" in own and own.keys() & {"const", "enum"}:
            named = own.pop("type")
            kinds = set(named if isinstance(named, list) else [named])
            own = {key: [one for one in value if kinds & kinds_of(one)] if key == "enum" else value
                   for key, value in own.items()}
            if own.get("enum") == [] or ("const" in own and not kinds & kinds_of(own["const"])):
                return False
        for rest, unevaluated in (("items", "unevaluatedItems"), ("additionalProperties", "unevaluatedProperties")):
            if unevaluated in own and (rest in own or own.keys().isdisjoint(_EVALUATE)):
                own = {rest: own[unevaluated]} | {key: value for key, value in own.items() if key != unevaluated}
        for key, nothing in _SAYS_NOTHING:
            if key in own and own[key] == nothing and type(own[key]) is type(nothing):
                del own[key]
        if own.get("format") in _MENDED_FORMATS and "pattern" not in own:
            own["pattern"] = f"^({FORMATS[str(own.pop('format'))]})$"
        if "$ref" in own:
            ref = str(own["$ref"])
            own["$ref"] = f"#/$defs/{self._entry(ref)}"
        return map_subschemas({key: value for key, value in own.items() if _ONLY_WITH.get(key, key) in own},
                              self._node)
