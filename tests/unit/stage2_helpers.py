"""Stage 2 under a microscope: runs in which every turn is checked, and jumps read from the trace."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.trace import RewriteRecord
from stages.stage2_jump_forward.decoder import RequestState
from tests.conformance.harness import Ask
from tests.unit.stage1_helpers import byte_automaton

KEYS = r'\{"name": "[a-z]{2,6}", "age": [0-9]{2}, "city": "(Paris|Praha|Oslo)"\}'


def live_requests(engine: Engine) -> list[Request]:
    """The requests in memory and in the waiting queue."""
    queues = engine.scheduler.queues
    return [*queues.in_memory, *queues.waiting]


def check_request(engine: Engine, req: Request) -> None:
    """What must hold of a request after every turn, jumped or not."""
    assert len(req.output_ids) == len(req.origins) <= req.sampling.max_new_tokens
    assert req.metrics.prompt_tokens == len(req.prompt_ids)
    grammar = req.grammar
    if isinstance(grammar, RequestState):
        spelled = engine.tokenizer.vocabulary.decode(req.output_ids)
        assert grammar.state == grammar.fsm.dfa.walk(0, spelled), "museum row 6: the state is that of the text"
        assert grammar.accepted == len(req.output_ids)
        assert set(req.output_ids).isdisjoint(engine.tokenizer.vocabulary.control_ids)


def run_checked(engine: Engine, asks: Sequence[Ask]) -> tuple[list[Result], dict[str, list[RewriteRecord]]]:
    """The asks together, everything checked after every turn: results, and per request its jumps (with a trace)."""
    names = [name for ask in asks for name in
             engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)]
    results: dict[str, Result] = {}
    jumps: dict[str, list[RewriteRecord]] = {name: [] for name in names}
    prompts: dict[str, list[int]] = {}
    while engine.has_work:
        record = engine.step()
        engine.check_integrity()
        for req in live_requests(engine):
            check_request(engine, req)
            assert prompts.setdefault(req.rid, list(req.prompt_ids)) == req.prompt_ids, "museum row 17"
        for part in record.requests if record is not None else ():
            if part.jump is not None:
                jumps[part.rid].append(part.jump)
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return [results[name] for name in names], jumps


def steer(tokenizer: Tokenizer, *pieces: str | bytes, **params: object) -> SamplingParams:
    """Greedy sampling that takes these pieces wherever the grammar lets it, earlier ones first."""
    known = {spelled: token_id for token_id, spelled in enumerate(tokenizer.vocabulary.token_bytes) if spelled}
    ids = [known[piece if isinstance(piece, bytes) else piece.encode()] for piece in pieces]
    bias = {token_id: 1e5 - 1e3 * rank for rank, token_id in enumerate(ids)}
    return SamplingParams(logit_bias=bias, **{"max_new_tokens": 60, **params})  # type: ignore[arg-type]  # keywords


def jumping_ask(prompt: str, pattern: str, **params: object) -> Ask:
    """An ask for a regex."""
    return Ask(prompt, Constraint.regex(pattern), SamplingParams(**{"max_new_tokens": 60, **params}))  # type: ignore[arg-type]  # keywords


def state_after(pattern: str, spelled: bytes) -> int:
    """The byte state of a pattern after some bytes."""
    return byte_automaton(pattern).walk(0, spelled)
