"""JSON schemas as far as a regular expression can hold them, taken apart for a library.

Such a library drops what it does not know. Here every keyword of JSON Schema that narrows a value is either carried
over or refused by name and place, so that nothing is dropped; references are written out, since a text without
recursion nests to a known depth. Unknown keywords are annotations, as the standard has it. What comes out may be
narrower than the schema: properties come in their order, and see `LeftOut`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NoReturn
from urllib.parse import unquote

from shared_runtime.constrain.schema.schema_leaves import (
    Schema,
    bounds,
    constants_tree,
    integer_tree,
    key_tree,
    kind_of,
    short,
    string_tree,
    unsupported,
)
from shared_runtime.constrain.schema.schema_parts import (
    EMPTY_ARRAY,
    Leaf,
    Level,
    Part,
    any_of,
    kinds_of,
    mark,
    object_of,
    other_properties,
    possible,
    tuple_of,
)
from shared_runtime.constrain.schema.whitespace import Layout
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
    "array": frozenset({"items", "prefixItems", "contains", "minContains", "maxContains", "minItems",
                        "maxItems", "uniqueItems", "unevaluatedItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
                         "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
                         "unevaluatedProperties"}),
}
_CARRIED: Mapping[str, frozenset[str]] = {
    "string": _KEYWORDS["string"], "integer": _NUMBER, "number": frozenset(), "boolean": frozenset(),
    "null": frozenset(), "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "unevaluatedProperties"}),
}
_SAYS_NOTHING: Mapping[str, object] = {
    "uniqueItems": False, "minProperties": 0, "patternProperties": {}, "propertyNames": True, "dependentRequired": {},
    "dependentSchemas": {}, "unevaluatedItems": True, "unevaluatedProperties": True, "not": False,
}
_WHOLE = ("$ref", "allOf", "anyOf", "oneOf", "const", "enum")
_OTHERS = frozenset({*_WHOLE, "not", "if", "then", "else", "$dynamicRef", "$recursiveRef"})
_NARROWING = frozenset({"type", *_OTHERS}).union(*_KEYWORDS.values())

LeftOut = Literal["properties that are not described", "items behind prefixItems", "values of other types"]
"""Values that a schema allows without describing them: any JSON, of any depth. As in the libraries they do not come."""


def regular_schema(source: str, layout: Layout, *, library_depth: str) -> tuple[Part, frozenset[LeftOut]]:
    """A schema with the same texts, in levels of `type`, `anyOf`, `properties` and so on, and leaves; and what is not
    in it of what the schema allows.

    Args:
        source: the schema as JSON text.
        layout: the blanks, for what we write ourselves.
        library_depth: what the library would do with a schema that nests without end, for the refusal.

    Raises:
        GrammarSyntaxError: not JSON, or not a schema.
        UnsupportedConstraintError: a keyword that a regex, or the library, cannot hold; names keyword and place.
        UnsatisfiableConstraintError: no value fits.
        GrammarTimeoutError: with its references written out the schema has more than `MAX_NODES` parts.
    """
    try:
        document = json.loads(source, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", offset=error.pos) from None
    except (RecursionError, ValueError) as error:
        raise GrammarSyntaxError(f"the schema cannot be read: {error}", where="json_schema") from None
    reader = _Reader(document, layout, library_depth)
    try:
        return reader.read(document, "#", ()), frozenset(reader.left_out)
    except RecursionError:
        raise GrammarTimeoutError("the schema is nested too deep", where="json_schema") from None


@dataclass
class _Reader:
    """Reads one schema. `left` parts may still be read; `document` is what references point into."""

    document: object
    layout: Layout
    library_depth: str
    left: int = MAX_NODES
    left_out: set[LeftOut] = field(default_factory=set)

    def read(self, node: object, at: str, refs: tuple[str, ...]) -> Part:
        """The schema at place `at`, reached through the references `refs`."""
        self.left -= 1
        if self.left < 0:
            raise GrammarTimeoutError(f"the schema has more than {MAX_NODES} parts with its references written out",
                                      where="json_schema", fix="simplify the schema")
        if node is False:
            raise UnsatisfiableConstraintError("no value fits the schema `false`", where=at)
        if node is not True and not isinstance(node, dict):
            raise GrammarSyntaxError(f"a schema is an object, not {short(node)}", where=at)
        found = {} if node is True else {str(key): value for key, value in node.items()
                                         if key in _NARROWING and not _says_nothing(key, value)}
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
                return self._constants([found["const"]] if whole == "const" else found["enum"], _types(found, at), at)
            case _:
                return self._branches(whole, found[whole], at, refs)

    def _reference(self, target: object, at: str, refs: tuple[str, ...]) -> Part:
        if not isinstance(target, str) or (target != "#" and not target.startswith("#/")):
            raise unsupported(f"a $ref to {short(target)}, which is no place inside of the schema (#/...),", at)
        if target in refs:
            raise self._endless(f"{target} contains itself", at)
        node: object = self.document
        for step in unquote(target).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            elif isinstance(node, dict) and name in node:
                node = node[name]
            else:
                raise GrammarSyntaxError(f"there is nothing at {target}", where=at)
        return self.read(node, target, (*refs, target))

    def _branches(self, word: str, listed: object, at: str, refs: tuple[str, ...]) -> Part:
        if not isinstance(listed, list) or not listed:
            raise GrammarSyntaxError(f"{word} is a list of schemas", where=at)
        if word == "allOf" and len(listed) > 1:
            raise unsupported("allOf with several branches", at)
        read = possible(partial(self.read, branch, f"{at}/{word}/{index}", refs)
                        for index, branch in enumerate(listed))
        if word == "oneOf" and sum(len(part.kinds) for part in read) > len(any_of(read).kinds):
            raise unsupported("oneOf with branches that share a type (one value could fit two of them)", at)
        return any_of(read)

    def _constants(self, values: object, types: set[str], at: str) -> Part:
        """Those of the listed values that are of one of `types` (empty: of any)."""
        if not isinstance(values, list):
            raise GrammarSyntaxError("enum is a list of values", where=at)
        kept = [value for value in values if not types or kind_of(value) in types
                or (kind_of(value) == "integer" and "number" in types)]
        if not kept:
            raise UnsatisfiableConstraintError("no value is left in the enumeration", where=at)
        return Leaf(kinds_of(map(kind_of, kept)), constants_tree(kept, self.layout, at))

    def _typed(self, found: Schema, at: str, refs: tuple[str, ...]) -> Part:
        types = _types(found, at)
        if not types:
            types = {word for word in ("object", "array") if found.keys() & _CARRIED[word]}
            self.left_out.add("values of other types")
        if not types:
            raise self._endless(f"{', '.join(sorted(found))} without a type allows values of any other type", at)
        if "number" in types:
            types.discard("integer")
        return any_of(possible(partial(self._one_type, kind, found, at, refs) for kind in sorted(types)))

    def _one_type(self, kind: str, found: Schema, at: str, refs: tuple[str, ...]) -> Part:
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
                return Leaf(kinds_of([kind]), string_tree(own, at))
            case "integer" if own:
                return Leaf(kinds_of([kind]), integer_tree(own, at))
            case _:
                return Level(kinds_of([kind]), {"type": kind})

    def _object(self, own: Schema, at: str, refs: tuple[str, ...]) -> Part:
        properties, required = own.get("properties", {}), own.get("required", [])
        extra = own.get("additionalProperties", own.get("unevaluatedProperties", True))
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise GrammarSyntaxError("properties is an object and required a list", where=at)
        missing = [name for name in required if name not in properties]
        if missing and extra is True:
            raise unsupported(f"required {short(missing[0])}, which properties does not describe,", at)
        properties = properties | dict.fromkeys(missing, extra)
        described = []
        for name, value in properties.items():
            read = self._optional(value, f"{at}/properties/{name}", refs, needed=name in required)
            if read is not None:
                described.append((Leaf(frozenset(), key_tree(name)), read, name in required))
        closed = object_of(described)
        if "properties" in own and extra is True:
            self.left_out.add("properties that are not described")
            return closed
        value = self._optional(extra, f"{at}/additionalProperties", refs)
        if value is None:
            return closed
        return any_of([closed, object_of([*described, other_properties(properties, value, self.layout)])])

    def _array(self, own: Schema, at: str, refs: tuple[str, ...]) -> Part:
        low, high = bounds(own, "minItems", "maxItems", at)
        first, items = own.get("prefixItems"), own.get("items", own.get("unevaluatedItems", True))
        if isinstance(items, list):
            raise unsupported("a list of items", at)
        if first is not None:
            if not isinstance(first, list) or not first:
                raise GrammarSyntaxError("prefixItems is a list of schemas", where=at)
            described: list[Part] = []
            for index, item in enumerate(first[:high]):
                read = self._optional(item, f"{at}/prefixItems/{index}", refs, needed=index < low)
                if read is None:  # the array ends before it
                    break
                described.append(read)
            if items is True and low <= len(first):
                if high is None or high > len(first):
                    self.left_out.add("items behind prefixItems")
                items = False
            more = len(described) == len(first) and high != len(first)
            other = self._optional(items, f"{at}/items", refs) if more else None
            if other is None and low > len(described):
                raise UnsatisfiableConstraintError(f"minItems {low} is more than the {len(described)} items that fit",
                                                   where=at)
            return tuple_of(described, other, low, high, self.layout)
        item = None if high == 0 else self._optional(items, f"{at}/items", refs, needed=low > 0)
        if item is None:
            return EMPTY_ARRAY
        limit: Schema = {} if high is None else {"maxItems": high}
        return Level(kinds_of(["array"]), {"type": "array", "items": {"const": mark(0)}, "minItems": low} | limit,
                     (item,))

    def _optional(self, node: object, at: str, refs: tuple[str, ...], *, needed: bool = False) -> Part | None:
        """What may also be absent: None where no value fits, unless one is needed."""
        try:
            return self.read(node, at, refs)
        except UnsatisfiableConstraintError:
            if needed:
                raise
            return None

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


def _says_nothing(keyword: str, value: object) -> bool:
    return keyword in _SAYS_NOTHING and type(value) is type(_SAYS_NOTHING[keyword]) and value == _SAYS_NOTHING[keyword]


def _no_constant(name: str) -> NoReturn:
    raise GrammarSyntaxError(f"{name} is not JSON", where="json_schema", fix="use a finite number")

