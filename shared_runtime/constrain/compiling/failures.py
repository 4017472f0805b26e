"""What a failure is called here, and how long it is remembered: the one place that says so, for all stages.

Every error that ends a request is one of our own, and says whose fault it is (`JumpforwardError.blame`):

grammar
    It would fail again: a syntax error, a size limit, a refusal or a panic of the library. Remembered, so that a bad
    grammar costs one compile however often it is asked for.
unclear
    The compile ran, and ended for want of time, of memory, of a file or a process, or was interrupted. That may be
    the grammar or the machine. The next request tries again; after the second failure in a row every second one does,
    then every fourth, and so on: a loaded minute condemns nothing for good, and n requests for a hostile grammar cost
    no more than log n compiles.
machine
    Nothing was compiled to its end: there was no thread, or the compile still runs. Not remembered. It needs no bound,
    because asking again takes up the same compile where it still runs (`CompilePool`), and else waits for a thread.

What counts is requests and not seconds: requests come in the same order on every rank, so all ranks try again together.
"""

from __future__ import annotations

import re
from concurrent.futures import CancelledError
from typing import Final

from shared_runtime.errors import Blame, ConstraintError, JumpforwardError

_STARVED: Final = (MemoryError, OSError, ImportError, KeyboardInterrupt, CancelledError)
_SAYS_STARVED: Final = re.compile(r"bad_alloc|out of memory|cannot allocate|start new thread|temporarily unavailable",
                                  re.IGNORECASE)
_MOST_DOUBLINGS: Final = 10


def blame_of(error: BaseException) -> Blame:
    """Whose fault it is that a compile ended with `error`."""
    if isinstance(error, JumpforwardError):
        return error.blame
    return "unclear" if isinstance(error, _STARVED) or _SAYS_STARVED.search(_text(error)) else "grammar"


def own_error(error: BaseException, where: str = "constraint") -> JumpforwardError:
    """The error as one of our family; our own stay as they are, without the frames that raised them."""
    if isinstance(error, JumpforwardError):
        return error.with_traceback(None)
    return ConstraintError(f"the grammar library failed: {type(error).__name__}: {_text(error)}", where=where,
                           fix="try another --backend").blamed(blame_of(error))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a library's own class may fail at that too
        return "it has no text"


def library_fault(error: BaseException, rid: str) -> JumpforwardError:
    """What a request ends with because a call into its grammar raised, on the thread of the loop.

    To be asked for every exception: a panic of a Rust library is no `Exception`. What comes from the user and not from
    a library, an interrupt, is raised again.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        raise error
    return own_error(error, where=f"request {rid}")


class Refusal:
    """A failure as a cache keeps it. Each request that asks is answered by it, or is to try again.

    Args:
        error: what was raised. earlier: what the cache held of the same constraint before.
    """

    def __init__(self, error: JumpforwardError, earlier: object = None) -> None:
        self.error = error
        before = earlier.unclear_in_a_row if isinstance(earlier, Refusal) else 0
        self.unclear_in_a_row: int = before + (error.blame == "unclear")
        self._answers_left = (1 << min(max(0, self.unclear_in_a_row - 1), _MOST_DOUBLINGS)) - 1

    def answers(self) -> bool:
        """Whether it answers the request that asks now. To be called once a request."""
        if self.error.blame == "unclear":
            self._answers_left -= 1
            return self._answers_left >= 0
        return self.error.blame == "grammar"
