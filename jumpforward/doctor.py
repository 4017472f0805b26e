"""`jumpforward doctor`: what this machine has, what is broken, and how to mend it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jumpforward.console import wants_colour
from jumpforward.exit_codes import OK, REQUEST_ERROR

if TYPE_CHECKING:
    from shared_runtime.model.cached_folder import FolderSpec

Status = Literal["ok", "note", "broken"]
_STYLE: dict[Status, str] = {"ok": "\x1b[32m", "note": "\x1b[33m", "broken": "\x1b[1;31m"}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_GIB = 2**30
# Weights in fp32, the KV pool, torch itself, and the conversion's peak.
_NEEDED_MEMORY = 3 * _GIB


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at. status: `broken` when nothing runs without it, `note` for what is optional.
        detail: what was found. fix: how to mend it, "" when there is nothing to mend.
    """

    name: str
    status: Status
    detail: str
    fix: str = ""


def examine() -> list[Check]:
    """Every check, in the order in which one rests on the other."""
    checks = [check_python(sys.version_info[:3]), check_packages(_requirements())]
    checks += _guarded("torch", check_torch)
    checks += [check_memory(_total_memory())]
    checks += _guarded("cache", check_cache)
    checks += _guarded("model", check_embedded_model)
    checks += check_tools(shutil.which)
    return checks


def _requirements() -> list[str]:
    """What this project's own metadata asks for; nothing when it is not installed."""
    try:
        return importlib.metadata.requires("jumpforward") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def show_doctor(as_json: bool, measure: bool) -> int:
    """Print the findings, and with `measure` the fastest settings; exit code 1 when something is broken."""
    checks = examine()
    broken = [check for check in checks if check.status == "broken"]
    report: dict[str, object] = {"ok": not broken, "checks": [asdict(check) for check in checks]}
    if not as_json:
        for check in checks:
            print(line(check, colour=wants_colour(sys.stdout)))
        print("everything that is needed is there" if not broken else
              f"broken: {', '.join(check.name for check in broken)}")
    if measure and not broken:
        from jumpforward.measure import measure_settings

        report["measured"] = measure_settings(quiet=as_json)
    if as_json:
        json.dump(report, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    return REQUEST_ERROR if broken else OK


def line(check: Check, *, colour: bool) -> str:
    """A finding in one line, its fix in a second one."""
    status = f"{check.status:<6}"
    if colour:
        status = f"{_STYLE[check.status]}{status}\x1b[0m"
    text = f"{status}  {check.name:<9} {check.detail}"
    return text if not check.fix else f"{text}\n{'':18}-> {check.fix}"


def _guarded(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """The check's findings; a library that cannot even be imported is a finding too."""
    try:
        return list(check())
    except (ImportError, OSError) as error:
        return [Check(name, "broken", f"{type(error).__name__}: {error}", "install again: make setup")]


def check_python(version: tuple[int, ...]) -> Check:
    """Is it new enough?"""
    found = ".".join(str(part) for part in version)
    if version < (3, 11):
        return Check("python", "broken", f"{found} is too old",
                     "use Python 3.11 or newer: PYTHON=python3.12 make setup")
    return Check("python", "ok", f"{found} on {platform.system()} {platform.machine()}")


def check_packages(requirements: list[str]) -> Check:
    """Is everything installed that the command line needs?"""
    names = [re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0] for one in requirements if "extra ==" not in one]
    missing = [name for name in names if not _installed(name)]
    if missing or not names:
        return Check("packages", "broken", f"not installed: {', '.join(missing) or 'jumpforward'}",
                     "install again: make setup")
    return Check("packages", "ok", f"all {len(names)} that are needed are installed")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def check_torch() -> Iterable[Check]:
    """Version, what it makes of this processor, and which devices it sees."""
    import torch

    from shared_runtime.config import default_threads, usable_cores

    cores = usable_cores()
    yield Check("torch", "ok", f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}")
    has_mkldnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # untyped in torch
    if has_mkldnn:
        yield Check("mkldnn", "ok", "available")
    else:
        yield Check("mkldnn", "note", "not in this torch: linear layers take the plain way", "the usual builds have it")
    yield Check("cpu", "ok", f"{cores} cores usable, default --threads {default_threads(cores)}")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield Check("cuda", "ok", f"{', '.join(names)} (--device cuda)")
    else:
        why = "this torch is a CPU build" if torch.version.cuda is None else "no device or driver answers"
        yield Check("cuda", "note", f"none: {why}; everything runs on the CPU",
                    "with an NVIDIA GPU, see 'With a GPU' in README.md")


def _total_memory() -> int | None:
    """Bytes of memory, None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(total: int | None) -> Check:
    """Is there enough for the embedded model in fp32?"""
    if total is None:
        return Check("memory", "note", "this system does not say how much there is")
    if total < _NEEDED_MEMORY:
        return Check("memory", "note", f"{total / _GIB:.1f} GiB is little for the embedded model in fp32",
                     "use --dtype bf16")
    return Check("memory", "ok", f"{total / _GIB:.1f} GiB")


def check_cache() -> Iterable[Check]:
    """Can the cache folder be written?"""
    from shared_runtime.cache_dir import CACHE_VARIABLE, cache_dir

    folder = cache_dir()
    refusal = _write_refusal(folder)
    if refusal is None:
        yield Check("cache", "ok", f"{folder} can be written")
    else:
        yield Check("cache", "broken", f"{folder} cannot be written: {refusal}",
                    f"make it writable, or set {CACHE_VARIABLE} to a folder that is")


def _write_refusal(folder: Path) -> str | None:
    """Why nothing can be written below `folder`, None when it can; leaves nothing behind."""
    place = _nearest_folder(folder)
    if not place.is_dir():
        return f"{place} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _nearest_folder(folder: Path) -> Path:
    """`folder`, or what exists of the way to it."""
    return next((place for place in (folder, *folder.parents) if place.exists()), folder)


def check_embedded_model() -> Iterable[Check]:
    """Is the embedded model in place; if not, is there room for it?"""
    from shared_runtime.model.embedded import SMOLLM2, embedded_spec

    spec = embedded_spec()
    yield check_model(spec)
    free = shutil.disk_usage(_nearest_folder(spec.path)).free
    yield check_disk(free, 0 if spec.is_whole() else SMOLLM2.needed_bytes)


def check_model(spec: FolderSpec) -> Check:
    """Is the converted model whole?"""
    if spec.is_whole():
        return Check("model", "ok", f"{spec.path.name} is in place")
    if spec.path.exists():
        return Check("model", "note", f"{spec.path.name} is damaged, or of an older version",
                     "nothing to do: the next run makes it anew")
    return Check("model", "note", f"{spec.path.name} is not here yet",
                 "nothing to do: the first run fetches it (about 100 MB) and converts it")


def check_disk(free: int, needed: int) -> Check:
    """Is there room for what the next run writes?"""
    from shared_runtime.cache_dir import CACHE_VARIABLE

    if free < needed:
        return Check("disk", "broken", f"{free / 1e6:,.0f} MB are free, the model needs {needed / 1e6:,.0f} MB",
                     f"free some space, or set {CACHE_VARIABLE} to a folder on another disk")
    return Check("disk", "ok", f"{free / 1e9:,.1f} GB free")


def check_tools(which: Callable[[str], str | None]) -> Iterable[Check]:
    """What some commands use when it is there; nothing of it is needed to run a stage."""
    yield _tool("git", which("git"), "for work on the repository", "install git")
    browsers = [found for name in _BROWSERS if (found := which(name))]
    yield _tool("chromium", browsers[0] if browsers else None, "for tests in a browser",
                "install chromium; other tests do not need it")
    triton = "triton" if importlib.util.find_spec("triton") is not None else None
    yield _tool("triton", triton, "for kernels on a GPU", "comes with a CUDA build of torch")


def _tool(name: str, found: str | None, purpose: str, fix: str) -> Check:
    if found is None:
        return Check(name, "note", f"not found ({purpose}; optional)", fix)
    return Check(name, "ok", f"found ({purpose})")
