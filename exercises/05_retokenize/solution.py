"""Exercise 5: spell the answer anew, with the prompt untouched."""

from __future__ import annotations

from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Ids for an answer of `text` behind the prompt, or None where there are none. Never raises."""
    vocabulary = tokenizer.vocabulary
    behind: list[int] = []
    for token_id in prompt_ids:
        behind = [] if token_id in vocabulary.control_ids else [*behind, token_id]
    try:
        try:
            before = vocabulary.decode(behind).decode()
        except UnicodeDecodeError:
            return tokenizer.spell(text)
        ids = tokenizer.spell(before + text)
        if ids[:len(behind)] == behind:
            return ids[len(behind):]
        return None if tokenizer.spell(before) == behind else tokenizer.spell(text)
    except JumpforwardError:
        return None
