"""Free text with tagged parts: what a trigger announces is a known beginning, JSON that fits, and its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

Validate = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class TaggedPart:
    """`begin`, JSON of `schema` (its text), `end`."""

    begin: str
    schema: str
    end: str


@dataclass(frozen=True, slots=True)
class TagRecogniser:
    """Texts of the form `structures` + `triggers`."""

    parts: tuple[TaggedPart, ...]
    triggers: tuple[str, ...]

    @classmethod
    def of(cls, source: str) -> TagRecogniser | None:
        """From a tag's JSON text; None when it has another form than `structures` and `triggers`."""
        tag = json.loads(source)
        if not isinstance(tag, dict) or not {"structures", "triggers"} <= tag.keys():
            return None
        return cls(tuple(TaggedPart(one["begin"], json.dumps(one["schema"]), one["end"])
                         for one in tag["structures"]), tuple(tag["triggers"]))

    def accepts(self, text: str, validate: Validate) -> bool:
        """Whether the text is in the language; `validate` says whether a text is JSON of a schema."""
        ends = {0}
        seen: set[int] = set()
        while ends - seen:
            at = min(ends - seen)
            seen.add(at)
            start = self._trigger(text, at)
            if start is None:
                return True
            ends |= self._after_parts(text, start, validate)
        return False

    def _trigger(self, text: str, at: int) -> int | None:
        """Where the first trigger that is complete begins, in free text from `at` on."""
        found = [(start + len(trigger), start) for trigger in self.triggers
                 if (start := text.find(trigger, at)) >= 0]
        return min(found)[1] if found else None

    def _after_parts(self, text: str, start: int, validate: Validate) -> set[int]:
        """Every place where a tagged part that begins at `start` may end."""
        found: set[int] = set()
        for part in self.parts:
            if not text.startswith(part.begin, start):
                continue
            inside = start + len(part.begin)
            end = text.find(part.end, inside)
            while end >= 0:
                if validate(part.schema, text[inside:end]):
                    found.add(end + len(part.end))
                end = text.find(part.end, end + 1)
        return found
