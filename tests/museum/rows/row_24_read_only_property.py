"""Row 24: the adapter writes into the tokenizer it is given, and not every tokenizer lets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared_runtime.constrain.libraries import llguidance_source
from shared_runtime.constrain.libraries.token_view import TokenView
from shared_runtime.policy import StageContext
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage3_outlines.fsm_cache import FSMCache
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

Adapter = Callable[[Vocabulary, Tokenizer], object]


class SetsAPaddingToken(TokenView):
    """Specimen of `TokenView`: a tokenizer without a token for beginnings gets one."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        super().__init__(vocabulary, tokenizer)
        written_to: Any = tokenizer
        written_to.bos_id = self.eos_token_id


def an_adapter_changes_nothing(adapter: Adapter, bench: Bench) -> None:
    """A tokenizer whose properties have no setter."""
    tokenizer = bench.tokenizer
    before = (tokenizer.bos_id, tokenizer.bos_token, tokenizer.eos_token, tokenizer.vocabulary.fingerprint)
    with unbroken("the adapter cannot be made"):
        adapter(tokenizer.vocabulary, tokenizer)
    after = (tokenizer.bos_id, tokenizer.bos_token, tokenizer.eos_token, tokenizer.vocabulary.fingerprint)
    hold(after == before, "the adapter changed the tokenizer it was given")


def scenario(bench: Bench) -> None:
    """A request to stage 4 with llguidance."""
    result = bench.run(bench.engine(4, backend="llguidance"), [ask("[0-9]{3}")])[0]
    hold(result.error is None, f"start-up failed: {result.error}")


def _of_stage3(vocabulary: Vocabulary, tokenizer: Tokenizer) -> object:
    import torch

    return FSMCache(StageContext(vocabulary, tokenizer, torch.device("cpu")))


EXHIBIT: Exhibit[Adapter] = Exhibit(
    24, SetsAPaddingToken, {"stage3": _of_stage3, "stage4": TokenView}, an_adapter_changes_nothing,
    "the adapter cannot be made: FrozenInstanceError",
    Injection(llguidance_source, "TokenView", SetsAPaddingToken, scenario, "start-up failed"))
