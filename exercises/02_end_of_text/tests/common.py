"""Vocabularies that lack something, and the checks of exercise 2. What is right is asked of stage 1's own masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from exercises.answers import answer_of
from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, Wrong, expect, sides
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm import decoder
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from stages.stage1_copied_fsm.fsm import RegexFSM, build_fsm
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary
from tests.museum.bench import vocabulary_of
from tests.museum.jumps import ask, automaton
from tests.museum.rows import row_02_end_before_the_end as row_2

Index = dict[int, dict[int, int]]
INDEX = answer_of("01_token_index").token_index  # here: while an answer runs, no solution can be read
Mask = NDArray[np.bool_]
Masks = Callable[[Index, Mask, frozenset[int], int], dict[int, Mask]]


def letters(*tokens: bytes, stops: int = 2, padding: int = 0) -> Vocabulary:
    """Stop tokens 0 .. `stops` - 1, the tokens, and ids past the last token."""
    made = vocabulary_of(*tokens, stops=stops)
    return replace(made, width=made.width + padding, fingerprint="")


def real_masks(dfa: ByteAutomaton, vocabulary: Vocabulary) -> dict[int, Mask]:
    """Stage 1's own."""
    fsm = build_fsm(dfa, ReducedVocabulary(vocabulary), Budget(GrammarLimits()))
    return {state: fsm.allowed(state) for state in fsm.rows}


def made_by(part: Masks, dfa: ByteAutomaton, vocabulary: Vocabulary) -> dict[int, Mask]:
    """The learner's, from a right index."""
    index: Index = INDEX(dfa.table, vocabulary.token_bytes)
    before = {state: dict(row) for state, row in index.items()}
    made = part(index, dfa.accepting, vocabulary.stop_ids, vocabulary.width)
    expect(index == before, "it changed the index, which is the caller's")
    return made


def the_masks_are_those_of_stage_1(part: Masks, pattern: str, vocabulary: Vocabulary) -> None:
    """Same states, same bits."""
    dfa = automaton(pattern)
    real, made = real_masks(dfa, vocabulary), made_by(part, dfa, vocabulary)
    names = [repr(spelled) if spelled else "a stop token" for spelled in vocabulary.token_bytes]
    for state in sorted(set(made) - set(real)):
        ends = ", which allows the end" if np.asarray(made[state])[list(vocabulary.stop_ids)].any() else ""
        raise Wrong(f"regex {pattern!r}: state {state} has a mask{ends}, and no text can be completed from there")
    for state in sorted(real):
        where = f"regex {pattern!r}, state {state} ({'accepts' if dfa.accepting[state] else 'does not accept'})"
        expect(state in made, f"{where}: there is no mask")
        mask = np.asarray(made[state])
        expect(mask.shape == (vocabulary.width,),
               f"{where}: the mask has shape {mask.shape}, expected ({vocabulary.width},)")
        differs = sides(np.flatnonzero(mask).tolist(), np.flatnonzero(real[state]).tolist(), names)
        expect(not differs, f"{where}: {differs}")


def an_impossible_regex_is_refused(part: Masks, pattern: str, vocabulary: Vocabulary) -> None:
    """ValueError."""
    try:
        made_by(part, automaton(pattern), vocabulary)
    except ValueError:
        return
    raise Wrong(f"regex {pattern!r} cannot be spelled with these tokens, and yours does not raise ValueError")


def stage_with(part: Masks) -> Callable[[ByteAutomaton, ReducedVocabulary, Budget], RegexFSM]:
    """A `build_fsm` with the learner's masks."""

    class Masked(RegexFSM):
        def allowed(self, state: int) -> Mask:
            return np.unpackbits(self.masks[self.rows[state]], count=self.vocabulary.width).view(np.bool_).copy()

    def build(dfa: ByteAutomaton, reduced: ReducedVocabulary, budget: Budget) -> RegexFSM:
        try:
            made = made_by(part, dfa, reduced.vocabulary)
        except ValueError as error:
            raise UnsatisfiableConstraintError(str(error), where="constraint") from None
        return Masked(reduced.vocabulary, dfa, {state: row for row, state in enumerate(made)},
                      [np.packbits(mask) for mask in made.values()])

    return build


def the_museum_is_content(part: Masks) -> None:
    """Row 2's own check, on stage 1 with the learner's masks."""
    with bench() as made, in_place(decoder, "build_fsm", stage_with(part)):
        row_2.an_end_is_offered_only_where_the_text_is_complete(CopiedFSMPolicy, made)
        row_2.scenario(made)


def an_answer_ends_where_it_may(part: Masks, pattern: str, stop: int) -> None:
    """A model that would rather stop, in stage 1; the same tokens as with its own masks."""
    wanted = ask(pattern, max_new_tokens=12, logit_bias={stop: 500.0})
    assert isinstance(wanted.sampling, SamplingParams)
    with bench() as made:
        right = made.run(made.engine(1), [wanted])[0]
        with in_place(decoder, "build_fsm", stage_with(part)):
            got = made.run(made.engine(1), [wanted])[0]
    expect(got.error is None, f"in stage 1, regex {pattern!r}: the request ended with an error: {got.error}")
    expect((got.token_ids, got.finish_reason) == (right.token_ids, right.finish_reason),
           f"in stage 1, regex {pattern!r}, a model that wants to stop with token {stop}: the answer is {got.text!r} "
           f"({got.finish_reason}), expected {right.text!r} ({right.finish_reason})")


def picture(part: Masks) -> list[Row]:
    """`ax|b` without an x, and a text that may go on."""
    rows = []
    for pattern, vocabulary in (("ax|b", letters(b"a", b"b")), ("ab?", letters(b"a", b"b"))):
        dfa = automaton(pattern)
        real, made = real_masks(dfa, vocabulary), made_by(part, dfa, vocabulary)
        for state in sorted(set(real) | set(made)):
            rows.append(Row(f"{pattern}  state {state}", _drawn(made.get(state), vocabulary),
                            _drawn(real.get(state), vocabulary)))
    return rows


def _drawn(mask: Mask | None, vocabulary: Vocabulary) -> str:
    if mask is None:
        return "no mask"
    return " ".join(vocabulary.token_bytes[token_id].decode() or f"end({token_id})"
                    for token_id in np.flatnonzero(mask).tolist()) or "nothing"
