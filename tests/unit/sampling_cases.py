"""Small vocabularies and requests for the sampling tests, the naive rules they are checked by, and chi-square."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from shared_runtime.sampler import SampleOutput, Sampler
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.vocabulary import Vocabulary

CPU = torch.device("cpu")
ALPHA = 1e-4
DRAWS = 20_000


def small_vocabulary(size: int = 16, *, width: int | None = None,
                     stop_ids: frozenset[int] = frozenset({2})) -> Vocabulary:
    """`size` one-letter tokens; ids 0 to 2 are control tokens."""
    spelled = tuple(b"" if i < 3 else bytes([97 + i % 26]) for i in range(size))
    return Vocabulary(spelled, frozenset({0, 1, 2}), stop_ids, width or size)


def request(params: SamplingParams | None = None, *, seed: int = 0, output: Sequence[int] = (),
            prompt: Sequence[int] = (3, 4), constrained: bool = False) -> Request:
    return Request(rid="r", prompt_ids=list(prompt), prompt="", sampling=params or SamplingParams(), seed=seed,
                   constraint=Constraint.regex("[a-z]+") if constrained else None, output_ids=list(output))


def run(logits: Tensor, reqs: Sequence[Request], vocabulary: Vocabulary, *,
        allowed: dict[int, Sequence[int]] | None = None) -> SampleOutput:
    """One pass over a copy of `logits`: adjust, mask row -> allowed ids, sample."""
    logits = logits.clone()
    sampler = Sampler(vocabulary)
    info = SamplingInfo.from_requests(reqs, vocabulary, CPU)
    sampler.adjust(logits, info)
    for row, ids in (allowed or {}).items():
        mask_row(logits, row, torch.tensor(ids, dtype=torch.int64))
    return sampler.sample(logits, info)


def mask_row(logits: Tensor, row: int, ids: Tensor) -> None:
    """What a policy does: everything but `ids` [m] int64 to -inf, in place."""
    kept = logits[row, ids].clone()
    logits[row] = -math.inf
    logits[row, ids] = kept


def naive_adjust(logits: Sequence[float], req: Request, size: int) -> list[float]:
    """Padding, bias and penalties of one row, token by token."""
    params, counts = req.sampling, Counter(req.output_ids)
    adjusted = []
    for token_id, value in enumerate(logits):
        if token_id >= size:
            adjusted.append(-math.inf)
            continue
        value += params.logit_bias.get(token_id, 0.0)
        if token_id in req.prompt_ids or token_id in req.output_ids:
            value = value * params.repetition_penalty if value < 0 else value / params.repetition_penalty
        value -= counts[token_id] * params.frequency_penalty + (counts[token_id] > 0) * params.presence_penalty
        adjusted.append(value)
    return adjusted


def naive_probabilities(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """Temperature, top-k, top-p and min-p of one row, by sorting and adding up; sums to 1."""
    weights = _softmax([value / params.temperature for value in logits])
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    if 0 < params.top_k < len(weights):
        border = weights[order[params.top_k - 1]]
        weights = [w if w >= border else 0.0 for w in weights]
    total, reached, kept = math.fsum(weights), 0.0, set()
    for token_id in order:
        if reached < params.top_p * total:
            kept.add(token_id)
        reached += weights[token_id]
    weights = [w if i in kept else 0.0 for i, w in enumerate(weights)]
    border = params.min_p * max(weights)
    weights = [w if w >= border else 0.0 for w in weights]
    total = math.fsum(weights)
    return [w / total for w in weights]


def chi_square_p(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """P-value of observed counts against probabilities; cells that expect under 5 are pooled. 0 when the
    impossible was drawn."""
    total = sum(counts)
    if any(count and not p for count, p in zip(counts, probabilities, strict=True)):
        return 0.0
    cells = [(count, total * p) for count, p in zip(counts, probabilities, strict=True) if p]
    large = [cell for cell in cells if cell[1] >= 5]
    small = [cell for cell in cells if cell[1] < 5]
    if small:
        large.append((sum(c for c, _ in small), sum(e for _, e in small)))
    if len(large) < 2:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in large)
    half_df = torch.tensor((len(large) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half_df, torch.tensor(statistic / 2, dtype=torch.float64)))


def _softmax(values: Sequence[float]) -> list[float]:
    peak = max(values)
    weights = [math.exp(value - peak) for value in values]
    total = math.fsum(weights)
    return [w / total for w in weights]
