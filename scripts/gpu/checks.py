"""What must be right on a GPU: kernels, recorded passes, agreement with the CPU, and the core of the conformance suite.

Each check returns what it has seen, raises AssertionError with what is wrong, or NotHereError with what is missing.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.ledger import ROOT, NotHereError
from scripts.gpu.bench import CARD, MIXED, Bench, in_language, serve
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import Constraint
from shared_runtime.execution.flash_attention import find_flashinfer
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.locate import locate_model
from shared_runtime.model.shard import valid_sizes
from shared_runtime.result import Result
from shared_runtime.sampling_noise import gumbel_noise
from shared_runtime.sampling_params import SamplingParams

NEAR_TIE = 1e-2
"""CPU and GPU add in another order: where the best two tokens are closer than this, either may win."""


def run_checks(bench: Bench) -> None:
    """All of them."""
    for name, body in _named(bench):
        bench.ledger.check(name, body)
    for target in bench.targets():
        bench.ledger.check(f"core of the conformance suite: {target}", partial(core, bench, target))


def _named(bench: Bench) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "noise is the same on every device", partial(noise, bench)
    yield "mask kernel against the naive loop", partial(mask_kernel, bench)
    yield "token filter kernel against the CPU's", partial(filter_kernel, bench)
    yield "fp32 greedy tokens agree with the CPU", partial(agreement, bench)
    for dtype in ("fp32", "bf16"):
        yield f"recorded passes against eager ones, {dtype}", partial(graphs, bench, dtype)
    yield "a grammar takes the same way through the model", partial(same_way, bench)
    yield "FlashInfer against torch's attention", partial(flashinfer, bench)
    yield "ranks over NCCL print what one process prints", partial(ranks, bench)
    yield "exact mode: alone as among fifteen", partial(company, bench)
    for name in ("draft", "force+draft", "force", "overlap", "ngram"):
        yield f"{name} against plain, exact mode", partial(mode_against_plain, bench, name)


def noise(bench: Bench) -> str:
    """The noise of sampling is a function of seed and position alone."""
    here, there = (gumbel_noise([1, 2], [0, 77], 49_152, torch.device(name)).cpu() for name in (bench.device, "cpu"))
    differs = int((here != there).sum())
    assert torch.allclose(here, there, rtol=1e-12, atol=1e-12), f"{differs} values differ"
    return f"{differs} of {here.numel()} values differ in the last places"


def mask_kernel(bench: Bench) -> str:
    """Triton's kernel, on random masks of odd widths and on some of the rows."""
    if bench.device != "cuda":
        raise NotHereError("Triton's kernels are CUDA's")
    from stages.stage5_backend_jump.torch_ops.bitmask_torch_ops import naive_apply_token_bitmask, words_for
    from stages.stage5_backend_jump.utils import apply_bitmask

    source = torch.Generator().manual_seed(0)
    cases = [(1, 33, None), (3, 257, [1]), (5, 4099, [0, 2, 4]), (4, 49_152, [3, 1])]
    for rows, width, chosen in cases:
        mask = torch.randint(-2**31, 2**31, (rows, words_for(width)), generator=source).to(torch.int32)
        logits = torch.randn((rows, width), generator=source)
        logits[0, :3] = torch.tensor([-0.0, math.nan, math.inf])
        expected = logits.clone()
        found = logits.cuda()
        apply_bitmask(found, mask.cuda(), chosen)
        naive_apply_token_bitmask(expected, mask, chosen)
        assert torch.equal(found.cpu().view(torch.int32), expected.view(torch.int32)), f"{rows} x {width}"
    return f"{len(cases)} shapes, bit for bit"


def filter_kernel(bench: Bench) -> str:
    """Single bits of a mask row, set and cleared on the device."""
    if bench.device != "cuda":
        raise NotHereError("Triton's kernels are CUDA's")
    from stages.stage5_backend_jump.utils import filter_tokens, new_bitmask

    ids = [0, 1, 31, 32, 33, 1000, 49_151]
    for allowed in (True, False):
        for reset in (True, False):
            masks = [new_bitmask(49_152, 3, torch.device(name)) for name in ("cuda", "cpu")]
            for mask in masks:
                mask[1] = 0x55555555
                filter_tokens(mask, 1, ids, allowed=allowed, reset=reset)
            assert torch.equal(masks[0].cpu(), masks[1]), f"allowed={allowed}, reset={reset}"
    return "4 ways, bit for bit"


def agreement(bench: Bench) -> str:
    """Token for token, or until the reference's best two are nearly equal."""
    params = SamplingParams(max_new_tokens=24, top_logprobs=2)
    with bench.engine() as engine, bench.engine(device="cpu") as reference:
        return compare(serve(engine, params), serve(reference, params))


def graphs(bench: Bench, dtype: str) -> str:
    """Recorded decode passes and eager ones of one device."""
    if bench.device != "cuda":
        raise NotHereError("CUDA graphs need CUDA")
    params = SamplingParams(max_new_tokens=32, top_logprobs=2, ignore_eos=True)
    with bench.engine(dtype=dtype) as engine, bench.engine(dtype=dtype, cuda_graphs=False) as eager:
        found, expected = serve(engine, params, 2), serve(eager, params, 2)
        recorded = engine.parts.runner.graphs
        assert recorded is not None
        assert recorded.played > 0, "nothing was played from a recording"
        return compare(found, expected, strict=dtype == "fp32") + f"; {recorded.played} passes played"


def same_way(bench: Bench) -> str:
    """As many passes from recordings with a grammar as without (museum row 27)."""
    if bench.device != "cuda":
        raise NotHereError("CUDA graphs need CUDA")
    played = []
    for bound in (None, Constraint.regex("[0-9]{40}")):
        with bench.engine() as engine:
            engine.generate(["a", "b"], sampling=SamplingParams(max_new_tokens=16, ignore_eos=True), constraint=bound)
            recorded = engine.parts.runner.graphs
            assert recorded is not None
            played.append(recorded.played)
    assert played[0] == played[1] > 0, f"{played[0]} without, {played[1]} with a grammar"
    return f"{played[0]} passes each"


def flashinfer(bench: Bench) -> str:
    """bf16 claims no identity between kernels: how many tokens agree is told, and log-probabilities are close."""
    if bench.device != "cuda" or find_flashinfer("auto", torch.device("cuda"), torch.bfloat16, 64, exact=False) is None:
        raise NotHereError("FlashInfer is not installed, or there is no CUDA")
    params = SamplingParams(max_new_tokens=24, top_logprobs=2)
    seen = []
    for recorded in (False, True):
        with bench.engine(dtype="bf16", attention="flashinfer", cuda_graphs=recorded) as engine, \
                bench.engine(dtype="bf16", attention="sdpa", cuda_graphs=recorded) as reference:
            seen.append(compare(serve(engine, params), serve(reference, params), strict=False))
    return "; ".join(seen)


def ranks(bench: Bench) -> str:
    """The command line on as many GPUs as the model's heads allow."""
    sizes = valid_sizes(ModelConfig.from_folder(locate_model(bench.model, None)))
    size = max(one for one in sizes if one <= max(1, torch.cuda.device_count()))
    if size == 1:
        raise NotHereError(f"{torch.cuda.device_count()} GPUs, and the model can be shared by {sizes}")
    target = bench.stage_5()
    words = ["-m", "jumpforward", "run", "a card ", "--no-chat", "--model", bench.model, "--load-format",
             bench.load_format, "--device", bench.device, "--stage", "5", "--backend", target.backend, "--regex",
             CARD.source, "--no-cuda-graphs"]
    said = [subprocess.run([sys.executable, *words, *more], capture_output=True, text=True, timeout=120, check=False,
                           cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
            for more in ([], ["--tp", str(size)])]
    assert [one.returncode for one in said] == [0, 0], said[-1].stderr
    assert in_language(CARD, said[1].stdout.strip()), said[1].stdout
    same = "the same text" if said[0].stdout == said[1].stdout else "another text, from a near tie on"
    return f"{size} ranks; {same}"


def company(bench: Bench) -> str:
    """Exact mode keeps a request's tokens whoever else is there."""
    params = SamplingParams(max_new_tokens=16, top_logprobs=2)
    with bench.engine(exact=True, prefix_cache="naive") as engine:
        alone = [engine.generate_one(prompt, sampling=params, constraint=bound) for prompt, bound in MIXED]
        together = serve(engine, params, 3)
    for index, result in enumerate(together):
        assert result.token_ids == alone[index % len(MIXED)].token_ids, f"request {index} has other tokens in company"
    exact = sum(result.logprobs == alone[index % len(MIXED)].logprobs for index, result in enumerate(together))
    return f"tokens equal; log-probabilities bit-identical in {exact} of {len(together)}"


def mode_against_plain(bench: Bench, name: str) -> str:
    """What promises plain decoding's tokens gives them; what writes another text stays in the language."""
    target = bench.stage_5()
    mode, plain = bench.mode(target, name), bench.mode(target, "plain")
    settings: dict[str, Any] = {"exact": True, "stage": 5, "backend": target.backend}
    params = SamplingParams(max_new_tokens=64)
    with bench.engine(mode, **settings) as engine, bench.engine(plain, **settings) as reference:
        found, expected = serve(engine, params), serve(reference, params)
    if "force" not in name:
        for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            assert mine.token_ids == theirs.token_ids, f"request {index} differs: {mine.text!r}, {theirs.text!r}"
    valid(found)
    passes = [sum(one.counts["forward_passes"] for one in results) for results in (found, expected)]
    assert passes[0] <= passes[1] or name not in ("draft", "ngram"), f"{passes[0]} passes, plain needs {passes[1]}"
    return f"{passes[0]} passes, plain {passes[1]}"


def core(bench: Bench, target: Target) -> str:
    """Validity under several seeds, cuts, neighbours, retraction, abort, a bad grammar, balanced books."""
    settings: dict[str, Any] = {"stage": target.spec.id, "backend": target.backend}
    finished = 0
    with bench.engine(**settings) as engine:
        for seed in range(3):
            finished += valid(serve(engine, SamplingParams(max_new_tokens=60, temperature=1.0, seed=seed)))
        cut = serve(engine, SamplingParams(max_new_tokens=2, temperature=1.0, seed=9))
        assert all(len(one.token_ids) <= 2 for one in cut)
        bad, good = engine.generate(["a ", "b "], sampling=SamplingParams(max_new_tokens=8),
                                    constraint=[Constraint.regex("("), Constraint.regex("[0-9]{3}")])
        assert (bad.finish_reason, good.finish_reason) == ("error", "stop")
        name = engine.add_request("c ", sampling=SamplingParams(max_new_tokens=60),
                                  constraint=Constraint.regex("[a-z]{70}"))
        while not engine.scheduler.queues.running:
            engine.step()
        engine.abort(name[0])
        while engine.has_work:
            engine.step()
        (event,) = engine.take_events()
        assert event.result is not None
        assert event.result.finish_reason == "abort"
    assert finished >= 4, f"only {finished} finished"
    with bench.engine(kv_pool_tokens=192, new_token_ratio=0.1, **settings) as engine:
        tight = engine.generate(["number " * 4] * 8, sampling=SamplingParams(max_new_tokens=40, ignore_eos=True),
                                constraint=[Constraint.regex("[0-9]{200}"), None] * 4)
    assert all(len(one.token_ids) == 40 for one in tight), "tokens were lost"
    return f"{finished} finished in the language; {sum(one.metrics.retractions for one in tight)} retractions"


def valid(results: list[Result]) -> int:
    """How many constrained requests have finished, all of them in their language."""
    finished = 0
    for index, result in enumerate(results):
        bound = MIXED[index % len(MIXED)][1]
        assert result.finish_reason in ("stop", "length"), str(result.error)
        if bound is not None and result.finish_reason == "stop":
            finished += 1
            assert in_language(bound, result.text), f"{result.text!r} is not in {bound.text}"
    return finished


def compare(found: list[Result], expected: list[Result], *, strict: bool = True) -> str:
    """Greedy results of two ways: tokens up to the first near tie, and log-probabilities up to there.

    Args:
        strict: raise where they differ at a clear choice; without it, only count.
    """
    same, largest = 0, 0.0
    for mine, theirs in zip(found, expected, strict=True):
        same += mine.token_ids == theirs.token_ids
        for one, other in zip(mine.logprobs, theirs.logprobs, strict=False):
            if one.token_id != other.token_id:
                gap = other.top[0][1] - other.top[1][1] if len(other.top) > 1 else math.inf
                assert gap < NEAR_TIE or not strict, f"tokens differ where the best two are {gap:.3g} apart"
                break
            largest = max(largest, abs(one.logprob - other.logprob))
    assert largest < (NEAR_TIE if strict else 0.5), f"log-probabilities differ by {largest:.3g}"
    return f"{same} of {len(found)} requests token for token; log-probabilities within {largest:.1e}"
