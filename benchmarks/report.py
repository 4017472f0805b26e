"""Tables from ledger files, as Markdown: what was slower stands there as plainly as what was faster."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from benchmarks.curve import LINEAR, Point, power
from benchmarks.growth import CURVES
from benchmarks.ledger import EngineRow, Interval, Ledger, Measurement
from benchmarks.workloads import all_workloads

_TITLES = {"ttft_ms": "TTFT ms", "tpot_ms": "TPOT ms", "compile_ms": "compile ms", "mask_ms": "mask ms",
           "total_ms": "whole run ms"}

_OWN_ENGINE = "stage1_fsm"

LEFT_OUT = "left out: "
"""So begins the note about a row that could not be measured: its key and the reason follow."""

_USUAL = {"model": "embedded", "load_format": "auto", "dtype": "fp32", "device": "cpu", "threads": "1",
          "exact": "False", "pairs": "5"}
"""What `bench run` takes by itself on a machine of two cores; threads are named where they are others."""

_COUNTS = ("steps", "sampled", "jumped", "forced", "drafted", "accepted", "masks", "reencoded", "recomputed", "cached",
           "requeued", "compiles")
_READ_ME = (
    "Counts do not depend on the machine. Times do, and this kind of machine drifts by more than half within an hour: "
    "only `over free` and the peers' columns are ratios of runs made in turn. An interval that holds 1.00 says that "
    "no difference was seen. `bound` is 1 / (1 - forced share): what jumping could save at most.")


def report(ledger: Ledger) -> str:
    """The whole report of one ledger."""
    parts = [_head(ledger), _READ_ME]
    traps = {one.name: one for one in all_workloads()}
    for workload in dict.fromkeys(one.workload for one in ledger.measurements):
        rows = [one for one in ledger.measurements if one.workload == workload]
        known = traps.get(workload)
        parts.append(f"## {workload}")
        parts += [f"Why: {known.why}\n\nTrap: {known.trap}"] if known is not None else []
        own = [one for one in rows if one.stage]
        parts += [counts_table(own), times_table(own), percentiles_table(own), quality_table(own)] if own else []
        peers = [one for one in rows if not one.stage]
        parts += [peers_table(peers)] if peers else []
        parts.append("Measure a row again:\n\n" + "\n".join(
            f"- {label(one)}, batch {one.batch}: `{again(ledger, one.key)}`" for one in rows))
    if ledger.engines:
        parts += ["## Mask engines alone", engines_table(ledger), "Measure a row again:\n\n" + "\n".join(
            f"- {one.engine}: `{again(ledger, one.key)}`" for one in ledger.engines)]
    if ledger.growth:
        example = again(ledger, ledger.growth[-1].key)
        parts += ["## Growth", growth_table(ledger), f"Measure a point again: `{example}`"]
    parts += ["## Where it loses", losses(ledger)]
    if ledger.notes:
        parts += ["## Notes", "\n".join(f"- {one}" for one in _notes(ledger.notes))]
    if ledger.unfinished:
        parts += ["## Not measured yet", "\n".join(f"- {one}" for one in ledger.unfinished)]
    return "\n\n".join(parts) + "\n"


def summary(ledger: Ledger) -> str:
    """One short table, one request at a time: for a page that has room for no more."""
    rows = []
    for one in ledger.measurements:
        if one.batch != 1:
            continue
        free = one.ratios.get("over_free") if one.stage else one.ratios.get("over_stage5_plain")
        against = "-" if free is None else f"{interval(free)} of {'free' if one.stage else 'ours'}"
        rows.append((one.workload, label(one), str(one.counts["tokens"]), str(one.counts["steps"]), against,
                     _of(one.denominators, "speedup_bound", lambda value: f"{value:.2f}") if one.stage else "-",
                     _of(one.quality, "canonical_share", _share), _of(one.quality, "edits_from_plain", _share)))
    return table(("workload", "row", "tokens", "passes", "time", "bound", "canonical share", "edits from plain"), rows,
                 texts=2)


def counts_table(rows: Sequence[Measurement]) -> str:
    """What no machine changes; a column that is 0 everywhere is left out."""
    shown = [name for name in _COUNTS if any(one.counts.get(name, 0) for one in rows)]
    return table(("row", "batch", "tokens", *shown),
                 [(label(one), str(one.batch), str(one.counts["tokens"]),
                   *(str(one.counts.get(name, 0)) for name in shown)) for one in rows])


def times_table(rows: Sequence[Measurement]) -> str:
    """Milliseconds, and what they are to be compared with."""
    def cells(one: Measurement) -> tuple[str, ...]:
        known = one.denominators
        return (label(one), str(one.batch), _ms(one.tpot_ms), _of(known, "ms_per_byte", _ms),
                interval(one.ratios.get("over_free")), _of(known, "free_tpot_ms", _ms),
                _of(known, "bare_forward_ms", _ms), _of(known, "roofline_ms", _ms),
                *(_percentile(one, name) for name in ("ttft_ms", "compile_ms", "mask_ms")),
                _of(known, "forced_share", _share), _of(known, "speedup_bound", lambda value: f"{value:.2f}"))
    return table(("row", "batch", "ms/token", "ms/byte", "over free", "free ms/token", "bare pass ms", "roofline ms",
                  "TTFT ms", "compile ms", "mask ms", "forced share", "bound"), [cells(one) for one in rows])


def percentiles_table(rows: Sequence[Measurement]) -> str:
    """p50, p90, p99 and p99.9 of what is timed; the last ones say something only of many runs."""
    names = ("ttft_ms", "tpot_ms", "compile_ms", "mask_ms", "total_ms")
    return table(("row", "batch", "turn ms", *(_TITLES[name] for name in names)),
                 [(label(one), str(one.batch), *(" / ".join(map(_ms, values.values())) or "-" for values in (
                     one.step_ms, *(one.times.get(name, {}) for name in names)))) for one in rows])


def quality_table(rows: Sequence[Measurement]) -> str:
    """How the text is spelled, and what retokenizing cost: the share of ids and the share of time are two figures."""
    return table(("row", "batch", "canonical share", "nats/byte", "allowed mass", "edits from plain", "ids re-encoded",
                  "time spent on it"),
                 [(label(one), str(one.batch), *(_of(one.quality, name, form) for name, form in (
                     ("canonical_share", _share), ("nll_per_byte", lambda value: f"{value:.3f}"),
                     ("allowed_mass", lambda value: f"{value:.3f}"), ("edits_from_plain", _share))),
                   *(_of(one.denominators, name, _share) for name in ("reencoded_share", "requeue_time_share")))
                  for one in rows])


def peers_table(rows: Sequence[Measurement]) -> str:
    """Other loops; a ratio is their time to finished text by ours, so above 1 ours is faster.

    `in the language` is there where an answer was checked: of one that is not, the times say little. The texts may
    differ, so the milliseconds per byte of ours, plain, stand beside theirs. Rows of several workloads are named by it.
    """
    several = len({one.workload for one in rows}) > 1
    names = list(dict.fromkeys(name for one in rows for name in one.ratios))
    checked = ["valid_share"] if any("valid_share" in one.quality for one in rows) else []
    beside = ["stage5_plain_ms_per_byte"] if any("stage5_plain_ms_per_byte" in one.denominators for one in rows) else []
    head = [*(["workload"] if several else []), "peer", "batch", "tokens", "passes", "ms/token", "ms/byte",
            *("ours" for _ in beside), *("in the language" for _ in checked),
            *(name.replace("_", " ") for name in names)]
    return table(head, [
        (*([one.workload] if several else []), label(one), str(one.batch), str(one.counts["tokens"]),
         str(one.counts["steps"]), _ms(one.tpot_ms), _of(one.denominators, "ms_per_byte", _ms),
         *(_of(one.denominators, name, _ms) for name in beside), *(_of(one.quality, name, _share) for name in checked),
         *(interval(one.ratios.get(name)) for name in names)) for one in rows], texts=1 + several)


def engines_table(ledger: Ledger) -> str:
    """Time to first mask and between masks."""
    places = ("p50", "p90", "p99", "p99.9")
    rows = [(one.engine, *(str(one.counts[name]) for name in ("ok", "refused", "wrong", "masks")),
             *(_of(one.ttfm_ms, place, _ms) for place in places[:3]),
             *(_of(one.tbm_us, place, lambda value: f"{value:.0f}") for place in places)) for one in ledger.engines]
    said = "\n".join(f"- {one.engine}, {name}: {what}" for one in ledger.engines
                     for name, what in (one.refused | one.wrong).items())
    return table(("engine", "ok", "refused", "wrong", "masks", *(f"TTFM ms {one}" for one in places[:3]),
                  *(f"TBM us {one}" for one in places)), rows) + (f"\n\n{said}" if said else "")


def growth_table(ledger: Ledger) -> str:
    """A line a curve: from where to where, the fastest there, and by which power that grows at its end."""
    rows = []
    for spec in CURVES:
        for of in spec.of:
            points = sorted((one for one in ledger.growth if (one.curve, one.of) == (spec.name, of)),
                            key=lambda one: one.size)
            if points:
                first, last, grows = points[0], points[-1], power(points)
                rows.append((f"{spec.name}, {of}", spec.unit, f"{first.size} to {last.size}",
                             _small(first.ms["min"]), _small(last.ms["min"]), *_verdict(grows)))
    return table(("curve", "of", "sizes", "ms, first", "ms, last", "grows by the power", "linear or better"),
                 rows)


def again(ledger: Ledger, key: str) -> str:
    """The command that measures one row of a ledger again, with the ledger's settings."""
    settings, words = ledger.settings, ["jumpforward", "bench", "run", "--row", key]
    for name, usual in _USUAL.items():
        value = settings.get(name, usual)
        words += [] if value == usual else [f"--{name}".replace("_", "-"), *([] if name == "exact" else [value])]
    return shlex.join([*words, "--out", "row.json"])


def label(one: Measurement) -> str:
    """The row's name: stage, mode, backend."""
    if not one.stage:
        return one.mode + (f" + {one.backend}" if one.backend not in (None, one.mode) else "")
    mode = "" if one.mode == "plain" else f"+{one.mode}"
    return f"{one.stage}{mode} {one.backend or ''}".strip()


def interval(one: Interval | None, digits: int = 2) -> str:
    """The median and where it lies; of one pair there is no interval."""
    if one is None:
        return "-"
    lies = f" [{one.low:.{digits}f}, {one.high:.{digits}f}]" if one.pairs > 1 else " (1 pair)"
    return f"{one.median:.{digits}f}{lies}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table; the first columns, so many, are text, the others are numbers."""
    lines = [head, [*["---"] * texts, *["---:"] * (len(head) - texts)], *rows]
    return "\n".join("| " + " | ".join(one.replace("|", "\\|") for one in line) + " |" for line in lines)


def _head(ledger: Ledger) -> str:
    machine, settings = ledger.machine, ledger.settings
    return (f"# Bench\n\n`{' '.join(ledger.command)}` at {ledger.commit[:12]}, on {machine['device']} "
            f"({machine['processor']}, {machine['cores']} cores), Python {machine['python']}; "
            + ", ".join(f"{name} {value}" for name, value in sorted(settings.items())) + "; "
            + ", ".join(f"{name} {value}" for name, value in sorted(ledger.packages.items())) + ".")


def losses(ledger: Ledger) -> str:
    """Every ratio that is against us, worst first: our own FSM among the mask engines, curves that grow too fast."""
    found = _engine_losses(ledger.engines)
    for (curve, of), points in _lines(ledger.growth).items():
        grows = power(points)
        if grows is not None and grows > LINEAR:
            found.append((grows, f"- growth, {curve}, {of}: by the power {grows:.2f} of its size, up to "
                                 f"{max(one.size for one in points)}"))
    for one in ledger.measurements:
        for name, ratio in one.ratios.items():
            loss = ratio.median if one.stage else 1 / ratio.median
            if loss > 1.03:
                sure = "" if min(ratio.low, 1 / ratio.high) > 1 or ratio.high < 1 or ratio.low > 1 else ", not certain"
                what = f"slower than {'free decoding' if one.stage else 'the peer'}"
                found.append((loss, f"- {one.workload}, {label(one)}, batch {one.batch}: "
                                    f"{'' if one.stage else name.removeprefix('over_') + ' is '}{loss:.2f}x {what}"
                                    f"{'' if ratio.pairs > 1 else ', of one pair'}{sure if ratio.pairs > 1 else ''}"))
    return "\n".join(text for _, text in sorted(found, reverse=True)) or "No ratio is above 1.03."


def _engine_losses(engines: Sequence[EngineRow]) -> list[tuple[float, str]]:
    """Where our own automaton is slower than the best library."""
    found = []
    for name, kind, place in (("time to first mask", "ttfm_ms", "p50"), ("time between masks", "tbm_us", "p50"),
                              ("time between masks", "tbm_us", "p99.9")):
        times = {one.engine: getattr(one, kind)[place] for one in engines if getattr(one, kind)}
        own = times.pop(_OWN_ENGINE, None)
        best = min(times, key=lambda engine: times[engine], default=None)
        if own is not None and best is not None and own > 1.03 * times[best]:
            found.append((own / times[best], f"- mask engines, {_OWN_ENGINE}, {name}, {place}: "
                                             f"{own / times[best]:.2f}x that of {best}"))
    return found


def _lines(points: Iterable[Point]) -> dict[tuple[str, str], list[Point]]:
    found: dict[tuple[str, str], list[Point]] = {}
    for one in points:
        found.setdefault((one.curve, one.of), []).append(one)
    return found


def _verdict(grows: float | None) -> tuple[str, str]:
    return ("-", "-") if grows is None else (f"{grows:z.2f}", "yes" if grows <= LINEAR else "no")


def _notes(notes: Sequence[str]) -> list[str]:
    """The notes; what was left out for one reason is one of them."""
    reasons = Counter(one.split(": ", 2)[2] for one in notes if one.startswith(LEFT_OUT))
    rest = [one for one in notes if not one.startswith(LEFT_OUT)]
    return rest + [f"{LEFT_OUT}{count} rows: {reason}" if count > 1 else
                   next(one for one in notes if one.startswith(LEFT_OUT) and one.endswith(reason))
                   for reason, count in reasons.items()]


def _small(value: float) -> str:
    return _ms(value) if value >= 1 else f"{value:.3g}"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _of(values: dict[str, float], name: str, form: Callable[[float], str]) -> str:
    return form(values[name]) if name in values else "-"


def _percentile(one: Measurement, name: str) -> str:
    return _of(one.times.get(name, {}), "p50", _ms)
