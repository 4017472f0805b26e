"""The stepper in a terminal: one recording, a turn at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.timer import Timer
from textual.widgets import Footer, Static

from jumpforward.console import visible
from jumpforward.stepper.automaton import visible_text
from jumpforward.stepper.frames import Frame, Token
from jumpforward.stepper.recording import Recording
from jumpforward.stepper.words import share

_STYLES = {"sampled": "cyan underline", "jumped": "bold yellow underline2", "forced": "bold yellow underline2",
           "draft_accepted": "bold magenta underline", "draft_rejected": "red strike"}
_BORDERS = ("grey15", "grey23")
_SECONDS_A_TURN = 1.2
_BAR = 16


class Stepper(App[None]):
    """Plays a recording. Keys are in the footer; the panes scroll with the mouse, or with tab and the arrows.

    Args:
        recording: what to play.
    """

    CSS = """
    Screen { layout: vertical; }
    #head { height: auto; padding: 0 1; background: $primary-background; }
    #answer { height: auto; min-height: 3; max-height: 30%; border: round $primary; padding: 0 1; }
    #says { height: auto; max-height: 40%; border: round $accent; padding: 0 1; }
    #panes { height: 1fr; }
    #panes VerticalScroll { width: 1fr; border: round $surface-lighten-2; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,n", "go(1)", "next"), Binding("left,p", "go(-1)", "back"),
        Binding("home", "end(False)", "first", show=False), Binding("end", "end(True)", "last", show=False),
        Binding("space", "play", "play"),
        Binding("m", "seek('mask')", "mask"), Binding("j", "seek('jump')", "jump"),
        Binding("d", "seek('draft')", "draft"), Binding("r", "seek('rejection')", "rejection"),
        Binding("o", "seek('overlap')", "overlap", show=False), Binding("g", "seek('gate')", "gate", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self.index = 0
        self._playing: Timer | None = None

    def compose(self) -> ComposeResult:
        """The panes, top to bottom."""
        yield Static(id="head")
        with VerticalScroll(id="answer") as answer:
            yield Static(id="answer-text")
        with VerticalScroll(id="says") as says:
            yield Static(id="says-text")
        with Horizontal(id="panes"):
            for name, title in (("mask", "allowed tokens"), ("state", "automaton and grammar"),
                                ("loop", "batch, queues, memory")):
                with VerticalScroll(id=name) as pane:
                    yield Static(id=f"{name}-text")
                pane.border_title = title
        yield Footer()
        answer.border_title, says.border_title = "the answer so far", "what happened"

    def on_mount(self) -> None:
        """Show the first turn."""
        self._show()

    # keys

    def action_go(self, by: int) -> None:
        """Forward or back."""
        self._stop()
        self._move(self.index + by)

    def action_end(self, last: bool) -> None:
        """To the first or the last turn."""
        self._stop()
        self._move(len(self.recording.frames) - 1 if last else 0)

    def action_seek(self, mark: str) -> None:
        """To the next turn with a mark, from the beginning again behind the last one."""
        self._stop()
        found = [index for index, frame in enumerate(self.recording.frames) if mark in frame.marks]
        if found:
            self._move(next((index for index in found if index > self.index), found[0]))
        else:
            self.notify(f"there is no {mark} in this recording")

    def action_play(self) -> None:
        """Start or stop playing."""
        if self._playing is not None:
            self._stop()
            return
        if self.index == len(self.recording.frames) - 1:
            self._move(0)
        self._playing = self.set_interval(_SECONDS_A_TURN, self._tick)
        self._show()

    def _tick(self) -> None:
        if self.index == len(self.recording.frames) - 1:
            self._stop()
        else:
            self._move(self.index + 1)

    def _stop(self) -> None:
        if self._playing is not None:
            self._playing.stop()
            self._playing = None
            self._show()

    def _move(self, index: int) -> None:
        self.index = min(max(0, index), len(self.recording.frames) - 1)
        self._show()

    # panes

    def _show(self) -> None:
        frame = self.recording.frames[self.index]
        tokens = self.recording.tokens_at(self.index)
        shown = {"head": self._head(frame), "answer-text": _tokens(tokens, frame.keep), "says-text": _says(frame),
                 "mask-text": _mask(frame), "state-text": _state(frame, self.recording.picture),
                 "loop-text": _loop(frame)}
        for name, text in shown.items():
            self.query_one(f"#{name}", Static).update(text)

    def _head(self, frame: Frame) -> Text:
        recording = self.recording
        stage, constraint = recording.stage, recording.request["constraint"]
        text = Text.assemble((f"stage {stage['id']}: {stage['title']}", "bold"), f"   turn {self.index + 1} of "
                             f"{len(recording.frames)}, pass {frame.passes} of {recording.counts['forward_passes']}")
        if self._playing is not None:
            text.append("   playing", style="bold green")
        text.append(f"\n{visible(str(recording.request['prompt']))}", style="dim")
        if isinstance(constraint, dict):
            source = constraint["source"] or " | ".join(constraint["choices"])
            text.append(f"   {constraint['kind']} {visible(source)}", style="dim")
        return text


def _tokens(tokens: Sequence[Token], fresh_from: int) -> Text:
    """Tokens side by side on two shades, so that their borders show; the new ones reversed."""
    text = Text()
    for index, token in enumerate(tokens):
        style = _STYLES[token.origin] + f" on {_BORDERS[index % 2]}" + (" reverse" if index >= fresh_from else "")
        text.append(visible_text(token.text) or " ", style=style)
    return text or Text("nothing yet", style="dim")


def _says(frame: Frame) -> Text:
    text = Text("\n".join(f"• {line}" for line in frame.says))
    if frame.here:
        text.append(f"\n{frame.here}", style="yellow")
    if frame.rewrite is not None:
        text.append("\nbefore ")
        text.append_text(_tokens(frame.rewrite.old, frame.rewrite.common))
        text.append("\nafter  ")
        text.append_text(_tokens(frame.rewrite.new, frame.rewrite.common))
    if frame.draft:
        text.append("\ndraft  ")
        text.append_text(_tokens(frame.draft, len(frame.draft)))
    return text


def _mask(frame: Frame) -> Text:
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


def _state(frame: Frame, picture: Mapping[str, object] | None) -> Text:
    text = Text()
    if frame.state is not None:
        text.append(f"automaton state {frame.state}\n", style="bold")
        edges = () if picture is None else picture["edges"]
        assert isinstance(edges, Sequence)
        for start, end, label, inside in edges:
            if frame.state == end:
                text.append(f"  {start} ─{label}→ {end}\n", style="dim")
            elif frame.state == start or frame.state in inside:
                text.append(f"  {start} ─{label}→ {end}{' (a chain)' if inside else ''}\n")
        text.append("\n")
    for name, value in frame.grammar.items():
        text.append(f"{name:<15}", style="dim")
        text.append(f"{visible_text(value) if isinstance(value, str) else value}\n")
    return text or Text("no grammar", style="dim")


def _loop(frame: Frame) -> Text:
    text = Text()
    for rid, mode, fed in frame.batch:
        text.append(f"{rid}: {mode}, reads {fed}\n")
    for name, rids in frame.queues.items():
        text.append(f"{name:<11}", style="dim")
        text.append(f"{', '.join(rids)}\n")
    text.append("\nKV slots\n", style="bold")
    for name, slots in frame.kv.items():
        text.append(f"{name:<11}", style="dim")
        text.append(f"{slots}\n")
    if frame.tree:
        text.append("\nradix tree\n", style="bold")
        _add_node(text, frame, 0, 0)
    if frame.events:
        text.append("\norder of events\n", style="bold")
        text.append("\n".join(frame.events) + "\n")
    if frame.overlap or frame.gate:
        text.append(f"overlap {'on' if frame.overlap else 'off'}" + (f", gate: {frame.gate}" if frame.gate else ""))
    return text


def _add_node(text: Text, frame: Frame, number: int, depth: int) -> None:
    node = frame.tree[number]
    shown = "root" if node.slots == 0 else visible_text(node.text[-24:])
    text.append(f"{'  ' * depth}{shown} ", style="cyan" if node.locked else "")
    text.append(f"{node.slots}{' held' if node.locked else ''}\n", style="dim")
    for child in node.children:
        if child > number and depth < 40:  # a recording may come from anywhere: no circles
            _add_node(text, frame, child, depth + 1)
