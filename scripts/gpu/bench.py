"""What checks and measurements share: engines on one model, requests, and which modes a stage has here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.ledger import Ledger, NotHereError
from benchmarks.modes import Mode, missing_for, modes_of
from shared_runtime.config import EngineConfig
from shared_runtime.conformance.target import Target, all_targets
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams

CARD = Constraint.regex(r'\{"name": "[a-z]{3,12}", "age": [0-9]{1,2}, "rank": "(captain|cook|mate)"\}')
"""Much of it is forced: what backend jump and drafts live on."""

MIXED: tuple[tuple[str, Constraint | None], ...] = (
    ("the date is ", Constraint.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")), ("once upon a time ", None),
    ("yes or no ", Constraint.choice(["yes", "no", "maybe"])), ("a word ", Constraint.regex('"[a-z]{3,12}"')),
    ("a card ", CARD))

@dataclass(frozen=True, slots=True)
class Bench:
    """One model on one device.

    Attributes:
        model, load_format, device: as `EngineConfig` takes them. ledger: where everything is told.
    """

    ledger: Ledger
    model: str
    load_format: str
    device: str

    @contextmanager
    def engine(self, mode: Mode | None = None, **settings: Any) -> Iterator[Engine]:
        """An engine with these settings; its books are checked when it is done."""
        values: dict[str, Any] = {"model": self.model, "load_format": self.load_format, "device": self.device,
                                  "overlap": False}
        if mode is not None:
            values |= {"overlap": mode.overlap, "options": mode.options}
        with Engine(EngineConfig(**(values | settings))) as engine:
            yield engine
            engine.check_integrity()

    def targets(self) -> list[Target]:
        """The (stage, backend) pairs whose library is installed here; the others are noted."""
        found = []
        for target in all_targets():
            missing = missing_for(target)
            if missing:
                text = f"{target} is left out: {', '.join(missing)} is not installed"
                if text not in self.ledger.notes:
                    self.ledger.note(text)
            else:
                found.append(target)
        return found

    def stage_5(self) -> Target:
        """Stage 5 with the first backend that is here.

        Raises:
            NotHereError: none is.
        """
        for target in self.targets():
            if target.spec.id == 5:
                return target
        raise NotHereError("no grammar library is installed")

    def mode(self, target: Target, name: str) -> Mode:
        """A mode by name.

        Raises:
            NotHereError: the stage does not have it in this version.
        """
        for mode in modes_of(target.spec):
            if mode.name == name:
                return mode
        raise NotHereError(f"stage {target.spec.id} has no {name} in this version")


def serve(engine: Engine, params: SamplingParams, times: int = 1) -> list[Result]:
    """The mixed requests together, so many times over."""
    return engine.generate([prompt for prompt, _ in MIXED] * times, sampling=params,
                           constraint=[bound for _, bound in MIXED] * times)


def in_language(bound: Constraint, text: str) -> bool:
    """Whether a finished text is what was asked for, by Python's own matcher."""
    if bound.kind == "choice":
        return text in bound.choices
    if bound.kind == "json_object":
        return isinstance(json.loads(text), dict)
    return re.fullmatch(bound.source, text, re.ASCII) is not None
