"""Other loops with the same weights: `transformers.generate`, free and with each library's logits processor.

Each library is used as its own documentation does, in this process, with this project's threads. What such a run
writes may differ from ours: libraries write a schema's grammar in their own words, and in bf16 every loop rounds in its
own way.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.ledger import Interval, Measurement, NotHereError, percentiles
from benchmarks.measuring import MOST_TEXTS, Lab
from benchmarks.modes import missing_for, modes_of
from benchmarks.plan import Cell, PeerCell
from benchmarks.serving import serve, serve_free
from benchmarks.workloads import Question
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.model.locate import locate_model
from stages import get_stage

MODES_BESIDE = ("plain", "force+draft")
"""Stage 5's modes that run in turn with each peer."""

FREE_TOKENS = 32
"""Of each answer of the free peer, and of our own loop beside it."""

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Peers:
    """`transformers` with the model of a lab, loaded once, and the libraries' compilers.

    Raises:
        NotHereError: transformers is not installed, or has no such model.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        # Not as import statements: the libraries have no types, and a bench without them must run.
        self._transformers = _module("transformers")
        _module("transformers.utils.logging").disable_progress_bar()
        folder = str(locate_model(lab.config.model, lab.progress))
        try:
            self._tokenizer: Any = self._transformers.AutoTokenizer.from_pretrained(folder)
            self._model: Any = self._transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=_DTYPES[lab.config.dtype]).to(lab.config.torch_device).eval()
        except (OSError, ValueError) as error:
            raise NotHereError(f"transformers cannot load the model: {error}") from error
        self._tokenizer.padding_side = "left"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._made: dict[str, Callable[[Constraint], Callable[[], Any]]] = {}
        self._compiled: dict[tuple[str, Constraint], Callable[[], Any]] = {}

    def measure(self, cell: PeerCell) -> Measurement:
        """The peer's row, in turn with stage 5 on the same requests.

        Raises:
            NotHereError: a library is missing, or cannot serve the workload.
        """
        beside = self._beside(cell)
        own: dict[str, list[float]] = {name: [] for name in beside}
        try:
            compiled_ms = self._compile(cell)
            runs: list[tuple[float, list[list[int]]]] = []
            for pair in range(self._lab.pairs + 1):  # the first one warms up
                for name, engine in beside.items():
                    took = self._ours(engine, cell)
                    own[name] += [took] if pair else []
                found = self._run(cell)
                runs += [found] if pair else []
        except NotHereError:
            raise
        except Exception as error:  # somebody else's code, with constraints it has never seen
            raise NotHereError(f"{cell.key}: {type(error).__name__}: {error}") from error
        finally:
            for engine in beside.values():
                engine.close()
        seconds, answers = sorted(runs, key=lambda one: one[0])[len(runs) // 2]
        tokens = sum(map(len, answers))
        texts = [self._tokenizer.decode(ids, skip_special_tokens=True) for ids in answers]
        written = sum(len(text.encode()) for text in texts)
        return Measurement(
            workload=cell.workload.name, stage=0, backend=cell.backend, mode="transformers",
            dtype=self._lab.config.dtype, batch=cell.batch, graphs=False,
            counts={"tokens": tokens, "bytes": written, "requests": len(answers),
                    "steps": sum(max(map(len, answers[at:at + cell.batch]))
                                 for at in range(0, len(answers), cell.batch))},
            step_ms={}, tpot_ms=round(1e3 * seconds * cell.batch / max(1, tokens), 4),
            tokens_per_s=round(tokens / seconds, 2),
            denominators={"ms_per_byte": round(1e3 * seconds * cell.batch / max(1, written), 4)},
            times={"total_ms": percentiles([1e3 * one for one, _ in runs]), "compile_ms": percentiles(compiled_ms)},
            ratios={f"over_stage5_{name}": Interval.of([peer / ours for (peer, _), ours in
                                                        zip(runs, times, strict=True)])
                    for name, times in own.items()},
            texts=texts[:MOST_TEXTS])

    def _beside(self, cell: PeerCell) -> dict[str, Engine]:
        """Stage 5's engines by mode: with the same library, or plain beside the free peer."""
        spec = get_stage(5)
        target = Target(spec, cell.backend or spec.capabilities.backends[0])
        if missing_for(target) or not all(target.supports(kind) for kind in cell.workload.kinds):
            return {}
        wanted = MODES_BESIDE if cell.backend is not None else MODES_BESIDE[:1]
        return {mode.name: self._lab.engine(Cell(cell.workload, target, mode, cell.batch))
                for mode in modes_of(spec) if mode.name in wanted}

    def _ours(self, engine: Engine, cell: PeerCell) -> float:
        """Seconds of our own loop, with the peer's constraint or without any."""
        if cell.backend is not None:
            return serve(engine, cell.workload, cell.batch).seconds
        lengths = [FREE_TOKENS] * len(cell.workload.waves(cell.batch)) * cell.batch
        return serve_free(engine, cell.workload, cell.batch, lengths).seconds

    def _run(self, cell: PeerCell) -> tuple[float, list[list[int]]]:
        """Seconds and the answers' tokens, stop tokens included."""
        answers: list[list[int]] = []
        started = time.perf_counter()
        for wave in cell.workload.waves(cell.batch):
            answers += self._generate(wave, cell)
        return time.perf_counter() - started, answers

    def _generate(self, wave: Sequence[Question], cell: PeerCell) -> list[list[int]]:
        texts = [self._tokenizer.apply_chat_template(one.messages, tokenize=False, add_generation_prompt=True)
                 for one in wave]
        fed = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        fed = fed.to(self._lab.config.torch_device)
        with torch.inference_mode():
            out = self._model.generate(
                **fed, do_sample=False, **self._length(cell),
                pad_token_id=self._tokenizer.pad_token_id, logits_processor=self._processors(wave, cell))
        stops = self._model.generation_config.eos_token_id
        ends = set(stops) if isinstance(stops, list) else {stops}
        return [_until_stop(row, ends) for row in out[:, fed["input_ids"].shape[1]:].tolist()]

    def _length(self, cell: PeerCell) -> dict[str, int]:
        """A free answer is as long as ours beside it, whatever it says."""
        if cell.backend is None:
            return {"max_new_tokens": FREE_TOKENS, "min_new_tokens": FREE_TOKENS}
        return {"max_new_tokens": cell.workload.max_new_tokens}

    def _compile(self, cell: PeerCell) -> list[float]:
        """Milliseconds for each constraint."""
        if cell.backend is None:
            return []
        if cell.backend not in self._made:
            self._made[cell.backend] = _MAKERS[cell.backend](self._model, self._tokenizer)
        took = []
        for constraint in dict.fromkeys(one.constraint for one in cell.workload.questions):
            if constraint is None:
                raise NotHereError(f"{cell.key}: a logits processor masks every request of a batch or none")
            started = time.perf_counter()
            self._compiled[cell.backend, constraint] = self._made[cell.backend](constraint)
            took.append(1e3 * (time.perf_counter() - started))
        return took

    def _processors(self, wave: Sequence[Question], cell: PeerCell) -> list[Any]:
        if cell.backend is None:
            return []
        distinct = {one.constraint for one in wave}
        if len(distinct) > 1 or None in distinct:
            raise NotHereError(f"{cell.key}: this peer takes one constraint for a whole batch")
        return [self._compiled[cell.backend, one]() for one in distinct if one is not None]


def _until_stop(row: Sequence[int], ends: set[int]) -> list[int]:
    """Up to the first stop token, which counts as ours does."""
    end = next((index for index, token_id in enumerate(row) if token_id in ends), len(row) - 1)
    return list(row[:end + 1])


def _module(name: str) -> Any:
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise NotHereError(f"{name.partition('.')[0]} is not installed")
    return importlib.import_module(name)


def _xgrammar(model: Any, tokenizer: Any) -> Callable[[Constraint], Callable[[], Any]]:
    xgrammar, hf = _module("xgrammar"), _module("xgrammar.contrib.hf")
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def make(constraint: Constraint) -> Callable[[], Any]:
        if constraint.kind == "json_schema":
            grammar = compiler.compile_json_schema(constraint.source, any_whitespace=False)
        else:
            grammar = compiler.compile_regex(_pattern(constraint))
        return lambda: hf.LogitsProcessor(grammar)

    return make


def _llguidance(model: Any, tokenizer: Any) -> Callable[[Constraint], Callable[[], Any]]:
    """The library has masks for torch, and no processor for transformers: the few lines of one are here."""
    llguidance, hf, ll_torch = _module("llguidance"), _module("llguidance.hf"), _module("llguidance.torch")
    tokens = hf.from_tokenizer(tokenizer, n_vocab=model.config.vocab_size)

    class Processor:
        """One matcher a row, filled and applied before each token."""

        def __init__(self, grammar: str) -> None:
            self._grammar = grammar
            self._matchers: list[Any] = []
            self._mask = torch.empty(0)

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if not self._matchers:
                self._matchers = [llguidance.LLMatcher(tokens, self._grammar) for _ in range(len(scores))]
                self._mask = ll_torch.allocate_token_bitmask(len(scores), scores.shape[1])
            else:
                for matcher, token_id in zip(self._matchers, input_ids[:, -1].tolist(), strict=True):
                    if not matcher.is_stopped():
                        matcher.consume_token(token_id)
            for row, matcher in enumerate(self._matchers):
                ll_torch.fill_next_token_bitmask(matcher, self._mask, row)
            bits = (self._mask[:, :, None] >> torch.arange(32, dtype=torch.int32)) & 1
            allowed = bits.flatten(1)[:, :scores.shape[1]].bool().to(scores.device)
            return scores.masked_fill_(~allowed, -torch.inf)

    def make(constraint: Constraint) -> Callable[[], Any]:
        if constraint.kind == "json_schema":
            schema = {**json.loads(constraint.source), "x-guidance": {
                "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        else:
            grammar = llguidance.LLMatcher.grammar_from_regex(_pattern(constraint))
        return lambda: Processor(grammar)

    return make


def _outlines(model: Any, tokenizer: Any) -> Callable[[Constraint], Callable[[], Any]]:
    outlines, core = _module("outlines"), _module("outlines.backends.outlines_core")
    backend = core.OutlinesCoreBackend(outlines.from_transformers(model, tokenizer))

    def make(constraint: Constraint) -> Callable[[], Any]:
        if constraint.kind == "json_schema":
            processor = backend.get_json_schema_logits_processor(constraint.source)
        else:
            processor = backend.get_regex_logits_processor(_pattern(constraint))

        def fresh() -> Any:
            processor.reset()
            return processor

        return fresh

    return make


def _pattern(constraint: Constraint) -> str:
    from shared_runtime.constrain.regex.regex_dialect import escape_choice

    return escape_choice(constraint.choices) if constraint.kind == "choice" else constraint.source


_MAKERS: dict[str, Callable[[Any, Any], Callable[[Constraint], Callable[[], Any]]]] = {
    "xgrammar": _xgrammar, "llguidance": _llguidance, "outlines": _outlines}
