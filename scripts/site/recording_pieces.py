"""Pieces made from the recordings: the player, counts, and one answer as five generations wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from jumpforward.stepper.automaton import automaton_of
from jumpforward.stepper.picture import draw
from scripts.site.page import Page, SiteError, recording
from shared_runtime.constraint import Constraint

_COUNTS = ("forward_passes", "sampled", "jumped", "forced", "drafted", "accepted", "masks")
_ORIGINS = {"sampled": "sampled", "jumped": "written without the model", "forced": "written without the model",
            "draft_accepted": "drafted, and confirmed"}


def count(name: str, what: str) -> str:
    """One number of a recording."""
    return str(recording(name)["counts"][what])


def counts(page: Page, *names: str) -> str:
    """The counts of recordings, side by side."""
    found = [recording(name) for name in names]
    head = "| | " + " | ".join(label(page, one) for one in found) + " |\n|---|" + "--:|" * len(found) + "\n"
    return head + "".join(
        f"| {page.say(what.replace('_', ' '))} | " + " | ".join(str(one["counts"][what]) for one in found) + " |\n"
        for what in _COUNTS if any(one["counts"][what] for one in found))


def label(page: Page, one: Mapping[str, dict[str, object]]) -> str:
    """A recording's stage and switches, as the head of a column."""
    settings = one["settings"]
    extras = [text for text, on in (("overlap", settings["overlap"]), (str(settings["backend_jump"]),
              settings["backend_jump"] != "none"), (str(settings["spec"]), settings["spec"] != "none")) if on]
    return " + ".join([f"{page.say('stage')} {one['stage']['id']}", *extras])


def answers(page: Page, *names: str) -> str:
    """The answer of each recording, token by token, each with the way it came, and the passes it took."""
    items = []
    for name in names:
        one = recording(name)
        tokens: list[dict[str, Any]] = []
        for frame in one["frames"]:
            tokens = tokens[:frame["keep"]] + frame["tokens"]
        shown = "".join(f'<span class="{token["origin"]}">{escape(_visible(page, token["text"]))}</span>'
                        for token in tokens)
        number = one["stage"]["id"]
        items.append(f'<li><a href="{page.to(f"stages/{number}.md")}">{escape(label(page, one)).capitalize()}</a>'
                     f'<span class="passes"><b>{one["counts"]["forward_passes"]}</b> {page.say("passes")}</span>'
                     f'<code>{shown}</code></li>')
    key = "".join(f'<span class="{origin}">{page.say(text)}</span>'
                  for origin, text in (("sampled", _ORIGINS["sampled"]), ("jumped", _ORIGINS["jumped"])))
    return f'<ol class="answers">{"".join(items)}</ol>\n<p class="keys answers-key">{key}</p>'


def _visible(page: Page, text: str) -> str:
    """A token's text with its blanks; the stop token, which has none, by what it does."""
    return f"({page.say('end')})" if text.startswith("<control") else text.replace(" ", "␣")


def player(page: Page, *names: str) -> str:
    """The player of these recordings."""
    for name in names:
        recording(name)
    source = " ".join(f"{page.up}recordings/{name}.json" for name in names)
    keys = page.say("Keys, once the player has the focus: {arrows} a turn, {ends}, {space} plays; {marks} to the next "
                    "mask, jump, draft, rejection.")
    for place, names_ in (("arrows", "→ ←"), ("ends", "Home End"), ("space", "space"), ("marks", "m j d r")):
        keys = keys.replace(f"{{{place}}}", " ".join(f"<kbd>{key}</kbd>" for key in names_.split()))
    without = page.say("The player needs JavaScript. This prints a request turn by turn:")
    return (f'<div class="jf-player" data-src="{source}" data-heading="3"></div>\n'
            f"<noscript><p>{without} <code>jumpforward step --stage 2 --plain</code></p></noscript>\n\n"
            f'<p class="keys">{keys}</p>')


def vocabulary(name: str) -> str:
    """How many tokens the recorded model can choose from."""
    return next(f"{frame['mask']['width']:,}" for frame in recording(name)["frames"] if frame["mask"])


def request(page: Page, name: str) -> str:
    """What the recorded request asked for, and what came."""
    one = recording(name)
    return (f"- {page.say('Prompt')}: `{one['request']['prompt']}`\n"
            f"- {page.say('Regex')}: `{one['request']['constraint']['source']}`\n"
            f"- {page.say('Answer')}: `{one['answer']}`")


def fsm(page: Page, pattern: str) -> str:
    """A regex's minimal automaton, as the stepper draws it.

    Raises:
        SiteError: the stepper draws none of it.
    """
    automaton = automaton_of(Constraint.regex(pattern))
    if automaton is None:
        raise SiteError(f"no automaton for {pattern!r}")
    drawn = draw(automaton)
    return (f'<figure class="fsm"><div class="scroll" tabindex="0" role="region" '
            f'aria-label="{page.say("The automaton")}">{drawn.svg}'
            f"</div><figcaption><code>{escape(pattern)}</code>. {escape(drawn.text)}</figcaption></figure>")
