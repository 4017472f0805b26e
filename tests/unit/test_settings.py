"""Settings check themselves: a value of the wrong type is an error that names the setting, not a failure later on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared_runtime.config import EngineConfig
from shared_runtime.errors import ConfigError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions

WRONG: dict[type, dict[str, tuple[object, ...]]] = {
    StageOptions: {
        "jump_forward": ("no", None, 1), "min_jump_bytes": ("2", 0, True, None, 1.5), "whitespace": ("none", None, []),
        "strict": ("yes", 0), "disk_cache": ("folder", 3), "backend_jump": ("both", None), "spec": (True, "n-gram"),
    },
    EngineConfig: {
        "kv_pool_tokens": ("8192", 0, None, 1.5, True), "max_running_requests": ([], -1),
        "chunked_prefill_size": ("all", 0), "threads": ("two", 0), "exact": ("yes", None), "overlap": ("on", 1),
        "dtype": ("float", None), "limits": (None, 10.0), "options": (None, {}), "sync_token_ids": (0,),
    },
    GrammarLimits: {
        "compile_timeout": ("10", -1, None, float("nan"), True), "max_states": (0, 1e4, "many"),
        "mask_timeout": (-0.1, []),
    },
}


@pytest.mark.parametrize(("kind", "name", "value"), [
    (kind, name, value) for kind, settings in WRONG.items() for name, values in settings.items() for value in values])
def test_a_value_of_the_wrong_kind_names_its_setting(kind: type, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: "):
        kind(**{name: value})


def test_limits_and_options_that_mean_something_are_taken(tmp_path: Path) -> None:
    given: dict[str, Any] = {"compile_timeout": 0, "mask_timeout": float("inf"), "max_states": 1}
    assert GrammarLimits(**given).max_states == 1
    assert StageOptions(disk_cache=tmp_path, think_end="<x>", min_jump_bytes=1).disk_cache == tmp_path
