"""One cell of the table: counts by a traced run, then timed pairs against the same engine without constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.bare_pass import bare_forward_ms
from benchmarks.denominators import kv_bytes, weight_bytes
from benchmarks.ledger import Interval, Measurement, percentiles
from benchmarks.plan import Cell
from benchmarks.serving import Run, allowed_mass, compiles_of, counts_of, serve, serve_free, share_of_phase
from shared_runtime.assembly import LoadedModel
from shared_runtime.config import EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.quality import Likelihood, Spelling, log_likelihood, spelling_of
from shared_runtime.sampling_params import SamplingParams

MOST_TEXTS = 16
"""So many answers of a cell are kept in the ledger."""


@dataclass(slots=True)
class Lab:
    """A model in memory, and what was found out on the way.

    Attributes:
        config: of every engine; stage, backend, mode and trace are each cell's own. bandwidth: bytes a second.
        pairs: timed pairs a cell. loaded: the model, after the first engine. plain: per workload the texts of plain
            masked decoding that others are compared with.
    """

    config: EngineConfig
    bandwidth: float
    pairs: int
    loaded: LoadedModel | None = None
    plain: dict[str, list[str]] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] | None = None
    _scores: dict[tuple[tuple[int, ...], tuple[int, ...]], Likelihood] = field(default_factory=dict)
    _bare: dict[tuple[int, int], float] = field(default_factory=dict)

    def engine(self, cell: Cell, *, trace: bool = False) -> Engine:
        """An engine of the cell's stage, backend and mode; the model is loaded once."""
        spec, mode = cell.target.spec, cell.mode
        backend = cell.target.backend if len(spec.capabilities.backends) > 1 else None
        engine = Engine(replace(self.config, stage=spec.id, backend=backend, overlap=mode.overlap,
                                options=mode.options, trace=trace or None), progress=self.progress, loaded=self.loaded)
        self.loaded = engine.parts.loaded
        return engine

    def measure(self, cell: Cell) -> Measurement:
        """The cell's row.

        Raises:
            JumpforwardError: the stage cannot serve the workload.
        """
        with self.engine(cell, trace=True) as engine:
            _warm_up(engine)
            before = compiles_of(engine)
            counted = serve(engine, cell.workload, cell.batch)
            compiles = compiles_of(engine) - before
            quality = self._quality(engine, cell, counted)
        with self.engine(cell) as engine:
            _warm_up(engine)
            # Compiles, and is left out of the times; a token of each answer is enough for that.
            cold = serve(engine, replace(cell.workload, max_new_tokens=1), cell.batch)
            bound, free = self._pairs(engine, cell, counted.lengths)
            context = max(2, sum(len(one.prompt_ids) + len(one.token_ids) // 2 for one in counted.results)
                          // len(counted.results))
            bare = self._bare_ms(engine, cell.batch, context)
            floor = 1e3 * (weight_bytes(engine) + kv_bytes(engine, context * cell.batch)) / self.bandwidth
            engine.check_integrity()
        counts = counts_of(counted)
        counts["mask_bytes"] = counts["mask_rows"] * mask_row_bytes(cell, engine.tokenizer.vocabulary.width)
        counts["compiles"] = compiles
        middle, free_middle = _middle(bound), _middle(free)
        return Measurement(
            workload=cell.workload.name, stage=cell.target.spec.id, backend=cell.target.backend, mode=cell.mode.name,
            dtype=self.config.dtype, batch=cell.batch, graphs=False, counts=counts,
            step_ms=percentiles([ms for run in bound for ms in run.step_ms]),
            tpot_ms=_per_token(middle, cell.batch), tokens_per_s=round(middle.tokens / middle.seconds, 2),
            denominators={
                "free_tpot_ms": _per_token(free_middle, cell.batch), "bare_forward_ms": round(bare, 4),
                "roofline_ms": round(floor, 4), "not_sampled_share": _not_sampled(counts),
                "ms_per_byte": round(1e3 * middle.seconds * cell.batch / max(1, middle.bytes), 4),
                "requeue_time_share": round(share_of_phase(counted, "requeue"), 4),
                "reencoded_share": round(counts["reencoded"] / max(1, counts["tokens"]), 4)},
            times={"total_ms": percentiles([1e3 * run.seconds for run in bound]),
                   "ttft_ms": percentiles([1e3 * (one.metrics.ttft_s or 0.0) for run in bound for one in run.results]),
                   "tpot_ms": percentiles([1e3 * one.metrics.tpot_s for run in bound for one in run.results
                                           if one.metrics.tpot_s is not None]),
                   "compile_ms": percentiles([one.ms["compile"] for one in cold.results if one.counts["masks"]]),
                   "mask_ms": percentiles([one.ms["mask_per_step"] for run in bound for one in run.results
                                           if one.counts["masks"]])},
            ratios={"over_free": Interval.of([_ratio(one, other) for one, other in zip(bound, free, strict=True)])},
            quality=quality, texts=[one.text for one in counted.results[:MOST_TEXTS]])

    def _pairs(self, engine: Engine, cell: Cell, lengths: Sequence[int]) -> tuple[list[Run], list[Run]]:
        """Constrained and free in turn, so that the machine's drift meets both; first the one, then the other."""
        bound: list[Run] = []
        free: list[Run] = []
        for pair in range(self.pairs):
            for constrained in (True, False) if pair % 2 == 0 else (False, True):
                if constrained:
                    bound.append(serve(engine, cell.workload, cell.batch))
                else:
                    free.append(serve_free(engine, cell.workload, cell.batch, lengths))
        return bound, free

    def _bare_ms(self, engine: Engine, batch: int, context: int) -> float:
        """Bare forward time; every engine of a run has the same one, so each size is measured once."""
        size = (batch, -(-context // 64) * 64)
        if size not in self._bare:
            self._bare[size] = bare_forward_ms(engine, *size)
        return self._bare[size]

    def _quality(self, engine: Engine, cell: Cell, run: Run) -> dict[str, float]:
        """Of the distinct answers: spelling, likelihood, what the mask let live, and how far from plain masking."""
        answers = {(tuple(one.prompt_ids), tuple(one.token_ids)): one for one in run.results}
        spelling, likelihood = Spelling(0, 0, 0), Likelihood(0.0, 0, 0)
        for key, one in answers.items():
            spelling += spelling_of(engine.tokenizer, one.token_ids)
            if key not in self._scores:
                self._scores[key] = log_likelihood(engine, one.prompt_ids, one.token_ids)
            likelihood += self._scores[key]
        found = {"canonical_share": round(spelling.canonical_share, 4),
                 "nll_per_token": round(likelihood.nll_per_token, 4),
                 "nll_per_byte": round(-likelihood.logprob_per_byte, 4)}
        mass = allowed_mass(run)
        if mass is not None:
            found["allowed_mass"] = round(mass, 4)
        texts = [one.text for one in run.results]
        if cell.batch == 1 and cell.mode.name == "plain":
            self.plain.setdefault(cell.workload.name, texts)  # the plan's first plain row: the newest stage's
        if cell.batch == 1 and cell.workload.name in self.plain:
            found["edits_from_plain"] = edit_share(texts, self.plain[cell.workload.name])
        return found


def mask_row_bytes(cell: Cell, width: int) -> int:
    """What a row of the mask moves to the logits: a byte a token until stage 3, then a bit, in words of 32."""
    return 4 * -(-width // 32) if cell.target.spec.id >= 4 else width


def edit_share(texts: Sequence[str], others: Sequence[str]) -> float:
    """Characters to insert, delete or change between two lists of texts, per character of the longer ones."""
    pairs = list(zip(texts, others, strict=True))
    longest = sum(max(len(one), len(other)) for one, other in pairs)
    return round(sum(edit_distance(one, other) for one, other in pairs) / max(1, longest), 4)


def edit_distance(one: str, other: str) -> int:
    """Fewest characters to insert, delete or change."""
    row = list(range(len(other) + 1))
    for index, character in enumerate(one, 1):
        before, row[0] = row[0], index
        for place, wanted in enumerate(other, 1):
            before, row[place] = row[place], min(before + (character != wanted), row[place] + 1, row[place - 1] + 1)
    return row[-1]


def with_bounds(rows: Sequence[Measurement]) -> list[Measurement]:
    """The rows, each with its workload's share of forced tokens and the speed-up that this share bounds.

    Taken from the `force` rows, which append what is forced: 1 / (1 - share) is what jumping could save at most.
    """
    shares = {(one.workload, one.batch): _not_sampled(one.counts) for one in rows if one.mode == "force"}
    found = []
    for one in rows:
        share = shares.get((one.workload, one.batch))
        more = {} if share is None else {"forced_share": share, "speedup_bound": round(1 / max(1e-3, 1 - share), 4)}
        found.append(replace(one, denominators=one.denominators | more))
    return found


def _not_sampled(counts: dict[str, int]) -> float:
    return round(1 - counts["sampled"] / max(1, counts["tokens"]), 4)


def _per_token(run: Run, batch: int) -> float:
    return round(1e3 * run.seconds * batch / max(1, run.tokens), 4)


def _ratio(one: Run, other: Run) -> float:
    """Time per token of one by that of the other."""
    return (one.seconds / max(1, one.tokens)) / (other.seconds / max(1, other.tokens))


def _middle(runs: Sequence[Run]) -> Run:
    """The run of median time."""
    return sorted(runs, key=lambda one: one.seconds)[len(runs) // 2]


def _warm_up(engine: Engine) -> None:
    """So that no library's import is counted as the compile of a grammar."""
    from shared_runtime.constraint import Constraint

    engine.generate_one("x", constraint=Constraint.choice(["a", "b"]), sampling=SamplingParams(max_new_tokens=1))


