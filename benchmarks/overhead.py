"""`python -m benchmarks.overhead`: what the engine adds to the model's forward pass, in pairs.

Seven parts, each against what it is to be compared with, in turn and in one process, so that the machine's drift meets
both: now the one first and now the other. A ratio is the median over the pairs. On a machine with other work to do,
`--clock cpu` counts the process's own time on the processor in place of the wall's: the same on an idle machine, as
long as there is one thread that never waits.

    loop         the decode turns of a batch, and the same batches' passes run bare again
    constrained  time per token with a constraint, and of the same prompts without one, to the same lengths
    overlap      the loop with overlap, and without
    jump         stage 2 with its jumps, and stage 1, on the card regex; and where a jump begins to pay
    rows         the passes of the nine requests in each mode of stage 5, and as many passes of one position each
    generate     `transformers.generate` without a constraint, and ours: one request, and 16 of unequal lengths
    trial        `transformers` with xgrammar's logits processor, and each mode of stage 5, request by request
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.beside_transformers import TRIAL_AIMS, BesideTransformers
from benchmarks.ledger import Interval, Ledger, NotHereError
from benchmarks.paired import OverheadRow, Paired, seconds_of
from benchmarks.pass_sizes import PassSize, bare_seconds, pass_sizes
from benchmarks.recorded_passes import RecordedPasses
from benchmarks.report import interval
from benchmarks.serving import Run, serve, serve_free
from benchmarks.workloads import Question, Workload
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine

FREE_TOKENS = 32
CONSTRAINED_AIMS = {1: 1.02, 16: 1.04, 64: 1.06}
LOOP_AIMS = {1: 1.05, 16: 1.10}

_LEADS = 8
_WAITING = {"overlap"}
_NAMES = ("part", "what", "dtype", "threads", "batch")


class Overhead(Paired):
    """Measures what an engine's parts cost by another engine, or by the model alone."""

    def loop(self, batches: Sequence[int]) -> Iterator[OverheadRow]:
        """Decode turns by bare passes, without and with overlap."""
        workload = self.workloads["json_five_fields"]
        for overlap in (False, True) if self.clock == "wall" else (False,):
            with self.engine(5, "xgrammar", overlap=overlap) as engine:
                for batch in batches:
                    recorded = RecordedPasses(engine)
                    turns = partial(recorded.turns, partial(_free_run, engine, workload, batch))
                    turns()
                    yield self.row("loop", f"overlap {'on' if overlap else 'off'}", batch, turns, recorded.bare,
                                   LOOP_AIMS.get(batch))

    def constrained(self, batches: Sequence[int], backends: Sequence[str],
                    workloads: Sequence[str]) -> Iterator[OverheadRow]:
        """Time per token, constrained by free; stage 1's beside it where it can serve the workload."""
        cells = [(5, backend, name) for backend in backends for name in workloads]
        for stage, backend, name in [*cells, *((1, None, name) for name in workloads if name == "card_regex")]:
            with self.engine(stage, backend) as engine:
                for batch in batches:
                    workload = replace(self.workloads[name], questions=self.workloads[name].questions[:1])
                    lengths = serve(engine, workload, batch).lengths
                    aim = CONSTRAINED_AIMS.get(batch) if stage == 5 and name == "json_five_fields" else None
                    yield self.row("constrained", f"stage {stage} {backend or 'fsm'}, {name}", batch,
                                   partial(_tpot, partial(serve, engine, workload, batch)),
                                   partial(_tpot, partial(serve_free, engine, workload, batch, lengths)), aim)

    def overlap(self, batches: Sequence[int]) -> Iterator[OverheadRow]:
        """With overlap by without: time per token."""
        workload = self.workloads["json_five_fields"]
        with self.engine(5, "xgrammar", overlap=True) as on, self.engine(5, "xgrammar") as off:
            for batch in batches:
                for what, run in (("free", _free_run), ("xgrammar", serve)):
                    sides = [partial(_tpot, partial(run, engine, workload, batch)) for engine in (on, off)]
                    sides[0](), sides[1]()
                    yield self.row("overlap", f"on by off, {what}", batch, sides[0], sides[1])

    def jump(self, batches: Sequence[int], lengths: Sequence[int]) -> Iterator[OverheadRow]:
        """Stage 2 by stage 1, whole answers: the card, and literals of some characters between single free ones.

        Of the literals twice: requests that are alike jump in the same turn, and those out of step one after the other.
        """
        whole = self.workloads["card_regex"]
        card = replace(whole, questions=whole.questions[:1])
        literals = [(f"literals of {length}{', out of step' if leads > 1 else ''}", _literals(card, length, leads))
                    for length in lengths for leads in (1, _LEADS)]
        with self.engine(2) as jumping, self.engine(1) as plain:
            for what, workload in [("the card regex", card), *literals]:
                for batch in batches if workload is not card else batches[:1]:
                    sides = [partial(seconds_of, engine, workload, batch) for engine in (jumping, plain)]
                    sides[0](), sides[1]()
                    yield self.row("jump", what, batch, sides[0], sides[1],
                                   0.6 if workload is card else None)

    def rows(self) -> Iterator[OverheadRow]:
        """What it costs that a pass reads several tokens: bare passes alone, of the sizes that the nine requests had.

        Beside them the same number of passes, each of one position; the prompts' own passes are in both.
        """
        workload = self.workloads["nine_requests"]
        for mode in TRIAL_AIMS:
            with self.engine(5, "xgrammar", jump=mode, trace=True) as engine:
                passes = pass_sizes(serve(engine, workload, 1))
            with self.engine(5, "xgrammar") as engine:
                many = partial(bare_seconds, engine, passes)
                single = partial(bare_seconds, engine, [one if one.prompt else PassSize(1, 1) for one in passes])
                yield self.row("rows", f"5+{mode}, {len(passes)} passes", 1, many, single)


def _literals(like: Workload, length: int, leads: int) -> Workload:
    """Six literals of `length` characters, each behind a letter that the model may choose.

    There are `leads` requests: each begins with one letter more than the one before it.
    """
    text = "the ship sails on and on over the sea and comes home late in the year "[:length]
    return replace(like, questions=tuple(
        Question(like.questions[0].prompt, Constraint.regex("[a-z]" * lead + f"([a-z]{text}){{6}}"))
        for lead in range(leads)))


def _free_run(engine: Engine, workload: Workload, batch: int) -> Run:
    return serve_free(engine, workload, batch, [FREE_TOKENS] * batch)


def _tpot(run: Callable[[], Run]) -> float:
    """Seconds per token behind the first, the mean of all answers."""
    found = [one.metrics.tpot_s for one in run().results]
    return statistics.fmean([one for one in found if one is not None])


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = ["| part | what | dtype | threads | batch | clock | ms | other ms | ratio | aimed at |",
             "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        aim = "-" if row["aim"] is None else f"{row['aim']:.2f}"
        named = " | ".join(str(row[name]) for name in (*_NAMES, "clock"))
        lines.append(f"| {named} | {row['ms']:.2f} | {row['other_ms']:.2f} | "
                     f"{interval(Interval(**row['ratio']), 3)} | {aim} |")
    return "\n".join(lines)


def merged(path: Path, rows: Sequence[OverheadRow]) -> dict[str, Any]:
    """The file at `path`, or a new one, with `rows` in the place of what it had under the same names."""
    found = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    by_name = {tuple(row[name] for name in _NAMES): row for row in [*found, *map(asdict, rows)]}
    ledger = Ledger.begin("cpu", {})
    return {"command": "python -m benchmarks.overhead --json FILE", "machine": ledger.machine,
            "packages": ledger.packages, "rows": [by_name[name] for name in sorted(by_name)]}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print, or print a file's table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="as above; all of them")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; 1, 16, 64 (jump, generate: fewer)")
    parser.add_argument("--backend", action="append", help="constrained: may be repeated; xgrammar and llguidance")
    parser.add_argument("--workload", action="append", help="constrained: json_five_fields and card_regex, or one")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--length", type=int, action="append", help="jump: characters of a literal; 2, 8, 32")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write, or bring up to date, this file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing; print this file's table")
    given = parser.parse_args(arguments)
    if given.table is not None:
        print(table(json.loads(given.table.read_text(encoding="utf-8"))["rows"]))
        return 0
    torch.set_num_threads(given.threads)
    config = EngineConfig(model=given.model, dtype=given.dtype, threads=given.threads, kv_pool_tokens=32_768)
    bench = Overhead(config, given.pairs, given.clock)
    beside = BesideTransformers(config, given.pairs, given.clock)
    parts: dict[str, Callable[[], Iterator[OverheadRow]]] = {
        "loop": lambda: bench.loop(given.batch or (1, 16, 64)),
        "constrained": lambda: bench.constrained(given.batch or (1, 16, 64),
                                                 given.backend or ("xgrammar", "llguidance"),
                                                 given.workload or ("json_five_fields", "card_regex")),
        "overlap": lambda: bench.overlap(given.batch or (1, 16)),
        "jump": lambda: bench.jump(given.batch or (1, 4, 16), given.length or (2, 8, 32)),
        "rows": bench.rows, "generate": lambda: beside.generate(given.batch or (1, 16)),
        "trial": beside.trial}
    if unknown := set(given.parts) - parts.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if given.clock == "cpu" and (given.threads > 1 or set(given.parts or parts) & _WAITING):
        parser.error("time on the processor says nothing of several threads: --threads 1, and not overlap")
    rows: list[OverheadRow] = []
    with patch.object(time, "perf_counter", time.process_time) if given.clock == "cpu" else nullcontext():
        for name in given.parts or parts:
            try:
                for row in parts[name]():
                    rows.append(row)
                    print(table([asdict(row)]).rpartition("\n")[2], flush=True)
                    if given.json is not None:  # at once: a run may be stopped
                        given.json.write_text(json.dumps(merged(given.json, rows), indent=1) + "\n", encoding="utf-8")
            except NotHereError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
