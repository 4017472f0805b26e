"""Whether a text is a JSON Schema at all, before any library compiles it (upstream: newer than 8905cbd42f).

A library that is given `{"type": "strnig"}` may drop the keyword, name a line of its own source, or crash. So what is
malformed is said here, once for all backends, with its place. What is well-formed and beyond a library stays that
backend's to refuse.
"""

from __future__ import annotations

import json

from shared_runtime.constrain.schema.json_schema_rules import check_schema
from shared_runtime.errors import GrammarSyntaxError


def validate_json_schema(source: str) -> None:
    """Check the schema that `source` spells.

    Raises:
        GrammarSyntaxError: not JSON (with its offset), or no schema (with the JSON pointer of the keyword).
    """
    try:
        check_schema(json.loads(source, parse_constant=_no_constant))
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", offset=error.pos,
                                 where=f"json_schema, position {error.pos}") from None
    except RecursionError:
        raise GrammarSyntaxError("the schema is nested too deep", where="json_schema") from None


def _no_constant(name: str) -> None:
    raise GrammarSyntaxError(f"{name} is not JSON", where="json_schema", fix="use a finite number")
