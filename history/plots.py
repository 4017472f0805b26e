"""The three pictures as SVG files, each with its text alternative beside it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from history.figures import churn, commits_by_month, folder_over_time
from history.timeline import timeline
from jumpforward.drawing import altair_for, save_chart

if TYPE_CHECKING:
    from history.clone import Clone

# Told apart by colour-blind readers, and in the order of the stages from dark to light (viridis).
_STAGE_COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#c9a400")


def write_plots(folder: Path, clone: Clone | None) -> list[Path]:
    """Draw what can be drawn: two pictures need only the timeline, the folder's size over time needs a clone.

    Raises:
        ConfigError: altair is missing, or the folder cannot be written.
    """
    altair = altair_for("history plot", folder)
    written = [_by_month(altair, folder), _churn(altair, folder)]
    if clone is not None:
        written.append(_folder(altair, folder, clone))
    return written


def _by_month(alt: Any, folder: Path) -> Path:
    values = [asdict(one) for one in commits_by_month(timeline())]
    chart = alt.Chart(alt.Data(values=values)).mark_bar().encode(
        x=alt.X("month:O", title="month"), y=alt.Y("commits:Q", title="commits", stack="zero"),
        color=alt.Color("stage:O", title="stage of the mechanism", scale=_stages(alt)), order="stage:O")
    text = "Commits per month, by the stage whose mechanism they belong to: " + "; ".join(
        f"{one['month']} stage {one['stage']}: {one['commits']}" for one in values)
    return save_chart(chart.properties(title="Commits per month, by stage", width=640, height=240),
                      folder / "commits_by_month.svg", text)


def _churn(alt: Any, folder: Path) -> Path:
    values = [{"stage": one.stage, "kind": one.kind, "what": what, "lines": lines}
              for one in churn(timeline()) for what, lines in (("added", one.insertions), ("deleted", -one.deletions))]
    chart = alt.Chart(alt.Data(values=values)).mark_bar().encode(
        x=alt.X("lines:Q", title="lines deleted (left) and added (right), whole commits"),
        y=alt.Y("kind:N", title=None), color=alt.Color("what:N", title=None, scale=alt.Scale(
            domain=["added", "deleted"], range=["#21918c", "#b5651d"])),
        row=alt.Row("stage:O", title="stage"))
    text = "Lines added and deleted by the timeline's commits, without the first one: " + "; ".join(
        f"stage {one.stage} {one.kind}: +{one.insertions} -{one.deletions}" for one in churn(timeline()))
    return save_chart(chart.properties(title="Additions against deletions", width=560),
                      folder / "additions_deletions.svg", text)


def _folder(alt: Any, folder: Path, clone: Clone) -> Path:
    sizes = folder_over_time(clone)
    base = alt.Chart(alt.Data(values=[asdict(one) for one in sizes]))
    chart = base.mark_line(point=True, interpolate="step-after", color=_STAGE_COLOURS[2]).encode(
        x=alt.X("month:O", title="month"), y=alt.Y("lines:Q", title="lines in constrained/"))
    text = "Lines in the constrained folder at the end of each month in which it changed: " + "; ".join(
        f"{one.month}: {one.lines} lines in {one.files} files" for one in sizes)
    return save_chart(chart.properties(title="The constrained folder over time", width=640, height=240),
                      folder / "constrained_lines.svg", text)


def _stages(alt: Any) -> Any:
    return alt.Scale(domain=[1, 2, 3, 4, 5], range=list(_STAGE_COLOURS))
