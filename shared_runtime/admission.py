"""What a stage says of a request that has arrived: schedule it, wait for it, or why it cannot be served."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shared_runtime.errors import JumpforwardError


class AdmitState(Enum):
    """Answer of `admit` and `poll`."""

    READY = "ready"
    COMPILING = "compiling"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Admission:
    """READY (schedule it), COMPILING (ask `poll`), or REJECTED with the error that the request ends with."""

    state: AdmitState
    error: JumpforwardError | None = None


READY = Admission(AdmitState.READY)
COMPILING = Admission(AdmitState.COMPILING)


def rejected(error: JumpforwardError) -> Admission:
    """The admission of a request that ends here, with `error`."""
    return Admission(AdmitState.REJECTED, error)
