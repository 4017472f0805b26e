"""A further language stands beside the English pages, its own pages and words in their places."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from scripts.site.assemble import ENGLISH, assemble, page_text
from scripts.site.build import languages
from scripts.site.page import Page


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    folder = tmp_path / "zh"
    (folder / "stages").mkdir(parents=True)
    (folder / "index.md").write_text("# 首页\n", encoding="utf-8")
    (folder / "stages/2.md").write_text("# 第二代\n\n{{ strip 2 }}\n\n{{ counts stage2 }}\n", encoding="utf-8")
    (folder / "words.toml").write_text('"stage" = "阶段"\n"forward passes" = "前向传播"\n', encoding="utf-8")
    return folder


def test_a_page_of_its_own_takes_the_place_of_the_english_one(chinese: Path, pages: Path, tmp_path: Path) -> None:
    made = assemble(tmp_path / "out", chinese)
    assert {path.relative_to(made) for path in made.rglob("*")} == {
        path.relative_to(pages) for path in pages.rglob("*")}
    assert (made / "index.md").read_text(encoding="utf-8") == "# 首页\n"
    second = (made / "stages/2.md").read_text(encoding="utf-8")
    assert "| 前向传播 |" in second
    assert 'class="strip"' in second, "the English drawings, as it has none"
    assert "- [第二代](stages/2/)" in (made / "llms.txt").read_text(encoding="utf-8")
    assert (made / "loop.md").read_text(encoding="utf-8").startswith("# The loop")


def test_a_word_without_a_translation_stays_english(chinese: Path) -> None:
    text = page_text("{{ counts stage1 }}", Page(PurePosixPath("x.md"), chinese), chinese / "x.md")
    assert "阶段 1" in text
    assert "| masks |" in text


def test_a_language_is_a_folder_with_a_first_page(chinese: Path) -> None:
    (chinese.parent / "assets").mkdir()
    assert languages(chinese.parent) == [ENGLISH, chinese]


def test_every_language_has_its_configuration() -> None:
    for folder in languages()[1:]:
        text = (ENGLISH.parents[1] / f"mkdocs.{folder.name}.yml").read_text(encoding="utf-8")
        assert text.startswith("INHERIT: mkdocs.yml\n")
