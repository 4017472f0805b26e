"""What the panes of the terminal stepper show of a turn, as rich text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from jumpforward.stepper.automaton import visible_text
from jumpforward.stepper.frames import Frame, Token
from jumpforward.stepper.words import share

ORIGIN_STYLES = {"sampled": "cyan underline", "jumped": "bold yellow underline2", "forced": "bold yellow underline2",
                 "draft_accepted": "bold magenta underline", "draft_rejected": "red strike"}
"""How a token looks, by how it came."""

_BORDERS = ("grey15", "grey23")
_BAR = 16


def tokens_text(tokens: Sequence[Token], fresh_from: int) -> Text:
    """Tokens side by side on two shades, so that their borders show; the new ones reversed."""
    text = Text()
    for index, token in enumerate(tokens):
        style = ORIGIN_STYLES[token.origin] + f" on {_BORDERS[index % 2]}" + (" reverse" if index >= fresh_from else "")
        text.append(visible_text(token.text) or " ", style=style)
    return text or Text("nothing yet", style="dim")


def says_text(frame: Frame) -> Text:
    """What happened, what the stage does otherwise here, and what was rewritten or drafted."""
    text = Text("\n".join(f"• {line}" for line in frame.says))
    if frame.here:
        text.append(f"\n{frame.here}", style="yellow")
    if frame.rewrite is not None:
        text.append("\nbefore ")
        text.append_text(tokens_text(frame.rewrite.old, frame.rewrite.common))
        text.append("\nafter  ")
        text.append_text(tokens_text(frame.rewrite.new, frame.rewrite.common))
    if frame.draft:
        text.append("\ndraft  ")
        text.append_text(tokens_text(frame.draft, len(frame.draft)))
    return text


def mask_text(frame: Frame) -> Text:
    """How many tokens may come, the mass that the mask removed, the best before and after it."""
    mask = frame.mask
    if mask is None:
        return Text("no mask in this turn", style="dim")
    text = Text(f"{mask.allowed:,} of {mask.width:,} allowed\nthe mask removed {share(1 - mask.mass)}\n")
    for title, rows in (("\nwhat the model wanted\n", mask.raw), ("\nunder the mask\n", mask.masked)):
        text.append(title, style="bold")
        for token, probability, allowed in rows:
            bar = "█" * max(1, round(_BAR * probability))
            text.append(f"{visible_text(token)[:12]:<12} {share(probability):>9} {bar}"
                        + ("" if allowed else " forbidden") + "\n", style="" if allowed else "red")
    return text


def state_text(frame: Frame, picture: Mapping[str, object] | None) -> Text:
    """The automaton around the current state, and the grammar's own account."""
    text = Text()
    if frame.state is not None:
        text.append(f"automaton state {frame.state}\n", style="bold")
        edges = () if picture is None else picture["edges"]
        assert isinstance(edges, Sequence)
        for start, end, label, inside in edges:
            if frame.state == start or frame.state in inside:
                text.append(f"  {start} ─{label}→ {end}{' (a chain)' if inside else ''}\n")
            elif frame.state == end:
                text.append(f"  {start} ─{label}→ {end}\n", style="dim")
        text.append("\n")
    for name, value in frame.grammar.items():
        text.append(f"{name:<15}", style="dim")
        text.append(f"{visible_text(value) if isinstance(value, str) else value}\n")
    return text or Text("no grammar", style="dim")


def loop_text(frame: Frame) -> Text:
    """Batch and queues, overlap and the gate, memory, the order of events, milliseconds."""
    text = Text()
    for rid, mode, fed in frame.batch:
        text.append(f"{rid}: {mode}, reads {fed}\n")
    if frame.overlap or frame.gate:
        text.append("overlap    ", style="dim")
        text.append("on\n" if frame.overlap else f"off, gate: {frame.gate}\n")
    _rows(text, {name: ", ".join(rids) for name, rids in frame.queues.items()})
    text.append("\nKV slots\n", style="bold")
    _rows(text, frame.kv)
    if frame.tree:
        text.append("\nradix tree\n", style="bold")
        _add_node(text, frame, 0, 0)
    if frame.events:
        text.append("\norder of events\n", style="bold")
        text.append("\n".join(frame.events) + "\n")
    if any(frame.ms.values()):
        text.append("\nmilliseconds, while recording\n", style="bold")
        _rows(text, {name: f"{ms:.1f}" for name, ms in frame.ms.items() if ms})
    return text


def _rows(text: Text, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        text.append(f"{name:<11}", style="dim")
        text.append(f"{value}\n")


def _add_node(text: Text, frame: Frame, number: int, depth: int) -> None:
    node = frame.tree[number]
    shown = "root" if node.slots == 0 else visible_text(node.text[-24:])
    text.append(f"{'  ' * depth}{shown} ", style="cyan" if node.locked else "")
    text.append(f"{node.slots}{' held' if node.locked else ''}\n", style="dim")
    for child in node.children:
        if child > number and depth < 40:  # a recording may come from anywhere: no circles
            _add_node(text, frame, child, depth + 1)
