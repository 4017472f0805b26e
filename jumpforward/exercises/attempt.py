"""Calls into a learner's code, and what went wrong there in words that say what to do."""

from __future__ import annotations

import errno
import traceback
from bdb import BdbQuit
from collections.abc import Callable
from pathlib import Path

_MOST_SAID = 300  # characters of an error's own words


def attempt(call: Callable[[], object], answer: Path, memory_mb: int) -> str | None:
    """What was wrong with a call; None for nothing. Whatever it raises ends here.

    Args:
        answer: the learner's file or folder; the message names the line in it. memory_mb: the limit that there is.
    """
    try:
        call()
    except BaseException as error:
        return _in_words(error, place_in(answer, error), memory_mb)
    return None


def _in_words(error: BaseException, place: str, memory_mb: int) -> str:
    match error:
        case AssertionError():  # `Wrong`, or what the museum's bench found broken
            return str(error) or f"an assertion of yours failed{place}"
        case NotImplementedError():
            return f"not written yet{place}: {error}"
        case SyntaxError():
            where = f" ({Path(error.filename).name}, line {error.lineno})" if error.filename and error.lineno else ""
            return f"this is no Python: {error.msg}{where}"
        case SystemExit():
            return f"your code ended the program with sys.exit({error.code!r}){place}; return or raise instead"
        case BdbQuit():
            return f"your code stops in a debugger{place}, and a check has no keyboard; print what you want to see"
        case EOFError():
            return f"your code waits for somebody to type{place}, and a check has no keyboard"
        case OSError(errno=errno.EFBIG):
            return f"your code printed or wrote more than a check may keep{place}: a loop that prints without end?"
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return f"it asked for more than {memory_mb} MB of memory{place}"
    said = str(error)
    cut = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]} ..."
    return "; ".join([f"it raised {type(error).__name__}: {cut}{place}", *getattr(error, "__notes__", ())])


def place_in(answer: Path, error: BaseException) -> str:
    """Where in the learner's code an error came from, " (file, line n)"; "" when it did not."""
    base = str(answer.resolve())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if str(Path(frame.filename).resolve()).startswith(base)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
