"""Row 64: a server has more than one event loop, and only one of them knows when results must come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shared_runtime.constraint import Constraint
from shared_runtime.execution import overlap_loop
from shared_runtime.execution.gate import Candidate, gate_reason
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.policy import OverlapScheme, StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.trace import GateReason, StepRecord
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection

Gate = Callable[[Candidate, ScheduleBatch | None, StageOptions, OverlapScheme], GateReason | None]


def without_the_rule(candidate: Candidate, pending: ScheduleBatch | None, options: StageOptions,
                     scheme: OverlapScheme) -> GateReason | None:
    """Specimen of `gate_reason`: as the loop had it that decodes for another server."""
    reason = gate_reason(candidate, pending, options, scheme)
    return reason if reason in ("prefill", "memory") else None


def drafts_and_grammars_wait_for_results(gate: Gate, bench: Bench) -> None:
    """Drafts, a grammar, a decode batch, and results that wait: whichever loop asks, they come first."""
    bound, free = request(Constraint.regex("a")), request(rid="free")
    pending = ScheduleBatch(ForwardMode.DECODE, [BatchRow(free, 0, [5], torch.zeros(1, dtype=torch.int64))])
    drafts = StageOptions(spec="ngram")
    for scheme in SCHEMES:
        shut = gate(Candidate(ForwardMode.DECODE, [free, bound], room=9), pending, drafts, scheme)
        hold(shut == "speculation", f"with {scheme} a draft is walked before the tokens before it are accepted: {shut}")
        for candidate, before, options in (
                (Candidate(ForwardMode.DECODE, [free, bound], room=9), None, drafts),
                (Candidate(ForwardMode.DECODE, [free, bound], room=9), pending, StageOptions())):
            hold(gate(candidate, before, options, scheme) is None, "the gate is shut where nothing has to come first")


SCHEMES: tuple[OverlapScheme, ...] = ("event", "delayed")


def scenario(bench: Bench) -> None:
    """A constrained request with drafts looked up in its prompt, under overlap: launches behind results."""
    engine = bench.engine(5, overlap=True, trace=True, options=StageOptions(spec="ngram"))
    params = SamplingParams(max_new_tokens=16, ignore_eos=True)
    engine.add_request("x", sampling=params, constraint=Constraint.regex("(ab){20}"))
    records = []
    while engine.has_work:
        record = engine.step()
        records += [record] if record is not None else []
    launched, processed = _when(records, "launch"), _when(records, "results_processed")
    early = [step for step in launched if step - 1 in processed and launched[step] < processed[step - 1]
             and records[step].mode == "decode"]
    hold(len(records) > 2, f"only {len(records)} turns")
    hold(not early, f"pass {early[:1]} was launched before the tokens that its drafts begin from were accepted")


def _when(records: Sequence[StepRecord], name: str) -> dict[int, int]:
    """Place in the order of events, by step."""
    return {event.step: event.seq for record in records for event in record.events if event.name == name}


EXHIBIT: Exhibit[Gate] = Exhibit(
    64, without_the_rule, {"runtime": gate_reason}, drafts_and_grammars_wait_for_results, "before the tokens before it",
    Injection(overlap_loop, "gate_reason", without_the_rule, scenario, "were accepted"))
