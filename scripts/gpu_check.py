"""Checks model, sampler and stage 1 under CUDA and measures them: one run of a few minutes, one ledger file.

It needs no model files and no network: `--load-format dummy` makes random weights of the embedded model's shape, and
its vocabulary is made here (every byte, and words). Where the embedded model is in place, `--model embedded` uses it.
Without CUDA it says so and ends with exit code 0; with `--device cpu` it runs everything it can on the CPU, which is
how the script itself is tested.

    python scripts/gpu_check.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.result import Result
from shared_runtime.sampling_noise import gumbel_noise
from shared_runtime.sampling_params import SamplingParams

CONSTRAINTS = (Constraint.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}"), None, Constraint.choice(["yes", "no", "maybe"]),
               Constraint.regex('"[a-z]{3,12}"'))
PROMPTS = ("the date is ", "once upon a time ", "yes or no ", "a word ")


@dataclass(slots=True)
class Ledger:
    """What was checked and measured; written as JSON."""

    device: str
    torch: str
    python: str
    settings: dict[str, str]
    checks: dict[str, str] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)

    def check(self, name: str, body: Callable[[], str]) -> None:
        """Run a check; its text says what was seen, an AssertionError what was wrong."""
        try:
            self.checks[name] = f"ok: {body()}"
        except AssertionError as error:
            self.checks[name] = f"FAILED: {error}"
        print(f"{name}: {self.checks[name]}", flush=True)

    def measure(self, name: str, value: float) -> None:
        """Keep a figure."""
        self.measures[name] = round(value, 4)
        print(f"{name}: {value:.3f}", flush=True)


def main() -> int:
    """Run everything; 1 when a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", default="", help="a folder or 'embedded'; empty: a vocabulary made here")
    parser.add_argument("--load-format", default="dummy", choices=["dummy", "auto"])
    parser.add_argument("--small", action="store_true", help="a model of two narrow layers, for a quick trial")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu_check: no CUDA device; nothing to check (--device cpu runs it on the CPU)")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(_made_up_model(Path(scratch), small=options.small))
        ledger = Ledger(
            device=torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or "cpu",
            torch=torch.__version__, python=platform.python_version(),
            settings={"model": options.model or "made up", "load_format": options.load_format})
        _Checks(ledger, model, options.device, options.load_format).run()
    options.out.write_text(json.dumps(asdict(ledger), indent=1) + "\n", encoding="utf-8")
    failed = [name for name, outcome in ledger.checks.items() if outcome.startswith("FAILED")]
    print(f"gpu_check: {len(ledger.checks)} checks, {len(failed)} failed; written to {options.out}")
    return 1 if failed else 0


@dataclass(slots=True)
class _Checks:
    """The checks, over one model on one device."""

    ledger: Ledger
    model: str
    device: str
    load_format: str

    def run(self) -> None:
        """All of them."""
        self.ledger.check("noise is the same on every device", self._noise)
        self.ledger.check("fp32 greedy tokens agree with the CPU", self._agreement)
        self.ledger.check("finished outputs are in the language", self._language)
        self.ledger.check("exact mode: alone as among fifteen", self._company)
        self.ledger.check("the KV pool balances under retraction", self._retraction)
        for dtype in ("fp32", "bf16", "fp16"):
            self._measure(dtype)

    def _engine(self, **settings: object) -> Engine:
        values = {"model": self.model, "load_format": self.load_format, "device": self.device} | settings
        return Engine(EngineConfig(**values))  # type: ignore[arg-type]  # EngineConfig checks them

    def _mixed(self, engine: Engine, params: SamplingParams, times: int = 1) -> list[Result]:
        return engine.generate(list(PROMPTS) * times, sampling=params, constraint=list(CONSTRAINTS) * times)

    def _noise(self) -> str:
        here, there = (gumbel_noise([1, 2], [0, 77], 49_152, torch.device(name)).cpu() for name in (self.device, "cpu"))
        differs = int((here != there).sum())
        assert torch.allclose(here, there, rtol=1e-12, atol=1e-12), f"{differs} values differ"
        return f"{differs} of {here.numel()} values differ in the last places"

    def _agreement(self) -> str:
        params = SamplingParams(max_new_tokens=24, top_logprobs=2)
        with self._engine() as engine, self._engine(device="cpu") as reference:
            pairs = list(zip(self._mixed(engine, params), self._mixed(reference, params), strict=True))
        same = sum(mine.token_ids == theirs.token_ids for mine, theirs in pairs)
        for mine, theirs in pairs:
            for one, other in zip(mine.logprobs, theirs.logprobs, strict=False):
                if one.token_id != other.token_id:
                    gap = other.top[0][1] - other.top[1][1]
                    assert gap < 1e-2, f"tokens differ where the best two are {gap:.3g} apart"
                    break
                assert abs(one.logprob - other.logprob) < 1e-2, "log-probabilities differ"
        return f"{same} of {len(pairs)} requests token for token, the others from a near tie on"

    def _language(self) -> str:
        finished = 0
        with self._engine() as engine:
            for seed in range(4):
                params = SamplingParams(max_new_tokens=48, temperature=1.0, seed=seed)
                for result, bound in zip(self._mixed(engine, params), CONSTRAINTS, strict=True):
                    assert result.finish_reason in ("stop", "length"), str(result.error)
                    if bound is not None and result.finish_reason == "stop":
                        finished += 1
                        assert _in_language(bound, result.text), f"{result.text!r} is not in {bound.text}"
            engine.check_integrity()
        assert finished > 0, "nothing finished"
        return f"{finished} outputs"

    def _company(self) -> str:
        params = SamplingParams(max_new_tokens=16, top_logprobs=2)
        with self._engine(exact=True, prefix_cache="naive") as engine:
            alone = [engine.generate_one(prompt, sampling=params, constraint=bound)
                     for prompt, bound in zip(PROMPTS, CONSTRAINTS, strict=True)]
            together = self._mixed(engine, params, times=4)
        for index, result in enumerate(together):
            assert result.token_ids == alone[index % 4].token_ids, f"request {index} has other tokens in company"
        exact = sum(result.logprobs == alone[index % 4].logprobs for index, result in enumerate(together))
        return f"tokens equal; log-probabilities bit-identical in {exact} of {len(together)}"

    def _retraction(self) -> str:
        params = SamplingParams(max_new_tokens=40, ignore_eos=True)
        with self._engine(kv_pool_tokens=192, new_token_ratio=0.1) as engine:
            results = engine.generate(["number " * 4] * 8, sampling=params)
            engine.check_integrity()
        assert all(len(result.token_ids) == 40 for result in results), "tokens were lost"
        return f"{sum(result.metrics.retractions for result in results)} retractions"

    def _measure(self, dtype: str) -> None:
        """TPOT free and constrained, alone and in a batch of 16; medians of pairs in one engine."""
        params = SamplingParams(max_new_tokens=64, ignore_eos=True)
        bound = Constraint.regex("[a-z ]{200}")
        with self._engine(dtype=dtype) as engine:
            engine.generate(["warm up "] * 16, sampling=params, constraint=bound)
            for batch in (1, 16):
                times: dict[str, list[float]] = {"free": [], "constrained": []}
                for _ in range(3):
                    for name, constraint in (("free", None), ("constrained", bound)):
                        started = time.perf_counter()
                        results = engine.generate(["a "] * batch, sampling=params, constraint=constraint)
                        tokens = sum(len(result.token_ids) for result in results) / batch
                        times[name].append((time.perf_counter() - started) * 1e3 / tokens)
                free, constrained = (statistics.median(times[name]) for name in ("free", "constrained"))
                self.ledger.measure(f"{dtype} batch {batch}: ms per token, free", free)
                self.ledger.measure(f"{dtype} batch {batch}: constrained / free", constrained / free)


def _in_language(bound: Constraint, text: str) -> bool:
    import re

    if bound.kind == "choice":
        return text in bound.choices
    return re.fullmatch(bound.source, text, re.ASCII) is not None


def _made_up_model(folder: Path, *, small: bool) -> Path:
    """A folder with the embedded model's shape and a vocabulary of every byte, words and one control token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|end|>": 0} | {symbol: index + 1 for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49_152, "hidden_act": "silu",
        "hidden_size": 64 if small else 576, "intermediate_size": 128 if small else 1536,
        "num_hidden_layers": 2 if small else 30, "num_attention_heads": 4 if small else 9,
        "num_key_value_heads": 2 if small else 3, "head_dim": 16 if small else 64, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192, "rope_theta": 100_000.0, "tie_word_embeddings": True,
        "bos_token_id": 0, "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


if __name__ == "__main__":
    sys.exit(main())
