"""Pieces made from the committed traces: the walk "is it the grammar or the loop?", and what each turn says."""

from __future__ import annotations

import json
from typing import Any

from scripts.site.page import RECORDINGS, Page, SiteError, recording
from scripts.site.recording_pieces import label
from scripts.walk_trace import report


def _trace(name: str) -> list[dict[str, Any]]:
    try:
        lines = (RECORDINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SiteError(f"docs/recordings/{name}.jsonl: {error.strerror}") from error
    return [json.loads(line) for line in lines]


def walk_text(name: str) -> str:
    """What `scripts/walk_trace.py` says of a committed trace."""
    return f"```text\n{report(_trace(name))}\n```"


def sync_table(page: Page, *names: str) -> str:
    """In how many turns of each trace there was a grammar, and in how many the ranks agreed on tokens."""
    rows = []
    for name in names:
        turns = _trace(name)
        having, synced = (sum(one[what] for one in turns) for what in ("has_grammar", "tp_token_sync"))
        kind = page.say("with a regex" if having else "without a constraint")
        rows.append(f"| {kind} | {len(turns)} | {having} | {synced} |")
    head = " | ".join(page.say(name) for name in (
        "request on three ranks", "turns", "with a grammar", "tokens synchronised"))
    return f"| {head} |\n|---|--:|--:|--:|\n" + "\n".join(rows)


def events(name: str, passes: str) -> str:
    """The events of the first passes of a trace, in the order in which they happened; passes count from 0."""
    found = [(event["seq"], f"{event['name']}({at})")
             for at, one in enumerate(_trace(name)[:int(passes)]) for event in one["events"]]
    return "```text\n" + "\n".join(text for _, text in sorted(found)) + "\n```"


def gates(page: Page, *names: str) -> str:
    """For each trace or recording, how many turns overlapped, and what kept the others from it."""
    rows = []
    for name in names:
        one = recording(name)
        found = [frame["gate"] or ("yes" if frame["overlap"] else "off") for frame in one["frames"]]
        reasons = ", ".join(f"{reason}: {found.count(reason)}" for reason in dict.fromkeys(found))
        rows.append(f"| {label(page, one)} | {reasons} |\n")
    return f"| | {page.say('turns that overlapped, or why not')} |\n|---|---|\n" + "".join(rows)


def overruled(page: Page, name: str) -> str:
    """What the first turn of a recording says in which the model's likeliest token was forbidden.

    Raises:
        SiteError: there is no such turn.
    """
    for at, frame in enumerate(recording(name)["frames"], 1):
        mask = frame["mask"]
        if mask and not mask["raw"][0][2]:
            return f"> {page.say('Turn')} {at}. " + " ".join(frame["says"])
    raise SiteError(f"{name}: no turn in which the likeliest token was forbidden")
