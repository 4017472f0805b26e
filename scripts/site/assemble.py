"""Makes the builder's input, a folder: every page of a language with its pieces filled in, and the assets.

A page of `docs/<language>/` is Markdown with pieces like `{{ code stages/x.py Name }}`. What a piece asks for and is
not there any more is an error, so a page cannot drift from what it tells of. A language begins with the English pages
and puts its own in their places, so that it is whole from its first page on.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import stages
from jumpforward.stepper import recording as recording_module
from scripts.site import (
    code_pieces,
    data_pieces,
    diagrams,
    history_pieces,
    ledger_pieces,
    museum_pieces,
    notebooks,
    recording_pieces,
    strips,
    walk_piece,
)
from scripts.site.page import DOCS, RECORDINGS, ROOT, Page, SiteError, commit_link

ENGLISH = DOCS / "en"
_PLAYER = Path(recording_module.__file__).with_name("player")
_PLAIN: dict[str, Callable[..., str]] = {
    "contributing": code_pieces.contributing, "count": recording_pieces.count, "events": walk_piece.events,
    "row": history_pieces.row, "total": museum_pieces.total, "vocabulary": recording_pieces.vocabulary,
    "walk": walk_piece.walk_text,
}
"""Pieces that say the same wherever they stand."""

_PLACED: dict[str, Callable[..., str]] = {
    "answers": recording_pieces.answers, "bugs": museum_pieces.bugs, "churn": history_pieces.churn_table,
    "code": code_pieces.code, "counts": recording_pieces.counts, "deviations": data_pieces.deviations,
    "diagram": diagrams.diagram, "diff": code_pieces.diff, "exercises": data_pieces.exercises,
    "fsm": recording_pieces.fsm, "gates": walk_piece.gates, "ledger": ledger_pieces.brief,
    "ledger-engines": ledger_pieces.engines, "ledger-growth": ledger_pieces.growth,
    "ledger-losses": ledger_pieces.losses, "ledger-overview": ledger_pieces.overview,
    "ledger-peers": ledger_pieces.of_peers,
    "ledger-sources": ledger_pieces.sources, "ledger-stage": ledger_pieces.of_stage,
    "ledger-traps": ledger_pieces.traps, "ledger-worst": ledger_pieces.worst,
    "listing": code_pieces.listing, "months": history_pieces.months,
    "museum": museum_pieces.museum, "notebooks": notebooks.index, "overruled": walk_piece.overruled,
    "player": recording_pieces.player, "readme": code_pieces.readme, "request": recording_pieces.request,
    "strip": strips.strip, "sync": walk_piece.sync_table, "timeline": history_pieces.timeline_table,
}
"""Pieces that are told the page: its language, and the way to other pages."""

_PIECE = re.compile(r"^\{\{ (.+?) \}\}$|\{\{ (.+?) \}\}", re.MULTILINE)
_HASH = re.compile(r"(?<!\[)`([0-9a-f]{10}|[0-9a-f]{40})`(?!\])")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)]*)?\)")
_FENCE = re.compile(r"(^ *(`{3,}).*?^ *\2$)", re.MULTILINE | re.DOTALL)
_GUIDE = re.compile(r"(?<!\[)`docs/(\w+)\.md`(?!\])")
_CELL_DATE = re.compile(r"(?<=\| )(\d{4}-\d\d(?:-\d\d)?)(?= \|)")
_CODE = re.compile(r"`[^`]*`")
_ROW = re.compile(r"\(museum (\d+)((?:, \d+)*)\)")


def assemble(target: Path, folder: Path = ENGLISH) -> Path:
    """Write the pages of a language's folder, and what they show, to `target`, which is emptied first; returns it.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(DOCS.glob("*.md")):
        _write(target, PurePosixPath("guides") / path.name, path, folder)
    for source in notebooks.sources():
        _put(target / "notebooks" / f"{source.stem}.md", notebooks.markdown_of(source),
             Page(PurePosixPath(f"notebooks/{source.stem}.md"), folder), source)
    for language in dict.fromkeys((ENGLISH, folder)):
        for path in sorted(one for one in language.rglob("*") if one.is_file() and one.suffix != ".toml"):
            _write(target, PurePosixPath(path.relative_to(language).as_posix()), path, folder)
    shutil.copytree(DOCS / "assets", target / "assets", dirs_exist_ok=True)
    for path in _PLAYER.iterdir():
        shutil.copy(path, target / "assets" / path.name)
    (target / "recordings").mkdir()
    for path in RECORDINGS.glob("*.json"):
        shutil.copy(path, target / "recordings" / path.name)
    (target / "llms.txt").write_text(_for_models(target), encoding="utf-8")
    return target


def _write(target: Path, name: PurePosixPath, path: Path, folder: Path) -> None:
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        _put(target / name, path.read_text(encoding="utf-8"), Page(name, folder), path)
    else:
        shutil.copy(path, target / name)


def _put(target: Path, text: str, page: Page, path: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        filled = page_text(text, page, path)
    except (SiteError, KeyError, ValueError, TypeError) as error:
        raise SiteError(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {error}") from error
    target.write_text(filled, encoding="utf-8")


def page_text(text: str, page: Page, path: Path) -> str:
    """A page with its pieces filled in, its links mended and its commits linked; `path` is where it came from."""
    filled = _PIECE.sub(lambda found: _piece(found[1] or found[2], page), text)
    parts, at = [], 0
    for fence in _FENCE.finditer(filled):
        parts += [_linked(filled[at:fence.start()], page, path), fence[0]]
        at = fence.end()
    return "".join([*parts, _linked(filled[at:], page, path)])


def _piece(asked: str, page: Page) -> str:
    name, *arguments = shlex.split(asked)
    if name in _PLACED:
        return _PLACED[name](page, *arguments)
    if name in _PLAIN:
        return _PLAIN[name](*arguments)
    raise SiteError(f"there is no piece {name!r} (use one of: {', '.join(sorted({*_PLAIN, *_PLACED}))})")


def _linked(text: str, page: Page, path: Path) -> str:
    up = "../" * (len(page.path.parts) - 1)
    text = "\n".join(_table_row(line) if line.startswith("|") else line for line in text.split("\n"))
    text = _HASH.sub(lambda found: f"[`{found[1]}`]({commit_link(found[1])})", text)
    text = _GUIDE.sub(lambda found: f"[`docs/{found[1]}.md`]({up}guides/{found[1]}.md)", text)
    text = _ROW.sub(lambda found: "(museum " + ", ".join(
        f"[{number}]({up}museum.md#row-{number})" for number in (found[1] + found[2]).split(", ")) + ")", text)
    return _LINK.sub(lambda found: _mended(found, up, path), text)


def _table_row(line: str) -> str:
    """A date in one piece; and code without the backslash that its bars need elsewhere, which would be shown here."""
    line = _CELL_DATE.sub(r'<span class="date">\1</span>', line)
    return _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)


def _mended(found: re.Match[str], up: str, path: Path) -> str:
    """A link to a file of the repository leads to the page made of it; one without such a page becomes plain text."""
    label, target, anchor = found[1], found[2], found[3] or ""
    if path.parent not in (DOCS, notebooks.FOLDER) or ":" in target:
        return found[0]
    wanted = (path.parent / target).resolve()
    if not wanted.exists():
        return found[0]  # the builder's strict mode names it
    for spec in stages.all_stages():
        if wanted.is_relative_to(ROOT / "stages" / spec.name):
            return f"[{label}]({up}stages/{spec.id}.md{anchor})"
    if wanted.parent == DOCS and wanted.suffix == ".md":
        return f"[{label}]({up}guides/{wanted.name}{anchor})"
    if wanted.parent == notebooks.FOLDER and wanted.suffix in (".ipynb", ".py"):
        return f"[{label}]({up}notebooks/{wanted.stem}.md{anchor})"
    return label


def _for_models(target: Path) -> str:
    """`llms.txt`: what the site is, and where each page lies."""
    lines = ["# jumpforward", "", "> Five generations of SGLang's constrained decoding, each a complete decoder, "
             "over one runtime and one test suite.", "", "## Pages", ""]
    for path in sorted(target.rglob("*.md")):
        title = next(line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
        name = path.relative_to(target).as_posix()
        lines.append(f"- [{title}]({Page(PurePosixPath(name)).to(name).removeprefix(Page(PurePosixPath(name)).up)})")
    return "\n".join(lines) + "\n"
