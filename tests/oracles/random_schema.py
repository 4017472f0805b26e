"""Random JSON schemas of a moderate kind, and values that fit them: what every engine with schemas can serve."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

from hypothesis import strategies as st

Schema = dict[str, object]
WORDS = ("a", "id", "name", "天气", "é", "x y", "on", "list", "n1", "Ship")


def random_schema(rng: random.Random, depth: int = 2) -> Schema:
    """A schema with objects and arrays at most `depth` deep; every object is closed."""
    simple = ["string", "short", "enum", "integer", "number", "boolean", "null", "const"]
    kind = rng.choice(simple if depth == 0 else [*simple, "object", "object", "object", "array", "array", "anyOf"])
    match kind:
        case "string":
            return {"type": "string"}
        case "short":
            return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 5)}
        case "enum":
            return {"enum": rng.sample([*WORDS, 1, -20, 3.5, True, None], rng.randint(1, 4))}
        case "const":
            return {"const": rng.choice([*WORDS, 7, False])}
        case "integer" | "number" | "boolean" | "null":
            return {"type": kind}
        case "array":
            least = rng.randint(0, 2)
            return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": least,
                    "maxItems": least + rng.randint(0, 2)}
        case "anyOf":
            return {"anyOf": [{"type": "null"}, random_schema(rng, depth - 1)]}
    names = rng.sample(WORDS, rng.randint(1, 3))
    required = [name for name in names if rng.random() < 0.7]
    return {"type": "object", "properties": {name: random_schema(rng, depth - 1) for name in names},
            "required": required, "additionalProperties": False}


def random_value(rng: random.Random, schema: Mapping[str, object]) -> object:
    """A value of a schema that `random_schema` made; an object's keys come in the schema's order."""
    if "enum" in schema:
        values = schema["enum"]
        assert isinstance(values, list)
        return rng.choice(values)
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        ways = schema["anyOf"]
        assert isinstance(ways, list)
        return random_value(rng, rng.choice(ways))
    match schema["type"]:
        case "string":
            low, high = schema.get("minLength", 0), schema.get("maxLength", 12)
            assert isinstance(low, int)
            assert isinstance(high, int)
            return "".join(rng.choice('abz 09é天🌈"\\/\n\t{},:') for _ in range(rng.randint(low, high)))
        case "integer":
            return rng.choice([0, 7, -3, 42, 1000])
        case "number":
            return rng.choice([0, -1.5, 2.25, 10, 0.125])
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            items, least, most = schema["items"], schema["minItems"], schema["maxItems"]
            assert isinstance(items, dict)
            assert isinstance(least, int)
            assert isinstance(most, int)
            return [random_value(rng, items) for _ in range(rng.randint(least, most))]
    properties, required = schema["properties"], schema["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    return {name: random_value(rng, inner) for name, inner in properties.items()
            if name in required or rng.random() < 0.5}


def compact(value: object) -> str:
    """A value as JSON without blanks, in raw UTF-8: the form of the case files."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def spaced(value: object) -> str:
    """A value as JSON with `, ` and `: `: the form that every backend writes by default."""
    return json.dumps(value, ensure_ascii=False)


def mutated(rng: random.Random, text: str) -> str:
    """The text with one character taken out, put in, or exchanged."""
    at = rng.randrange(len(text) + 1)
    match rng.choice(["out", "in", "other", "twice"]):
        case "out":
            return text[:at] + text[at + 1:]
        case "in":
            return text[:at] + rng.choice('{}[]",:0-xé') + text[at:]
        case "other":
            return text[:at] + rng.choice('{}[]",:0-xé') + text[at + 1:]
    return text[:at] + text[max(0, at - 1):]


def schemas(depth: int = 2) -> st.SearchStrategy[Schema]:
    """Hypothesis: moderate schemas."""
    return st.integers(0, 2**32).map(lambda seed: random_schema(random.Random(seed), depth))
