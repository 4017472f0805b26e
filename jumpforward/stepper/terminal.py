"""The stepper in a terminal: one recording, a turn at a time."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Key, Resize
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Footer, Static

from jumpforward.console import visible
from jumpforward.stepper.frames import Frame
from jumpforward.stepper.panes import ORIGIN_STYLES, loop_text, mask_text, says_text, state_text, tokens_text
from jumpforward.stepper.recording import Recording

_SECONDS_A_TURN = 1.2
_ENOUGH = (110, 36)
"""Columns and rows from which on all panes have room side by side."""

_PANES = (("says", "what happened"), ("mask", "allowed tokens"), ("state", "automaton and grammar"),
          ("loop", "batch, queues, memory"))
_HELP = (
    ("right, n", "next turn"), ("left, p", "turn before"), ("home, end", "first and last turn"),
    ("space", "play, and stop"), ("m", "next mask"), ("j", "next jump, or forced text"), ("d", "next draft"),
    ("r", "next rejected draft"), ("o", "next turn with overlap"), ("g", "next shut gate, with its reason"),
    ("1 2 3 4", "in a small terminal: one pane at a time"), ("v", "the pane behind it"),
    ("tab, arrows", "into a pane, and through it"), ("q", "quit"))


class Help(ModalScreen[None]):
    """Keys and colours; any key closes it."""

    CSS = """
    Help { align: center middle; }
    #help { width: 62; max-width: 100%; height: auto; max-height: 100%; border: round $primary; padding: 0 1;
            background: $surface; }
    """

    def compose(self) -> ComposeResult:
        """The keys, then a token of each colour."""
        text = Text()
        for keys, what in _HELP:
            text.append(f"{keys:<13}", style="bold")
            text.append(f"{what}\n")
        text.append("\ntokens  ")
        for origin, style in ORIGIN_STYLES.items():
            text.append(origin.replace("_", " "), style=style)
            text.append("  ")
        with VerticalScroll(id="help") as box:
            yield Static(text)
        box.border_title = "keys (any key closes this)"

    def on_key(self, event: Key) -> None:
        """Close it; the key does nothing else."""
        event.stop()
        self.dismiss()


class Stepper(App[None]):
    """Plays a recording. Keys are in the footer and behind `?`; the panes scroll by mouse, or by tab and the arrows.

    Where the terminal is too small for all panes, one is shown at a time.

    Args:
        recording: what to play.
    """

    CSS = """
    Screen { layout: vertical; }
    #head { height: 2; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; background: $primary-background; }
    #answer { height: auto; min-height: 3; max-height: 30%; border: round $primary; padding: 0 1; }
    #says { height: auto; max-height: 40%; border: round $accent; padding: 0 1; }
    #panes { height: 1fr; }
    #panes VerticalScroll { width: 1fr; border: round $surface-lighten-2; padding: 0 1; }
    .small #answer { max-height: 5; }
    .small #says { height: 1fr; max-height: 100%; }
    .small .behind { display: none; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,n", "go(1)", "next"), Binding("left,p", "go(-1)", "back"),
        Binding("home", "end(False)", "first", show=False), Binding("end", "end(True)", "last", show=False),
        Binding("space", "play", "play"),
        Binding("m", "seek('mask')", "mask"), Binding("j", "seek('jump')", "jump"),
        Binding("d", "seek('draft')", "draft"), Binding("r", "seek('rejection')", "rejection"),
        Binding("o", "seek('overlap')", "overlap", show=False), Binding("g", "seek('gate')", "gate", show=False),
        *(Binding(str(number), f"pane({number - 1})", title, show=False)
          for number, (_, title) in enumerate(_PANES, 1)),
        Binding("v", "pane(-1)", "the next pane", show=False),
        Binding("question_mark,f1", "keys", "keys", key_display="?"), Binding("q", "quit", "quit"),
    ]

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self.index = 0
        self._playing: Timer | None = None
        self._pane = 0

    def compose(self) -> ComposeResult:
        """The panes, top to bottom."""
        yield Static(id="head")
        with VerticalScroll(id="answer") as answer:
            yield Static(id="answer-text")
        with VerticalScroll(id="says"):
            yield Static(id="says-text")
        with Horizontal(id="panes"):
            for name, _ in _PANES[1:]:
                with VerticalScroll(id=name):
                    yield Static(id=f"{name}-text")
        yield Footer(compact=True)
        answer.border_title = "the answer so far"

    def on_mount(self) -> None:
        """Show the first turn."""
        self._arrange()
        self._show()

    def on_resize(self, event: Resize) -> None:
        """All panes where there is room, else one."""
        self.screen.set_class(event.size.width < _ENOUGH[0] or event.size.height < _ENOUGH[1], "small")

    def _arrange(self) -> None:
        for number, (name, title) in enumerate(_PANES):
            pane = self.query_one(f"#{name}", VerticalScroll)
            pane.set_class(number != self._pane, "behind")
            pane.border_title = title
            pane.border_subtitle = f"{number + 1} of {len(_PANES)}, v: next" if self.screen.has_class("small") else ""
        self.query_one("#panes", Horizontal).set_class(self._pane == 0, "behind")

    # keys

    def action_go(self, by: int) -> None:
        """Forward or back."""
        self._stop()
        self._move(self.index + by)

    def action_end(self, last: bool) -> None:
        """To the first or the last turn."""
        self._stop()
        self._move(len(self.recording.frames) - 1 if last else 0)

    def action_pane(self, number: int) -> None:
        """The pane to show where there is room for one; -1 for the one behind it."""
        self._pane = (self._pane + 1) % len(_PANES) if number < 0 else number
        self._arrange()

    def action_keys(self) -> None:
        """Show the keys."""
        self._stop()
        self.push_screen(Help())

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
        shown = {"head": self._head(frame), "answer-text": tokens_text(tokens, frame.keep),
                 "says-text": says_text(frame), "mask-text": mask_text(frame),
                 "state-text": state_text(frame, self.recording.picture), "loop-text": loop_text(frame)}
        for name, text in shown.items():
            self.query_one(f"#{name}", Static).update(text)

    def _head(self, frame: Frame) -> Text:
        recording = self.recording
        stage, constraint = recording.stage, recording.request["constraint"]
        text = Text.assemble(f"turn {self.index + 1} of {len(recording.frames)}, pass {frame.passes} of "
                             f"{recording.counts['forward_passes']}")
        if self._playing is not None:
            text.append("   playing", style="bold green")
        text.append(f"   stage {stage['id']}: {stage['title']}", style="bold")
        text.append(f"\n{visible(str(recording.request['prompt']))}", style="dim")
        if isinstance(constraint, dict):
            source = constraint["source"] or " | ".join(constraint["choices"])
            text.append(f"   {constraint['kind']} {visible(source)}", style="dim")
        return text
