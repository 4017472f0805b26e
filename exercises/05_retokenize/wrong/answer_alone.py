"""Encodes the answer, whatever stands in front of it."""

from __future__ import annotations

from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """No seam."""
    try:
        return tokenizer.spell(text)
    except JumpforwardError:
        return None
