"""Exercise 12: when a jump pays, and why one character is not worth it."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward.jump_forward import retokenize


class Forecast:
    """What a run of stage 2 will cost, in counts."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], least: int) -> None:
        self.tokenizer = tokenizer
        self.prompt_ids = list(prompt_ids)
        self.least = least

    def counts(self, story: Sequence[tuple[str, bool]]) -> dict[str, int]:
        """What the story costs alone."""
        ids: list[int] = []
        come = b""
        found = {"passes": 1, "jumps": 0, "reencoded": 0, "read": 0}  # the pass that gives the end
        for text, forced in story:
            rest = text.encode()
            while rest:
                new = self.encoded(come + rest, ids) if forced and ids and self.enough(rest) else None
                if new is not None:
                    same = common(ids, new)
                    found["jumps"] += 1
                    found["reencoded"] += len(ids) - same
                    found["read"] += len(new) - min(same, len(ids) - 1) - 1  # the last is counted where it came out
                    ids, come, rest = new, come + rest, b""
                else:
                    ids.append(self.tokenizer.vocabulary.byte_tokens[rest[0]])
                    come, rest = come + rest[:1], rest[1:]
                    found["passes"] += 1
                    found["read"] += 1
        return found

    def enough(self, rest: bytes) -> bool:
        """Whether that many forced bytes are worth a jump."""
        return len(rest) >= self.least

    def encoded(self, text: bytes, ids: list[int]) -> list[int] | None:
        """The answer's own ids."""
        return retokenize(self.tokenizer, self.prompt_ids, text.decode())

    def crossover(self, neighbours: int) -> int:
        """A jump saves its request a pass for each forced byte, and costs each neighbour a turn."""
        return neighbours + 1


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
