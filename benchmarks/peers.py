"""Other loops with the same weights, each in turn with stage 5 on the same requests."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle

from benchmarks.ledger import Interval, Measurement, NotHereError, percentiles
from benchmarks.measuring import MOST_TEXTS, Lab
from benchmarks.modes import missing_for, modes_of
from benchmarks.peer_loops import Answer, Loop
from benchmarks.peer_process import ProcessLoop, peers_python
from benchmarks.peer_transformers import HFModel, OutlinesLoop, TransformersLoop
from benchmarks.plan import Cell, Peer, PeerCell
from benchmarks.serving import Run, serve, serve_free
from benchmarks.workloads import Workload
from jumpforward.validity import is_valid
from shared_runtime.conformance.target import Target
from shared_runtime.engine import Engine
from shared_runtime.model.locate import locate_model
from stages import get_stage

MODES_BESIDE = ("plain", "draft", "force", "force+draft")
"""Stage 5's modes that run in turn with each peer."""

FREE_TOKENS = 32
"""Of each answer of a free peer, and of our own loop beside it."""


class Peers:
    """The loops of others, each made when it is first asked for, with the model of a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._hf: HFModel | None = None
        self._loops: dict[Peer, Loop] = {}

    def measure(self, cell: PeerCell) -> Measurement:
        """The peer's row, in turn with stage 5 on the same requests.

        Raises:
            NotHereError: a library is missing, or cannot serve the workload.
        """
        loop = self._loop(cell.peer)
        beside = self._beside(cell)
        own: dict[str, list[Run]] = {name: [] for name in beside}
        try:
            compiled_ms = _prepare(loop, cell)
            runs: list[tuple[float, list[Answer]]] = []
            for pair in range(self._lab.pairs + 1):  # the first one warms up
                for name, engine in beside.items():
                    run = _ours(engine, cell)
                    own[name] += [run] if pair else []
                found = _theirs(loop, cell)
                runs += [found] if pair else []
        except NotHereError:
            raise
        except Exception as error:  # somebody else's code, with constraints it has never seen
            raise NotHereError(f"{type(error).__name__}: {error}") from error
        finally:
            for engine in beside.values():
                engine.close()
        ours_s = {name: statistics.median(run.seconds for run in own_runs) for name, own_runs in own.items()}
        seconds, answers = sorted(runs, key=lambda one: one[0])[len(runs) // 2]
        tokens = sum(one.tokens for one in answers)
        written = sum(len(one.text.encode()) for one in answers)
        waves = range(0, len(answers), cell.batch)
        return Measurement(
            workload=cell.workload.name, stage=0, backend=cell.peer.backend, mode=cell.peer.loop,
            dtype=self._lab.config.dtype, batch=cell.batch, graphs=False,
            counts={"tokens": tokens, "bytes": written, "requests": len(answers),
                    "steps": sum(max(one.passes for one in answers[at:at + cell.batch]) for at in waves)},
            step_ms={}, tpot_ms=round(1e3 * seconds * cell.batch / max(1, tokens), 4),
            tokens_per_s=round(tokens / seconds, 2),
            denominators={"ms_per_byte": _per_byte(seconds, written, cell.batch)} | {
                f"stage5_{name}_ms_per_byte": _per_byte(ours_s[name], own_runs[0].bytes, cell.batch)
                for name, own_runs in own.items()},
            times={"total_ms": percentiles([1e3 * one for one, _ in runs]), "compile_ms": percentiles(compiled_ms)},
            ratios={f"over_stage5_{name}": Interval.of([peer / ours.seconds for (peer, _), ours in
                                                        zip(runs, own_runs, strict=True)])
                    for name, own_runs in own.items()},
            quality={} if cell.peer.free else valid_share(cell.workload, answers),
            texts=[one.text for one in answers[:MOST_TEXTS]])

    def close(self) -> None:
        """End the processes of peers that have one."""
        for loop in self._loops.values():
            loop.close()
        self._loops.clear()

    def _loop(self, peer: Peer) -> Loop:
        known = self._loops.get(peer)
        if isinstance(known, ProcessLoop) and not known.alive:  # it died in another row; this one gets a new one
            self._loops.pop(peer).close()
        if peer not in self._loops:
            config = self._lab.config
            if peer.own_environment:
                self._loops[peer] = ProcessLoop(peer.loop, peers_python(), config, self._lab.progress)
                return self._loops[peer]
            if self._hf is None:
                self._hf = HFModel(str(locate_model(config.model, self._lab.progress)), config.dtype,
                                   config.torch_device)
            makers: dict[str, Callable[[HFModel], Loop]] = {
                "transformers": lambda hf: TransformersLoop(hf, peer.backend), "outlines": OutlinesLoop}
            self._loops[peer] = makers[peer.loop](self._hf)
        return self._loops[peer]

    def _beside(self, cell: PeerCell) -> dict[str, Engine]:
        """Stage 5's engines by mode: with the peer's own library where we have it; plain beside a free peer."""
        spec = get_stage(5)
        target = Target(spec, cell.peer.beside or spec.capabilities.backends[0])
        if missing_for(target) or not all(target.supports(kind) for kind in cell.workload.kinds):
            return {}
        wanted = MODES_BESIDE[:1] if cell.peer.free else MODES_BESIDE
        return {mode.name: self._lab.engine(Cell(cell.workload, target, mode, cell.batch))
                for mode in modes_of(spec) if mode.name in wanted}


def valid_share(workload: Workload, answers: Sequence[Answer]) -> dict[str, float]:
    """The share of answers that are texts of their constraint, by a check that no library has a part in.

    A peer's grammar may be larger than what it was asked for, and an answer may be cut off at the last token. Empty
    where there is nothing to check.
    """
    asked = zip(cycle(workload.questions), answers, strict=False)
    texts = Counter((one.constraint, answer.text) for one, answer in asked if one.constraint is not None)
    found = {key: is_valid(*key, timeout_s=60.0) for key in texts}
    decided = sum(count for key, count in texts.items() if found[key] is not None)
    good = sum(count for key, count in texts.items() if found[key])
    return {"valid_share": round(good / decided, 4)} if decided else {}


def _prepare(loop: Loop, cell: PeerCell) -> list[float]:
    """Milliseconds to compile each constraint; none of a loop that compiles anew for each answer."""
    if cell.peer.free:
        return []
    took = []
    for constraint in dict.fromkeys(one.constraint for one in cell.workload.questions):
        if constraint is None:
            if cell.peer.own_environment:  # one request at a time, so each may be free or not
                continue
            raise NotHereError("a logits processor masks every request of a batch or none")
        started = time.perf_counter()
        loop.prepare(constraint)
        took.append(1e3 * (time.perf_counter() - started))
    return [] if cell.peer.own_environment else took


def _ours(engine: Engine, cell: PeerCell) -> Run:
    """Our own loop, with the peer's constraint or without any."""
    if not cell.peer.free:
        return serve(engine, cell.workload, cell.batch)
    lengths = [FREE_TOKENS] * len(cell.workload.waves(cell.batch)) * cell.batch
    return serve_free(engine, cell.workload, cell.batch, lengths)


def _per_byte(seconds: float, written: int, batch: int) -> float:
    """Milliseconds a request: two loops that write different texts are compared by what they wrote."""
    return round(1e3 * seconds * batch / max(1, written), 4)


def _theirs(loop: Loop, cell: PeerCell) -> tuple[float, list[Answer]]:
    """Seconds and the answers. A free answer is as long as ours beside it, whatever it says."""
    most, least = (FREE_TOKENS, FREE_TOKENS) if cell.peer.free else (cell.workload.max_new_tokens, 1)
    answers: list[Answer] = []
    started = time.perf_counter()
    loop.begin()
    for wave in cell.workload.waves(cell.batch):
        answers += loop.answer(wave, most, least=least)
    return time.perf_counter() - started, answers
