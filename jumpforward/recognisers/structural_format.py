"""The `format` form of structural tags, by sets of places: where may what fits a format, and begins here, end?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jumpforward.recognisers.ebnf import EbnfRecogniser

Decide = Callable[[str, str], bool]
Format = dict[str, Any]
Places = frozenset[int]

_KNOWN = {
    "const_string": {"value"}, "json_schema": {"json_schema"}, "regex": {"pattern"}, "grammar": {"grammar"},
    "any_text": {"excludes"}, "sequence": {"elements"}, "or": {"elements"}, "tag": {"begin", "content", "end"},
    "triggered_tags": {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"},
    "tags_with_separator": {"tags", "separator", "at_least_one", "stop_after_first"},
    "optional": {"content"}, "star": {"content"}, "plus": {"content"}, "repeat": {"content", "min", "max"},
}


class UnknownFormatError(Exception):
    """A format, or a field of one, that this recogniser has not learned."""


@dataclass(frozen=True, slots=True)
class FormatRecogniser:
    """Texts of one format.

    Attributes:
        validate: whether a text is JSON of a schema (its text). matches: whether a text is all of a pattern.
    """

    form: Format
    validate: Decide
    matches: Decide

    @classmethod
    def of(cls, source: str, validate: Decide, matches: Decide) -> FormatRecogniser | None:
        """From a tag's JSON text; None when it has another form than `format`.

        Raises:
            UnknownFormatError: it asks for something that is not known here.
        """
        tag = json.loads(source)
        if not isinstance(tag, dict) or "format" not in tag:
            return None
        _check(tag["format"])
        return cls(tag["format"], validate, matches)

    def accepts(self, text: str) -> bool:
        """Whether the whole text fits."""
        return len(text) in self._ends(self.form, text, 0, frozenset({len(text)}))

    def _ends(self, form: Format, text: str, at: int, wanted: Places | None = None) -> Places:
        """Where what fits `form` from `at` on may end; of those, when it helps, only the `wanted` ones."""
        match form["type"]:
            case "const_string":
                return _found(text.startswith(form["value"], at), at + len(form["value"]))
            case "json_schema" | "regex" | "grammar":
                places = range(at, len(text) + 1) if wanted is None else (end for end in wanted if end >= at)
                decide = self._leaf(form)
                return frozenset(end for end in places if decide(text[at:end]))
            case "any_text":
                return frozenset(range(at, _until(text, at, form.get("excludes", ())) + 1))
            case "sequence":
                return self._in_turn(form["elements"], text, at, wanted)
            case "or":
                return _union(self._ends(one, text, at, wanted) for one in form["elements"])
            case "tag":
                return self._tag(form, text, at)
            case "triggered_tags":
                return self._triggered(form, text, at)
            case "tags_with_separator":
                return self._separated(form, text, at)
            case "optional":
                return self._ends(form["content"], text, at, wanted) | {at}
            case kind:
                low, high = {"star": (0, -1), "plus": (1, -1)}.get(kind) or (int(form["min"]), int(form["max"]))
                return self._repeated(form["content"], text, at, low, high)

    def _leaf(self, form: Format) -> Callable[[str], bool]:
        match form["type"]:
            case "json_schema":
                schema = json.dumps(form["json_schema"], ensure_ascii=False)
                return lambda part: self.validate(schema, part)
            case "regex":
                return lambda part: self.matches(form["pattern"], part)
            case _:
                return EbnfRecogniser(form["grammar"]).accepts

    def _in_turn(self, forms: list[Format], text: str, at: int, wanted: Places | None) -> Places:
        places = frozenset({at})
        for index, form in enumerate(forms):
            last = wanted if index == len(forms) - 1 else None
            places = _union(self._ends(form, text, place, last) for place in places)
        return places

    def _tag(self, form: Format, text: str, at: int) -> Places:
        if not text.startswith(form["begin"], at):
            return frozenset()
        inside = at + len(form["begin"])
        ends = [form["end"]] if isinstance(form["end"], str) else form["end"]
        closing = frozenset(place for end in ends for place in range(inside, len(text) + 1)
                            if text.startswith(end, place))
        content = form["content"]
        if content["type"] == "any_text":  # free text inside of a tag goes up to the tag's end, and not past it
            content = content | {"excludes": [*content.get("excludes", ()), *filter(None, ends)]}
        closed = self._ends(content, text, inside, closing) & closing
        return frozenset(place + len(end) for place in closed for end in ends if text.startswith(end, place))

    def _triggered(self, form: Format, text: str, at: int) -> Places:
        triggers, once = form["triggers"], bool(form.get("stop_after_first"))
        stops = [*triggers, *form.get("excludes", ())]
        found: set[int] = set()
        seen: set[tuple[int, bool]] = set()
        ahead = [(at, bool(form.get("at_least_one")))]  # a place, and whether a tag has to begin right there
        while ahead:
            place, must = ahead.pop()
            if (place, must) in seen:
                continue
            seen.add((place, must))
            free = place if must else _until(text, place, stops)
            if not must:
                found |= set(range(place, free + 1))
            for start in range(place, min(free + max(map(len, stops), default=0), len(text)) + 1):
                if (start == place or not must) and text.startswith(tuple(triggers), start):
                    if _until(text, place, stops) >= start:
                        after = _union(self._tag(tag, text, start) for tag in form["tags"])
                        found |= after if once else set()
                        ahead += [] if once else [(end, False) for end in after]
                    break
        return frozenset(found)

    def _separated(self, form: Format, text: str, at: int) -> Places:
        found = frozenset() if form.get("at_least_one") else frozenset({at})
        ahead, seen = {at}, set[int]()
        while ahead:
            start = ahead.pop()
            seen.add(start)
            after = _union(self._tag(tag, text, start) for tag in form["tags"])
            found |= after
            if not form.get("stop_after_first"):
                ahead |= {end + len(form["separator"]) for end in after
                          if text.startswith(form["separator"], end)} - seen
        return found

    def _repeated(self, form: Format, text: str, at: int, low: int, high: int) -> Places:
        places, found, seen, count = frozenset({at}), frozenset[int](), set[Places](), 0
        while places and (high < 0 or count <= high):
            if count >= low:
                if places in seen:
                    break
                seen.add(places)
                found |= places
            places = _union(self._ends(form, text, place) for place in places)
            count += 1
        return found


def _check(form: object) -> None:
    """Refuse what is not known here, in the format or inside of it."""
    if not isinstance(form, dict) or form.get("type") not in _KNOWN or form.keys() - _KNOWN[form["type"]] - {"type"}:
        raise UnknownFormatError
    tags = [{"type": "tag"} | tag for tag in form.get("tags", ())]
    for inner in (form.get("content"), *form.get("elements", ()), *tags):
        if inner is not None:
            _check(inner)
    if form["type"] == "tag" and not isinstance(form.get("begin"), str):
        raise UnknownFormatError


def _until(text: str, at: int, stops: Iterable[str]) -> int:
    """The last place up to which free text from `at` on holds none of `stops`."""
    return min((text.index(stop, at) + len(stop) - 1 for stop in stops if stop in text[at:]), default=len(text))


def _found(holds: bool, place: int) -> Places:
    return frozenset({place}) if holds else frozenset()


def _union(parts: Iterable[Places] | Iterator[Places]) -> Places:
    return frozenset[int]().union(*parts)
