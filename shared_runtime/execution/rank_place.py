"""Which of several processes this one is, as whoever started it has written into its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared_runtime.errors import ConfigError

MEETING_VARIABLE = "JUMPFORWARD_MEETING"
"""Where the processes that `launch` starts meet; `torchrun` has variables of its own."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A process among those that share a model.

    Attributes:
        rank: from 0. size: how many there are. local_rank: which one of this machine, and so which GPU.
        address: where they meet: `env://` (as `torchrun` has set it), `tcp://host:port` or `file:///path`.
    """

    rank: int
    size: int
    local_rank: int
    address: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RankPlace | None:
        """The place that `torchrun` or `launch` has given this process; None for a process alone.

        Raises:
            ConfigError: variables that contradict each other.
        """
        address = environment.get(MEETING_VARIABLE) or ("env://" if environment.get("MASTER_ADDR") else None)
        shown = {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if name in environment}
        if address is None or "RANK" not in shown or shown.get("WORLD_SIZE", "1") == "1":
            return None
        if not all(value.isdecimal() for value in shown.values()) or int(shown["RANK"]) >= int(shown["WORLD_SIZE"]):
            said = " ".join(f"{name}={value}" for name, value in shown.items())
            raise ConfigError(f"{said} is no place among ranks", where="environment",
                              fix="start with torchrun or --tp, or unset them")
        return cls(int(shown["RANK"]), int(shown["WORLD_SIZE"]), int(shown.get("LOCAL_RANK", shown["RANK"])), address)
