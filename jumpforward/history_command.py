"""`jumpforward history`: the real commits, from data and from a clone of SGLang."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from history.clone import CONSTRAINED, Clone, open_clone
from history.errors import HistoryError
from history.timeline import cited_commits, select, timeline
from jumpforward import history_view as view
from jumpforward.console import print_rich, visible, wants_colour
from jumpforward.exit_codes import OK, REQUEST_ERROR
from jumpforward.help import Command, Group

Repo = Annotated[Path | None, typer.Option(
    "--repo", metavar="FOLDER", envvar="SGLANG_REPO", show_envvar=True, help="A clone of SGLang.")]
Stages = Annotated[list[int] | None, typer.Option("--stage", help="Only this stage's mechanism; may be repeated.")]
Kinds = Annotated[list[str] | None, typer.Option(
    "--kind", help="Only feature, fix, dep or removal; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

REMOVAL = "935cda944b82d4828e9efb6606cd449afa4cd71c"
DEFAULT_TREES = ("22085081bb", "v0.1.12", "v0.4.0", "HEAD")
_LINES = re.compile(r"(.+):(\d+)(?:-(\d+))?")

history_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="rich")


@history_app.command("timeline", cls=Command)
def show_timeline(stage: Stages = None, kind: Kinds = None, path: Annotated[str | None, typer.Option(
        "--path", help="Only commits that touched this path (needs a clone).")] = None,
        repo: Repo = None, as_json: AsJson = False) -> int:
    """List the 116 commits of the story; works without a clone."""
    hashes = None
    if path is not None:
        with open_clone(repo) as clone:
            hashes = clone.touching(path)
    rows = select(timeline(), stages=stage or (), kinds=kind or (), hashes=hashes)
    if as_json:
        return _print_json([row.as_dict() for row in rows])
    print_rich(*view.timeline_view(rows, of=len(timeline())))
    return OK


@history_app.command("tree", cls=Command)
def show_tree(at: Annotated[list[str] | None, typer.Option(
        "--at", metavar="REF", help="A commit, branch or version; may be repeated.",
        show_default=", ".join(DEFAULT_TREES))] = None,
        under: Annotated[str, typer.Option("--under", metavar="PATH", help="Which folder.")] = CONSTRAINED,
        repo: Repo = None, as_json: AsJson = False) -> int:
    """Set a folder's files at several commits side by side, with their lines."""
    with open_clone(repo) as clone:
        found, unknown = _known(clone, at or DEFAULT_TREES)
        trees = {ref: clone.line_counts(ref, under) for ref in found}
        commits = {ref: clone.resolve(ref) for ref in found}
    if as_json:
        _print_json({"folder": under, "unknown": unknown, "trees": [
            {"ref": ref, "commit": commits[ref], "files": trees[ref]} for ref in found]})
    else:
        print_rich(*view.tree_view(under, trees, commits))
    return _tell_unknown(unknown)


@history_app.command("show", cls=Command)
def show_file(ref: Annotated[str, typer.Argument(metavar="REF", help="A commit, branch or version.")],
              path: Annotated[str, typer.Argument(metavar="PATH[:LINES]", help="A file, and lines as 10 or 10-20.")],
              repo: Repo = None) -> int:
    """Print a file, or some of its lines, as it was."""
    match = _LINES.fullmatch(path)
    name, first, last = (match[1], int(match[2]), int(match[3] or match[2])) if match else (path, 1, None)
    with open_clone(repo) as clone:
        lines = clone.text(ref, name).splitlines()
    if match and not 1 <= first <= (last or first) <= len(lines):
        raise HistoryError(f"{name} has {len(lines)} lines at {ref}", where=f"lines {path.rpartition(':')[2]}",
                           fix="name lines between 1 and that")
    for number, line in enumerate(lines[first - 1:last], first):
        print(f"{number:>5}  {visible(line)}")
    return OK


@history_app.command("diff", cls=Command)
def show_diff(old: Annotated[str, typer.Argument(metavar="A")], new: Annotated[str, typer.Argument(metavar="B")],
              under: Annotated[str, typer.Option("--under", metavar="PATH", help="Which part.")] = CONSTRAINED,
              repo: Repo = None) -> int:
    """Print the difference between two commits."""
    with open_clone(repo) as clone:
        text = clone.diff(old, new, under)
    if not text:
        print(f"nothing differs under {under}", file=sys.stderr)
    colour = wants_colour(sys.stdout)
    for line in text.splitlines():
        print(view.coloured(visible(line)) if colour else visible(line))
    return OK


@history_app.command("removal", cls=Command)
def show_removal(repo: Repo = None, as_json: AsJson = False) -> int:
    """Show what #4032 deleted, file by file: jump-forward leaves the scheduler."""
    with open_clone(repo) as clone:
        changes = clone.changes(REMOVAL)
    changes.sort(key=lambda change: -(change.deleted or 0))
    if as_json:
        return _print_json({"commit": REMOVAL, "files": [asdict(change) for change in changes]})
    print_rich(*view.removal_view(REMOVAL, changes))
    return OK


@history_app.command("count", cls=Command)
def count_word(word: Annotated[str, typer.Argument(metavar="WORD")],
               at: Annotated[list[str], typer.Option("--at", metavar="REF", help="A commit; may be repeated.")],
               under: Annotated[list[str] | None, typer.Option(
                   "--under", metavar="PATH", help="Where to look; may be repeated.",
                   show_default="python/sglang/srt")] = None,
               repo: Repo = None, as_json: AsJson = False) -> int:
    """Count the lines with a word, per file, at several commits."""
    with open_clone(repo) as clone:
        found, unknown = _known(clone, at)
        counts = {ref: clone.count(word, ref, under or ["python/sglang/srt"]) for ref in found}
    if as_json:
        _print_json({"word": word, "unknown": unknown,
                     "counts": [{"ref": ref, "files": counts[ref]} for ref in found]})
    else:
        print_rich(*view.count_view(word, counts))
    return _tell_unknown(unknown)


@history_app.command("touched", cls=Command)
def show_touched(stage: Stages = None, kind: Kinds = None, repo: Repo = None, as_json: AsJson = False) -> int:
    """Show which layers of the engine each commit touched; fixes, unless --kind says otherwise."""
    from history.layers import touched

    rows = select(timeline(), stages=stage or (), kinds=kind or ("fix",))
    with open_clone(repo) as clone:
        found = touched(clone, rows)
    if as_json:
        return _print_json([{"hash": one.row.hash, "stage": one.row.stage, "kind": one.row.kind,
                             "layers": one.layers} for one in found])
    print_rich(*view.touched_view(found, asked=len(rows)))
    return OK


@history_app.command("verify", cls=Command)
def verify_timeline(repo: Repo = None, as_json: AsJson = False) -> int:
    """Check every fact of the timeline against a clone; exit code 1 when one differs or is absent."""
    from history.verification import tally, verify

    with open_clone(repo) as clone:
        checked = verify(clone, timeline(), cited_commits())
        head = clone.resolve("HEAD")
    if as_json:
        _print_json({"head": head, "tally": tally(checked), "commits": [asdict(one) for one in checked]})
    else:
        print_rich(*view.verify_view(checked, head))
    return OK if tally(checked)["confirmed"] == len(checked) else REQUEST_ERROR


@history_app.command("plot", cls=Command)
def plot(what: Annotated[Literal["all", "months", "churn", "lines"], typer.Argument(
             help="Which picture to show here.")] = "all",
         out: Annotated[Path | None, typer.Option(
             "--out", metavar="FOLDER", help="Write SVG files there instead.")] = None,
         repo: Repo = None) -> int:
    """Draw commits per month, additions against deletions, and (with a clone) the folder's size over time."""
    from history import figures

    clone = open_clone(repo) if repo is not None or what == "lines" else None
    try:
        if out is not None:
            from history.plots import write_plots

            for path in write_plots(out, clone):
                print(path)
            return OK
        if what in ("all", "months"):
            print_rich(*view.months_view(figures.commits_by_month(timeline())))
        if what in ("all", "churn"):
            print_rich(*view.churn_view(figures.churn(timeline())))
        if clone is not None and what in ("all", "lines"):
            print_rich(*view.lines_view(figures.folder_over_time(clone)))
    finally:
        if clone is not None:
            clone.close()
    return OK


def _known(clone: Clone, refs: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The refs that the clone has, in order and once each; and why it has not the others."""
    found: list[str] = []
    unknown: dict[str, str] = {}
    for ref in dict.fromkeys(refs):
        try:
            clone.resolve(ref)
            found.append(ref)
        except HistoryError as error:
            unknown[ref] = str(error)
    if not found:
        raise HistoryError(next(iter(unknown.values())))
    return found, unknown


def _tell_unknown(unknown: dict[str, str]) -> int:
    for text in unknown.values():
        print(f"warning: {visible(text)}", file=sys.stderr)
    return REQUEST_ERROR if unknown else OK


def _print_json(value: object) -> int:
    json.dump(value, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
    return OK
