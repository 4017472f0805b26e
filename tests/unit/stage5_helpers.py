"""Grammars and backends for stage 5's tests that need no library, and requests to give them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import StageContext, StageOptions
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled
from stages.stage5_backend_jump.grammar_manager import Decision

EOS, A, B, THINK_END = 0, 1, 2, 4
SMALL = Vocabulary((b"", b"a", b"b", b"ab", b"", b"c"), control_ids=frozenset({EOS, THINK_END}),
                   stop_ids=frozenset({EOS}), width=8)


class WordGrammar(BaseGrammarObject):
    """Accepts the tokens of `word` and then the stop set: small enough to be right by reading."""

    def __init__(self, vocabulary: Vocabulary, word: Sequence[int]) -> None:
        super().__init__(vocabulary)
        self.word = list(word)
        self.at = 0
        self.fills = 0

    @property
    def nbytes(self) -> int:
        return 100

    @property
    def accepting(self) -> bool:
        return self.at == len(self.word)

    def copy(self) -> WordGrammar:
        return WordGrammar(self.vocabulary, self.word)

    def _accept_text(self, token_id: int) -> bool:
        if self.at < len(self.word) and self.word[self.at] == token_id:
            self.at += 1
            return True
        return False

    def _rollback_text(self, k: int) -> None:
        if k > self.at:
            raise ValueError(f"cannot take back {k} of {self.at} tokens")
        self.at -= k

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        self.fills += 1
        allowed = self.vocabulary.stop_ids if self.accepting else {self.word[self.at]}
        mask[row] = 0
        for token_id in allowed:
            mask[row, token_id // 32] |= 1 << token_id % 32


class ScriptedBackend(BaseGrammarBackend):
    """Compiles by calling `script`; counts how often, per constraint."""

    name = "scripted"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext, script: Callable[[Constraint], BaseGrammarObject]) -> None:
        super().__init__(context)
        self.script = script
        self.builds: dict[Constraint, int] = {}
        self.resets = 0
        self._lock = threading.Lock()

    def init_value(self, constraint: Constraint) -> Compiled:
        with self._lock:
            self.builds[constraint] = self.builds.get(constraint, 0) + 1
        return Compiled(self.script(constraint))

    def reset(self) -> None:
        self.resets += 1


@dataclass
class FakeRanks:
    """Two ranks in one thread: what the other rank would say is set by the test."""

    other: Decision = field(default_factory=lambda: Decision(frozenset(), {}))
    first: bool = True
    asked: list[Decision] = field(default_factory=list)

    def from_each(self, value: Decision) -> Sequence[Decision]:
        self.asked.append(value)
        return [value, self.other] if self.first else [self.other, value]


def context_over(vocabulary: Vocabulary, tokenizer: Tokenizer, *, backend: str | None = None,
                 limits: GrammarLimits | None = None, options: StageOptions | None = None) -> StageContext:
    """What a policy or backend is built from, on the CPU."""
    return StageContext(vocabulary, tokenizer, torch.device("cpu"), limits or GrammarLimits(), backend,
                        options=options or StageOptions())


def request(rid: str, constraint: Constraint | None = None, **sampling: object) -> Request:
    """A request that has emitted nothing."""
    return Request(rid=rid, prompt_ids=[1], prompt="", sampling=SamplingParams(**sampling),  # type: ignore[arg-type]
                   seed=0, constraint=constraint, metrics=RequestMetrics(arrival=0.0))


def batch_of(*reqs: Request) -> ScheduleBatch:
    """A decode batch in which each request gets a token."""
    return ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=list(reqs))


def allowed_in(grammar: BaseGrammarObject, width: int | None = None) -> set[int]:
    """The ids that a grammar's mask allows, read bit by bit."""
    width = width or grammar.vocabulary.width
    mask = grammar.allocate_vocab_mask(width, 1, torch.device("cpu"))
    grammar.fill_vocab_mask(mask, 0)
    words = [int(word) for word in mask[0]]
    return {token_id for token_id in range(width) if words[token_id // 32] >> token_id % 32 & 1}
