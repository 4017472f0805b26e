"""The compile pipeline in a terminal: a regex that the reader types, and what each step makes of it, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, Static

from jumpforward.pipeline_view import rows_table
from jumpforward.stepper.pipeline import Pipeline
from shared_runtime.errors import JumpforwardError


class PipelineStepper(App[None]):
    """Steps through a compile; `/` goes to the regex, enter compiles it.

    Args:
        pattern: the first regex. compiled: makes the pipeline of one; raises `JumpforwardError`. It runs in a thread.
    """

    CSS = """
    Screen { layout: vertical; }
    #list { height: auto; max-height: 50%; border: round $primary; padding: 0 1; }
    #detail { height: 1fr; border: round $accent; padding: 0 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,n", "go(1)", "next"), Binding("left,p", "go(-1)", "back"),
        Binding("home", "go(-99)", "first"), Binding("end", "go(99)", "last"),
        Binding("slash", "edit", "regex"), Binding("escape", "steps", "to the steps", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, pattern: str, compiled: Callable[[str], Pipeline]) -> None:
        super().__init__()
        self.index = 0
        self.pipeline: Pipeline | None = None
        self._pattern = pattern
        self._compiled = compiled

    def compose(self) -> ComposeResult:
        """The regex, the steps so far, and the one in the middle of which the reader stands."""
        yield Input(self._pattern, id="regex")
        with VerticalScroll(id="list") as steps:
            yield Static(id="list-text")
        with VerticalScroll(id="detail"):
            yield Static(id="detail-text")
        yield Footer(compact=True)
        steps.border_title = "from the regex to masks and jumps"

    def on_mount(self) -> None:
        """Compile the first regex."""
        self.query_one("#regex", Input).border_title = "regex (enter compiles)"
        self.action_steps()
        self._compile(self._pattern)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Compile what was typed."""
        self.action_steps()
        self._compile(event.value)

    @work(thread=True, exclusive=True)
    def _compile(self, pattern: str) -> None:
        self.call_from_thread(self._say, "compiling ...")
        try:
            made = self._compiled(pattern)
        except JumpforwardError as error:
            self.call_from_thread(self._say, str(error))
        else:
            self.call_from_thread(self._take, made)

    def _take(self, pipeline: Pipeline) -> None:
        self.pipeline, self.index = pipeline, 0
        self._show()

    def _say(self, text: str) -> None:
        self.pipeline = None
        self.query_one("#list-text", Static).update(Text(text))
        self.query_one("#detail-text", Static).update("")

    # keys

    def action_go(self, by: int) -> None:
        """Forward or back."""
        if self.pipeline is not None:
            self.index = min(max(0, self.index + by), len(self.pipeline.steps) - 1)
            self._show()

    def action_edit(self) -> None:
        """Into the regex."""
        self.query_one("#regex", Input).focus()

    def action_steps(self) -> None:
        """Out of the regex, to the steps."""
        self.query_one("#detail", VerticalScroll).focus()

    def _show(self) -> None:
        assert self.pipeline is not None
        shown = Text()
        for number, step in enumerate(self.pipeline.steps[:self.index + 1], 1):
            style = "reverse" if number == self.index + 1 else ""
            shown.append(f"{number}. {step.name:<16}", style=f"bold {style}")
            shown.append(f" {step.ms:>8.2f} ms  {step.sizes_text}\n", style=style)
        behind = len(self.pipeline.steps) - self.index - 1
        shown.append(f"{behind} more" if behind else "the last step", style="dim")
        self.query_one("#list-text", Static).update(shown)
        step = self.pipeline.steps[self.index]
        text = Text(step.text)
        self.query_one("#detail-text", Static).update(Group(text, rows_table(step)) if step.rows else text)
        self.query_one("#detail", VerticalScroll).border_title = step.name
