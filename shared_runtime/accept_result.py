"""What a grammar is shown in step 8 of the loop, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared_runtime.errors import JumpforwardError

if TYPE_CHECKING:
    from shared_runtime.request import Request


@dataclass(frozen=True, slots=True)
class SampledRow:
    """The tokens that one request got in this pass, in order; one unless drafts were verified."""

    req: Request
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AcceptResult:
    """What a grammar made of a `SampledRow`.

    Attributes:
        n_accepted: how many of the tokens it took; the rest are not emitted.
        terminated: nothing can follow; the request ends.
        error: the grammar failed; the request ends with it and the others go on.
    """

    n_accepted: int
    terminated: bool = False
    error: JumpforwardError | None = None
