"""Upstream's second: the last id of the prompt is compared."""

from __future__ import annotations

from shared_runtime.tokenizer import Tokenizer
from tests.museum.rows.row_19_retokenize_raises import compares_the_last_prompt_id


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """The museum's specimen."""
    return compares_the_last_prompt_id(tokenizer, prompt_ids, text)
