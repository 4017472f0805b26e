"""Stage 4's backends over the real vocabulary, and one that does what a test says."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import torch
from torch import Tensor

from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.metrics import RequestMetrics
from shared_runtime.model.embedded import ensure_embedded
from shared_runtime.policy import StageContext, StageOptions
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage4_backends.base_grammar_backend import (
    REGISTRY,
    BaseGrammarBackend,
    BaseGrammarObject,
    Compiled,
)

BACKENDS = ("outlines", "xgrammar", "llguidance")


@functools.cache
def real_tokenizer() -> Tokenizer:
    """The embedded model's tokenizer."""
    return Tokenizer.from_folder(ensure_embedded())


def context(vocabulary: Vocabulary | None = None, limits: GrammarLimits | None = None,
            **options: object) -> StageContext:
    """A context on the CPU without memory."""
    tokenizer = real_tokenizer()
    return StageContext(vocabulary or tokenizer.vocabulary, tokenizer, torch.device("cpu"), limits or GrammarLimits(),
                        options=StageOptions(**options))  # type: ignore[arg-type]  # checked by StageOptions


@functools.cache
def backend(name: str) -> BaseGrammarBackend:
    """A backend with default options; made once, since its view of the vocabulary costs."""
    return REGISTRY.create(name, context())


def grammar(name: str, constraint: Constraint) -> BaseGrammarObject:
    """A grammar at its beginning."""
    return backend(name).init_value(constraint).grammar


def mask_of(one: BaseGrammarObject) -> set[int]:
    """The ids that may come next."""
    width = one.vocabulary.width
    mask = one.allocate_vocab_mask(width, 1, torch.device("cpu"))
    one.fill_vocab_mask(mask, 0)
    logits = torch.zeros((1, width))
    one.apply_vocab_mask(logits, mask)
    return set(torch.isfinite(logits[0]).nonzero().squeeze(1).tolist())


def take(one: BaseGrammarObject, text: str) -> list[int]:
    """Accept the canonical tokens of a text; returns them."""
    ids = real_tokenizer().encode(text, parse_control=False)
    for token_id in ids:
        assert one.accept_token(token_id), (text, token_id)
    return ids


def whole(one: BaseGrammarObject, text: str) -> bool:
    """Whether the grammar takes the text, byte by byte where the vocabulary has the bytes, and may end there."""
    single = one.vocabulary.byte_tokens
    return all(one.accept_token(single[byte]) for byte in text.encode()) and one.accepting


def request(constraint: Constraint, rid: str = "r") -> Request:
    """A request that has emitted nothing."""
    return Request(rid=rid, prompt_ids=[17], prompt="", sampling=SamplingParams(), seed=0, constraint=constraint,
                   metrics=RequestMetrics(arrival=0.0))


class AnyText(BaseGrammarObject):
    """A grammar that allows everything, and fails where a test says: a third party's, in 30 lines."""

    def __init__(self, vocabulary: Vocabulary, fails_at: int | None = None) -> None:
        super().__init__(vocabulary)
        self._fails_at = fails_at
        self._taken = 0

    nbytes = 100
    accepting = True

    def copy(self) -> AnyText:
        """At the beginning."""
        return AnyText(self.vocabulary, self._fails_at)

    def _accept_text(self, token_id: int) -> bool:
        self._taken += 1
        if self._taken == self._fails_at:
            raise RuntimeError("the library gave up")
        return True

    def _rollback_text(self, k: int) -> None:
        self._taken -= k

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Everything but control tokens."""
        mask[row] = -1
        mask[row, 0] = -1 << 17


class ThirdParty(BaseGrammarBackend):
    """A backend from outside. `compiled` lists what it was asked for."""

    name = "third-party"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext, compile_it: Callable[[Constraint], None] = lambda _: None) -> None:
        super().__init__(context)
        self.compiled: list[Constraint] = []
        self._compile_it = compile_it

    def init_value(self, constraint: Constraint) -> Compiled:
        """Whatever the test wants to happen, then a grammar; one whose source is a number fails at that token."""
        self.compiled.append(constraint)
        self._compile_it(constraint)
        fails_at = int(constraint.source) if constraint.source.isdigit() else None
        return Compiled(AnyText(self.context.vocabulary, fails_at))


def refuse(constraint: Constraint) -> None:
    """A compile that fails with an error of our own."""
    raise JumpforwardError(f"no {constraint.kind} today", where="constraint")


def waits(gate: threading.Event | None) -> None:
    """A compile that takes until the gate opens."""
    if gate is not None:
        gate.wait(30)
