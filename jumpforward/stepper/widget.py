"""The stepper in a notebook: the player of the web page on a live decoder, and the compile of a regex that is typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from jumpforward.stepper.pipeline import pipeline_of
from jumpforward.stepper.recording import Recording
from shared_runtime.errors import JumpforwardError
from shared_runtime.vocabulary import Vocabulary

_PLAYER = Path(__file__).resolve().parent / "player"


class StepperWidget(anywidget.AnyWidget):
    """Shows recordings, with a button for each; `index` is the turn that is shown, and can be set.

    Args:
        recordings: one, or several to compare, such as the five stages on one request.
        labels: of their buttons; left out, each is named after its stage and switches.
    """

    _esm = _PLAYER / "player.js"
    _css = _PLAYER / "player.css"
    recordings = traitlets.List(traitlets.Dict()).tag(sync=True)
    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)

    def __init__(self, recordings: Recording | Sequence[Recording], **traits: Any) -> None:
        several = [recordings] if isinstance(recordings, Recording) else list(recordings)
        super().__init__(recordings=[one.as_dict() for one in several], **traits)


class PipelineWidget(anywidget.AnyWidget):
    """A field for a regex, and the steps of its compile, one at a time; `pattern` can be set, too.

    Args:
        pattern: the first regex. vocabulary: what the token index is made for.
    """

    _esm = _PLAYER.parent / "pipeline.js"
    _css = _PLAYER / "player.css"
    pattern = traitlets.Unicode().tag(sync=True)
    steps = traitlets.List(traitlets.Dict()).tag(sync=True)
    error = traitlets.Unicode().tag(sync=True)

    def __init__(self, pattern: str, vocabulary: Vocabulary, **traits: Any) -> None:
        super().__init__(pattern=pattern, **traits)
        self._vocabulary = vocabulary
        self.observe(lambda _: self._compile(), "pattern")
        self._compile()

    def _compile(self) -> None:
        try:
            made = pipeline_of(self.pattern, self._vocabulary)
        except JumpforwardError as error:
            self.steps, self.error = [], str(error)
            return
        self.steps = [{"name": step.name, "sizes": step.sizes_text, "ms": f"{step.ms:.2f}", "html": step.as_html()}
                      for step in made.steps]
        self.error = ""
