"""What happened in a turn, in sentences; the same ones in the terminal, the notebook and on the web page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jumpforward.stepper.frames import Frame, Token

_MOST_SHOWN = 40


def says(frame: Frame, rid: str) -> list[str]:
    """The turn in order: what was written before the pass, what the pass read, what the mask did, what came out."""
    lines = [*_rewritten(frame), *_read(frame), *_masked(frame), *_came_out(frame), *_loop(frame, rid)]
    return lines or ["Nothing of this request was computed in this turn."]


def ended(frame: Frame, written: list[Token]) -> list[str]:
    """A request's end in a turn that had no pass for it; `written` is what a jump wrote last."""
    lines = ([f"The grammar leaves only one way on: {_joined(written)} is written, not sampled, and no pass reads it."]
             if written else [])
    return [*lines, f"The request ends: {_WHY.get(frame.finish or '', frame.finish)}."]


def quoted(text: str) -> str:
    """`text` in quotation marks, cut off when it is long; blanks and control characters as something to see."""
    from jumpforward.stepper.automaton import visible_text

    cut = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN - 1] + "…"
    return f"“{visible_text(cut)}”"


def share(probability: float) -> str:
    """A probability as a percentage that never rounds to nothing or to all."""
    percent = 100 * probability
    if percent >= 99.95 and probability < 1:
        return "more than 99.9 %"
    if 0 < percent < 0.001:
        return "less than 0.001 %"
    return f"{percent:.3g} %"


def _rewritten(frame: Frame) -> list[str]:
    rewrite = frame.rewrite
    if rewrite is None:
        return []
    old, changed = len(rewrite.old), len(rewrite.old) - rewrite.common
    lines = [f"The grammar leaves only one way on: {quoted(rewrite.text)} is written, not sampled. The whole answer is "
             f"tokenized again: {_count(old, 'token')} {'becomes' if old == 1 else 'become'} {len(rewrite.new)}."]
    if changed == 1:
        lines.append("One token that had been computed already is spelled otherwise now: its keys and values are "
                     "computed again.")
    elif changed:
        lines.append(f"{changed} tokens that had been computed already are spelled otherwise now: their keys and "
                     "values are computed again.")
    return lines


def _read(frame: Frame) -> list[str]:
    if frame.mode == "idle":
        return []
    if frame.mode == "extend":
        found = (f"{_count(frame.prefix_hit, 'token')} of it {'was' if frame.prefix_hit == 1 else 'were'} found in the "
                 "radix tree, so " if frame.prefix_hit else "")
        return [f"Pass {frame.passes} (extend): {found}{_count(frame.fed, 'token')} "
                f"{'is' if frame.fed == 1 else 'are'} read at once."]
    if frame.fed == 1:
        return [f"Pass {frame.passes} (decode): one token is read, {quoted(frame.fed_text)}."]
    return [f"Pass {frame.passes} (decode): {frame.fed} tokens are read at once."]


def _masked(frame: Frame) -> list[str]:
    mask = frame.mask
    if mask is None:
        return []
    lines = [f"The grammar allows {mask.allowed:,} of {mask.width:,} tokens; the model had put {share(mask.mass)} of "
             "its probability on them."]
    if mask.raw and not mask.raw[0][2] and mask.masked:
        lines.append(f"Without the mask the likeliest token would be {quoted(mask.raw[0][0])}, now it is "
                     f"{quoted(mask.masked[0][0])}.")
    return lines


def _came_out(frame: Frame) -> list[str]:
    lines = []
    taken = [token for token in frame.draft if token.origin == "draft_accepted"]
    if frame.draft:
        lines.append(f"A draft of {_count(len(frame.draft), 'token')} was verified in this pass: "
                     + (f"{_joined(taken)} would have been chosen anyway and is kept" if taken else "none is kept")
                     + (f", {_count(len(frame.draft) - len(taken), 'token')} thrown away." if
                        len(taken) < len(frame.draft) else "."))
    new = frame.tokens if frame.rewrite is None else frame.tokens[len(frame.rewrite.new) - frame.keep:]
    forced = [token for token in new if token.origin == "forced"]
    if forced:
        lines.append(f"{_joined(forced)} is forced by the grammar: appended without being sampled, and read in the "
                     "same pass.")
    sampled = [token for token in new if token.origin == "sampled"]
    if sampled:
        lines.append(f"{_joined(sampled)} is chosen.")
    if frame.finish is not None:
        lines.append(f"The request ends: {_WHY.get(frame.finish, frame.finish)}.")
    return lines


_WHY = {"stop": "nothing may follow", "length": "it has as many tokens as it may have", "abort": "it was aborted",
        "error": "it failed"}


def _loop(frame: Frame, rid: str) -> list[str]:
    lines = []
    others = len({name for name, _, _ in frame.batch} - {rid})
    if others:
        lines.append(f"{_count(others, 'other request')} {'is' if others == 1 else 'are'} in the same pass.")
    if rid in frame.queues.get("retracted", []):
        lines.append("Memory ran out: the request goes back into the queue; its output and its grammar's state stay.")
    if frame.overlap:
        lines.append("The next pass was launched before these results were looked at.")
    elif frame.gate is not None:
        lines.append(f"{_GATES.get(frame.gate, 'The next pass had to wait for these results')} (gate: {frame.gate}).")
    return lines


_GATES = {
    "speculation": "The next pass had to wait: its draft is verified under a grammar that must have taken these tokens",
    "backend_jump": "The next pass had to wait: it reads what is forced, and that is known when the grammar has taken "
                    "these tokens",
    "drafts": "The next pass had to wait: how many drafted tokens stay, or what is drafted next, is known only now",
    "prefill": "The next pass had to wait: the prompt's keys and values, which others may share, are still computed",
    "memory": "The next pass had to wait: memory is short, and who must give way depends on who has ended",
    "nothing_to_run": "No pass was launched early: all that run are sure to end",
}
"""Why the loop did not run ahead, by the gate's reason (`shared_runtime/trace.py`)."""


def _joined(tokens: list[Token]) -> str:
    text = quoted("".join(token.text for token in tokens))
    return text if len(tokens) == 1 else f"{text} ({len(tokens)} tokens)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_HERE: dict[int, dict[str, str]] = {
    1: {"mask": "Stage 1 builds this mask alone for this request, from the FSM's table, and moves the state on the CPU "
                "after sampling. Also where only one text can follow, it is sampled token by token.",
        "extend": "Stage 1 compiled the FSM before the request was queued: its background thread is waited for."},
    2: {"jump": "Stage 2 takes the request out of the batch before the decode step: its keys and values go into the "
                "radix tree, its slots are freed, and it comes back as a new prompt that finds its beginning there.",
        "mask": "Stage 2 masks as stage 1 does; what is new is the map from a state to the text that is forced there.",
        "extend": "The first token is sampled before anything can be jumped: a jump stands in front of a decode step."},
    3: {"jump": "Stage 3 jumps as stage 2 did. The map is still its own; the index that has to follow the new tokens "
                "is Outlines'.",
        "mask": "Stage 3 asks Outlines' guide which tokens may come; the copied code is gone.",
        "extend": "Stage 3 builds index and map while the request waits at the door."},
    4: {"jump": "Stage 4 jumps through three methods of the grammar object, whatever the library behind it.",
        "mask": "Stage 4 fills one packed bit mask for the whole batch, row by row, and applies it once.",
        "overlap": "Stage 4 overlaps by an event: the forward thread waits before sampling until the mask is ready. "
                   "Jumping is off then.",
        "gate": "Stage 4 launches the next pass before this one's token is known; with the gate shut it waits for the "
                "results, as a loop without overlap does.",
        "extend": "Stage 4 compiled the grammar in a pool, while other requests ran."},
    5: {"jump": "The scheduler knows nothing of this: the backend said what is forced, and the pass that reads the "
                "newest token reads the forced ones too. This is ours; SGLang has no caller for it since #4032.",
        "draft": "Lossless: the masked model itself decides at every position, so the text is that of plain masking.",
        "overlap": "Stage 5 delays sampling: the forward runs while the last results are taken in, then the mask is "
                   "filled, then it samples.",
        "gate": "Here the loop does not run ahead; one function decides it for every loop.",
        "mask": "Stage 5 fills one mask for the batch by the library's own batch call; the scheduler never jumps.",
        "extend": "Stage 5's grammar manager compiled the grammar while other requests ran."},
}


def here_differs(stage: int, frame: Frame) -> str:
    """What this stage does otherwise than its neighbours, in a turn like this one; "" where it does not."""
    known = _HERE.get(stage, {})
    for mark in ("jump", "draft", "gate", "overlap"):
        if mark in frame.marks and mark in known:
            return known[mark]
    if frame.mode == "extend" and frame.passes == 1:
        return known.get("extend", "")
    return known.get("mask", "") if frame.mask is not None else ""
