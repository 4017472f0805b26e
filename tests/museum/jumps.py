"""Requests that jump, for the rows of stage 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import TokenOrigin
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from stages.stage2_jump_forward.regex import make_deterministic_fsm
from stages.stage3_outlines.fsm_cache import FSMCache
from stages.stage4_backends.outlines_jump_forward import OutlinesJumpForwardMap as OutlinesMapOfStage4
from stages.stage5_backend_jump.outlines_jump_forward import OutlinesJumpForwardMap as OutlinesMapOfStage5
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold

THREE_AND_SIX: Sequence[TokenOrigin] = (
    "sampled", "sampled", "sampled", "jumped", "jumped", "jumped", "jumped", "jumped", "jumped")
"""How the tokens of an answer came: three sampled, six jumped."""


def automaton(pattern: str) -> ByteAutomaton:
    """The byte automaton of a pattern; state 0 is its start."""
    budget = Budget(GrammarLimits())
    chars = make_deterministic_fsm(normalise(pattern).tree, budget)
    return spell_in_utf8(chars.alphabet.intervals, chars.rows, chars.finals, budget)


def after(dfa: ByteAutomaton, text: str | bytes) -> int:
    """The state behind a text."""
    state = 0
    for byte in text.encode() if isinstance(text, str) else text:
        state = int(dfa.table[state, byte])
    return state


class JumpMap(Protocol):
    """What the rows ask of a jump map over an automaton."""

    def forced(self, state: int) -> bytes | tuple[bytes, int]: ...


Forced = Callable[[Bench, str, bytes], bytes]
"""(bench, pattern, what has come) -> the text that is forced next."""


def forced_by(map_of: Callable[[ByteAutomaton], JumpMap]) -> Forced:
    """The forced text, by a map that is made of the automaton over bytes."""

    def forced(bench: Bench, pattern: str, come: bytes) -> bytes:
        dfa = automaton(pattern)
        answer = map_of(dfa).forced(after(dfa, come))
        return answer if isinstance(answer, bytes) else answer[0]

    return forced


def forced_in_stage3(bench: Bench, pattern: str, come: bytes) -> bytes:
    """The forced text, by the map of stage 3: made of interegular's automaton, in a child process."""
    jumps = FSMCache(bench.context()).get(Constraint.regex(pattern)).jumps
    assert jumps is not None
    return jumps.forced(jumps.dfa.walk(0, come))


REAL_MAPS: dict[str, Forced] = {
    "stage2": forced_by(JumpForwardMap.of), "stage3": forced_in_stage3,
    "stage4": forced_by(OutlinesMapOfStage4.of), "stage5": forced_by(OutlinesMapOfStage5.of),
}


def ask(pattern: str, prompt: str = "x", **sampling: object) -> Ask:
    """A constrained request."""
    return Ask(prompt, Constraint.regex(pattern), SamplingParams(**sampling))  # type: ignore[arg-type]  # checked there


def preferring(engine: Engine, text: str) -> dict[int, float]:
    """A logit bias for the tokens of a text, the first the most: a model that would rather write those."""
    return {token_id: 1000.0 - 100.0 * index for index, token_id in enumerate(engine.tokenizer.encode(text))}


def stream(engine: Engine, wanted: Ask, turns: int = 200) -> tuple[Result, list[str]]:
    """A request to its end: its result and the pieces of text as they came."""
    name, = engine.add_request(wanted.prompt, sampling=wanted.sampling, constraint=wanted.constraint)
    pieces: list[str] = []
    for _ in range(turns):
        engine.step()
        for event in engine.take_events([name]):
            pieces.append(event.text)
            if event.result is not None:
                return event.result, pieces
    hold(False, f"the request did not end within {turns} turns")
    raise AssertionError
