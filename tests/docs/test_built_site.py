"""The built site: links and anchors lead somewhere, nothing is asked of another host, a second builder agrees."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from scripts.site.build import build

pytestmark = pytest.mark.xdist_group("site")
MOST_BYTES = 1_500_000
NEIGHBOURS = ("prev", "next", "canonical", "alternate")
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What an HTML page links to, what it loads beside what it holds itself, and the names of its places."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.names.append(found["id"])
        leads = tag == "a" or (tag == "link" and found.get("rel") in NEIGHBOURS)
        if leads and "href" in found:
            self.links.append(found["href"])
        if tag in LOADS and LOADS[tag] in found and not leads and not found[LOADS[tag]].startswith("data:"):
            self.loads.append(found[LOADS[tag]])
        if "data-src" in found:
            self.loads += found["data-src"].split()


def pages_of(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def target_of(path: Path, link: str) -> Path:
    found = (path.parent / unquote(urlsplit(link).path)).resolve()
    return found / "index.html" if found.is_dir() else found


def test_where_tests_share_processes_one_of_them_builds_the_site(request: pytest.FixtureRequest) -> None:
    """Its tests have the group in their names then: by that pytest-xdist keeps them in one process."""
    assert not request.config.getoption("loadgroup", False) or request.node.nodeid.endswith("@site")


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    found = pages_of(site)
    for path, page in found.items():
        for link in (one for one in page.links if not urlsplit(one).scheme):
            target = target_of(path, link) if urlsplit(link).path else path
            assert target.is_file(), f"{path.relative_to(site)}: {link}"
            anchor = unquote(urlsplit(link).fragment)
            assert not anchor or target not in found or anchor in found[target].names, (
                f"{path.relative_to(site)}: {link}")


def test_what_a_page_loads_is_part_of_the_site(site: Path) -> None:
    for path, page in pages_of(site).items():
        for link in page.loads:
            assert not urlsplit(link).scheme, f"{path.relative_to(site)}: {link}"
            assert not urlsplit(link).netloc, f"{path.relative_to(site)}: {link}"
            assert target_of(path, link).is_file(), f"{path.relative_to(site)}: {link}"


def test_no_two_places_of_a_page_have_one_name(site: Path) -> None:
    for path, page in pages_of(site).items():
        names = [name for name in page.names if name != "jf-tip"]  # the arrow's tip, the same in every drawing
        assert len(names) == len(set(names)), path.relative_to(site)


def test_a_pattern_with_a_bar_in_a_table_is_shown_as_it_is_typed(site: Path) -> None:
    text = (site / "guides/regex/index.html").read_text(encoding="utf-8")
    assert "<td><code>a|bc|</code></td>" in text
    assert "<td><code>(a|b)\\1</code></td>" in text


def test_an_address_that_is_not_there_leads_home(site: Path) -> None:
    """The page for it lies at every depth, so that its links begin at the root."""
    page = Page(site / "404.html")
    text = (site / "404.html").read_text(encoding="utf-8").partition("<h1>")[2]
    assert 'href="/."' in text.partition("</article>")[0]
    assert all(urlsplit(link).path.startswith("/") for link in page.links)
    for link in page.loads:
        assert (site / urlsplit(link).path.lstrip("/")).is_file(), link


def test_without_an_address_of_its_own_the_site_names_none(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert "og:title" in text
    assert "og:image" not in text
    assert 'rel="canonical"' not in text


def test_no_page_is_heavy(site: Path) -> None:
    """A page, all that it loads, what its script loads, and the index of the search."""
    always = sum(path.stat().st_size for path in (
        site / "search/search_index.json", *site.glob("assets/*.js"), *site.glob("assets/javascripts/workers/*.js")))
    weights = {path.relative_to(site).as_posix(): always + path.stat().st_size + sum(
        target_of(path, link).stat().st_size for link in {*page.loads}) for path, page in pages_of(site).items()}
    assert max(weights.values()) < MOST_BYTES, sorted(weights.items(), key=lambda one: -one[1])[:5]


@pytest.mark.slow
def test_properdocs_builds_the_same_pages_and_an_address_gives_them_a_picture(
        site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMPFORWARD_SITE_URL", "https://example.org/x/")
    done = build(tmp_path / "source", tmp_path / "site", builder="properdocs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")} == {
        path.relative_to(site) for path in site.rglob("*.html")}
    text = (tmp_path / "site/stages/2/index.html").read_text(encoding="utf-8")
    assert '<meta property="og:image" content="https://example.org/x/assets/card.png">' in text
    card = (tmp_path / "site/assets/card.png").read_bytes()
    assert card.startswith(b"\x89PNG")
    for name, at in (("width", 16), ("height", 20)):
        said = int.from_bytes(card[at:at + 4], "big")
        assert f'<meta property="og:image:{name}" content="{said}">' in text
    assert 'og:image:alt" content="jumpforward: ' in text
    assert '<meta property="og:url" content="https://example.org/x/stages/2/">' in text
