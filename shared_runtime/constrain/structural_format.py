"""The `format` form of structural tags (#10691, 2025-10). It can say more than the `structures` form."""

from __future__ import annotations

import json
from collections.abc import Callable

from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarSyntaxError


def in_structures_form(constraint: Constraint) -> Constraint | None:
    """The same tags in the `structures` + `triggers` form; None when that form cannot say it.

    Raises:
        GrammarSyntaxError: not JSON, or both forms at once.
    """
    data = _read(constraint.source)
    if "format" not in data:
        return constraint
    if {"structures", "triggers"} & data.keys():
        raise GrammarSyntaxError("`format` and `structures` are two forms of the same thing", where="structural_tag",
                                 fix="give one of them")
    form = data["format"]
    if not isinstance(form, dict) or form.get("type") != "triggered_tags" or not isinstance(form.get("tags"), list):
        return None
    if form.get("at_least_one") or form.get("stop_after_first") or form.get("excludes"):
        return None
    structures = []
    for tag in form["tags"]:
        content = tag.get("content") if isinstance(tag, dict) else None
        if not isinstance(content, dict) or content.get("type") != "json_schema":
            return None
        structures.append({"begin": tag.get("begin"), "schema": content.get("json_schema"), "end": tag.get("end")})
    return Constraint.structural_tag({"structures": structures, "triggers": form.get("triggers")})


def replace_schemas(source: str, replace: Callable[[str, object], dict[str, object]]) -> str:
    """A tag of the `format` form with every `{"type": "json_schema", "json_schema": S}` in it made `replace(at, S)`.

    Args:
        replace: told the place of a schema, such as `structural_tag.format.tags[0].content.json_schema`, and the
            schema.
    """
    return json.dumps(_replaced(_read(source), "structural_tag", replace), ensure_ascii=False)


def _replaced(part: object, at: str, replace: Callable[[str, object], dict[str, object]]) -> object:
    if isinstance(part, list):
        return [_replaced(item, f"{at}[{index}]", replace) for index, item in enumerate(part)]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "json_schema" and "json_schema" in part:
        return replace(f"{at}.json_schema", part["json_schema"])
    return {key: _replaced(item, f"{at}.{key}", replace) for key, item in part.items()}


def _read(source: str) -> dict[str, object]:
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise GrammarSyntaxError(f"not JSON: {error}", where="structural_tag") from None
    if not isinstance(data, dict):
        raise GrammarSyntaxError("must be a JSON object", where="structural_tag",
                                 fix='give {"format": ...} or {"structures": [...], "triggers": [...]}')
    return data
