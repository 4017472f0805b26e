"""Keeps the conversions of a person's own GGUF files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from shared_runtime.cache_dir import cache_dir
from shared_runtime.errors import CheckpointError
from shared_runtime.model.cached_folder import FolderSpec, build_folder
from shared_runtime.model.embedded import FOLDER_FILES
from shared_runtime.model.gguf import Progress, convert_gguf, converted_bytes


def gguf_folder(path: Path, progress: Progress | None = None) -> Path:
    """The Hugging Face folder of a GGUF file, converted on first use.

    The file is known by place, size and time of change, so editing it or replacing it converts again; its
    bytes are not hashed, which for a large model takes longer than loading it.

    Raises:
        CheckpointError: the file cannot be read or is not supported, the disk is full, or the cache cannot be
            written.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror}", where=str(path)) from error
    mark = hashlib.sha256(f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}".encode()).hexdigest()
    stem = re.sub(r"[^\w.-]+", "-", path.stem)[:60]
    spec = FolderSpec(cache_dir() / "models" / f"{stem}-{mark[:12]}", mark, FOLDER_FILES)
    if spec.is_whole():
        return spec.path
    return build_folder(spec, lambda folder: convert_gguf(path, folder, progress), needed_bytes=converted_bytes(path))
