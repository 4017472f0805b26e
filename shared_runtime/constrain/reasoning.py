"""Where a model that reasons before it answers draws the line: one token, which ends the reasoning part."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.errors import ConfigError, JumpforwardError
from shared_runtime.tokenizer import Tokenizer


def think_end_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of `token`, a token's printed name or text.

    Raises:
        ConfigError: it is not exactly one id (the message shows its ids), or it ends the whole answer.
    """
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
