"""Small vocabularies, and stage 1 compiled over them."""

from __future__ import annotations

import torch

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constraint import Constraint
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import StageContext
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from stages.stage1_copied_fsm.fsm import RegexFSM, build_fsm
from stages.stage1_copied_fsm.regex import make_deterministic_fsm
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary

EOS = 0
PADDING = 3


PATIENT = GrammarLimits(compile_timeout=120.0)
"""For tests of what comes out: a machine that is busy with something else must not decide them."""


def vocabulary_of(*tokens: bytes) -> Vocabulary:
    """EOS is 0, the given tokens are 1, 2, ..., and three ids of padding follow."""
    return Vocabulary((b"", *tokens), control_ids=frozenset({EOS}), stop_ids=frozenset({EOS}),
                      width=1 + len(tokens) + PADDING)


def byte_automaton(pattern: str, limits: GrammarLimits | None = None) -> ByteAutomaton:
    """The byte automaton of a pattern."""
    budget = Budget(limits or PATIENT)
    fsm = make_deterministic_fsm(normalise(pattern).tree, budget)
    return spell_in_utf8(fsm.alphabet.intervals, fsm.rows, fsm.finals, budget)


def compiled(pattern: str, vocabulary: Vocabulary) -> RegexFSM:
    """The FSM of a pattern over a vocabulary."""
    return build_fsm(byte_automaton(pattern), ReducedVocabulary(vocabulary), Budget(PATIENT))


def allowed_ids(fsm: RegexFSM, state: int) -> set[int]:
    """The token ids that a state allows, EOS included."""
    return set(fsm.allowed(state).nonzero()[0].tolist())


def policy_over(vocabulary: Vocabulary, tokenizer: Tokenizer, **limits: float) -> CopiedFSMPolicy:
    """A policy on the CPU. Stage 1 encodes no text, so any tokenizer will do."""
    patience = GrammarLimits(compile_timeout=limits.get("compile_timeout", PATIENT.compile_timeout))
    return CopiedFSMPolicy(StageContext(vocabulary, tokenizer, torch.device("cpu"), patience))


def request(constraint: Constraint | None, sampling: SamplingParams | None = None, rid: str = "r") -> Request:
    """A request that has emitted nothing."""
    return Request(rid=rid, prompt_ids=[1], prompt="", sampling=sampling or SamplingParams(), seed=0,
                   constraint=constraint, metrics=RequestMetrics(arrival=0.0))


def batch_of(*reqs: Request) -> ScheduleBatch:
    """A decode batch in which each request gets a token."""
    return ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=list(reqs))
