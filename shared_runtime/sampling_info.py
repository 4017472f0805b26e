"""What the sampler must know about the requests of one pass; nothing is built that no row asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared_runtime.request import Request
from shared_runtime.transfer import to_device
from shared_runtime.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Cells:
    """Single logits of a batch; no cell occurs twice.

    Attributes:
        rows, ids: [m] int64; cell i is `logits[rows[i], ids[i]]`.
        values: [m] float32, what each cell is changed by; zeros where only the places matter.
    """

    rows: Tensor
    ids: Tensor
    values: Tensor

    def read(self, logits: Tensor) -> Tensor:
        """[m] copy of the cells."""
        return logits[self.rows, self.ids]

    def write(self, logits: Tensor, values: Tensor) -> None:
        """Set the cells, in place."""
        logits[self.rows, self.ids] = values


@dataclass(slots=True)
class CellList:
    """Cells in the making, as lists; one transfer to the device at the end."""

    rows: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, row: int, ids: Iterable[int], value: float = 0.0) -> None:
        """Add cells of one row that share a value; `ids` holds no id twice."""
        before = len(self.ids)
        self.ids.extend(ids)
        added = len(self.ids) - before
        self.rows.extend([row] * added)
        self.values.extend([value] * added)

    def add_each(self, row: int, values: dict[int, float]) -> None:
        """Add cells of one row, id -> value."""
        self.ids.extend(values)
        self.values.extend(values.values())
        self.rows.extend([row] * len(values))

    def build(self, device: torch.device) -> Cells | None:
        """The cells as tensors, None when there are none."""
        if not self.ids:
            return None
        places = to_device([self.rows, self.ids], device)
        return Cells(places[0], places[1], to_device(self.values, device, torch.float32))


@dataclass(frozen=True, slots=True)
class RandomRows:
    """The rows that draw (temperature above 0), with their settings; r of them.

    Attributes:
        rows: which rows. index: the same, [r] int64. everything: True when no row is greedy.
        temperatures: [r, 1] float64.
        top_ks, top_ps, min_ps: r numbers each, None when no row uses them; 0, 1 and 0 keep all.
    """

    rows: list[int]
    index: Tensor
    everything: bool
    temperatures: Tensor
    top_ks: list[int] | None
    top_ps: list[float] | None
    min_ps: list[float] | None


@dataclass(slots=True)
class SamplingInfo:
    """The sampled rows of one pass; built fresh for each. Row i belongs to request i.

    Attributes:
        rows: how many.
        seeds, positions: per row, what its noise is a function of; position is the index of the output token.
        random: the rows that draw, None when all are greedy.
        bias: values to add. repetition: values to divide or multiply by.
        presence: values to subtract, of frequency and presence penalty together.
        extra_stops: `stop_token_ids` of constrained rows. early_stops: ids that may not be chosen yet.
        kept_until: per row of `early_stops`, its `min_new_tokens` where that is the reason; row -> tokens.
        grammars: per row its grammar (None for a free row); None when no row is constrained.
        constrained: per row, whether it has a constraint.
        peak: [rows] float32, the largest raw logit; NaN or infinite when the model's output is broken.
        extra_stop_logits: logits of `extra_stops` as they were before the mask.
    """

    # by from_requests
    rows: int
    seeds: list[int]
    positions: list[int]
    constrained: list[bool]
    grammars: list[object] | None = None
    random: RandomRows | None = None
    bias: Cells | None = None
    repetition: Cells | None = None
    presence: Cells | None = None
    extra_stops: Cells | None = None
    early_stops: Cells | None = None
    kept_until: dict[int, int] = field(default_factory=dict)

    # by Sampler.adjust, for Sampler.sample
    peak: Tensor | None = None
    extra_stop_logits: Tensor | None = None

    @classmethod
    def from_requests(cls, reqs: Sequence[Request], vocabulary: Vocabulary, device: torch.device,
                      ahead: Sequence[tuple[int, ...]] = ()) -> SamplingInfo:
        """The settings of `reqs`, which are the sampled rows in order, on `device`.

        Args:
            reqs: whom each row belongs to. vocabulary: the model's. device: of the logits.
            ahead: per row, drafted tokens in front of it: the row is sampled as if they were in the output
                already. Empty when nothing is drafted.
        """
        constrained = [req.has_grammar for req in reqs]
        outputs = [req.output_ids for req in reqs]
        if ahead:
            outputs = [[*output, *drafts] if drafts else output for output, drafts in zip(outputs, ahead, strict=True)]
        info = cls(
            rows=len(reqs), seeds=[req.seed for req in reqs], positions=[len(output) for output in outputs],
            constrained=constrained, grammars=[req.grammar for req in reqs] if any(constrained) else None,
            random=_random_rows(reqs, device))
        info._collect_edits(reqs, outputs, device)
        info._collect_stops(reqs, outputs, vocabulary, device)
        return info

    def _collect_edits(self, reqs: Sequence[Request], outputs: list[list[int]], device: torch.device) -> None:
        """Bias and penalties: prompt and output count for repetition, the output alone for the others."""
        bias, repetition, presence = CellList(), CellList(), CellList()
        for row, (req, output) in enumerate(zip(reqs, outputs, strict=True)):
            params = req.sampling
            if params.logit_bias:
                bias.add_each(row, params.logit_bias)
            if params.repetition_penalty != 1.0:
                repetition.add(row, set(req.prompt_ids).union(output), params.repetition_penalty)
            if params.frequency_penalty or params.presence_penalty:
                presence.add_each(row, {
                    token_id: params.frequency_penalty * count + params.presence_penalty
                    for token_id, count in Counter(output).items()})
        self.bias, self.repetition = bias.build(device), repetition.build(device)
        self.presence = presence.build(device)

    def _collect_stops(self, reqs: Sequence[Request], outputs: list[list[int]], vocabulary: Vocabulary,
                       device: torch.device) -> None:
        """Which ids may end a row, and which may not yet.

        A constrained row with `ignore_eos` does without the model's stop set while its grammar leaves
        anything else: no grammar could take a stop token in mid-text.
        """
        extra, early = CellList(), CellList()
        for row, (req, output) in enumerate(zip(reqs, outputs, strict=True)):
            params = req.sampling
            extra_ids = set(params.stop_token_ids)
            if extra_ids and req.has_grammar:
                extra.add(row, extra_ids)
            if len(output) < params.min_new_tokens:
                early.add(row, vocabulary.stop_ids | extra_ids)
                self.kept_until[row] = params.min_new_tokens
            elif params.ignore_eos and req.has_grammar:
                early.add(row, vocabulary.stop_ids - extra_ids)
        self.extra_stops, self.early_stops = extra.build(device), early.build(device)


def _random_rows(reqs: Sequence[Request], device: torch.device) -> RandomRows | None:
    """The rows that draw; None when all are greedy."""
    rows = [row for row, req in enumerate(reqs) if not req.sampling.greedy]
    if not rows:
        return None
    params = [reqs[row].sampling for row in rows]
    return RandomRows(
        rows=rows, index=to_device(rows, device), everything=len(rows) == len(reqs),
        temperatures=to_device([[p.temperature] for p in params], device, torch.float64),
        top_ks=[p.top_k for p in params] if any(p.top_k for p in params) else None,
        top_ps=[p.top_p for p in params] if any(p.top_p < 1.0 for p in params) else None,
        min_ps=[p.min_p for p in params] if any(p.min_p > 0.0 for p in params) else None)
