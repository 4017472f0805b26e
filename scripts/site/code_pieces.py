"""Pieces cut from the repository's own files: definitions, sections of READMEs, what changed between two stages."""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path

import stages
from jumpforward.diff_command import FileChange, folder_changes
from scripts.site.page import ROOT, Page, SiteError

_STAGES = Path(stages.__file__).parent


def code(page: Page, path: str, name: str) -> str:
    """A definition (`Class`, `function`, `Class.method` or a module's constant) with the lines where it stands.

    Raises:
        SiteError: the file or the definition is not there any more.
    """
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror}") from error
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        found = next((one for one in getattr(node, "body", []) if part in _names(one)), None)
        if found is None:
            raise SiteError(f"{path} has no {name}")
        node = found
    assert isinstance(node, ast.stmt)
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    lines = text.splitlines()[first - 1:node.end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    body = "\n".join(line[indent:] for line in lines)
    where = page.say("lines {first} to {last}" if node.end_lineno != first else "line {first}")
    where = where.format(first=first, last=node.end_lineno)
    return f'```python title="{path}, {where}"\n{body}\n```'


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def readme(page: Page, stage: str, heading: str) -> str:
    """A section of a stage's README, without its heading; of `README.<language>.md` where there is one.

    Raises:
        SiteError: it has no such section.
    """
    name = stages.get_stage(stage).name
    own = _STAGES / name / f"README.{page.folder.name}.md"
    path = own if own.is_file() else _STAGES / name / "README.md"
    found = section(path.read_text(encoding="utf-8"), heading)
    if found is None:
        raise SiteError(f"stages/{name}/{path.name} has no section {heading!r}")
    return found


def section(text: str, heading: str) -> str | None:
    """What stands below a second-level heading of a Markdown text; None without such a heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else None


def contributing() -> str:
    """CONTRIBUTING.md below a title of the page's own."""
    _, _, body = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n")
    return body.strip()


def diff(page: Page, older: str, newer: str) -> str:
    """What changed between two stages' folders: a table, then each file's difference, folded, and not in the search."""
    names = (stages.get_stage(older).name, stages.get_stage(newer).name)
    changes = [one for one in folder_changes(_STAGES / names[0], _STAGES / names[1]) if one.name.endswith(".py")]
    changed = [one for one in changes if not one.unchanged]
    added, removed = (sum(one.counts()[index] for one in changed) for index in (0, 1))
    rows = "".join(f"<tr><td><code>{escape(one.name)}</code></td><td>{page.say(_fate(one))}</td>"
                   f'<td class="number">+{one.counts()[0]}</td><td class="number">−{one.counts()[1]}</td></tr>'
                   for one in changed)
    same = ", ".join(f"<code>{escape(one.name)}</code>" for one in changes if one.unchanged)
    kept = f"{page.say('Unchanged, byte for byte:')} {same}." if same else page.say("No file stayed as it was.")
    total = page.say("{n} Python files differ, {added} lines came and {removed} went.")
    heads = "".join(f'<th scope="col"{kind}>{page.say(name)}</th>' for name, kind in (
        ("file", ""), ("what", ""), ("added", ' class="number"'), ("taken away", ' class="number"')))
    blocks = "\n\n".join(_folded(page, one, names) for one in changed)
    return (f"{total.format(n=len(changed), added=added, removed=removed)} {kept} "
            f"{page.say('This prints the same, with the READMEs:')} `jumpforward diff {older} {newer}`\n\n"
            f'<div class="scroll" tabindex="0" role="region" aria-label="{page.say("Changed files")}">'
            f'<table class="data"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>\n\n'
            f'<section data-search-exclude="" markdown="1">\n\n{blocks}\n\n</section>')


def _fate(change: FileChange) -> str:
    return "new" if change.old is None else "gone" if change.new is None else "changed"


def _folded(page: Page, change: FileChange, names: tuple[str, str]) -> str:
    added, removed = change.counts()
    lines = "\n".join(change.lines(*names))
    body = "\n".join(f"    {line}" for line in f"```diff\n{lines}\n```".splitlines())
    return f'??? diff "`{change.name}`: {page.say(_fate(change))}, +{added} −{removed}"\n\n{body}'


def listing(page: Page, stage: str) -> str:
    """The files of a stage with what each one's docstring says first, and its length."""
    folder = _STAGES / stages.get_stage(stage).name
    rows = []
    for path in sorted(folder.rglob("*.py")):
        if path.name == "__init__.py":
            continue
        text = path.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{path.relative_to(folder).as_posix()}` | {first} | {len(text.splitlines())} |")
    head = " | ".join(page.say(name) for name in ("file", "what it holds", "lines"))
    return f"| {head} |\n|---|---|--:|\n" + "\n".join(rows)
