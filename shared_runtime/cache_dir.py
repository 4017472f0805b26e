"""Where this project keeps what it has made once: converted models and, below them, nothing that can execute."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "JUMPFORWARD_CACHE"


def cache_dir() -> Path:
    """The cache folder: `$JUMPFORWARD_CACHE` if set and not empty, else the user's own cache folder.

    The folder need not exist yet; whoever writes into it creates it.
    """
    chosen = os.environ.get(CACHE_VARIABLE, "")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("jumpforward"))
