"""JSON by the standard: Python's strict parser, and `jsonschema`."""

from __future__ import annotations

import functools
import json
from typing import Any, NoReturn

import jsonschema


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def parse_json(text: str) -> object:
    """The value of a JSON text; NaN and the infinities, which Python adds, are refused.

    Raises:
        ValueError: it is no JSON.
    """
    return json.loads(text, parse_constant=_refuse)


@functools.lru_cache(maxsize=512)
def _validator(schema: str) -> Any:
    return jsonschema.Draft202012Validator(json.loads(schema))


def is_json_of(schema: str, text: str) -> bool:
    """Whether a text is JSON that validates against a schema, given as its text."""
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return False
    return bool(_validator(schema).is_valid(value))
