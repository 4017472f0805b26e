"""The player on a web page: by keyboard, for a screen reader, in light and dark, on a phone, under attack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jumpforward.stepper import recording as recording_module
from jumpforward.stepper.recording import record
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("site")]
PLAYER = Path(recording_module.__file__).with_name("player")


@pytest.fixture(scope="session")
def recordings(tiny_model: Path) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(record(
        EngineConfig(model=str(tiny_model), stage=stage, exact=True), "Describe a cat.",
        constraint=Constraint.regex(r'\{"name": "[a-z]{1,8}", "age": [0-9]{1,2}\}'),
        sampling=SamplingParams(max_new_tokens=60)).as_dict())) for stage in (1, 2)]


def _page(folder: Path, recordings: list[dict[str, Any]]) -> None:
    scripts = "".join(f'<script type="application/json">{json.dumps(one).replace("</", "<" + chr(92) + "/")}</script>'
                      for one in recordings)
    (folder / "index.html").write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>player</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="player.css"></head><body><main><h1>A page</h1><h2>A player</h2>'
        f'<div class="jf-player">{scripts}</div></main><script type="module">'
        'import { mountAll } from "./player.js"; await mountAll(); document.body.dataset.ready = "yes";'
        "</script></body></html>", encoding="utf-8")
    for name in ("player.js", "player.css"):
        (folder / name).write_bytes((PLAYER / name).read_bytes())


@pytest.fixture(scope="session")
def address(recordings: list[dict[str, Any]], serve: Callable[[Path], str],
            tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("player")
    _page(folder, recordings)
    return serve(folder)


@pytest.fixture
def player(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    return page


def _turn(page: Page) -> int:
    return int(page.inner_text(".jf-count").split()[1])


def _answer(page: Page) -> str:
    return "".join(page.locator(".jf-text").first.locator(".jf-token").all_inner_texts())


def test_it_plays_by_keyboard_alone(player: Page, recordings: list[dict[str, Any]]) -> None:
    frames = recordings[0]["frames"]
    for _ in range(12):
        player.keyboard.press("Tab")
        if player.evaluate("document.activeElement.dataset.action") == "next":
            break
    assert player.evaluate("document.activeElement.dataset.action") == "next"
    player.keyboard.press("ArrowRight")
    player.keyboard.press("ArrowRight")
    assert _turn(player) == 3
    player.keyboard.press("ArrowLeft")
    assert _turn(player) == 2
    player.keyboard.press("End")
    assert _turn(player) == len(frames)
    player.keyboard.press("Home")
    assert _turn(player) == 1
    player.keyboard.press("Enter")
    assert _turn(player) == 2, "the focused button works as a button"


def test_each_turn_shows_what_the_recording_says(player: Page, recordings: list[dict[str, Any]]) -> None:
    for number, recording in enumerate(recordings):
        player.locator(".jf-tabs button").nth(number).click()
        tokens: list[dict[str, Any]] = []
        for index, frame in enumerate(recording["frames"]):
            tokens = tokens[:frame["keep"]] + frame["tokens"]
            assert _turn(player) == index + 1
            assert player.locator(".jf-says li").all_inner_texts() == frame["says"]
            assert _answer(player) == "".join(token["text"] for token in tokens).replace(" ", "␣").replace("\n", "↵")
            if frame["state"] is not None:
                assert player.locator(".jf-fsm .jf-current").count() == 1
            player.locator('[data-action="next"]').click()


def test_the_gate_and_the_times_are_shown(player: Page, recordings: list[dict[str, Any]]) -> None:
    assert not player.locator('[data-mark="gate"]').is_visible(), "nothing overlaps here"
    pane = player.locator(".jf-pane", has=player.get_by_role("heading", name="Milliseconds"))
    shown = dict(zip(pane.locator("dt").all_inner_texts(), pane.locator("dd").all_inner_texts(), strict=True))
    assert float(shown["forward"]) == pytest.approx(recordings[0]["frames"][0]["ms"]["forward"], abs=0.051)


def test_recordings_of_one_stage_are_told_apart_by_their_backends(page: Page, recordings: list[dict[str, Any]],
                                                                  serve: Callable[[Path], str], tmp_path: Path) -> None:
    other = json.loads(json.dumps(recordings[1]))
    other["settings"]["backend"] = "another"
    other["frames"][0] |= {"gate": "memory", "marks": ["gate"]}
    _page(tmp_path, [recordings[1], other, recordings[0]])
    page.goto(serve(tmp_path))
    page.wait_for_selector("body[data-ready]")
    assert page.locator(".jf-tabs button").all_inner_texts() == ["Stage 2, fsm", "Stage 2, another", "Stage 1"]
    page.locator(".jf-tabs button").nth(1).click()
    page.locator('[data-mark="gate"]').click()
    assert "gate" in page.locator(".jf-pane", has=page.get_by_role("heading", name="Batch")).inner_text()


def test_it_goes_to_the_next_jump(player: Page, recordings: list[dict[str, Any]]) -> None:
    assert not player.locator('[data-mark="jump"]').is_visible(), "stage 1 has none"
    player.locator(".jf-tabs button").nth(1).click()
    jumps = [index + 1 for index, frame in enumerate(recordings[1]["frames"]) if "jump" in frame["marks"]]
    player.locator('[data-mark="jump"]').click()
    assert _turn(player) == jumps[0]
    player.keyboard.press("j")
    assert _turn(player) == jumps[1]
    assert player.get_by_role("heading", name="Tokenized again").is_visible()


def test_it_plays_by_itself_and_leaves_the_screen_reader_in_peace(player: Page) -> None:
    player.evaluate("window.setInterval = ((real) => (work) => real(work, 5))(window.setInterval)")
    player.evaluate("""() => {
        const says = document.querySelector(".jf-says");
        window.heard = [says.getAttribute("aria-live")];
        new MutationObserver(() => window.heard.push(says.getAttribute("aria-live"))).observe(says, {
            attributes: true, attributeFilter: ["aria-live"] });
    }""")
    player.locator('[data-action="play"]').click()
    player.wait_for_function("window.heard.includes('off') && window.heard.at(-1) === 'polite'")
    assert player.evaluate("window.heard[0]") == "polite"
    assert _turn(player) == int(player.inner_text(".jf-count").split()[3].rstrip(","))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(player: Page, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    player.emulate_media(color_scheme=scheme)
    for number in (0, 1):
        player.locator(".jf-tabs button").nth(number).click()
        player.locator('[data-action="next"]').click()
        found = Axe().run(player)
        wrong = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found.response["violations"]]
        assert wrong == []


def test_a_phone_does_not_scroll_sideways(player: Page) -> None:
    player.set_viewport_size({"width": 360, "height": 740})
    for number in (0, 1):
        player.locator(".jf-tabs button").nth(number).click()
        for action in ("first", "next", "last"):
            player.locator(f'[data-action="{action}"]').click()
            assert player.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_panes_leave_no_hole(player: Page) -> None:
    """Those of a row are equally high, and each row reaches from edge to edge, also the last one."""
    player.locator(".jf-tabs button").nth(1).click()
    for width in (1200, 900, 700):
        player.set_viewport_size({"width": width, "height": 900})
        around = player.locator(".jf-panes").bounding_box()
        assert around is not None
        rows: dict[float, list[Any]] = {}
        for pane in player.locator(".jf-panes > .jf-pane").all():
            box = pane.bounding_box()
            assert box is not None
            rows.setdefault(round(box["y"]), []).append(box)
        assert len(rows) > 1
        for row in rows.values():
            assert len({round(box["height"]) for box in row}) == 1
            assert row[-1]["x"] + row[-1]["width"] == pytest.approx(around["x"] + around["width"], abs=1)


def test_a_hostile_recording_runs_nothing(page: Page, recordings: list[dict[str, Any]], serve: Callable[[Path], str],
                                          tmp_path: Path) -> None:
    """A recording may come from anywhere: its texts are texts, and of its drawing only what draws is kept."""
    evil = json.loads(json.dumps(recordings[1]))
    bad = "<img src=x onerror=\"document.body.dataset.hacked='yes'\">"
    evil["request"]["prompt"] = evil["answer"] = evil["stage"]["title"] = bad
    for frame in evil["frames"]:
        frame["says"] = [bad]
        frame["grammar"] = {bad: bad}
        for token in frame["tokens"]:
            token["text"] = bad
    evil["picture"]["svg"] = (
        '<svg xmlns="http://www.w3.org/2000/svg" onload="document.body.dataset.hacked=1" viewBox="0 0 9 9">'
        '<script>document.body.dataset.hacked="yes"</script><image href="http://example.org/x.png"/>'
        '<foreignObject><iframe src="javascript:1"></iframe></foreignObject><g data-state="0" onclick="x()">'
        '<circle class="jf-disc" cx="1" cy="1" r="1" style="background:url(http://example.org)"/></g></svg>')
    _page(tmp_path, [evil])
    page.goto(serve(tmp_path))
    page.wait_for_selector("body[data-ready]")
    page.locator('[data-action="next"]').click()
    assert page.evaluate("document.body.dataset.hacked") is None
    assert page.locator(".jf-fsm-box circle").count() == 1
    assert page.locator(".jf script, .jf image, .jf iframe, .jf img, .jf [onclick]").count() == 0


def test_the_compile_is_stepped_and_enter_in_the_field_is_the_fields_own(page: Page, tmp_path: Path,
                                                                          serve: Callable[[Path], str]) -> None:
    """A notebook takes enter and letters for itself, unless they stop where they are typed."""
    (tmp_path / "pipeline.js").write_bytes((PLAYER.parent / "pipeline.js").read_bytes())
    (tmp_path / "index.html").write_text(
        """<!doctype html><title>compile</title><link rel="icon" href="data:,"><div id="here"></div>
        <script type="module">import widget from "./pipeline.js";
        const steps = ["a", "b", "c"].map((name) => ({ name, sizes: "1 state", ms: "0.10", html: `<p>${name}!</p>` }));
        const values = { pattern: "x", steps, error: "" };
        const model = { get: (name) => values[name], set: (name, value) => { values[name] = value; }, on() {}, off() {},
                        save_changes() { document.body.dataset.asked = values.pattern; } };
        document.addEventListener("keydown", (event) => event.preventDefault());
        widget.render({ model, el: document.getElementById("here") });
        document.body.dataset.ready = "yes";</script>""", encoding="utf-8")
    page.goto(serve(tmp_path))
    page.wait_for_selector("body[data-ready]")
    page.get_by_label("Next step").click()
    page.keyboard.press("ArrowRight")
    assert [text.partition(":")[0] for text in page.locator("li").all_inner_texts()] == ["a", "b", "c"]
    assert page.get_by_text("c!").is_visible()
    page.keyboard.press("Home")
    assert page.locator("li").count() == 1
    page.get_by_label("Regex").focus()
    page.keyboard.type("yz")
    page.keyboard.press("Enter")
    page.wait_for_selector("body[data-asked]")
    assert page.evaluate("document.body.dataset.asked") in ("xyz", "yzx")
