"""The site in a browser: every template by keyboard, in light and dark, on a phone, and light enough to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import silent_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("site")]
TEMPLATES = ["", "stages/5/", "loop/", "benchmarks/", "benchmarks/5/", "history/", "museum/", "exercises/",
             "notebooks/02_jump_forward/", "guides/stages/", "guides/regex/", "deviations/", "api/", "glossary/",
             "troubleshooting/"]
MOST_BYTES = 1_500_000
PHONE = 360
OF_COLOUR = ["color-contrast", "link-in-text-block"]
"""The rules whose outcome colours decide; all others say in dark what they say in light, of the same elements."""


@pytest.fixture(scope="module")
def address(serve: Callable[[Path], str], site: Path) -> str:
    return serve(site) + "/"


@dataclass
class Template:
    """One page, loaded once: what it weighed, and the page itself."""

    page: Page
    sizes: dict[str, int]


@pytest.fixture(scope="module", params=TEMPLATES)
def template(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Template]:
    with silent_page(browser) as page:
        sizes: dict[str, int] = {}
        page.on("response", lambda answer: sizes.update({answer.url: len(answer.body())}))
        page.emulate_media(color_scheme="light")
        yield Template(opened(page, address, request.param), sizes)


def opened(page: Page, address: str, path: str) -> Page:
    page.goto(address + path)
    page.wait_for_selector("body[data-ready]")
    return page


def serious(page: Page, rules: list[str] | None = None) -> list[Any]:
    """What axe-core finds, of all its rules or of some."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]} | (
        {"runOnly": {"type": "rule", "values": rules}} if rules else {}))
    return [(one["id"], [node["html"][:160] for node in one["nodes"]][:4]) for one in found.response["violations"]
            if one["impact"] in ("serious", "critical")]


def test_a_page_and_all_it_loads_is_light(template: Template) -> None:
    assert sum(template.sizes.values()) < MOST_BYTES, template.sizes


def test_axe_finds_nothing_serious_in_light(template: Template) -> None:
    assert serious(template.page) == []


def test_axe_finds_nothing_serious_in_dark(template: Template) -> None:
    template.page.locator(".md-header label[title='Switch to dark']").click()
    template.page.wait_for_selector('body[data-md-color-scheme="slate"]')
    assert serious(template.page, OF_COLOUR) == []


def test_a_phone_does_not_scroll_sideways(template: Template) -> None:
    template.page.set_viewport_size({"width": PHONE, "height": 740})
    assert template.page.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_no_page_at_all_scrolls_sideways_on_a_phone(page: Page, address: str, site: Path) -> None:
    page.set_viewport_size({"width": PHONE, "height": 740})
    names = {path.relative_to(site).as_posix().removesuffix("index.html") for path in site.rglob("*.html")}
    assert names > {*TEMPLATES, "404.html"}
    widths = {name: opened(page, address, name).evaluate("document.documentElement.scrollWidth")
              for name in sorted(names - {*TEMPLATES})}
    assert {name: width for name, width in widths.items() if width > PHONE} == {}


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


def test_what_this_is_and_the_two_commands_fit_on_one_screen(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    opened(page, address, "")
    for shown in (page.locator("ol.answers li").last, page.locator(".home .highlight").first):
        box = shown.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900


def test_an_anchor_is_not_hidden_below_the_head_of_the_page(page: Page, address: str) -> None:
    for path, place in (("museum/#row-40", "#row-40"), ("loop/#the-gate", "#the-gate")):
        opened(page, address, path)
        page.wait_for_function(f"document.querySelector('{place}').getBoundingClientRect().top < 400")
        head, found = page.locator(".md-header").bounding_box(), page.locator(place).bounding_box()
        assert head is not None
        assert found is not None
        assert found["y"] >= head["y"] + head["height"]


def test_the_timeline_is_filtered_and_sorted_by_keyboard(page: Page, address: str) -> None:
    opened(page, address, "history/")
    rows = page.locator("#timeline tbody tr:visible")
    everything = rows.count()
    page.get_by_label("removal", exact=True).focus()
    page.keyboard.press("Space")
    assert 0 < rows.count() < everything
    page.keyboard.press("Tab")
    assert page.get_by_label("contains").evaluate("box => box === document.activeElement")
    page.keyboard.type("outlines")
    assert all("outlines" in text.lower() for text in rows.all_inner_texts())
    assert page.locator("form.filter output").inner_text() == f"{rows.count()} of {everything}"
    page.get_by_role("button", name="added").focus()
    page.keyboard.press("Enter")
    assert page.locator("#timeline th[aria-sort='ascending']").inner_text().startswith("added")
    added = [int(text) for text in page.locator("#timeline tbody tr:visible td:nth-child(8)").all_inner_texts()]
    assert added == sorted(added)


def test_a_table_of_the_ledger_sorts_by_its_numbers_and_keeps_what_has_none_last(page: Page, address: str) -> None:
    opened(page, address, "benchmarks/")
    table = page.locator(".sortable table").first
    column = table.locator("thead th").all_inner_texts().index("bound") + 1
    for times in (1, 2):
        table.get_by_role("button", name="bound").focus()
        page.keyboard.press("Space")
        found = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
        numbers = [float(text) for text in found if text != "-"]
        assert numbers == sorted(numbers, reverse=times == 2)
        assert found[:len(numbers)] == [text for text in found if text != "-"]


def test_the_museum_is_filtered_by_stage_and_keyboard(page: Page, address: str) -> None:
    opened(page, address, "museum/")
    for stage in "1245":
        page.get_by_label(stage, exact=True).focus()
        page.keyboard.press("Space")
    shown = page.locator("article.bug:visible")
    assert 0 < shown.count() < page.locator("article.bug").count()
    assert all("3" in (one.get_attribute("data-stage") or "").split() for one in shown.all())


def test_the_search_finds_a_page_without_another_host(page: Page, address: str) -> None:
    opened(page, address, "")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("retraction")
    page.wait_for_selector(".md-search-result__item", state="attached")
    assert "matching" in page.locator(".md-search-result__meta").inner_text()
