"""Another thread at the worst moment: it does all its work while the first one stands at a line of the answer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_PATIENCE_S = 2.0
"""So long the first thread stands still at most: where the answer has a lock, the other one waits for it."""


@contextmanager
def interrupted(file: str, line: int, act: Callable[[], object]) -> Iterator[list[int]]:
    """While this lasts, `act` is done on another thread when this one comes to the `line`-th line it runs in `file`.

    Returns:
        The lines of `file` that this thread ran, in their order; complete when this has ended.
    """
    seen: list[int] = []
    other = threading.Thread(target=act, daemon=True)

    def look(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == line:
                other.start()
                other.join(_PATIENCE_S)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield seen
    finally:
        sys.settrace(before)
        if other.ident is not None:
            other.join()  # the check's own time limit ends this, too
