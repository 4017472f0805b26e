"""Upstream's first: as many ids as the prompt has are cut off."""

from __future__ import annotations

from shared_runtime.tokenizer import Tokenizer
from tests.museum.rows.row_17_prompt_split_again import first_ids_are_the_prompt


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """The museum's specimen, behind the last control token."""
    control = [at for at, token_id in enumerate(prompt_ids) if token_id in tokenizer.vocabulary.control_ids]
    return first_ids_are_the_prompt(tokenizer, prompt_ids[control[-1] + 1:] if control else prompt_ids, text)
