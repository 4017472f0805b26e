"""Where a model that reasons before it answers draws the line: one token, which ends the reasoning part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared_runtime.errors import ConfigError, JumpforwardError
from shared_runtime.tokenizer import Tokenizer


def think_end_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of `token`, a token's printed name or text.

    Raises:
        ConfigError: it is no text, or not exactly one id (the message shows its ids), or it ends the whole answer.
    """
    if not isinstance(token, str):
        raise ConfigError(f"must be a token's printed name, not {token!r}", where="think_end",
                          fix="give the text that the token is written as, such as </think>")
    try:
        ids = tokenizer.encode(token)
    except JumpforwardError as error:
        raise ConfigError(f"{token!r} is no token: {error}", where="think_end") from None
    if len(ids) != 1:
        raise ConfigError(f"{token!r} is {len(ids)} tokens of this model: {ids}", where="think_end",
                          fix="name the one token that ends the model's reasoning")
    if ids[0] in tokenizer.vocabulary.stop_ids:
        raise ConfigError(f"{token!r} (id {ids[0]}) is a stop token: it ends the whole answer", where="think_end",
                          fix="name the token that ends the reasoning part alone")
    return ids[0]


def split_reasoning(token_ids: Sequence[int], end_id: int) -> tuple[list[int], list[int]]:
    """Reasoning and answer of an output that began with a reasoning part; the end token is in neither.

    Only the answer is in the constraint's language. Without an end token everything is reasoning: the output was cut
    before the answer began.
    """
    ids = list(token_ids)
    if end_id not in ids:
        return ids, []
    at = ids.index(end_id)
    return ids[:at], ids[at + 1:]


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Where the reasoning part lies in the text of an answer that begins with one.

    Attributes:
        tokenizer: what the ids spell. end_id: the token that ends the part.
    """

    tokenizer: Tokenizer
    end_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, think_end: str | None) -> ReasoningPart | None:
        """For an engine whose `think_end` this is; None where it has none.

        Raises:
            ConfigError: see `think_end_id`.
        """
        return None if think_end is None else cls(tokenizer, think_end_id(tokenizer, think_end))

    def bounds(self, token_ids: Sequence[int]) -> tuple[int, int] | None:
        """Characters of the reasoning part, and of all that stands before the answer; None while there is no end.

        The two differ where the end token is shown.
        """
        thought, _ = split_reasoning(token_ids, self.end_id)
        if len(thought) == len(token_ids):
            return None
        return len(self.tokenizer.decode(thought)), len(self.tokenizer.decode([*thought, self.end_id]))

    def split(self, text: str, token_ids: Sequence[int]) -> tuple[str, str]:
        """Reasoning and answer of `text`, the text of `token_ids` or its beginning. The end token is in neither."""
        bounds = self.bounds(token_ids)
        return (text, "") if bounds is None else (text[:bounds[0]], text[bounds[1]:])
