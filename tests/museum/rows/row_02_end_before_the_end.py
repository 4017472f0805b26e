"""Row 2: a state from which no token leads on is read as an end, accepting or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm import decoder
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from stages.stage1_copied_fsm.fsm import RegexFSM
from stages.stage1_copied_fsm.regex import make_deterministic_fsm
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.policies import PolicyBuild, feed, masks, policies, ready


class NoEntryMeansEnd(RegexFSM):
    """An FSM without a token out of a state allows the stop set there, whatever the state is."""

    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[width] bool."""
        mask = super().allowed(state)
        if not mask.any():
            mask[list(self.vocabulary.stop_ids)] = True
        return mask


def index_without_pruning(dfa: ByteAutomaton, reduced: ReducedVocabulary, budget: Budget) -> RegexFSM:
    """Specimen of `build_fsm`: every token that the automaton survives is offered, wherever it leads."""
    vocabulary = reduced.vocabulary
    rows: dict[int, int] = {}
    masks: list[NDArray[np.uint8]] = []
    pending = [0]
    while pending:
        state = pending.pop()
        if state in rows:
            continue
        spelled = [(token_id, text) for token_id, text in enumerate(vocabulary.token_bytes) if text]
        ends = {token_id: _end(dfa, state, text) for token_id, text in spelled}
        alive = np.zeros(vocabulary.width, dtype=np.bool_)
        alive[[token_id for token_id, end in ends.items() if end != DEAD]] = True
        rows[state] = len(masks)
        masks.append(np.packbits(alive))
        pending += [end for end in ends.values() if end != DEAD]
    return NoEntryMeansEnd(vocabulary, dfa, rows, masks)


def _end(dfa: ByteAutomaton, state: int, spelled: bytes) -> int:
    for byte in spelled:
        if state != DEAD:
            state = int(dfa.table[state, byte])
    return state


class Unpruned(CopiedFSMPolicy):
    """The specimen in its policy."""

    def _compile(self, pattern: str) -> RegexFSM:
        budget = Budget(self._context.limits)
        chars = make_deterministic_fsm(normalise(pattern).tree, budget)
        dfa = spell_in_utf8(chars.alphabet.intervals, chars.rows, chars.finals, budget)
        return index_without_pruning(dfa, self.vocabulary, budget)


def without_x(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary, in which no token spells an x."""
    kept = tuple(b"" if b"x" in spelled else spelled for spelled in vocabulary.token_bytes)
    return replace(vocabulary, token_bytes=kept, fingerprint="")


def an_end_is_offered_only_where_the_text_is_complete(build: PolicyBuild, bench: Bench) -> None:
    """`ax|b` without a token for x: `a` leads nowhere, so it must not come, and the stop token not after it.

    A stage may also refuse the pattern: then nobody gets a wrong answer.
    """
    vocabulary = without_x(bench.tokenizer.vocabulary)
    policy = build(bench.context(vocabulary))
    for text in ("a", "b"):
        req, token_id = request(Constraint.regex("ax|b"), rid=text), bench.tokenizer.encode(text)[0]
        try:
            ready(policy, req)
        except ConstraintError:
            return
        if masks(policy, vocabulary.width, req)[0, token_id]:
            feed(policy, req, token_id)
            ends = bool(masks(policy, vocabulary.width, req)[0, :2].any())
            hold(text == "b" or not ends, f"the end is offered after {text!r}, which does not match")
            hold(text == "b", f"{text!r} is offered, and nothing completes it")


def scenario(bench: Bench) -> None:
    """The first mask of the same pattern, in stage 1."""
    policy = CopiedFSMPolicy(bench.context(without_x(bench.tokenizer.vocabulary)))
    req = request(Constraint.regex("ax|b"))
    ready(policy, req)
    allowed = masks(policy, bench.tokenizer.vocabulary.width, req)[0].nonzero().flatten().tolist()
    hold(allowed == bench.tokenizer.encode("b"), "'a' is offered, and nothing completes it")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    2, Unpruned, policies(), an_end_is_offered_only_where_the_text_is_complete,
    "the end is offered after 'a', which does not match",
    Injection(decoder, "build_fsm", index_without_pruning, scenario, "'a' is offered"))
