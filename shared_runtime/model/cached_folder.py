"""Builds a folder of the cache so that it is either whole or not there.

A folder is whole when its `complete.json` says so: it is written last, into a hidden sibling folder that is
then renamed into place. Whoever loads looks at `complete.json` first and never at a folder without one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from shared_runtime.cache_dir import CACHE_VARIABLE
from shared_runtime.errors import CheckpointError

FORMAT_VERSION = 1
"""Raise it whenever a conversion writes something else than before: every older folder is then rebuilt."""

COMPLETE = "complete.json"


@dataclass(frozen=True, slots=True)
class FolderSpec:
    """What a cached folder must hold to be loaded.

    Attributes:
        path: where it lies.
        source: what it was made from (a hash); another source means another folder.
        files: the files it must list, at least.
    """

    path: Path
    source: str
    files: tuple[str, ...]

    def is_whole(self) -> bool:
        """True when every file is there in its recorded size, of this source and format; milliseconds, no hashing."""
        try:
            record = json.loads((self.path / COMPLETE).read_text(encoding="utf-8"))
            return (record["format"] == FORMAT_VERSION and record["source"] == self.source
                    and set(self.files) <= set(record["files"])
                    and all((self.path / name).stat().st_size == entry["size"]
                            for name, entry in record["files"].items()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False


def build_folder(spec: FolderSpec, fill: Callable[[Path], None], *, needed_bytes: int,
                 error: type[CheckpointError] = CheckpointError) -> Path:
    """Return `spec.path`, whole; call `fill(temporary folder)` first when it is not.

    Processes that ask at the same time wait for one of them, and only that one builds.

    Args:
        spec: what must be there.
        fill: writes `spec.files` into the folder it is given.
        needed_bytes: free space required before `fill` is called.
        error: class of the exception for trouble with the disk.

    Raises:
        CheckpointError: (of class `error`) the disk is full or the cache cannot be written.
    """
    if spec.is_whole():
        return spec.path
    parent, name = spec.path.parent, spec.path.name
    with disk_errors(parent, error):
        parent.mkdir(parents=True, exist_ok=True)
        with FileLock(parent / f".{name}.lock"):
            if spec.is_whole():  # another process was faster
                return spec.path
            for stale in parent.glob(f".{name}.partial-*"):
                shutil.rmtree(stale, ignore_errors=True)  # a process was killed while it converted
            require_space(parent, needed_bytes, error)
            partial = parent / f".{name}.partial-{os.getpid()}"
            partial.mkdir()
            try:
                fill(partial)
                _seal(partial, spec)
                _replace(partial, spec.path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return spec.path


def require_space(folder: Path, needed_bytes: int, error: type[CheckpointError]) -> None:
    """Raise `error` unless the disk of `folder` has `needed_bytes` free."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise error(f"the disk is too full: {needed_bytes / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
                    where=str(folder), fix=f"free some space, or set {CACHE_VARIABLE} to a folder on another disk")


@contextmanager
def disk_errors(folder: Path, error: type[CheckpointError]) -> Iterator[None]:
    """Turn the operating system's refusals to write into `error`, one line with the way out."""
    try:
        yield
    except OSError as refusal:
        if refusal.errno in (errno.ENOSPC, errno.EDQUOT):
            raise error("the disk is full", where=str(folder),
                        fix=f"free some space, or set {CACHE_VARIABLE} to a folder on another disk") from refusal
        raise error(f"the cache cannot be written: {refusal.strerror or refusal}", where=str(folder),
                    fix=f"make it writable, or set {CACHE_VARIABLE} to a folder that is") from refusal


def file_sha256(path: Path, progress: Callable[[int, int], None] | None = None) -> str:
    """The sha256 of a file, in hex; `progress` is told (bytes done, bytes in all)."""
    digest = hashlib.sha256()
    total, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def _seal(partial: Path, spec: FolderSpec) -> None:
    """Write `complete.json`, and push everything to the disk before any name points at it."""
    files = {name: {"size": (partial / name).stat().st_size, "sha256": file_sha256(partial / name)}
             for name in spec.files}
    record = {"format": FORMAT_VERSION, "source": spec.source, "files": files}
    (partial / COMPLETE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    for path in [*(partial / name for name in (*spec.files, COMPLETE)), partial]:
        _fsync(path)


def _replace(partial: Path, final: Path) -> None:
    """Rename `partial` to `final`; what was there (older, or damaged) goes. The lock is held."""
    if final.exists():
        old = final.parent / f".{final.name}.partial-old-{os.getpid()}"
        final.rename(old)
        partial.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        partial.rename(final)
    _fsync(final.parent)


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder to sync it
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
