"""Row 17: prompt and answer are encoded as one text, and the first n ids are taken for the prompt."""

from __future__ import annotations

from collections.abc import Callable

from shared_runtime.constrain.using.respell import ids_behind
from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import retokenize
from stages.stage3_outlines.jump_forward import retokenize as retokenize_of_stage3
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask, preferring, stream

Retokenize = Callable[[Tokenizer, list[int], str], list[int] | None]


def first_ids_are_the_prompt(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Specimen of `retokenize`."""
    return tokenizer.encode(tokenizer.decode(prompt_ids) + text)[len(prompt_ids):]


def the_prompt_is_bit_identical(retokenize_it: Retokenize, bench: Bench) -> None:
    """The prompt "a " and the answer "b": blank and letter are one token, so there is no such answer."""
    prompt = bench.tokenizer.encode("a ")
    ids = retokenize_it(bench.tokenizer, prompt, "b")
    spelled = "a b" if ids is None else bench.tokenizer.decode([*prompt, *ids])
    hold(spelled == "a b", f"the prompt's tokens were split again: prompt and answer now spell {spelled!r}")


def scenario(bench: Bench) -> None:
    """The same prompt, and a regex in which a letter can be missing without anybody noticing."""
    engine = bench.engine(2)
    with unbroken("the text that was sent is no longer the beginning of the answer"):
        _, pieces = stream(engine, ask("bbcde|bcde", "a ", logit_bias=preferring(engine, "b")))
    hold("".join(pieces) == "bbcde", f"the answer lost a letter to the prompt: {''.join(pieces)!r}")


EXHIBIT: Exhibit[Retokenize] = Exhibit(
    17, first_ids_are_the_prompt,
    {"stage2": retokenize, "stage3": retokenize_of_stage3, "stage4": ids_behind}, the_prompt_is_bit_identical,
    "split again",
    Injection(decoder, "retokenize", first_ids_are_the_prompt, scenario, "no longer the beginning|lost a letter"))
