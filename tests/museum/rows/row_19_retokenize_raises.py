"""Row 19: encoding prompt and answer again gives fewer ids than the prompt has, and the last of them is looked at."""

from __future__ import annotations

from collections.abc import Callable

from shared_runtime.constrain.using.respell import ids_behind
from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import retokenize
from stages.stage3_outlines.jump_forward import retokenize as retokenize_of_stage3
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

Retokenize = Callable[[Tokenizer, list[int], str], list[int] | None]


def compares_the_last_prompt_id(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Specimen of `retokenize`: control tokens of the prompt are not in its text."""
    ids = tokenizer.encode(tokenizer.decode(prompt_ids) + text)
    return ids[len(prompt_ids):] if ids[len(prompt_ids) - 1] == prompt_ids[-1] else None


def retokenizing_never_raises(retokenize_it: Retokenize, bench: Bench) -> None:
    """A prompt of control tokens alone; and an answer of nothing."""
    for text in ("", "ab", "é"):
        with unbroken(f"retokenizing {text!r} behind control tokens raised"):
            ids = retokenize_it(bench.tokenizer, [0, 0, 0, 0], text)
        hold(ids is None or bench.tokenizer.decode(ids) == text, f"retokenizing {text!r} gave other text")


def scenario(bench: Bench) -> None:
    """The same prompt in an engine."""
    with unbroken("a jump killed the loop"):
        result = bench.run(bench.engine(2), [ask("nbcd", "<|end|>" * 8)])[0]
    hold(result.text == "nbcd", f"a jump ended the request after {result.text!r}: {result.error}")


EXHIBIT: Exhibit[Retokenize] = Exhibit(
    19, compares_the_last_prompt_id,
    {"stage2": retokenize, "stage3": retokenize_of_stage3, "stage4": ids_behind}, retokenizing_never_raises,
    "raised: IndexError",
    Injection(decoder, "retokenize", compares_the_last_prompt_id, scenario, "after 'n': .*IndexError"))
