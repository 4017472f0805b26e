"""The site in a browser: every template by keyboard, in light and dark, on a phone, and light enough to load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("site")]
TEMPLATES = ["", "stages/5/", "loop/", "history/", "museum/", "guides/stages/", "guides/regex/", "deviations/",
             "api/", "glossary/", "troubleshooting/"]
MOST_BYTES = 1_500_000
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def address(serve: Callable[[Path], str], site: Path) -> str:
    return serve(site) + "/"


def opened(page: Page, address: str, path: str) -> Page:
    page.goto(address + path)
    page.wait_for_selector("body[data-ready]")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", TEMPLATES)
def test_axe_finds_nothing_serious(path: str, scheme: Any, page: Page, address: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    opened(page, address, path)
    assert page.locator("body").get_attribute("data-md-color-scheme") == {"light": "default", "dark": "slate"}[scheme]
    found = Axe().run(page)
    wrong = [(one["id"], [node["html"][:160] for node in one["nodes"]][:4]) for one in found.response["violations"]
             if one["impact"] in ("serious", "critical")]
    assert wrong == []


@pytest.mark.parametrize("path", TEMPLATES)
def test_a_phone_does_not_scroll_sideways(path: str, page: Page, address: str) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    opened(page, address, path)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("path", TEMPLATES)
def test_a_page_and_all_it_loads_is_light(path: str, page: Page, address: str) -> None:
    sizes: dict[str, int] = {}
    page.on("response", lambda answer: sizes.update({answer.url: len(answer.body())}))
    opened(page, address, path)
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_the_player_of_the_first_page_plays_by_keyboard(page: Page, address: str) -> None:
    opened(page, address, "")
    player = page.locator(".jf-player")
    player.get_by_role("button", name="Stage 2").focus()
    page.keyboard.press("Enter")
    turn = player.locator(".jf-count")
    assert turn.inner_text().startswith("turn 1 of ")
    page.keyboard.press("ArrowRight")
    assert turn.inner_text().startswith("turn 2 of ")
    page.keyboard.press("j")
    assert "is written, not sampled" in player.locator(".jf-says").inner_text()
    page.keyboard.press("End")
    assert "Paris" in player.locator(".jf-text").inner_text()


def test_the_timeline_can_be_filtered_and_sorted(page: Page, address: str) -> None:
    opened(page, address, "history/")
    rows = page.locator("#timeline tbody tr:visible")
    everything = rows.count()
    page.get_by_label("removal", exact=True).uncheck()
    assert 0 < rows.count() < everything
    page.get_by_label("contains").fill("outlines")
    assert all("outlines" in text.lower() for text in rows.all_inner_texts())
    assert page.locator("form.filter output").inner_text() == f"{rows.count()} of {everything}"
    page.get_by_role("button", name="added").click()
    added = [int(text) for text in page.locator("#timeline tbody tr:visible td:nth-child(8)").all_inner_texts()]
    assert added == sorted(added)


def test_the_museum_can_be_filtered_by_stage(page: Page, address: str) -> None:
    opened(page, address, "museum/")
    for stage in "1245":
        page.get_by_label(stage, exact=True).uncheck()
    shown = page.locator("article.bug:visible")
    assert 0 < shown.count() < page.locator("article.bug").count()
    assert all("3" in (one.get_attribute("data-stage") or "").split() for one in shown.all())


def test_the_search_finds_a_page_without_another_host(page: Page, address: str) -> None:
    opened(page, address, "")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("retraction")
    page.wait_for_selector(".md-search-result__item", state="attached")
    assert "matching" in page.locator(".md-search-result__meta").inner_text()
