"""Exercise 12: when a jump pays, and why one character is not worth it."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward.jump_forward import retokenize

__all__ = ["Forecast", "retokenize"]


class Forecast:
    """What a run of stage 2 will cost, in counts.

    Args:
        tokenizer: `tokenizer.vocabulary.byte_tokens[byte]` is the id that spells one byte. prompt_ids: of the request.
        least: forced bytes that a jump takes.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], least: int) -> None:
        self.tokenizer = tokenizer
        self.prompt_ids = list(prompt_ids)
        self.least = least

    def counts(self, story: Sequence[tuple[str, bool]]) -> dict[str, int]:
        """`passes`, `jumps`, `reencoded` and `read` of a request alone; a story is (text, whether it is forced) ..."""
        raise NotImplementedError("TODO: play the story, byte by byte, with a list of the ids that have come out")

    def crossover(self, neighbours: int) -> int:
        """The fewest forced bytes for which a jump shortens the waiting of all, in turns."""
        raise NotImplementedError("this one is yours, too: draw the turns of both ways on paper first")
