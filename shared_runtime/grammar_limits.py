"""Limits on what a grammar may cost."""

from __future__ import annotations

from dataclasses import dataclass

from shared_runtime.setting_checks import check_seconds, check_whole


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Safe defaults against grammars that would hang the process or fill its memory (contracts, section 10).

    Attributes:
        compile_timeout: seconds a compile may take before its request ends with `GrammarTimeoutError`.
        max_states: most states an automaton may have.
        mask_timeout: seconds that one row's mask may take; past it a few times in a row, the request ends with
            `GrammarTimeoutError`. A cheap compile is no promise of cheap masks.
    """

    compile_timeout: float = 10.0
    max_states: int = 20_000
    mask_timeout: float = 0.05

    def __post_init__(self) -> None:
        check_seconds("compile_timeout", self.compile_timeout)
        check_whole("max_states", self.max_states)
        check_seconds("mask_timeout", self.mask_timeout)
