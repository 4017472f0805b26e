"""Row 20: the key on disk does not say which code wrote the file, so a repair leaves the wrong map in use."""

from __future__ import annotations

import json
from unittest.mock import patch

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.grammar_limits import GrammarLimits
from stages.stage2_jump_forward import disk_cache, fsm_cache
from stages.stage2_jump_forward.decoder import JumpForwardPolicy
from stages.stage2_jump_forward.disk_cache import DiskCache
from stages.stage2_jump_forward.fsm import build_fsm
from stages.stage2_jump_forward.tokenizer import ReducedVocabulary
from tests.museum.bench import Bench, hold, vocabulary_of
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import automaton


class KeyWithoutVersion(DiskCache):
    """Specimen of `DiskCache`: the pattern is the key."""

    def _head(self, pattern: str) -> bytes:
        return json.dumps({"pattern": pattern}).encode() + b"\n"


def other_code_is_another_key(cache_class: type[DiskCache], bench: Bench) -> None:
    """A file that older code wrote is not read."""
    reduced, dfa, budget = ReducedVocabulary(vocabulary_of(b"a", b"b")), automaton("ab*"), Budget(GrammarLimits())
    with patch.object(disk_cache, "version_of", return_value="before the repair"):
        old = cache_class(bench.scratch, reduced, GrammarLimits())
        old.save("ab*", build_fsm(dfa, reduced, budget))
        hold(old.load("ab*", dfa, budget) is not None, "what was saved is not found again")
    new = cache_class(bench.scratch, reduced, GrammarLimits())
    hold(new.load("ab*", dfa, budget) is None, "a map that older code wrote is used after the repair")


def scenario(bench: Bench) -> None:
    """One regex before and after an upgrade."""
    with patch.object(disk_cache, "version_of", return_value="before the repair"):
        JumpForwardPolicy(bench.context(disk_cache=bench.scratch)).fsm_cache.compiled("ab*")
    after = JumpForwardPolicy(bench.context(disk_cache=bench.scratch)).fsm_cache
    after.compiled("ab*")
    assert after.disk is not None
    hold(after.disk.loads == 0, "a map that older code wrote is used after the repair")


EXHIBIT: Exhibit[type[DiskCache]] = Exhibit(
    20, KeyWithoutVersion, {"stage2": DiskCache}, other_code_is_another_key, "older code wrote is used",
    Injection(fsm_cache, "DiskCache", KeyWithoutVersion, scenario, "older code wrote is used"))
