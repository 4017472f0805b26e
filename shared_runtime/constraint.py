"""A constraint: the kind of language a request's output must be in, and its source text."""

from __future__ import annotations

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

    @property
    def text(self) -> str:
        """A short form for messages: kind and the first 60 characters of the source."""
        body = " | ".join(self.choices) if self.kind == "choice" else self.source
        return f"{self.kind} {body if len(body) <= 60 else body[:57] + '...'}"
