"""Row 33: a helper gets its arguments in the wrong order, so jumps of plain text silently stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_runtime.constraint import Constraint
from stages.stage4_backends.base_grammar_backend import JumpHelper
from stages.stage4_backends.outlines_backend import OutlinesGrammar, OutlinesGrammarBackend
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

Parts = Callable[[Bench, str, Sequence[int]], "tuple[bytes, str] | None"]
"""(bench, pattern, the ids that have come) -> the rest of a character and the text behind it that are forced."""

_right = OutlinesGrammar.try_jump_forward


def swapped(self: OutlinesGrammar) -> JumpHelper | None:
    """Specimen of `OutlinesGrammar.try_jump_forward`: bytes where text belongs, and text where bytes belong."""
    helper = _right(self)
    if helper is None:
        return None
    suffix = helper.text.encode()
    if not all(0x80 <= byte < 0xC0 for byte in suffix):  # no rest of a character, so there is nothing to append
        return None
    return JumpHelper(suffix, helper.suffix.decode("latin-1"), helper.next_state)


def parts_of_stage4(try_jump: Callable[[OutlinesGrammar], JumpHelper | None]) -> Parts:
    """What a method of stage 4's grammar says."""

    def parts(bench: Bench, pattern: str, come: Sequence[int]) -> tuple[bytes, str] | None:
        grammar = OutlinesGrammarBackend(bench.context()).init_value(Constraint.regex(pattern)).grammar
        assert isinstance(grammar, OutlinesGrammar)
        assert all(map(grammar.accept_token, come))
        helper = try_jump(grammar)
        return None if helper is None else (helper.suffix, helper.text)

    return parts


def plain_text_and_begun_characters_are_forced(parts: Parts, bench: Bench) -> None:
    """A chain of ASCII, and one that begins inside a character."""
    encode = bench.tokenizer.encode
    for pattern, come, suffix, text in (("x: true", encode("x"), b"", ": true"), ("é!", encode("é")[:1], b"\xa9", "!")):
        found = parts(bench, pattern, come)
        hold(found is not None, f"no jump in {pattern!r}")
        hold(found == (suffix, text), f"the jump in {pattern!r} appends {found}")


def scenario(bench: Bench) -> None:
    """A request to stage 4 with outlines."""
    result = bench.run(bench.engine(4, backend="outlines"), [ask("x: true, false")])[0]
    hold(result.counts["jumped"] > 0, "the outlines backend never jumps")


EXHIBIT: Exhibit[Parts] = Exhibit(
    33, parts_of_stage4(swapped), {"stage4": parts_of_stage4(_right)},
    plain_text_and_begun_characters_are_forced, "no jump in 'x: true'",
    Injection(OutlinesGrammar, "try_jump_forward", swapped, scenario, "never jumps"))
