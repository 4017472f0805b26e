"""What every test shares: the model folders, and engines that must leave their books balanced."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("COLUMNS", None)  # the width of whose terminal runs the tests must not decide them

import hypothesis
import torch

from shared_runtime.assembly import LoadedModel
from shared_runtime.config import EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.model.embedded import ensure_embedded
from tests.tiny_models import tiny_folder

torch.set_num_threads(1)

# The same examples every time: a search that may find something new belongs to whoever looks for it
# (HYPOTHESIS_PROFILE=search), not to a run that says whether a change is good.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

EngineFactory = Callable[..., Engine]

QUICK_SHARE = {"conformance/": 90, "museum/": 12, "unit/test_stage": 6, "unit/test_c": 9, "unit/test_d": 3,
               "unit/test_exact": 4, "unit/test_m": 3, "unit/test_o": 4, "unit/test_r": 3, "unit/test_sc": 4,
               "unit/test_sampl": 3, "unit/test_verification": 3, "unit/test_failing": 4, "unit/test_parallel": 3,
               "execution/": 40, "unit/test_a": 3, "unit/test_packaging": 3, "unit/test_t": 2,
               "exercises/": 10, "bench/": 10, "browser/": 10, "docs/": 8, "stepper/": 8,
               "notebooks/": 4, "history/": 2}
"""Of the tests whose path begins so, which are many or repeat over every stage, `--quick` runs one in so many."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`: what to run while you work."""
    parser.addoption("--quick", action="store_true",
                     help="leave out what is slow, and run a fixed sample of what repeats over every stage")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop what `--quick` leaves out; the sample depends on a test's name alone, so it is the same every time."""
    if config.getoption("--quick"):
        kept = [item for item in items if _is_quick(item)]
        config.hook.pytest_deselected(items=[item for item in items if not _is_quick(item)])
        items[:] = kept
    _keep_groups_together(config, items)


def _keep_groups_together(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let `xdist_group` mean something: pytest-xdist 3.8 renames the items of a group by an attribute that pytest 9.2
    does not read any more, so each process would build for itself what a group shares."""
    if not config.getoption("loadgroup", False):  # set by xdist in its processes
        return
    for item in items:
        groups = "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))
        if groups and not item.nodeid.endswith(f"@{groups}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{groups}")


def _is_quick(item: pytest.Item) -> bool:
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    share = next((share for start, share in QUICK_SHARE.items() if path.startswith(start)), 1)
    return item.get_closest_marker("slow") is None and zlib.crc32(item.nodeid.encode()) % share == 0


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The real model's folder; fetched and converted on first use."""
    return ensure_embedded()


@pytest.fixture(scope="session")
def tiny_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with the real model's tokenizer: the same 49,152 tokens, a pass in a millisecond."""
    folder = tmp_path_factory.mktemp("tiny")
    return tiny_folder(folder, tokenizer_from=embedded_folder)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built documentation site. A build takes half a minute: what uses it is marked `xdist_group("site")`."""
    from scripts.site.build import build

    folder = tmp_path_factory.mktemp("site")
    done = build(folder / "source", folder / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="session")
def tiny_loaded() -> dict[Hashable, LoadedModel]:
    """The tiny model as it was loaded with each setting: most of what an engine costs, and the same for all."""
    return {}


@pytest.fixture
def make_engine(tiny_model: Path, tiny_loaded: dict[Hashable, LoadedModel]) -> Iterator[EngineFactory]:
    """Make engines on the tiny model; after the test the books of each must balance, with nothing left over.

    The model and its tokenizer are those of the test before, if that asked for the same.
    """
    made: list[Engine] = []

    def make(**settings: object) -> Engine:
        settings.setdefault("model", str(tiny_model))
        settings.setdefault("kv_pool_tokens", 2048)
        settings.setdefault("limits", GrammarLimits(compile_timeout=120.0))  # a busy machine must not decide a test
        config = EngineConfig(**settings)  # type: ignore[arg-type]  # settings are checked by EngineConfig
        key = (config.load_format, config.dtype, config.weights, config.device, config.exact)
        known = tiny_loaded.get(key) if config.model == str(tiny_model) else None
        engine = Engine(config, loaded=known)
        if config.model == str(tiny_model):
            tiny_loaded[key] = engine.parts.loaded
        made.append(engine)
        return engine

    yield make
    torch.set_num_threads(1)
    for engine in made:
        engine.check_integrity()
        engine.close()
