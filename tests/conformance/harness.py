"""What the conformance suite runs over: every (stage, backend) that is registered, on the real vocabulary.

A stage joins by being registered; nothing here names one.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from jumpforward.recognisers.ebnf import EbnfRecogniser
from jumpforward.recognisers.structural_tag import TagRecogniser
from shared_runtime.conformance.case_file import Case, CaseKind, read_cases
from shared_runtime.conformance.deviations import shipped_deviations
from shared_runtime.conformance.target import Target as Target
from shared_runtime.conformance.target import all_targets
from shared_runtime.conformance.verdict import Judge
from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageContext, StageOptions, StagePolicy
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from tests.oracles.json_oracle import is_json_of

CASES = Path(__file__).parent.parent / "data" / "cases.jsonl"

REGEXES = (
    r"[0-9]{4}", r"[a-z]+", r"(yes|no)", r"(cat|catalog|category)", r"abc|abcd", r"[0-9]+(\.[0-9]+)?", r"(n/a)?",
    r"(ab)*", r"[a-z]+(-[a-z]+)*", r"[0-9]{1,3}(,[0-9]{3})*", r"\{\"name\": \"[A-Za-z ]{1,12}\", \"age\": [0-9]{1,2}\}",
    r"ab?c*d+", r".{3,8}", r"[^\"\\]*", r"\w+ \d+\s?", r"(é|ß|ü)+!", r"[\u4e00-\u9fff]{1,3}", r"[🌀-🌟]{2}",
    r"(?i)yes|maybe", r"(a|b)*abb", r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", r"(\n|\t| )*x", r"a.*?b.{3}", r"<\|im_end\|>",
)
"""Regexes that have gone wrong somewhere: optional tails, prefixes of each other, half characters, wildcards."""


@functools.cache
def cases(kind: CaseKind | None = None) -> tuple[Case, ...]:
    """The cases of one kind, or all of them."""
    return tuple(case for case in read_cases(CASES) if isinstance(case, Case) and kind in (None, case.kind))


TARGETS = all_targets()

each_target = pytest.mark.parametrize("target", TARGETS, ids=str)


def each_target_with(kind: ConstraintKind) -> pytest.MarkDecorator:
    """Every target that serves the kind. There may be none yet: the test is then skipped, and says so."""
    return pytest.mark.parametrize("target", [target for target in TARGETS if target.supports(kind)], ids=str)


def policy_of(target: Target, tokenizer: Tokenizer, vocabulary: Vocabulary | None = None,
              options: StageOptions | None = None) -> StagePolicy:
    """A fresh policy of the target, over the tokenizer's vocabulary or another."""
    return target.spec.build(StageContext(vocabulary=vocabulary or tokenizer.vocabulary, tokenizer=tokenizer,
                                          device=torch.device("cpu"), backend=target.backend,
                                          limits=GrammarLimits(compile_timeout=120.0),
                                          options=options or StageOptions()))


ANY_WHITESPACE = StageOptions(whitespace="any", strict=True)
"""Judges languages, not forms: what a library would drop is refused, and JSON may be laid out in any way."""


@dataclass(slots=True)
class Walkers:
    """Two walkers a target, one with default options and one that judges, so that grammars compile once."""

    tokenizer: Tokenizer = field(repr=False)
    judge: Judge = field(init=False, repr=False)
    _made: dict[str, GrammarWalker] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.judge = Judge(self.tokenizer, shipped_deviations(), options=ANY_WHITESPACE, all_tokenizations=True)

    def __call__(self, target: Target) -> GrammarWalker:
        """The walker of `target`."""
        if str(target) not in self._made:
            self._made[str(target)] = GrammarWalker(policy_of(target, self.tokenizer), self.tokenizer.vocabulary)
        return self._made[str(target)]

    def judging(self, target: Target) -> GrammarWalker:
        """The walker of `target` that `judge` uses: strict, with any whitespace."""
        return self.judge.walker(target)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a mixed batch."""

    prompt: str
    constraint: Constraint | None = None
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(max_new_tokens=12))


MIXED: tuple[Ask, ...] = (
    Ask("The year was ", Constraint.regex("[0-9]{4}")),
    Ask("Once upon a time"),
    Ask("yes or no? ", Constraint.choice(["yes", "no"])),
    Ask("A colour: ", Constraint.regex("(red|green|blue), done"),
        SamplingParams(max_new_tokens=12, temperature=1.0, seed=7)),
    Ask("Tell me", None, SamplingParams(max_new_tokens=9, temperature=0.8, top_p=0.9, seed=3)),
    Ask("Name: ", Constraint.regex(r'"[A-Z][a-z]{2,8}"'), SamplingParams(max_new_tokens=12, temperature=0.7, seed=1)),
    Ask("世界", Constraint.regex("[\u4e00-\u9fff]{1,4}"), SamplingParams(max_new_tokens=12, temperature=1.0, seed=5)),
    Ask("The quick brown fox jumps over the lazy dog and then"),
)


def run(engine: Engine, asks: Sequence[Ask]) -> list[Result]:
    """The asks together, turn by turn, with the books checked after every turn."""
    names = [engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0] for ask in asks]
    done: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        done |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return [done[name] for name in names]


def in_language(constraint: Constraint | None, text: str) -> bool:
    """Whether a finished text is what the constraint asked for, by a word that is not the decoder's."""
    if constraint is None:
        return True
    match constraint.kind:
        case "choice":
            return text in constraint.choices
        case "regex":
            return re.fullmatch(constraint.source, text, re.ASCII) is not None
        case "json_schema":
            return is_json_of(constraint.source, text)
        case "json_object":
            return is_json_of('{"type": "object"}', text)
        case "ebnf":
            return EbnfRecogniser(constraint.source).accepts(text)
        case "structural_tag":
            tag = TagRecogniser.of(constraint.source)
            assert tag is not None, "only the form with triggers has an oracle"
            return tag.accepts(text, is_json_of)


def same_tokens(reference: Result, other: Result, *, excused: list[str]) -> bool:
    """Contracts, section 1: equal tokens, or a first difference where the reference's best two were within 1e-3.

    The reference must carry `top_logprobs` of at least 2; what is excused is noted in `excused`.
    """
    if reference.token_ids == other.token_ids:
        return True
    pairs = enumerate(zip(reference.token_ids, other.token_ids, strict=False))
    first = next((index for index, (mine, theirs) in pairs if mine != theirs), None)
    if first is None:
        return False
    best = reference.logprobs[first].top
    gap = best[0][1] - best[1][1] if len(best) > 1 else math.inf
    if gap < 1e-3:
        excused.append(f"{reference.rid} token {first}: gap {gap:.1e}")
        return True
    return False
