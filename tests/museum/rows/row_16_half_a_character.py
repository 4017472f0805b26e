"""Row 16: a map over characters cannot say what follows the first bytes of one."""

from __future__ import annotations

from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import REAL_MAPS, Forced, ask, forced_by

PATTERN = "霍格沃兹|霍比特人"
"""The second characters begin with the same byte: E6 A0 BC and E6 AF 94."""


class WholeCharacters(JumpForwardMap):
    """Specimen of `JumpForwardMap`: what is forced begins at the next character."""

    def forced(self, state: int) -> bytes:
        """The forced text, without the rest of a character that has begun."""
        return super().forced(state).lstrip(bytes(range(0x80, 0xC0)))


def a_begun_character_is_completed_first(forced: Forced, bench: Bench) -> None:
    """Two of the three bytes of a character have come out."""
    come = "霍".encode() + b"\xe6\xa0"
    text = (come + forced(bench, PATTERN, come)).decode("utf-8", "replace")
    hold("\ufffd" not in text, f"the jump makes {text!r}: half a character stays half")
    hold(text == "霍格沃兹", f"the jump makes {text!r}")


def scenario(bench: Bench) -> None:
    """A model that writes byte by byte."""
    result = bench.run(bench.engine(2), [ask(PATTERN)])[0]
    hold(result.text in PATTERN.split("|"), f"the answer is {result.text!r}")
    hold(result.origins[:6] == ["sampled", "jumped", "jumped", "sampled", "sampled", "jumped"],
         f"the character that had begun was not completed by the jump: {result.origins}")


EXHIBIT: Exhibit[Forced] = Exhibit(
    16, forced_by(WholeCharacters.of), REAL_MAPS, a_begun_character_is_completed_first,
    "half a character stays half",
    Injection(decoder, "JumpForwardMap", WholeCharacters, scenario, "was not completed by the jump"))
