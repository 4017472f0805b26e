"""A constraint: the kind of language a request's output must be in, and its source text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from shared_runtime.errors import RequestError

ConstraintKind = Literal["regex", "choice", "json_schema", "json_object", "ebnf", "structural_tag"]
CONSTRAINT_KINDS: tuple[ConstraintKind, ...] = get_args(ConstraintKind)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint; hashable, so that it is its own cache key.

    Attributes:
        kind: which language the source is written in.
        source: the pattern, schema, grammar or tag as text; "" for `json_object`.
        choices: the alternatives of `choice`, in the user's order without repeats; () for every other kind.
    """

    kind: ConstraintKind
    source: str = ""
    choices: tuple[str, ...] = ()

    @classmethod
    def regex(cls, pattern: str) -> Constraint:
        """The output must match `pattern` in full, in the dialect of `docs/regex.md`."""
        return cls("regex", source=pattern)

    @classmethod
    def choice(cls, choices: list[str] | tuple[str, ...]) -> Constraint:
        """The output must be one of `choices`; repeats count once.

        Raises:
            RequestError: no choice was given.
        """
        unique = tuple(dict.fromkeys(choices))
        if not unique:
            raise RequestError("a choice constraint needs at least one choice", where="choice",
                               fix="give --choice TEXT once for each alternative")
        return cls("choice", choices=unique)

    @classmethod
    def json_schema(cls, schema: str | Mapping[str, object]) -> Constraint:
        """The output must be JSON that validates against `schema`, given as text or as a mapping.

        The order of `properties` is kept: it decides the order of the output.
        """
        return cls("json_schema", source=schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False))

    @classmethod
    def json_object(cls) -> Constraint:
        """The output must be any JSON object."""
        return cls("json_object")

    @classmethod
    def ebnf(cls, grammar: str) -> Constraint:
        """The output must be in the language of `grammar` (GBNF style, start rule `root`)."""
        return cls("ebnf", source=grammar)

    @classmethod
    def structural_tag(cls, tag: str | Mapping[str, object]) -> Constraint:
        """Free text in which certain beginnings start a constrained part; both forms of upstream's JSON."""
        return cls("structural_tag", source=tag if isinstance(tag, str) else json.dumps(tag, ensure_ascii=False))

    @property
    def text(self) -> str:
        """A short form for messages: kind and the first 60 characters of the source."""
        body = " | ".join(self.choices) if self.kind == "choice" else self.source
        return f"{self.kind} {(body if len(body) <= 60 else body[:57] + '...') or repr(body)}"
