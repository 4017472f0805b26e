"""The ways to run a stage, and which of its backends this machine has."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

from shared_runtime.conformance.target import Target
from shared_runtime.policy import StageOptions, StageSpec

LIBRARIES = {"xgrammar": "xgrammar", "llguidance": "llguidance", "outlines": "outlines_core"}


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run a stage: a name, and what it sets."""

    name: str
    overlap: bool | None = False
    options: StageOptions = field(default_factory=StageOptions)


def modes_of(spec: StageSpec) -> list[Mode]:
    """The ways of a stage to run, those it has: plain first."""
    can = spec.capabilities
    known = [
        (True, Mode("plain", options=StageOptions(jump_forward=False))),
        ("scheduler" in can.jump_forward, Mode("jump")),
        (can.overlap, Mode("overlap", overlap=True, options=StageOptions(jump_forward=False))),
        ("draft" in can.jump_forward, Mode("draft", options=StageOptions(backend_jump="draft"))),
        ("force" in can.jump_forward, Mode("force", options=StageOptions(backend_jump="force"))),
        ({"draft", "force"} <= set(can.jump_forward),
         Mode("force+draft", options=StageOptions(backend_jump="force+draft"))),
        (can.speculation, Mode("ngram", options=StageOptions(spec="ngram"))),
    ]
    return [mode for has, mode in known if has]


def missing_for(target: Target) -> list[str]:
    """The libraries that a stage with this backend needs and this machine has not."""
    needed = [LIBRARIES[target.backend]] if target.backend in LIBRARIES else []
    needed += ["interegular"] if target.spec.id < 4 or target.backend == "outlines" else []
    return [name for name in needed if importlib.util.find_spec(name) is None]
