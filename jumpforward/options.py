"""The options of a request, declared once for every command, and the values that the runtime takes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError, GrammarSyntaxError
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from shared_runtime.config import EngineConfig
    from shared_runtime.policy import StageOptions

_ENGINE = "Engine"
_CONSTRAINT = "Constraint (at most one kind)"
_SAMPLING = "Sampling"
_PROMPT = "Prompt"
_REASONING = "Reasoning (stage 5)"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What to run on."""

    model: Annotated[str, typer.Option(
        "--model", rich_help_panel=_ENGINE, metavar="NAME",
        help="'embedded', a Hugging Face folder, a .gguf file, or a hub id owner/name.")] = "embedded"
    load_format: Annotated[Literal["auto", "dummy"], typer.Option(
        "--load-format", rich_help_panel=_ENGINE,
        help="'dummy' makes random weights of the model's shape.")] = "auto"
    dtype: Annotated[Literal["fp32", "bf16", "fp16"], typer.Option(
        "--dtype", rich_help_panel=_ENGINE, help="Of weights, activations and KV.")] = "fp32"
    weights: Annotated[Literal["auto", "plain", "packed", "int8"], typer.Option(
        "--weights", rich_help_panel=_ENGINE,
        help="On a CPU: as in the file, packed for oneDNN (auto), or rounded to 8 bits (with bf16).")] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(
        "--device", rich_help_panel=_ENGINE, help="'auto' takes CUDA where there is one.")] = "cpu"
    threads: Annotated[int | None, typer.Option(
        "--threads", rich_help_panel=_ENGINE, show_default="1 on up to 2 cores, else up to 4",
        help="Threads on a CPU.")] = None
    exact: Annotated[bool, typer.Option(
        "--exact", rich_help_panel=_ENGINE,
        help="Bit-identical logits whatever else runs in the batch; slower.")] = False
    attention: Annotated[Literal["auto", "sdpa", "flashinfer"], typer.Option(
        "--attention", rich_help_panel=_ENGINE,
        help="On CUDA: torch's own kernel, FlashInfer, or FlashInfer where it is installed and fits.")] = "auto"
    cuda_graphs: Annotated[bool, typer.Option(
        "--cuda-graphs/--no-cuda-graphs", rich_help_panel=_ENGINE, metavar="",
        help="On CUDA: play decode passes from recordings.")] = True

    def config(self, stage: int | str, trace: Path | None = None, *, backend: str | None = None,
               options: StageOptions | None = None, overlap: bool | None = None) -> EngineConfig:
        """The engine's settings for one stage; `options` are the stage's own.

        Raises:
            ConfigError: a setting that cannot work here.
        """
        from shared_runtime.config import EngineConfig
        from shared_runtime.policy import StageOptions

        return EngineConfig(model=self.model, load_format=self.load_format, stage=stage, backend=backend,
                            dtype=self.dtype, weights=self.weights, device=self.device, threads=self.threads,
                            exact=self.exact, attention=self.attention, cuda_graphs=self.cuda_graphs,
                            options=options or StageOptions(), overlap=overlap, trace=trace)


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """Which language the answer must be in."""

    regex: Annotated[str | None, typer.Option(
        "--regex", rich_help_panel=_CONSTRAINT, metavar="PATTERN",
        help="The answer matches this pattern in full.")] = None
    choice: Annotated[list[str], typer.Option(
        "--choice", rich_help_panel=_CONSTRAINT, metavar="TEXT",
        help="The answer is one of these; give it once for each.")] = field(default_factory=list)
    json_schema: Annotated[str | None, typer.Option(
        "--json-schema", rich_help_panel=_CONSTRAINT, metavar="FILE|JSON",
        help="The answer is JSON of this schema.")] = None
    ebnf: Annotated[Path | None, typer.Option(
        "--ebnf", rich_help_panel=_CONSTRAINT, metavar="FILE",
        help="The answer is in the language of this grammar.")] = None
    structural_tag: Annotated[str | None, typer.Option(
        "--structural-tag", rich_help_panel=_CONSTRAINT, metavar="FILE|JSON",
        help="Free text, with tagged parts that follow a schema.")] = None
    json_object: Annotated[bool, typer.Option(
        "--json-object", rich_help_panel=_CONSTRAINT, help="The answer is any JSON object.")] = False

    def constraint(self) -> Constraint | None:
        """The constraint asked for, None for free text.

        Raises:
            ConfigError: two kinds at once, or a file that cannot be read.
            GrammarSyntaxError: text that should be JSON and is not.
        """
        given: list[tuple[str, Constraint]] = []
        if self.regex is not None:
            given.append(("--regex", Constraint.regex(_utf8("--regex", self.regex))))
        if self.choice:
            given.append(("--choice", Constraint.choice([_utf8("--choice", one) for one in self.choice])))
        if self.json_schema is not None:
            given.append(("--json-schema",
                          Constraint("json_schema", source=_json_text("--json-schema", self.json_schema))))
        if self.ebnf is not None:
            given.append(("--ebnf", Constraint("ebnf", source=_file_text("--ebnf", self.ebnf))))
        if self.structural_tag is not None:
            given.append(("--structural-tag", Constraint(
                "structural_tag", source=_json_text("--structural-tag", self.structural_tag))))
        if self.json_object:
            given.append(("--json-object", Constraint("json_object")))
        if len(given) > 1:
            raise ConfigError("one request has one constraint", where=" and ".join(name for name, _ in given),
                              fix="leave one of them out")
        return given[0][1] if given else None


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen."""

    max_new_tokens: Annotated[int, typer.Option(
        "--max-new-tokens", rich_help_panel=_SAMPLING, help="Most tokens to emit.")] = 128
    min_new_tokens: Annotated[int, typer.Option(
        "--min-new-tokens", rich_help_panel=_SAMPLING, help="No stop token before this many.")] = 0
    temperature: Annotated[float, typer.Option(
        "--temperature", rich_help_panel=_SAMPLING, help="0 takes the likeliest token.")] = 0.0
    top_k: Annotated[int, typer.Option(
        "--top-k", rich_help_panel=_SAMPLING, help="Keep the k likeliest; 0 keeps all.")] = 0
    top_p: Annotated[float, typer.Option(
        "--top-p", rich_help_panel=_SAMPLING, help="Keep the likeliest that make up this probability.")] = 1.0
    min_p: Annotated[float, typer.Option(
        "--min-p", rich_help_panel=_SAMPLING,
        help="Keep what has at least this share of the likeliest one's probability.")] = 0.0
    repetition_penalty: Annotated[float, typer.Option(
        "--repetition-penalty", rich_help_panel=_SAMPLING, help="1 is off.")] = 1.0
    frequency_penalty: Annotated[float, typer.Option(
        "--frequency-penalty", rich_help_panel=_SAMPLING, help="Per occurrence in the answer.")] = 0.0
    presence_penalty: Annotated[float, typer.Option(
        "--presence-penalty", rich_help_panel=_SAMPLING, help="Once a token is in the answer.")] = 0.0
    seed: Annotated[int | None, typer.Option(
        "--seed", rich_help_panel=_SAMPLING, help="Answer i of n uses seed + i.")] = None
    n: Annotated[int, typer.Option(
        "--n", rich_help_panel=_SAMPLING, help="How many answers.")] = 1
    stop: Annotated[list[str], typer.Option(
        "--stop", rich_help_panel=_SAMPLING, metavar="TEXT",
        help="Text that ends the answer; may be repeated.")] = field(default_factory=list)
    stop_token_id: Annotated[list[int], typer.Option(
        "--stop-token-id", rich_help_panel=_SAMPLING, metavar="ID",
        help="Token that ends the answer; may be repeated.")] = field(default_factory=list)
    ignore_eos: Annotated[bool, typer.Option(
        "--ignore-eos", rich_help_panel=_SAMPLING, help="Go on past the model's stop tokens.")] = False
    logprobs: Annotated[bool, typer.Option(
        "--logprobs", rich_help_panel=_SAMPLING, help="Log-probability of each token (with --json).")] = False
    top_logprobs: Annotated[int, typer.Option(
        "--top-logprobs", rich_help_panel=_SAMPLING, help="And of this many best others.")] = 0
    prompt_logprobs: Annotated[bool, typer.Option(
        "--prompt-logprobs", rich_help_panel=_SAMPLING, help="And of the prompt's tokens.")] = False

    no_thinking: Annotated[bool, typer.Option(
        "--no-thinking", rich_help_panel=_REASONING,
        help="No reasoning part: the prompt has ended it already.")] = False
    thinking_budget: Annotated[int | None, typer.Option(
        "--thinking-budget", rich_help_panel=_REASONING, metavar="N", show_default="no limit",
        help="Most tokens of the reasoning part; then its end is all that may come.")] = None

    def params(self) -> SamplingParams:
        """The sampling parameters.

        Raises:
            ConfigError: a budget for a reasoning part that there is not to be.
            RequestError: a value out of its range.
        """
        if self.no_thinking and self.thinking_budget is not None:
            raise ConfigError("without thinking there is no budget to keep to",
                              where="--no-thinking and --thinking-budget", fix="leave one of them out")
        return SamplingParams(
            max_new_tokens=self.max_new_tokens, min_new_tokens=self.min_new_tokens,
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p,
            repetition_penalty=self.repetition_penalty, frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty, seed=self.seed, n=self.n,
            stop=tuple(_utf8("--stop", one) for one in self.stop), stop_token_ids=tuple(self.stop_token_id),
            ignore_eos=self.ignore_eos, logprobs=self.logprobs, top_logprobs=self.top_logprobs,
            prompt_logprobs=self.prompt_logprobs, thinking=not self.no_thinking,
            thinking_budget=self.thinking_budget)


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How the prompt is put to the model."""

    system: Annotated[str | None, typer.Option(
        "--system", rich_help_panel=_PROMPT, metavar="TEXT",
        help="System message instead of the chat template's own.")] = None
    no_chat: Annotated[bool, typer.Option(
        "--no-chat", rich_help_panel=_PROMPT, help="Feed the prompt as it is, without chat template.")] = False

    def prompt(self, text: str) -> Prompt:
        """The prompt for the engine; `-` reads it from standard input.

        Raises:
            ConfigError: `--system` without a chat, or text that is not UTF-8.
        """
        if self.no_chat and self.system is not None:
            raise ConfigError("a raw prompt has no system message", where="--system and --no-chat",
                              fix="leave one of them out")
        text = _utf8("PROMPT", sys.stdin.read() if text == "-" else text)
        if self.no_chat:
            return Prompt(text=text)
        messages = [] if self.system is None else [{"role": "system", "content": _utf8("--system", self.system)}]
        return Prompt(messages=[*messages, {"role": "user", "content": text}])


@dataclass(frozen=True, slots=True)
class Prompt:
    """Either raw text or chat messages; the other is None."""

    text: str | None = None
    messages: list[dict[str, str]] | None = None


def reread(text: str) -> str:
    """`text` from the command line as UTF-8, where the locale is none and Python has kept the bytes as surrogates."""
    try:
        return os.fsencode(text).decode("utf-8") if any("\udc80" <= one <= "\udcff" for one in text) else text
    except UnicodeError:
        return text


def _utf8(name: str, text: str) -> str:
    """`text`, when it can be encoded: bytes that are not UTF-8 reach a program as lone surrogates."""
    text = reread(text)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"character {error.start} is not valid UTF-8", where=name,
                          fix="give the text as UTF-8") from None
    return text


def _file_text(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", where=name) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}", where=name) from None


def _json_text(name: str, value: str) -> str:
    """The JSON in `value`, or in the file that it names."""
    literal = value.lstrip().startswith(("{", "[")) or value.strip() in ("true", "false")
    text = _utf8(name, value) if literal else _file_text(name, Path(value))
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        where = name if literal else f"{name} {value}"
        raise GrammarSyntaxError(f"not JSON: {error.msg} at position {error.pos}", offset=error.pos,
                                 where=where) from None
    except RecursionError:
        raise GrammarSyntaxError("the JSON is nested too deeply to be read", where=name) from None
    return text
