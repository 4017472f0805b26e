"""What several ranks agree is compiled, when they tell each other no more than how much (upstream's #2020, 2024-11).

Each rank counts what is over at the front of its queue, and all take as much as the rank that is ahead; one that is
behind waits for its own compiles. A count can name grammars only because every rank holds the same queue: where one had
let a request past the queue and another had not, it named others (museum rows 36, 43 and 56). Sets, which say what they
mean, came in 2026 (#17100).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from typing import TypeVar

from shared_runtime.errors import JumpforwardError
from shared_runtime.execution.rank_group import RankGroup

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_NAP_S = 0.0005


def over_on_all(queue: Sequence[K], look: Callable[[K], T | JumpforwardError | None],
                ranks: RankGroup) -> dict[K, T | JumpforwardError]:
    """The compiles that count as over, in queue order, the same ones on every rank.

    A process alone has nobody to agree with, and takes whatever is over, wherever it stands in the queue.

    Args:
        queue: from its front. look: what has come of a compile on this rank, None while it goes on; it has a time
            limit of its own. ranks: to agree with; each must call at the same point with the same queue.

    Returns:
        Results, or errors: what failed on one rank has failed on all, with the lowest rank's error (ours: upstream's
        ranks parted there until #16898).
    """
    if ranks.size == 1 or not queue:
        looked = {key: look(key) for key in queue}
        return {key: outcome for key, outcome in looked.items() if outcome is not None}
    count = max(ranks.from_each(len(list(takewhile(lambda key: look(key) is not None, queue)))))
    mine = {key: _wait(key, look) for key in queue[:count]}
    errors = ranks.from_each({key: outcome for key, outcome in mine.items() if isinstance(outcome, JumpforwardError)})
    for seen in reversed(errors):
        mine |= seen
    return mine


def _wait(key: K, look: Callable[[K], T | JumpforwardError | None]) -> T | JumpforwardError:
    while (outcome := look(key)) is None:
        time.sleep(_NAP_S)
    return outcome
