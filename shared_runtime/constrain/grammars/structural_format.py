"""The `format` form of structural tags (#10691, 2025-10). It can say more than the `structures` form."""

from __future__ import annotations

import json
from collections.abc import Callable

from shared_runtime.constrain.grammars.structural_tag import StructuralTag, make_tag, read_structural_tag
from shared_runtime.errors import GrammarSyntaxError


def read_either_form(source: str) -> StructuralTag | None:
    """Tags of either form; None when the `structures` form cannot say what the `format` form does.

    Raises:
        GrammarSyntaxError: not JSON, both forms at once, or what `read_structural_tag` refuses.
    """
    data = _read(source)
    if "format" not in data:
        return read_structural_tag(source)
    if {"structures", "triggers"} & data.keys():
        raise GrammarSyntaxError("`format` and `structures` are two forms of the same thing", where="structural_tag",
                                 fix="give one of them")
    form = data["format"]
    if not isinstance(form, dict) or form.get("type") != "triggered_tags" or not isinstance(form.get("tags"), list):
        return None
    if form.get("at_least_one") or form.get("stop_after_first") or form.get("excludes"):
        return None
    items: list[tuple[str, str, object]] = []
    for index, tag in enumerate(form["tags"]):
        content = tag.get("content") if isinstance(tag, dict) else None
        if not isinstance(content, dict) or content.get("type") != "json_schema":
            return None
        items.append((f"structural_tag.format.tags[{index}]", "content.json_schema", {
            "begin": tag.get("begin"), "schema": content.get("json_schema"), "end": tag.get("end")}))
    return make_tag("structural_tag.format", form.get("triggers"), items)


Part = dict[str, object]
_LEAVES = {"json_schema": "json_schema", "regex": "pattern", "grammar": "grammar"}


def replace_leaves(source: str, replace: Callable[[str, str, object], Part]) -> str:
    """A tag of the `format` form with each schema, regex and grammar as `replace(type, at, value)` says it.

    Args:
        replace: told the type, the place, such as `structural_tag.format.tags[0].content.json_schema`, and what stands
            there; gives the whole part anew. A part with more fields (`style`) is shown to it and stays as it is.
    """
    return json.dumps(_replaced(_read(source), "structural_tag", replace), ensure_ascii=False)


def _replaced(part: object, at: str, replace: Callable[[str, str, object], Part]) -> object:
    if isinstance(part, list):
        return [_replaced(item, f"{at}[{index}]", replace) for index, item in enumerate(part)]
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    field = _LEAVES.get(kind) if isinstance(kind, str) else None
    if field is not None and field in part:
        made = replace(str(kind), f"{at}.{field}", part[field])
        return made if part.keys() <= {"type", field} else part
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
