"""Spelling an answer anew: the ids of a text behind a prompt, and how each of them came."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.trace import RewriteRecord, TokenOrigin
from shared_runtime.vocabulary import Vocabulary


def ids_behind(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Ids for an answer of `text` behind the prompt, or None where there are none. Never raises (museum row 19).

    The answer is encoded with the prompt's text from its last control token on, as the model's training text was.
    Those ids must come out first, bit for bit. If prompt and answer grow together (a prompt that ends in a blank),
    there is no answer (row 17). A prompt that is not what its own text encodes to says nothing about the seam; then
    the answer is encoded alone.
    """
    vocabulary = tokenizer.vocabulary
    control = [index for index, token_id in enumerate(prompt_ids) if token_id in vocabulary.control_ids]
    behind = prompt_ids[control[-1] + 1:] if control else prompt_ids
    try:
        try:
            before = vocabulary.decode(behind).decode()
        except UnicodeDecodeError:  # ids from elsewhere, that end inside a character
            return tokenizer.spell(text)
        ids = tokenizer.spell(before + text)
        if ids[:len(behind)] == behind:
            return ids[len(behind):]
        return tokenizer.spell(text) if tokenizer.spell(before) != behind else None
    except JumpforwardError:  # a byte that no token spells alone
        return None


def common_length(old_ids: Sequence[int], new_ids: Sequence[int]) -> int:
    """How many leading ids two spellings share."""
    pairs = enumerate(zip(old_ids, new_ids, strict=False))
    return next((index for index, (was, becomes) in pairs if was != becomes), min(len(old_ids), len(new_ids)))


def origins_after(vocabulary: Vocabulary, note: RewriteRecord, old: Sequence[TokenOrigin],
                  written: TokenOrigin) -> list[TokenOrigin]:
    """How the new ids came. Kept ids stay what they were; of the others, one with a byte that was `written` is that.

    Args:
        note: the old and the new ids. old: per old id, how it came.
    """
    came = [how for token_id, how in zip(note.old_ids, old, strict=True) for _ in vocabulary.token_bytes[token_id]]
    origins, at = list(old[:note.common_prefix]), len(vocabulary.decode(note.new_ids[:note.common_prefix]))
    for token_id in note.new_ids[note.common_prefix:]:
        end = at + len(vocabulary.token_bytes[token_id])
        origins.append("sampled" if end <= len(came) and written not in came[at:end] else written)
        at = end
    return origins
