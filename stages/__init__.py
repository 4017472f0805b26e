"""The stages, in order: a registry that imports a stage when it is asked for.

A later stage joins with one line in `_PACKAGES`. What first came when is data, so that an error can name the
stage that has a thing before that stage is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from shared_runtime.constraint import ConstraintKind
from shared_runtime.errors import ConfigError
from shared_runtime.policy import Capabilities, StageSpec

__all__ = ["all_stages", "first_stage_able", "first_stage_with", "get_stage"]

_PACKAGES: dict[int, str] = {
    1: "stage1_copied_fsm",
    2: "stage2_jump_forward",
    3: "stage3_outlines",
    4: "stage4_backends",
    5: "stage5_backend_jump",
}

_FIRST_WITH: dict[ConstraintKind, int] = {
    "regex": 1, "choice": 1, "json_schema": 3, "json_object": 4, "ebnf": 4, "structural_tag": 4,
}


def get_stage(stage: int | str) -> StageSpec:
    """A stage by its number (1 or "1") or its package's name.

    Raises:
        ConfigError: there is no such stage; the message names those that there are.
    """
    for number, name in _PACKAGES.items():
        if str(stage) in (str(number), name):
            spec = importlib.import_module(f"{__name__}.{name}").STAGE
            assert isinstance(spec, StageSpec)
            return spec
    known = ", ".join(f"{number} ({name})" for number, name in _PACKAGES.items())
    raise ConfigError(f"there is no stage {stage!r}", where="stage", fix=f"use one of: {known}")


def all_stages() -> tuple[StageSpec, ...]:
    """Every stage, oldest first."""
    return tuple(get_stage(number) for number in _PACKAGES)


def first_stage_with(kind: ConstraintKind) -> int:
    """The first generation whose requests could ask for `kind`."""
    return _FIRST_WITH[kind]


def first_stage_able(able: Callable[[Capabilities], bool]) -> int | None:
    """The first generation whose capabilities satisfy `able`; None when none does."""
    return next((spec.id for spec in all_stages() if able(spec.capabilities)), None)
