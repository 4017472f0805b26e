"""Makes the builder's input, a folder: every page of a language with its pieces filled in, and the assets.

A page of `docs/<language>/` is Markdown with pieces like `{{ code stages/x.py Name }}`. What a piece asks for and is
not there any more is an error, so a page cannot drift from what it tells of.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import stages
from jumpforward.stepper import recording as recording_module
from scripts.site import code_pieces, data_pieces, strips, walk_piece
from scripts.site.page import DOCS, RECORDINGS, ROOT, Page, SiteError, commit_link

_PLAYER = Path(recording_module.__file__).with_name("player")
_OWN = ("strips.toml",)

_PLAIN: dict[str, Callable[..., str]] = {
    "churn": data_pieces.churn_table, "code": code_pieces.code, "contributing": code_pieces.contributing,
    "count": data_pieces.count, "counts": data_pieces.counts, "deviations": data_pieces.deviations,
    "diff": code_pieces.diff, "events": walk_piece.events, "exercises": data_pieces.exercises, "fsm": data_pieces.fsm,
    "gates": walk_piece.gates, "guide": code_pieces.guide, "listing": code_pieces.listing,
    "months": data_pieces.months, "museum": data_pieces.museum, "overruled": walk_piece.overruled,
    "readme": code_pieces.readme, "request": data_pieces.request, "row": data_pieces.row,
    "sync": walk_piece.sync_table, "timeline": data_pieces.timeline_table, "total": data_pieces.total,
    "vocabulary": data_pieces.vocabulary, "walk": walk_piece.walk_text,
}
_PLACED: dict[str, Callable[..., str]] = {
    "bugs": data_pieces.bugs, "player": data_pieces.player, "strip": strips.strip,
}
_PIECE = re.compile(r"^\{\{ (.+?) \}\}$|\{\{ (.+?) \}\}", re.MULTILINE)
_HASH = re.compile(r"(?<!\[)`([0-9a-f]{10}|[0-9a-f]{40})`(?!\])")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)]*)?\)")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"\(museum (\d+)((?:, \d+)*)\)")


def assemble(target: Path, language: str = "en") -> Path:
    """Write the pages of a language, and what they show, to `target`, which is emptied first; returns it.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    shutil.rmtree(target, ignore_errors=True)
    folder = DOCS / language
    for path in sorted(one for one in folder.rglob("*") if one.is_file() and one.name not in _OWN):
        _write(target, PurePosixPath(path.relative_to(folder).as_posix()), path, language)
    for path in sorted(DOCS.glob("*.md")):
        name = PurePosixPath("guides") / path.name
        if not (target / name).exists():
            _write(target, name, path, language)
    shutil.copytree(DOCS / "assets", target / "assets", dirs_exist_ok=True)
    for path in _PLAYER.iterdir():
        shutil.copy(path, target / "assets" / path.name)
    (target / "recordings").mkdir()
    for path in RECORDINGS.glob("*.json"):
        shutil.copy(path, target / "recordings" / path.name)
    (target / "llms.txt").write_text(_for_models(target), encoding="utf-8")
    return target


def _write(target: Path, name: PurePosixPath, path: Path, language: str) -> None:
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md":
        shutil.copy(path, target / name)
        return
    try:
        text = page_text(path.read_text(encoding="utf-8"), Page(name, language), path)
    except (SiteError, KeyError, ValueError, TypeError) as error:
        raise SiteError(f"{path.relative_to(ROOT)}: {error}") from error
    (target / name).write_text(text, encoding="utf-8")


def page_text(text: str, page: Page, path: Path) -> str:
    """A page with its pieces filled in, its links mended and its commits linked; `path` is where it came from."""
    filled = _PIECE.sub(lambda found: _piece(found[1] or found[2], page), text)
    parts = _FENCE.split(filled)
    return "".join(part if at % 2 else _linked(part, page, path) for at, part in enumerate(parts))


def _piece(asked: str, page: Page) -> str:
    name, *arguments = shlex.split(asked)
    if name in _PLACED:
        return _PLACED[name](page, *arguments)
    if name in _PLAIN:
        return _PLAIN[name](*arguments)
    raise SiteError(f"there is no piece {name!r} (use one of: {', '.join(sorted({*_PLAIN, *_PLACED}))})")


def _linked(text: str, page: Page, path: Path) -> str:
    up = "../" * (len(page.path.parts) - 1)
    text = _HASH.sub(lambda found: f"[`{found[1]}`]({commit_link(found[1])})", text)
    text = _ROW.sub(lambda found: "(museum " + ", ".join(
        f"[{number}]({up}museum.md#row-{number})" for number in (found[1] + found[2]).split(", ")) + ")", text)
    return _LINK.sub(lambda found: _mended(found, up, path), text)


def _mended(found: re.Match[str], up: str, path: Path) -> str:
    """A link to a file of the repository leads to the page made of it; one without such a page becomes plain text."""
    label, target, anchor = found[1], found[2], found[3] or ""
    if path.is_relative_to(DOCS / "en") or ":" in target:
        return found[0]
    wanted = (path.parent / target).resolve()
    if not wanted.exists():
        return found[0]  # the builder's strict mode names it
    for spec in stages.all_stages():
        if wanted.is_relative_to(ROOT / "stages" / spec.name):
            return f"[{label}]({up}stages/{spec.id}.md{anchor})"
    if wanted.parent == DOCS and wanted.suffix == ".md":
        return f"[{label}]({up}guides/{wanted.name}{anchor})"
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
