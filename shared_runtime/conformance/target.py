"""A stage with one of its backends: what a case is tried on."""

from __future__ import annotations

from dataclasses import dataclass

from shared_runtime.constraint import ConstraintKind
from shared_runtime.errors import ConfigError
from shared_runtime.policy import StageSpec
from stages import all_stages, get_stage


@dataclass(frozen=True, slots=True)
class Target:
    """A stage with one of its backends."""

    spec: StageSpec
    backend: str

    def __str__(self) -> str:
        return f"stage{self.spec.id}-{self.backend}"

    def supports(self, kind: ConstraintKind) -> bool:
        """Whether the stage claims the kind with this backend."""
        return kind in self.spec.capabilities.kinds_of(self.backend)


def all_targets() -> tuple[Target, ...]:
    """Every stage with every backend, oldest stage first, its default backend first."""
    return tuple(Target(spec, backend) for spec in all_stages() for backend in spec.capabilities.backends)


def targets_of(stage: str, backend: str | None) -> tuple[Target, ...]:
    """The targets that `--stage` (a number, a name or "all") and `--backend` name.

    Raises:
        ConfigError: there is no such stage, or none of the stages named has the backend.
    """
    specs = all_stages() if stage == "all" else (get_stage(stage),)
    found = tuple(target for target in all_targets() if target.spec.id in {spec.id for spec in specs}
                  and backend in (None, target.backend))
    if not found:
        known = sorted({name for spec in specs for name in spec.capabilities.backends})
        raise ConfigError(f"stage {stage} has no backend {backend!r}", where="--backend",
                          fix=f"use one of: {', '.join(known)}")
    return found
