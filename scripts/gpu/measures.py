"""How fast it is: time per token and throughput, per stage and mode, with what each is to be compared with."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.denominators import memory_bandwidth, timed, weight_bytes
from benchmarks.ledger import Measurement, NotHereError, percentiles
from benchmarks.modes import Mode, modes_of
from scripts.gpu.bench import CARD, Bench
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.sampling_params import SamplingParams

LETTERS = Constraint.regex("[a-z ]{200}")
"""Nothing of it is forced: what a mask costs, and no more."""

PARAMS = SamplingParams(max_new_tokens=64, ignore_eos=True)
WORKLOADS: tuple[tuple[str, Constraint | None], ...] = (("free", None), ("letters", LETTERS), ("card", CARD))


@dataclass(slots=True)
class Clock:
    """How long measuring may still take."""

    until: float

    def check(self) -> None:
        """Raises NotHereError: time is up."""
        if time.monotonic() > self.until:
            raise NotHereError("the time for measuring is up; --seconds gives more")


def run_measurements(bench: Bench, *, seconds: float, batches: tuple[int, ...] = (1, 16),
                     dtypes: tuple[str, ...] = ("bf16", "fp32"), repeats: int = 3) -> None:
    """Every stage in every mode it has here; what does not fit into `seconds` is noted and left out."""
    clock = Clock(time.monotonic() + seconds)
    bandwidth = memory_bandwidth(torch.device(bench.device))
    bench.ledger.note(f"memory bandwidth, measured by reading a matrix: {bandwidth / 1e9:.0f} GB/s")
    try:
        for dtype in dtypes:
            for target, mode in plan(bench, full=dtype == dtypes[0]):
                measure(bench, target, mode, dtype, batches, repeats, clock, bandwidth)
            if bench.device == "cuda" and dtype == dtypes[0]:
                target = next(iter(plan(bench, full=False)))[0]
                measure(bench, target, bench.mode(target, "plain"), dtype, batches, repeats, clock, bandwidth,
                        cuda_graphs=False)
            for batch in batches:
                peer(bench, dtype, batch, clock)
    except NotHereError as error:
        bench.ledger.note(str(error))


def plan(bench: Bench, *, full: bool) -> Iterator[tuple[Target, Mode]]:
    """The last stage's modes first, as they matter most; then the older ones. Without `full`, plain decoding alone."""
    targets = bench.targets()
    for target in sorted(targets, key=lambda one: -one.spec.id):
        default = target.backend == next(one.backend for one in targets if one.spec.id == target.spec.id)
        for mode in modes_of(target.spec):
            if mode.name == "plain" or (full and default):
                yield target, mode


def measure(bench: Bench, target: Target, mode: Mode, dtype: str, batches: tuple[int, ...], repeats: int, clock: Clock,
            bandwidth: float, **settings: Any) -> None:
    """One engine, every workload and batch size; free and constrained runs in turn, so that drift meets both."""
    values = {"stage": target.spec.id, "backend": target.backend, "dtype": dtype} | settings
    with bench.engine(mode, **values) as engine:
        floor = 1e3 * weight_bytes(engine) / bandwidth
        for batch in batches:
            rows: dict[str, list[Measurement]] = {name: [] for name, _ in WORKLOADS}
            for repeat in range(repeats + 1):  # the first one compiles, allocates and records
                clock.check()
                for name, bound in WORKLOADS:
                    one = _run(engine, target, mode, dtype, batch, name, bound)
                    rows[name] += [one] if repeat else []
            free = _middle(rows["free"]).tpot_ms
            for found in rows.values():
                middle = _middle(found)
                bench.ledger.measured(replace(middle, denominators={
                    "free_tpot_ms": free, "over_free": round(middle.tpot_ms / free, 4),
                    "weights_read_ms": round(floor, 4),
                    "forced_share": round(1 - middle.counts["sampled"] / max(1, middle.counts["tokens"]), 4)}))


def _run(engine: Engine, target: Target, mode: Mode, dtype: str, batch: int, name: str,
         bound: Constraint | None) -> Measurement:
    """One batch to its end, turn by turn."""
    prompts = [f"{'a ' * (index % 4 + 1)}card: " for index in range(batch)]
    names = [engine.add_request(prompt, sampling=PARAMS, constraint=bound)[0] for prompt in prompts]
    steps: list[float] = []
    started = time.perf_counter()
    while engine.has_work:
        before = time.perf_counter()
        engine.step()
        steps.append(1e3 * (time.perf_counter() - before))
    seconds = time.perf_counter() - started
    results = [event.result for event in engine.take_events(names) if event.result is not None]
    tokens = sum(len(one.token_ids) for one in results)
    counts = {key: sum(one.counts[key] for one in results) for key in results[0].counts}
    runner = engine.parts.runner
    return Measurement(
        workload=name, stage=target.spec.id, backend=target.backend, mode=mode.name, dtype=dtype, batch=batch,
        graphs=runner.graphs is not None, counts=counts | {"tokens": tokens, "steps": len(steps)},
        step_ms=percentiles(steps), tpot_ms=round(1e3 * seconds * batch / tokens, 4),
        tokens_per_s=round(tokens / seconds, 2))


def _middle(rows: list[Measurement]) -> Measurement:
    """The row of median time per token."""
    return sorted(rows, key=lambda one: one.tpot_ms)[len(rows) // 2]


def peer(bench: Bench, dtype: str, batch: int, clock: Clock) -> None:
    """transformers with xgrammar's logits processor: the same shape and constraint, random weights of its own.

    Notes what is missing where it cannot run.
    """
    clock.check()
    for name in ("transformers", "xgrammar"):
        if importlib.util.find_spec(name) is None:
            bench.ledger.note(f"the peer is left out: {name} is not installed")
            return
    try:
        _peer(bench, dtype, batch)
    except Exception as error:  # somebody else's library on a machine nobody has tried it on
        bench.ledger.note(f"the peer failed: {type(error).__name__}: {error}")


def _peer(bench: Bench, dtype: str, batch: int) -> None:
    # Not as import statements: neither has types, and what they are asked for here is all there is.
    transformers: Any = importlib.import_module("transformers")
    xgrammar: Any = importlib.import_module("xgrammar")
    processor_class: Any = importlib.import_module("xgrammar.contrib.hf").LogitsProcessor

    from shared_runtime.model.locate import locate_model

    folder = str(locate_model(bench.model, None))
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=kind).to(bench.device).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", eos_token="<|end|>",
                                                     pad_token="<|end|>")
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=config.vocab_size, stop_token_ids=[0])
    grammar = xgrammar.GrammarCompiler(info).compile_regex(LETTERS.source)
    ids = tokenizer(["a card: "] * batch, return_tensors="pt").input_ids.to(bench.device)
    n_new = PARAMS.max_new_tokens
    times: dict[str, list[float]] = {"free": [], "letters": []}
    for repeat in range(4):
        for name, collected in times.items():
            processors = [processor_class(grammar)] if name == "letters" else []
            run = partial(model.generate, ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_new,
                          min_new_tokens=n_new, do_sample=False, logits_processor=processors, pad_token_id=0)
            seconds = timed(run, torch.device(bench.device))
            collected += [seconds] if repeat else []
    for name, collected in times.items():
        seconds = statistics.median(collected)
        bench.ledger.measured(Measurement(
            workload=name, stage=0, backend="xgrammar" if name == "letters" else None, mode="transformers", dtype=dtype,
            batch=batch, graphs=False, counts={"tokens": n_new * batch, "steps": n_new}, step_ms={},
            tpot_ms=round(1e3 * seconds / n_new, 4), tokens_per_s=round(n_new * batch / seconds, 2)))
