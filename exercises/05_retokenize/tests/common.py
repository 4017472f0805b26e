"""Prompts, answers and the checks of exercise 5. What is right is asked of stage 2's own function."""

from __future__ import annotations

from collections.abc import Callable

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect, plain
from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import retokenize
from tests.museum.jumps import ask, preferring, stream
from tests.museum.rows import row_17_prompt_split_again as row_17
from tests.museum.rows import row_19_retokenize_raises as row_19

Retokenize = Callable[[Tokenizer, list[int], str], list[int] | None]
Prompt = str | list[int]
"""A text, or ids."""


def the_ids_are_those_of_stage_2(part: Retokenize, prompt: Prompt, text: str) -> None:
    """And the prompt stays."""
    with bench() as made:
        tokenizer = made.tokenizer
    prompt_ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    before = list(prompt_ids)
    wanted, got = retokenize(tokenizer, list(prompt_ids), text), part(tokenizer, prompt_ids, text)
    expect(prompt_ids == before, "it changed the prompt's ids")
    expect(got is None or type(got) is list, f"it must return a list of ids or None, and returns {type(got).__name__}")
    got = plain(got)
    where = f"prompt {prompt!r} (ids {before}), answer {text!r}"
    spelled = "" if got is None else tokenizer.decode([*before, *got])
    grown = f"; prompt and answer now spell {spelled!r}" if got is not None and tokenizer.decode(got) != text else ""
    expect(got == wanted, f"{where}: yours gives {got}, expected {wanted}{grown}")


def the_museum_is_content(part: Retokenize) -> None:
    """Rows 17 and 19, in their own words and in stage 2."""
    with bench() as made:
        row_17.the_prompt_is_bit_identical(part, made)
        row_19.retokenizing_never_raises(part, made)
        with in_place(decoder, "retokenize", part):
            row_17.scenario(made)
            row_19.scenario(made)


def stage_2_answers(part: Retokenize, prompt: str, pattern: str, likes: str) -> None:
    """The same tokens as with stage 2's own, and what was sent is the answer."""
    with bench() as made:
        engine = made.engine(2)
        wanted = ask(pattern, prompt, max_new_tokens=30, logit_bias=preferring(engine, likes))
        right = made.run(engine, [wanted])[0]
        with in_place(decoder, "retokenize", part):
            got, pieces = stream(made.engine(2), wanted)
    where = f"in stage 2, prompt {prompt!r}, regex {pattern!r}"
    expect(got.error is None, f"{where}: {got.error}")
    expect(got.token_ids == right.token_ids, f"{where}: yours answers {got.text!r} in tokens {got.token_ids}, "
                                             f"expected {right.text!r} in {right.token_ids}")
    expect("".join(pieces) == got.text, f"{where}: {''.join(pieces)!r} was sent, the answer is {got.text!r}")


def picture(part: Retokenize) -> list[Row]:
    """Seams of a few kinds."""
    with bench() as made:
        tokenizer = made.tokenizer
    rows = []
    for prompt, text in (("x", "name"), ("a ", "b"), ("a", "bc"), ("x ", "age")):
        ids = tokenizer.encode(prompt)
        rows.append(Row(f"{prompt!r} + {text!r}", _drawn(tokenizer, part(tokenizer, list(ids), text)),
                        _drawn(tokenizer, retokenize(tokenizer, list(ids), text))))
    return rows


def _drawn(tokenizer: Tokenizer, ids: list[int] | None) -> str:
    return "none" if ids is None else "|".join(tokenizer.decode([token_id]) for token_id in ids)
