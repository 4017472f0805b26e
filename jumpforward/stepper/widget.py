"""The stepper in a notebook: the same player as on the web page, on a live decoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from jumpforward.stepper.recording import Recording

_PLAYER = Path(__file__).resolve().parent / "player"


class StepperWidget(anywidget.AnyWidget):
    """Shows recordings, with a button for each; `index` is the turn that is shown, and can be set.

    Args:
        recordings: one, or several to compare, such as the five stages on one request.
    """

    _esm = _PLAYER / "player.js"
    _css = _PLAYER / "player.css"
    recordings = traitlets.List(traitlets.Dict()).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)

    def __init__(self, recordings: Recording | Sequence[Recording], **traits: Any) -> None:
        several = [recordings] if isinstance(recordings, Recording) else list(recordings)
        super().__init__(recordings=[one.as_dict() for one in several], **traits)
