"""Finds the folder that a `--model` value means."""

from __future__ import annotations

from pathlib import Path

from shared_runtime.errors import CheckpointError
from shared_runtime.model.embedded import ensure_embedded
from shared_runtime.model.gguf import Progress
from shared_runtime.model.gguf_cache import gguf_folder
from shared_runtime.model.hub import HUB_ID, hub_folder

EMBEDDED = "embedded"


def locate_model(name: str, progress: Progress | None = None) -> Path:
    """The Hugging Face folder that `name` means; made or downloaded when it must be.

    Args:
        name: `embedded`, a folder, a `.gguf` file, or a hub id `owner/name`, tried in this order.
        progress: told (phase, done, total) in bytes while something is converted.

    Raises:
        CheckpointError: nothing of that name can be found, or what was found cannot be read.
        ModelDownloadError: the embedded model cannot be put in place.
    """
    if name == EMBEDDED:
        return ensure_embedded(progress)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.suffix.lower() == ".gguf":
        return gguf_folder(path, progress)
    if path.exists():
        raise CheckpointError("this file is no model", where=name,
                              fix="give the folder with config.json, or a .gguf file")
    if HUB_ID.fullmatch(name):
        return hub_folder(name)
    raise CheckpointError("there is no such model", where=name,
                          fix="give 'embedded', a folder with config.json, a .gguf file, or a hub id owner/name")
