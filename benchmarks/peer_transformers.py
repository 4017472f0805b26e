"""`transformers.generate`, free and with each library's logits processor, and Outlines' own loop around it.

Each library is used as its own documentation does, in this process, with this project's threads. What such a run
writes may differ from ours: libraries write a schema's grammar in their own words, and in bf16 every loop rounds in its
own way.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.ledger import NotHereError
from benchmarks.peer_loops import Answer
from benchmarks.workloads import Question
from shared_runtime.constraint import Constraint

ONE_FOR_ALL = "this peer takes one constraint for a whole batch"

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class _Library:
    """What a library offers to `generate`.

    Attributes:
        compile: a constraint. processor: a new logits processor, from what each request of a batch was compiled to.
    """

    compile: Callable[[Constraint], Any]
    processor: Callable[[list[Any]], Any]


class HFModel:
    """A folder's model and tokenizer, as `transformers` loads them.

    Raises:
        NotHereError: transformers is not installed, or cannot load the model.
    """

    def __init__(self, folder: str, dtype: str, device: torch.device) -> None:
        # Not as import statements: the libraries have no types, and a bench without them must run.
        transformers = _module("transformers")
        _module("transformers.utils.logging").disable_progress_bar()
        try:
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
            self.model: Any = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=_DTYPES[dtype]).to(device).eval()
        except (OSError, ValueError) as error:
            raise NotHereError(f"transformers cannot load the model: {error}") from error
        self.tokenizer.padding_side = "left"
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        stops = self.model.generation_config.eos_token_id
        self.ends = set(stops) if isinstance(stops, list) else {stops}

    def answers(self, rows: Sequence[Sequence[int]]) -> list[Answer]:
        """From generated ids, padded to one length: every row took part in passes until its own end."""
        cut = [_until_stop(row, self.ends) for row in rows]
        return [Answer(self.tokenizer.decode(ids, skip_special_tokens=True), len(ids), len(ids)) for ids in cut]


class TransformersLoop:
    """`generate`, with the logits processor of a library, or of none."""

    def __init__(self, hf: HFModel, library: str | None) -> None:
        self._hf = hf
        self._library = None if library is None else _LIBRARIES[library](hf.model, hf.tokenizer)
        self._compiled: dict[Constraint, Any] = {}

    def prepare(self, constraint: Constraint) -> None:
        """Compile."""
        if self._library is not None:
            self._compiled[constraint] = self._library.compile(constraint)

    def begin(self) -> None:
        """It keeps nothing."""

    def answer(self, wave: Sequence[Question], most: int, *, least: int = 1) -> list[Answer]:
        """One batch, padded on the left."""
        texts = [self._hf.tokenizer.apply_chat_template(one.messages, tokenize=False, add_generation_prompt=True)
                 for one in wave]
        fed = self._hf.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        fed = fed.to(self._hf.model.device)
        with torch.inference_mode():
            out = self._hf.model.generate(
                **fed, do_sample=False, max_new_tokens=most, min_new_tokens=least,
                pad_token_id=self._hf.tokenizer.pad_token_id, logits_processor=self._processors(wave))
        return self._hf.answers(out[:, fed["input_ids"].shape[1]:].tolist())

    def close(self) -> None:
        """The model is shared."""

    def _processors(self, wave: Sequence[Question]) -> list[Any]:
        if self._library is None:
            return []
        constraints = [one.constraint for one in wave if one.constraint is not None]
        if len(constraints) < len(wave):
            raise NotHereError("a logits processor masks every request of a batch or none")
        return [self._library.processor([self._compiled[one] for one in constraints])]


class OutlinesLoop:
    """Outlines from end to end: its own generator, prompt and decoding, over the model of `transformers`."""

    def __init__(self, hf: HFModel) -> None:
        self._hf = hf
        self._outlines = _module("outlines")
        self._types = _module("outlines.types")
        self._inputs = _module("outlines.inputs")
        self._wrapped = self._outlines.from_transformers(hf.model, hf.tokenizer)
        self._generators: dict[Constraint, Any] = {}

    def prepare(self, constraint: Constraint) -> None:
        """A generator compiles when it is made."""
        kinds: dict[str, Callable[[], Any]] = {
            "json_schema": lambda: self._types.JsonSchema(constraint.source),
            "regex": lambda: self._types.Regex(constraint.source),
            "choice": lambda: self._types.Choice(list(constraint.choices))}
        if constraint.kind not in kinds:
            raise NotHereError(f"outlines has no {constraint.kind}")
        self._generators[constraint] = self._outlines.Generator(self._wrapped, kinds[constraint.kind]())

    def begin(self) -> None:
        """It keeps nothing."""

    def answer(self, wave: Sequence[Question], most: int, *, least: int = 1) -> list[Answer]:
        """One constraint for the batch; the ids are taken where Outlines asks the model for them."""
        distinct = {one.constraint for one in wave}
        constraint = distinct.pop()
        if distinct or constraint is None:
            raise NotHereError(ONE_FOR_ALL)
        rows: list[list[int]] = []
        ask = self._hf.model.generate

        def recording(**words: Any) -> Any:
            out = ask(**words)
            rows.extend(out[:, words["input_ids"].shape[1]:].tolist())
            return out

        self._hf.model.generate = recording
        try:
            self._generators[constraint].batch(
                [self._inputs.Chat(one.messages) for one in wave], max_new_tokens=most, min_new_tokens=least,
                do_sample=False, pad_token_id=self._hf.tokenizer.pad_token_id)
        finally:
            del self._hf.model.generate
        return self._hf.answers(rows)

    def close(self) -> None:
        """The model is shared."""


def _until_stop(row: Sequence[int], ends: set[int]) -> list[int]:
    """Up to the first stop token, which counts as ours does."""
    end = next((index for index, token_id in enumerate(row) if token_id in ends), len(row) - 1)
    return list(row[:end + 1])


def _module(name: str) -> Any:
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        raise NotHereError(f"{name.partition('.')[0]} is not installed")
    return importlib.import_module(name)


def _xgrammar(model: Any, tokenizer: Any) -> _Library:
    xgrammar, hf = _module("xgrammar"), _module("xgrammar.contrib.hf")
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def compiled(constraint: Constraint) -> Any:
        if constraint.kind == "json_schema":
            return compiler.compile_json_schema(constraint.source, any_whitespace=False)
        if constraint.kind == "ebnf":
            return compiler.compile_grammar(constraint.source)
        if constraint.kind == "structural_tag":
            tag = json.loads(constraint.source)
            items = [xgrammar.StructuralTagItem(**one) for one in tag["structures"]]
            return compiler.compile_structural_tag(
                xgrammar.StructuralTag.from_legacy_structural_tag(items, tag["triggers"]))
        return compiler.compile_regex(_pattern("xgrammar", constraint))

    return _Library(compiled, hf.LogitsProcessor)


def _llguidance(model: Any, tokenizer: Any) -> _Library:
    """The library has masks for torch, and no processor for transformers: the few lines of one are here."""
    llguidance, hf, ll_torch = _module("llguidance"), _module("llguidance.hf"), _module("llguidance.torch")
    tokens = hf.from_tokenizer(tokenizer, n_vocab=model.config.vocab_size)
    blanks = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

    class Processor:
        """One matcher a row, filled and applied before each token."""

        def __init__(self, grammars: list[str]) -> None:
            self._grammars = grammars
            self._matchers: list[Any] = []
            self._mask = torch.empty(0)

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            if not self._matchers:
                self._matchers = [llguidance.LLMatcher(tokens, grammar) for grammar in self._grammars]
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

    def compiled(constraint: Constraint) -> Any:
        if constraint.kind == "json_schema":
            schema = {**json.loads(constraint.source), "x-guidance": blanks}
            return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        if constraint.kind == "structural_tag":
            tag = json.loads(constraint.source)
            return llguidance.StructTag.to_grammar([llguidance.StructTag(
                trigger=next(trigger for trigger in tag["triggers"] if one["begin"].startswith(trigger)),
                begin=one["begin"], grammar={**one["schema"], "x-guidance": blanks}, end=one["end"])
                for one in tag["structures"]])
        return llguidance.LLMatcher.grammar_from_regex(_pattern("llguidance", constraint))

    return _Library(compiled, Processor)


def _outlines(model: Any, tokenizer: Any) -> _Library:
    outlines, core = _module("outlines"), _module("outlines.backends.outlines_core")
    backend = core.OutlinesCoreBackend(outlines.from_transformers(model, tokenizer))

    def compiled(constraint: Constraint) -> Any:
        if constraint.kind == "json_schema":
            return backend.get_json_schema_logits_processor(constraint.source)
        return backend.get_regex_logits_processor(_pattern("outlines", constraint))

    def processor(rows: list[Any]) -> Any:
        if any(one is not rows[0] for one in rows):
            raise NotHereError(ONE_FOR_ALL)
        rows[0].reset()
        return rows[0]

    return _Library(compiled, processor)


def _pattern(library: str, constraint: Constraint) -> str:
    """The pattern of a regex or choice. Every other kind has a source too, and is no pattern."""
    from shared_runtime.constrain.regex.regex_dialect import escape_choice

    if constraint.kind not in ("regex", "choice"):
        raise NotHereError(f"{library} is not asked for {constraint.kind}: it has no words that say the same")
    return escape_choice(constraint.choices) if constraint.kind == "choice" else constraint.source


_LIBRARIES: dict[str, Callable[[Any, Any], _Library]] = {
    "xgrammar": _xgrammar, "llguidance": _llguidance, "outlines": _outlines}
