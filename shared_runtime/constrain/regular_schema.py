"""JSON schemas as far as a regular expression can hold them, spelled out for a library.

Such a library drops what it does not know. Here every keyword of JSON Schema that narrows a value is either carried
over or refused by name and place, so that nothing is dropped; references are written out, since a text without
recursion nests to a known depth. Unknown keywords are annotations, as the standard has it. What comes out may be
narrower than the schema: properties in their order, none but those described, no 29 February.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from shared_runtime.constrain.schema_leaves import (
    Schema,
    bounds,
    inside_quotes,
    integer_schema,
    kind_of,
    literal_schema,
    short,
    string_schema,
    unsupported,
)
from shared_runtime.errors import (
    GrammarSyntaxError,
    GrammarTimeoutError,
    JumpforwardError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)

MAX_NODES = 5_000
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": _NUMBER, "number": _NUMBER, "boolean": frozenset(), "null": frozenset(),
    "array": frozenset({"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems",
                        "maxItems", "uniqueItems", "unevaluatedItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
                         "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
                         "unevaluatedProperties"}),
}
_CARRIED: Mapping[str, frozenset[str]] = {
    "string": _KEYWORDS["string"], "integer": _NUMBER, "number": frozenset(), "boolean": frozenset(),
    "null": frozenset(), "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_WHOLE = ("$ref", "allOf", "anyOf", "oneOf", "const", "enum")
_OTHERS = frozenset({*_WHOLE, "not", "if", "then", "else", "$dynamicRef", "$recursiveRef"})
_NARROWING = frozenset({"type", *_OTHERS}).union(*_KEYWORDS.values())


def regular_schema(source: str, *, library_depth: str) -> Schema:
    """A schema with the same texts, made of `type`, `anyOf`, `enum` and what `_CARRIED` lists.

    Args:
        source: the schema as JSON text.
        library_depth: what the library would do with a schema that nests without end, for the refusal.

    Raises:
        GrammarSyntaxError: not JSON, or not a schema.
        UnsupportedConstraintError: a keyword that a regex, or the library, cannot hold; names keyword and place.
        UnsatisfiableConstraintError: no value fits.
        GrammarTimeoutError: with its references written out the schema has more than `MAX_NODES` parts.
    """
    try:
        document = json.loads(source)
        json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", offset=error.pos) from None
    except (RecursionError, ValueError) as error:
        raise GrammarSyntaxError(f"the schema cannot be read: {error}", where="json_schema") from None
    try:
        return _Reader(document, library_depth).read(document, "#", ())
    except RecursionError:
        raise GrammarTimeoutError("the schema is nested too deep", where="json_schema") from None


@dataclass
class _Reader:
    """Reads one schema. `left` parts may still be read; `document` is what references point into."""

    document: object
    library_depth: str
    left: int = MAX_NODES

    def read(self, node: object, at: str, refs: tuple[str, ...]) -> Schema:
        """The schema at place `at`, reached through the references `refs`."""
        self.left -= 1
        if self.left < 0:
            raise GrammarTimeoutError(f"the schema has more than {MAX_NODES} parts with its references written out",
                                      where="json_schema", fix="simplify the schema")
        if node is False:
            raise UnsatisfiableConstraintError("no value fits the schema `false`", where=at)
        if node is not True and not isinstance(node, dict):
            raise GrammarSyntaxError(f"a schema is an object, not {short(node)}", where=at)
        found = {} if node is True else {str(key): value for key, value in node.items() if key in _NARROWING}
        if found.get("uniqueItems") is False:
            del found["uniqueItems"]
        if not found:
            raise self._endless("it allows any JSON value", at)
        whole = next((word for word in _WHOLE if word in found), None)
        if whole is None:
            return self._typed(found, at, refs)
        beside = found.keys() - {whole} - ({"type"} if whole in ("const", "enum") else set())
        if beside:
            raise unsupported(f"{', '.join(sorted(beside))} beside {whole}", at)
        match whole:
            case "$ref":
                return self._reference(found["$ref"], at, refs)
            case "const" | "enum":
                return literal_schema([found["const"]] if whole == "const" else found["enum"], _types(found, at), at)
            case _:
                return self._branches(whole, found[whole], at, refs)

    def _reference(self, target: object, at: str, refs: tuple[str, ...]) -> Schema:
        if not isinstance(target, str) or (target != "#" and not target.startswith("#/")):
            raise unsupported(f"a $ref to {short(target)}, which is outside the schema,", at)
        if target in refs:
            raise self._endless(f"{target} contains itself", at)
        node: object = self.document
        for step in target.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            elif isinstance(node, dict) and name in node:
                node = node[name]
            else:
                raise GrammarSyntaxError(f"there is nothing at {target}", where=at)
        return self.read(node, target, (*refs, target))

    def _branches(self, word: str, listed: object, at: str, refs: tuple[str, ...]) -> Schema:
        if not isinstance(listed, list) or not listed:
            raise GrammarSyntaxError(f"{word} is a list of schemas", where=at)
        if word == "allOf" and len(listed) > 1:
            raise unsupported("allOf with several branches", at)
        read = [self.read(branch, f"{at}/{word}/{index}", refs) for index, branch in enumerate(listed)]
        if len(read) == 1:
            return read[0]
        if word == "oneOf":
            kinds = [_kinds(branch) for branch in read]
            if sum(map(len, kinds)) > len(frozenset[str]().union(*kinds)):
                raise unsupported("oneOf with branches that share a type (one value could fit two of them)", at)
        return {"anyOf": read}

    def _typed(self, found: Schema, at: str, refs: tuple[str, ...]) -> Schema:
        types = _types(found, at) or {word for word in ("object", "array") if found.keys() & _CARRIED[word]}
        if not types:
            raise self._endless(f"{', '.join(sorted(found))} without a type allows values of any other type", at)
        if "number" in types:
            types.discard("integer")
        read = [self._one_type(kind, found, at, refs) for kind in sorted(types)]
        return read[0] if len(read) == 1 else {"anyOf": read}

    def _one_type(self, kind: str, found: Schema, at: str, refs: tuple[str, ...]) -> Schema:
        own = {word: value for word, value in found.items() if word in _KEYWORDS[kind] or word in _OTHERS}
        lost = own.keys() - _CARRIED[kind]
        if lost:
            raise unsupported(", ".join(sorted(lost)), at)
        match kind:
            case "object":
                return self._object(own, at, refs)
            case "array":
                return self._array(own, at, refs)
            case "string":
                return string_schema(own, at)
            case "integer":
                return integer_schema(own, at)
            case _:
                return {"type": kind}

    def _object(self, own: Schema, at: str, refs: tuple[str, ...]) -> Schema:
        properties, required = own.get("properties", {}), own.get("required", [])
        extra = own.get("additionalProperties", True)
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise GrammarSyntaxError("properties is an object and required a list", where=at)
        missing = [name for name in required if name not in properties]
        if missing:
            raise unsupported(f"required {short(missing[0])}, which properties does not describe,", at)
        if "properties" not in own and extra is not False:
            return {"type": "object", "additionalProperties":
                    self.read(extra, f"{at}/additionalProperties", refs)}
        read = {inside_quotes(name): self.read(value, f"{at}/properties/{name}", refs)
                for name, value in properties.items()}
        return {"type": "object", "properties": read, "required": list(dict.fromkeys(map(inside_quotes, required)))}

    def _array(self, own: Schema, at: str, refs: tuple[str, ...]) -> Schema:
        low, high = bounds(own, "minItems", "maxItems", at)
        first = own.get("prefixItems")
        if first is not None:
            if not isinstance(first, list) or not first:
                raise GrammarSyntaxError("prefixItems is a list of schemas", where=at)
            if low > len(first) or (high is not None and high < len(first)):
                raise unsupported("prefixItems with another count of items", at)
            return {"type": "array", "prefixItems": [self.read(item, f"{at}/prefixItems/{index}", refs)
                                                     for index, item in enumerate(first)]}
        if isinstance(own.get("items"), list):
            raise unsupported("a list of items", at)
        items: Schema = {"type": "null"} if high == 0 else self.read(own.get("items", True), f"{at}/items", refs)
        limit: Schema = {} if high is None else {"maxItems": high}
        return {"type": "array", "items": items, "minItems": low} | limit

    def _endless(self, why: str, at: str) -> JumpforwardError:
        return UnsupportedConstraintError(f"the schema nests without end: {why}, and a regex holds a fixed depth only "
                                          f"({self.library_depth})", where=at, first_stage=4,
                                          fix="describe the value down to its leaves, or use --stage 4")


def _types(found: Schema, at: str) -> set[str]:
    """The types that are named; none when there is no `type`."""
    if "type" not in found:
        return set()
    named = found["type"] if isinstance(found["type"], list) else [found["type"]]
    for name in named:
        if not isinstance(name, str) or name not in _KEYWORDS:
            raise GrammarSyntaxError(f"there is no type {short(name)}", where=at, fix="use one of "
                                     + ", ".join(_KEYWORDS))
    if not named:
        raise UnsatisfiableConstraintError("an empty list of types allows no value", where=at)
    return set(named)


def _kinds(read: Schema) -> frozenset[str]:
    """The types of the values that a schema of `regular_schema` allows; an integer is a number, too."""
    if "anyOf" in read:
        branches = read["anyOf"]
        assert isinstance(branches, list)
        return frozenset[str]().union(*map(_kinds, branches))
    values = read.get("enum")
    kinds = {kind_of(value) for value in values} if isinstance(values, list) else {str(read["type"])}
    return frozenset("number" if kind == "integer" else kind for kind in kinds)
