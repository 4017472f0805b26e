"""Row 58: a sampling that was put off is a closure, and whoever keeps the result keeps mask and logits with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from torch import Tensor

from shared_runtime import scheduler
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.token_chooser import Support, TokenChooser
from shared_runtime.verification import Run
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

ChooserClass = type[TokenChooser]


class KeepsItsClosures(TokenChooser):
    """Specimen of `TokenChooser`: what samples a pass is kept with its results."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._put_off: list[Callable[[], list[Run]]] = []

    def sample(self, logits: Tensor, batch: ScheduleBatch, support: Support) -> list[Run]:
        """By a closure, as when the results of the pass before must come first."""
        sample = super().sample
        self._put_off.append(lambda: sample(logits, batch, support))
        return self._put_off[-1]()


def nothing_stays_of_a_pass(chooser_class: ChooserClass, bench: Bench) -> None:
    """Thirty constrained tokens: after each turn only the newest pass, and one on its way, may have its logits."""
    seen: list[weakref.ref[Tensor]] = []
    real = chooser_class.constrain

    def constrain(self: TokenChooser, logits: Tensor, *rest: Any) -> Support:
        seen.append(weakref.ref(logits))
        return real(self, logits, *rest)

    for overlap in (False, True):
        seen.clear()
        with patch.object(scheduler, "TokenChooser", chooser_class), \
                patch.object(chooser_class, "constrain", constrain):
            engine = bench.engine(5, overlap=overlap)
            engine.add_request("x", sampling=ask("").sampling, constraint=ask("[0-9]{30}").constraint)
            most = 0
            while engine.has_work:
                engine.step()
                most = max(most, sum(ref() is not None for ref in seen))
        hold(len(seen) > 10, f"only {len(seen)} passes were seen")
        hold(most <= 2, f"the logits of {most} passes are in memory at once")


def scenario(bench: Bench) -> None:
    """The same with whatever chooser the scheduler makes."""
    nothing_stays_of_a_pass(type(bench.engine(5).scheduler._chooser), bench)


EXHIBIT: Exhibit[ChooserClass] = Exhibit(
    58, KeepsItsClosures, {"runtime": TokenChooser}, nothing_stays_of_a_pass, "passes are in memory at once",
    Injection(scheduler, "TokenChooser", KeepsItsClosures, scenario, "passes are in memory at once"))
