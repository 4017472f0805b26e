"""What a page names is there, what it counts is counted, and what changes below it cannot go unnoticed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path, PurePosixPath

import jupytext
import pytest

from history.timeline import cited_commits, timeline
from jumpforward.museum.catalogue import all_rows
from scripts.site import notebooks
from scripts.site.assemble import page_text
from scripts.site.page import DOCS, ROOT, Page, SiteError, recording
from stages import all_stages

ENGLISH = DOCS / "en"
HEADINGS = [
    "The question it answered", "How it works", "Step through it", "The code, read",
    "What changed against the stage before", "Why upstream did it", "What got better and worse", "Its bugs",
    "Trade-offs", "Self-test", "How to say it in an interview",
]
HERE = Page(PurePosixPath("stages/2.md"))


def filled(text: str, path: Path = ENGLISH / "stages/2.md") -> str:
    return page_text(text, HERE, path)


@pytest.mark.parametrize(("piece", "told"), [
    ("code shared_runtime/no_such_file.py Engine", "no_such_file"),
    ("code shared_runtime/engine.py Engine.no_such_method", "has no Engine.no_such_method"),
    ("readme 2 'No such section'", "No such section"),
    ("count stage9 forward_passes", "stage9.json"),
    ("row 0123456789 deletions", "0123456789"),
    ("walk no_such_trace", "no_such_trace"),
    ("no_such_piece", "no_such_piece"),
])
def test_a_piece_that_asks_for_what_is_gone_fails(piece: str, told: str) -> None:
    with pytest.raises(SiteError, match=re.escape(told)):
        filled(f"{{{{ {piece} }}}}")


def test_a_commit_that_history_does_not_have_fails() -> None:
    with pytest.raises(SiteError, match="0123456789"):
        filled("`0123456789`")


def test_code_is_cut_from_the_file_as_it_is() -> None:
    shown = filled("{{ code stages/stage1_copied_fsm/fsm.py RegexFSM.allowed }}").split("\n")
    found = re.search(r"lines (\d+) to (\d+)", shown[0])
    assert found is not None
    lines = (ROOT / "stages/stage1_copied_fsm/fsm.py").read_text(encoding="utf-8").splitlines()
    cut = lines[int(found[1]) - 1:int(found[2])]
    assert "def allowed" in cut[0]
    assert shown[1:-1] == [line[4:] for line in cut]


def test_a_commit_becomes_a_link_and_one_in_a_fence_does_not() -> None:
    text = filled("`935cda944b`\n\n```sh\ngit show `935cda944b`\n```\n")
    assert text.count("](https://github.com/sgl-project/sglang/commit/935cda944b") == 1


def test_a_bar_in_the_code_of_a_table_is_shown_without_the_backslash_that_other_readers_need() -> None:
    assert filled("| `(a\\|b)\\1` | x \\| y | `c` |") == "| `(a|b)\\1` | x \\| y | `c` |"
    assert filled("`a\\|b`") == "`a\\|b`", "outside a table it is a part of the pattern"


def test_a_date_in_a_table_stays_in_one_piece() -> None:
    assert filled("| a | 2024-01-08 | b |") == '| a | <span class="date">2024-01-08</span> | b |'


def test_a_museum_number_becomes_a_link() -> None:
    assert filled("(museum 12, 13)") == "(museum [12](../museum.md#row-12), [13](../museum.md#row-13))"


def test_a_link_to_a_file_leads_to_the_page_made_of_it() -> None:
    text = page_text("[`a`](../stages/stage2_jump_forward/README.md) [`b`](regex.md) [`c`](../jumpforward/cli.py)",
                     Page(PurePosixPath("guides/x.md")), DOCS / "x.md")
    assert text == "[`a`](../stages/2.md) [`b`](../guides/regex.md) `c`"


def test_every_stage_has_a_page_with_the_same_headings() -> None:
    for spec in all_stages():
        text = (ENGLISH / f"stages/{spec.id}.md").read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS, spec.name
        assert text.count("??? question") >= 4, spec.name


def test_every_stage_page_shows_what_it_tells_of(pages: Path) -> None:
    for spec in all_stages():
        text = (pages / f"stages/{spec.id}.md").read_text(encoding="utf-8")
        before, works = text.partition("## The question")[0], text.partition("## How it works")[2].partition("\n## ")[0]
        assert before.count("<svg") == 6, "a strip of six panels before the prose"
        assert 'class="lanes"' in works
        assert 'class="fsm"' in works
        assert 'class="jf-player"' in text.partition("## Step through it")[2].partition("\n## ")[0]
        assert "benchmarks/results/" in text.partition("## What got better and worse")[2].partition("### Better")[0]
        code = text.partition("## The code, read")[2].partition("\n## ")[0]
        assert code.count(f'title="stages/{spec.name}/') >= 3


def test_a_drawing_says_in_words_what_it_shows(pages: Path) -> None:
    for spec in all_stages():
        text = (pages / f"stages/{spec.id}.md").read_text(encoding="utf-8")
        [said] = re.findall(r'<svg [^>]*role="img" aria-label="([^"]+)"', text.partition('class="lanes"')[2])[:1]
        assert len(re.findall(r"\d\. ", said)) >= 4, spec.name


def test_every_notebook_is_a_page_with_its_cells(pages: Path) -> None:
    index = (pages / "notebooks/index.md").read_text(encoding="utf-8")
    for source in notebooks.sources():
        text = (pages / f"notebooks/{source.stem}.md").read_text(encoding="utf-8")
        cells = jupytext.read(source).cells
        assert cells[0].source.splitlines()[0] == text.splitlines()[0]
        assert [f"```python\n{cell.source}\n```" in text for cell in cells if cell.cell_type == "code"] == [
            "elsewhere" not in cell.metadata.get("tags", []) for cell in cells if cell.cell_type == "code"]
        assert f"notebooks/{source.stem}.md)" in index


@pytest.mark.slow
def test_what_a_notebook_printed_stands_on_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(notebooks, "KEPT", tmp_path / "kept")
    source = tmp_path / "00_small.py"
    source.write_text("# %% [markdown]\n# # 00 Small\n\n# %%\nfrom IPython.display import HTML\n"
                      "print('``` and', 6 * 7)\nHTML('<b>a</b>\\n\\n<i>b</i>')\n", encoding="utf-8")
    assert "without a run" in notebooks.markdown_of(source)
    notebooks.run_all()
    text = notebooks.markdown_of(source)
    assert "````{ .text .output }\n``` and 42\n````" in text
    assert "<b>a</b>\n<i>b</i></div>" in text
    before = list(notebooks.KEPT.iterdir())
    notebooks.run_all()
    assert list(notebooks.KEPT.iterdir()) == before, "what has not changed is not run again"
    source.write_text(source.read_text(encoding="utf-8").replace("6 * 7", "6 * 8"), encoding="utf-8")
    assert "48" not in notebooks.markdown_of(source)
    assert "without a run" in notebooks.markdown_of(source)


def test_every_commit_named_anywhere_is_in_the_history(pages: Path) -> None:
    known = [*(row.hash for row in timeline()), *(cited.hash for cited in cited_commits())]
    for path in pages.rglob("*.md"):
        for word in set(re.findall(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])(?:[0-9a-f]{40}|[0-9a-f]{10})\b",
                                   path.read_text(encoding="utf-8"))):
            assert any(one.startswith(word) for one in known), f"{path.name}: {word}"


def test_every_bug_and_every_commit_is_on_its_page(pages: Path) -> None:
    museum, history = ((pages / name).read_text(encoding="utf-8") for name in ("museum.md", "history.md"))
    assert re.findall(r'id="row-(\d+)"', museum) == [str(row.number) for row in all_rows()]
    assert history.count("<tr data-stage=") == len(timeline())
    for row in timeline():
        assert f"/commit/{row.hash}" in history


# Years, dates, pull requests, sizes of what is named beside them and code are facts of the text around them; a number
# that a run gives must come from a recording or from the history's data.
NOT_A_RESULT = re.compile(
    r"(?ms)^---.*?^---|^ *```.*?^ *```|`[^`]*`|\{\{.*?\}\}|<!--.*?-->|\]\([^)]*\)|#\d+|\(museum [\d, ]+\)"
    r"|\b\d{4}-\d\d-\d\d\b"
    r"|(January|February|March|April|May|June|July|August|September|October|November|December) \d{4}"
    r"|\b[Ss]tages?( \d)+|^\d+\. ")
STATED = {
    "index.md": {"100"}, "benchmarks/index.md": {"19", "20"},
    "history.md": {"551", "4", "59", "125", "400", "2024", "22", "2025", "517"},
    "troubleshooting.md": {"2.7", "545", "1"}, "stages/1.md": {"32", "2"}, "stages/4.md": {"37"},
    "glossary.md": {"32"}, "stages/3.md": {"0.0.100", "0.0.35"}, "stages/2.md": {"7"},
}


@pytest.mark.parametrize("path", sorted(ENGLISH.rglob("*.md")), ids=lambda path: path.relative_to(ENGLISH).as_posix())
def test_a_number_in_prose_comes_from_data_or_is_listed(path: Path) -> None:
    prose = NOT_A_RESULT.sub(" ", path.read_text(encoding="utf-8"))
    found = set(re.findall(r"(?<![\w.#])\d+(?:\.\d+)*(?![\w%])", prose))
    small = {number for number in found if number.isdigit() and int(number) <= 5}
    assert found - small <= STATED.get(path.relative_to(ENGLISH).as_posix(), set())


def test_the_counts_on_the_first_page_are_those_of_the_recordings(pages: Path) -> None:
    text = (pages / "index.md").read_text(encoding="utf-8")
    passes = " | ".join(str(recording(f"stage{stage}")["counts"]["forward_passes"]) for stage in range(1, 6))
    assert f"| forward passes | {passes} |" in text


def test_every_exercise_is_in_the_index(pages: Path) -> None:
    text = (pages / "exercises.md").read_text(encoding="utf-8")
    folders = sorted(path.parent.name for path in (ROOT / "exercises").glob("*/exercise.toml"))
    assert folders
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == [str(int(name[:2])) for name in folders]
    for name in folders:
        one = tomllib.loads((ROOT / f"exercises/{name}/exercise.toml").read_text(encoding="utf-8"))
        assert f"| {one['title']} | {one['minutes']} | {one['difficulty']} |" in text


def test_every_guide_of_the_folder_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in DOCS.glob("*.md"):
        assert f": guides/{path.name}\n" in config, path.name


def test_the_list_for_language_models_names_every_page(pages: Path) -> None:
    listed = (pages / "llms.txt").read_text(encoding="utf-8")
    for path in pages.rglob("*.md"):
        name = path.relative_to(pages).as_posix().removesuffix(".md").removesuffix("index")
        assert f"]({name if name.endswith('/') or not name else name + '/'})" in listed, name
