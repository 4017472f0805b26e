"""Exercise 5: spell the answer anew, with the prompt untouched."""

from __future__ import annotations

from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer

__all__ = ["JumpforwardError", "retokenize"]


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Ids for an answer of `text` behind the prompt, or None where there are none. Never raises."""
    raise NotImplementedError("TODO: encode prompt and answer together, and see that the prompt comes out first")
