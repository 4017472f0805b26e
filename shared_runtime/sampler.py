"""From logits to token ids: `adjust` before the grammar's mask, `sample` after it.

Everything works row by row, and sums whose order could depend on the shape of a call are sums of integers, so
a request draws the same tokens alone and in company.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from shared_runtime.sampling_info import Cells, RandomRows, SamplingInfo
from shared_runtime.sampling_noise import gumbel_noise
from shared_runtime.vocabulary import Vocabulary

_FORBIDDEN = -math.inf
# Weights exp(logit - peak) are counted in units of 2**-35: sums over up to 2**18 tokens are exact in float64.
_MASS_UNIT = 2.0**35


@dataclass(slots=True)
class SampleOutput:
    """What one pass chose.

    Attributes:
        token_ids: one a row; -1 in rows that failed.
        errors: row -> what was wrong with it; the other rows are untouched by it.
        warnings: row -> what could not be kept to, though a token was chosen.
    """

    token_ids: list[int]
    errors: dict[int, str] = field(default_factory=dict)
    warnings: dict[int, str] = field(default_factory=dict)


class Sampler:
    """Chooses one token a row. Holds no state between passes.

    Args:
        vocabulary: fixes the width of the logits, the padding ids and the model's stop set.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._stop_ids = sorted(vocabulary.stop_ids)

    def adjust(self, logits: Tensor, info: SamplingInfo) -> None:
        """Before the mask, in place: padding ids out, then bias, repetition, frequency and presence penalty.

        Args:
            logits: [rows, width] float32 raw logits.
            info: the rows' settings; takes note of what `sample` must know of the logits before the mask.

        Raises:
            ValueError: the logits have another shape or type.
        """
        self._check(logits, info)
        if len(self._vocabulary) < self._vocabulary.width:
            logits[:, len(self._vocabulary):] = _FORBIDDEN
        info.peak = logits.amax(-1)
        if info.bias is not None:
            info.bias.write(logits, info.bias.read(logits) + info.bias.values)
        if info.repetition is not None:
            seen, penalty = info.repetition.read(logits), info.repetition.values
            info.repetition.write(logits, torch.where(seen < 0, seen * penalty, seen / penalty))
        if info.presence is not None:
            info.presence.write(logits, info.presence.read(logits) - info.presence.values)
        if info.extra_stops is not None:
            info.extra_stop_logits = info.extra_stops.read(logits)

    def sample(self, logits: Tensor, info: SamplingInfo) -> SampleOutput:
        """After the mask: settle which stop ids may come, then choose. One device-to-host copy.

        Args:
            logits: [rows, width] float32, adjusted and masked; stop ids are rewritten in place.
            info: the object that `adjust` was given.

        Raises:
            ValueError: the logits have another shape or type, or `adjust` has not seen `info`.
        """
        self._check(logits, info)
        if info.peak is None:
            raise ValueError("adjust() must see the raw logits of a pass before sample()")
        self._admit_extra_stops(logits, info)
        overruled = _hold_back(logits, info.early_stops)
        peak = logits.amax(-1, keepdim=True)
        chosen = _choose(logits, peak, info)
        columns = [chosen.double(), info.peak.double(), peak.squeeze(1).double()]
        if overruled is not None:
            columns.append(overruled.double())
        return _read_out(torch.stack(columns).tolist(), info)

    def _admit_extra_stops(self, logits: Tensor, info: SamplingInfo) -> None:
        """Extra stop ids of a constrained row may come iff its grammar accepts: the mask left a stop id."""
        extra = info.extra_stops
        if extra is None or info.extra_stop_logits is None:
            return
        accepting = torch.isfinite(logits[:, self._stop_ids]).any(-1)
        extra.write(logits, info.extra_stop_logits.masked_fill(~accepting[extra.rows], _FORBIDDEN))

    def _check(self, logits: Tensor, info: SamplingInfo) -> None:
        wanted = (info.rows, self._vocabulary.width)
        if tuple(logits.shape) != wanted or logits.dtype != torch.float32:
            raise ValueError(f"logits must be {wanted} float32, not {tuple(logits.shape)} {logits.dtype}")


def top_k_filter(scores: Tensor, top_ks: list[int]) -> None:
    """Keep what is at least the k-th largest of its row, ties included; -inf for the rest, in place.

    Args:
        scores: [r, width]. top_ks: r ints; 0 keeps all.
    """
    used = [row for row, k in enumerate(top_ks) if 0 < k < scores.shape[1]]
    if not used:
        return
    ranks = torch.tensor([[top_ks[row] - 1] for row in used], device=scores.device)
    largest = scores[used].topk(max(top_ks[row] for row in used)).values
    lowest = scores.new_full((scores.shape[0], 1), _FORBIDDEN)
    lowest[used] = largest.gather(1, ranks)
    scores.masked_fill_(scores < lowest, _FORBIDDEN)


def top_p_filter(scores: Tensor, top_ps: list[float]) -> None:
    """Keep the fewest largest tokens whose probability reaches p; -inf for the rest, in place.

    Among equal tokens the lower id goes first, so that p -> 0 ends at the greedy choice. Probabilities are
    summed as integers: no order of summation, and so no company, can move the border.

    Args:
        scores: [r, width] float64 logits with row maximum 0. top_ps: r numbers in (0, 1]; 1 keeps all.
    """
    used = [row for row, p in enumerate(top_ps) if p < 1.0]
    if not used:
        return
    part = scores[used]
    wanted = _mass(part).sum(-1, keepdim=True) * part.new_tensor([[top_ps[row]] for row in used])
    largest = _descending(part)
    mass = _mass(largest)
    n_kept = (mass.cumsum(-1) - mass < wanted).sum(-1, keepdim=True)
    lowest = largest.gather(-1, n_kept - 1)
    above, level = part > lowest, part == lowest
    room = n_kept - above.sum(-1, keepdim=True)
    keep = above | (level & (level.cumsum(-1) <= room))
    scores[used] = part.masked_fill(~keep, _FORBIDDEN)


def min_p_filter(scores: Tensor, min_ps: list[float]) -> None:
    """Keep tokens at least min_p times as probable as the likeliest; -inf for the rest, in place.

    Args:
        scores: [r, width] float64 logits with row maximum 0. min_ps: r numbers in [0, 1]; 0 keeps all.
    """
    scores.masked_fill_(scores.exp() < scores.new_tensor(min_ps).unsqueeze(1), _FORBIDDEN)


def process(logits: Tensor, peak: Tensor, random: RandomRows) -> Tensor:
    """Temperature, top-k, top-p, min-p, in this order: that of `transformers`' warpers.

    Args:
        logits: [r, width] float32, the rows that draw. peak: [r, 1], their largest logits.
        random: their settings.

    Returns:
        [r, width] float64 logits with row maximum 0; their softmax is what is drawn from. A row whose peak is
        not finite comes out as zeros.
    """
    # Subtracting the peak first keeps any temperature, however small, from overflowing.
    scores = (logits.double() - peak.double()) / random.temperatures
    scores.masked_fill_(~torch.isfinite(peak), 0.0)
    if random.top_ks is not None:
        top_k_filter(scores, random.top_ks)
    if random.top_ps is not None:
        top_p_filter(scores, random.top_ps)
    if random.min_ps is not None:
        min_p_filter(scores, random.min_ps)
    return scores


def lowest_argmax(scores: Tensor, peak: Tensor) -> Tensor:
    """[rows] int64 lowest id of each row's largest score; any id in a row whose peak is NaN.

    Args:
        scores: [rows, width]. peak: [rows, 1], their row maxima.
    """
    if scores.device.type == "cpu":  # NumPy's promises the first of equals, which torch's does not, and is vectorised
        return torch.from_numpy(scores.numpy().argmax(-1))
    return naive_lowest_argmax(scores, peak)


def naive_lowest_argmax(scores: Tensor, peak: Tensor) -> Tensor:
    """`lowest_argmax` on any device, in three passes over the scores; on a CPU twelve times slower."""
    width = scores.shape[1]
    ids = torch.arange(width, dtype=torch.int32, device=scores.device)
    return torch.where(scores == peak, ids, width).amin(-1).clamp_(max=width - 1).long()


def _choose(logits: Tensor, peak: Tensor, info: SamplingInfo) -> Tensor:
    """[rows] int64: the argmax of greedy rows, the argmax of logits + Gumbel noise of the others."""
    random = info.random
    if random is None:
        return lowest_argmax(logits, peak)
    seeds, positions = [info.seeds[row] for row in random.rows], [info.positions[row] for row in random.rows]
    drawn = logits if random.everything else logits[random.index]
    scores = process(drawn, peak[random.index], random)
    scores += gumbel_noise(seeds, positions, logits.shape[1], logits.device)
    ids = lowest_argmax(scores, scores.amax(-1, keepdim=True))
    return ids if random.everything else lowest_argmax(logits, peak).index_copy_(0, random.index, ids)


def _hold_back(logits: Tensor, early: Cells | None) -> Tensor | None:
    """Forbid stop ids that come too early, except in rows where nothing else is left.

    Returns:
        [rows] bool, where the stop ids were let through; None when there was nothing to hold back.
    """
    if early is None:
        return None
    before = early.read(logits)
    early.write(logits, torch.full_like(before, _FORBIDDEN))
    stuck = logits.amax(-1) == _FORBIDDEN
    early.write(logits, before.masked_fill(~stuck[early.rows], _FORBIDDEN))
    return stuck


def _descending(scores: Tensor) -> Tensor:
    """[r, width], each row largest first. On a CPU by NumPy, which sorts without indices: far faster."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.sort(scores.numpy(), axis=-1)).flip(-1)
    return scores.sort(dim=-1, descending=True).values


def _mass(scores: Tensor) -> Tensor:
    """exp(scores) as int64 counts of 1 / `_MASS_UNIT`, rounded down."""
    return scores.exp().mul_(_MASS_UNIT).long()


def _read_out(columns: list[list[float]], info: SamplingInfo) -> SampleOutput:
    """Ids, errors and warnings from the values that came back from the device, [3 or 4][rows]."""
    output = SampleOutput([int(token_id) for token_id in columns[0]])
    for row, (raw_peak, peak) in enumerate(zip(columns[1], columns[2], strict=True)):
        error = _row_error(raw_peak, peak, info.constrained[row])
        if error is not None:
            output.token_ids[row] = -1
            output.errors[row] = error
    for row, least in info.kept_until.items():
        if columns[3][row] and row not in output.errors:
            output.warnings[row] = (f"min_new_tokens {least} was not reached: at output position "
                                    f"{info.positions[row]} only a stop token was allowed")
    return output


def _row_error(raw_peak: float, peak: float, constrained: bool) -> str | None:
    """Why nothing can be chosen from a row, None when something can."""
    if math.isnan(raw_peak) or raw_peak == math.inf:
        return "the model's logits hold NaN or infinity; nothing can be chosen from them"
    if math.isnan(peak) or peak == math.inf:
        return "logit_bias or a penalty took a logit beyond float32; use smaller values"
    if peak == _FORBIDDEN and constrained and raw_peak != _FORBIDDEN:
        return "the constraint, with stop_token_ids, leaves no token that may come next"
    return "the model's logits leave no token: all are -inf" if peak == _FORBIDDEN else None
