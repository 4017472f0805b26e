"""Row 40: every pass has an event that its sampler waits for, and a pass without a token to sample never sets it."""

from __future__ import annotations

import time
from unittest.mock import patch

from shared_runtime.constraint import Constraint
from shared_runtime.execution import event_loop
from shared_runtime.execution.event_loop import Permit
from shared_runtime.execution.side_stream import Mark
from shared_runtime.token_chooser import Preparation
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection

PermitClass = type[Permit]


class GivenWithAMask(Permit):
    """Specimen of `Permit`: it is given by whoever fills a mask. Its wait is cut short; upstream's was not."""

    def give(self, preparation: Preparation | None, mark: Mark = None) -> None:
        """Let the worker sample."""
        if preparation is not None:
            super().give(preparation, mark)

    def wait(self) -> Preparation | None:
        """A moment."""
        for _ in range(20):
            if self.given:
                break
            time.sleep(0.005)
        return self.preparation


def every_pass_is_released_once(permit_class: PermitClass, bench: Bench) -> None:
    """A prompt in three chunks, of which the last one is sampled, and four tokens; all passes on their way at last."""
    made: list[Permit] = []

    def permit() -> Permit:
        made.append(permit_class())
        return made[-1]

    with patch.object(event_loop, "Permit", permit):
        engine = bench.engine(4, overlap=True, chunked_prefill_size=3)
        result = bench.run(engine, [Ask("abcdefgh", Constraint.regex("[0-9]{4}"))])[0]
        engine.close()
    hold(len(made) >= result.metrics.forward_passes > 4, f"{len(made)} passes were seen")
    kept = sum(not permit.given for permit in made)
    hold(kept == 0, f"{kept} of {len(made)} passes are never released, and the sampler waits on")
    try:
        made[0].give(None)
    except AssertionError:
        return
    hold(False, "a pass is released a second time")


def scenario(bench: Bench) -> None:
    """The same with whatever the loop of stage 4 waits for."""
    every_pass_is_released_once(event_loop.Permit, bench)


EXHIBIT: Exhibit[PermitClass] = Exhibit(
    40, GivenWithAMask, {"stage4": Permit}, every_pass_is_released_once, "and the sampler waits on",
    Injection(event_loop, "Permit", GivenWithAMask, scenario, "and the sampler waits on"))
