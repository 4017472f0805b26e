"""Pictures of a ledger as SVG files, each with its text alternative inside and beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.curve import power
from benchmarks.growth import CURVES, CurveSpec
from benchmarks.ledger import Ledger
from benchmarks.report import label
from jumpforward.drawing import altair_for, save_chart

# Told apart by colour-blind readers (viridis).
_COLOURS = ("#440154", "#21918c", "#c9a400")


def write_plots(ledger: Ledger, folder: Path) -> list[Path]:
    """Passes and time against free decoding per workload, and the mask engines; what has no numbers is not drawn.

    Raises:
        ConfigError: altair is missing, or the folder cannot be written.
    """
    altair = altair_for("bench report", folder)
    drawn = [_passes(altair, ledger, folder), _over_free(altair, ledger, folder), _engines(altair, ledger, folder),
             *(_growth(altair, ledger, folder, one) for one in CURVES)]
    return [one for one in drawn if one is not None]


def _passes(alt: Any, ledger: Ledger, folder: Path) -> Path | None:
    values = [{"workload": one.workload, "row": label(one), "passes": round(100 * one.counts["steps"] / max(
        1, one.counts["tokens"]), 1)} for one in ledger.measurements if one.stage and one.batch == 1]
    chart = alt.Chart(alt.Data(values=values)).mark_bar(color=_COLOURS[1]).encode(
        x=alt.X("passes:Q", title="forward passes for 100 tokens"), y=alt.Y("row:N", title=None, sort=None),
        row=alt.Row("workload:N", title=None)).resolve_scale(y="independent")
    text = "Forward passes for 100 tokens, one request at a time: " + "; ".join(
        f"{one['workload']} {one['row']} {one['passes']}" for one in values)
    return _save(chart.properties(title="Forward passes for 100 tokens", width=480), folder / "passes.svg", text,
                 values)


def _over_free(alt: Any, ledger: Ledger, folder: Path) -> Path | None:
    values: list[dict[str, Any]] = [
        {"workload": f"{one.workload}, {one.batch}", "row": label(one), "ratio": ratio.median, "low": ratio.low,
         "high": ratio.high}
        for one in ledger.measurements if (ratio := one.ratios.get("over_free")) is not None]
    base = alt.Chart().encode(y=alt.Y("row:N", title=None, sort=None))
    title = "time per token, by that of free decoding (left of 1: faster)"
    chart = alt.layer(
        base.mark_rule(color=_COLOURS[0]).encode(x=alt.X("low:Q", title=title), x2="high:Q"),
        base.mark_point(color=_COLOURS[0], filled=True).encode(x=alt.X("ratio:Q", title=title)),
        alt.Chart().mark_rule(strokeDash=[4, 4]).encode(x=alt.datum(1)), data=alt.Data(values=values)).properties(
        width=480).facet(row=alt.Row("workload:N", title="workload, batch")).resolve_scale(y="independent")
    text = "Time per token by that of free decoding, in turn with it: " + "; ".join(
        f"{one['workload']} {one['row']} {one['ratio']} ({one['low']} to {one['high']})" for one in values)
    return _save(chart.properties(title="Against free decoding"), folder / "over_free.svg", text, values)


def _engines(alt: Any, ledger: Ledger, folder: Path) -> Path | None:
    values = [{"engine": one.engine, "percentile": place, "us": value}
              for one in ledger.engines for place, value in one.tbm_us.items()]
    chart = alt.Chart(alt.Data(values=values)).mark_line(point=True).encode(
        x=alt.X("percentile:O", title="of all masks", sort=["p50", "p90", "p99", "p99.9"]),
        y=alt.Y("us:Q", title="time between masks, microseconds", scale=alt.Scale(type="log")),
        color=alt.Color("engine:N", title=None), strokeDash="engine:N", shape="engine:N")
    text = "Time between masks in microseconds: " + "; ".join(
        f"{one['engine']} {one['percentile']} {one['us']}" for one in values)
    return _save(chart.properties(title="Mask engines alone", width=480, height=240), folder / "mask_engines.svg", text,
                 values)


def _growth(alt: Any, ledger: Ledger, folder: Path, spec: CurveSpec) -> Path | None:
    """Both axes logarithmic, so that a line of slope 1 is linear growth; such a line is drawn beside them."""
    values: list[dict[str, Any]] = [{"of": one.of, "size": one.size, "ms": one.ms["min"]}
                                    for one in ledger.growth if one.curve == spec.name]
    if not values:
        return None
    smallest = min(values, key=lambda one: int(one["size"]))
    linear = [{"size": one["size"], "ms": smallest["ms"] * one["size"] / smallest["size"]} for one in values]
    x = alt.X("size:Q", title=spec.unit, scale=alt.Scale(type="log"))
    y = alt.Y("ms:Q", title="milliseconds, the fastest", scale=alt.Scale(type="log"))
    chart = alt.layer(
        alt.Chart(alt.Data(values=linear)).mark_line(strokeDash=[4, 4], color="#767676").encode(x=x, y=y),
        alt.Chart(alt.Data(values=values)).mark_line(point=True).encode(
            x=x, y=y, color=alt.Color("of:N", title=None), strokeDash="of:N", shape="of:N"))
    powers = {of: power([one for one in ledger.growth if (one.curve, one.of) == (spec.name, of)]) for of in spec.of}
    head = f"{spec.name.capitalize()}, the fastest in milliseconds by {spec.unit}, beside a line of linear growth: "
    text = head + "; ".join(
        f"{of} " + ", ".join(f"{one['size']}: {one['ms']}" for one in values if one["of"] == of)
        + f", at its end by the power {grows:.2f}" for of, grows in powers.items() if grows is not None)
    name = f"growth_{spec.name.replace(' ', '_')}.svg"
    return _save(chart.properties(title=f"{spec.name.capitalize()}: {spec.why}", width=480, height=300),
                 folder / name, text, values)


def _save(chart: Any, path: Path, text: str, values: list[dict[str, Any]]) -> Path | None:
    return save_chart(chart, path, text) if values else None
