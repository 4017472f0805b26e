"""What the tests of the exercises work with: the museum's bench, and a learner's part in the place of a real one.

The sandbox imports this before it forks, so that a check does not wait for it.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from jumpforward.exercises.case import Case, shown
from shared_runtime.tokenizer import Tokenizer
from tests.museum.bench import Bench
from tests.museum.tiny import tiny_bytes_folder

# Imported for the fork server alone: the parts that most exercises put a learner's code into.
import stages.stage1_copied_fsm.decoder  # isort: skip
import stages.stage2_jump_forward.decoder  # noqa: F401  # isort: skip

torch.set_num_threads(1)

@contextmanager
def bench() -> Iterator[Bench]:
    """A bench with a tiny model of its own; everything goes at the end."""
    with tempfile.TemporaryDirectory(prefix="exercise-") as folder:
        model = tiny_bytes_folder(Path(folder) / "model")
        made = Bench(model, Tokenizer.from_folder(model), Path(folder))
        try:
            yield made
        finally:
            made.close()


@contextmanager
def in_place(owner: object, name: str, part: object) -> Iterator[None]:
    """`part` where `owner.name` is, as long as this lasts."""
    with patch.object(owner, name, part):
        yield


def each(check: Callable[..., None], inputs: dict[str, tuple[Any, ...]]) -> list[Case]:
    """One case for each named input of a check: `check(part, *input)`. What the part raises is told with the input."""
    return [Case(name, partial(_call, check, words)) for name, words in inputs.items()]


def _call(check: Callable[..., None], words: tuple[Any, ...], part: Any) -> None:
    try:
        check(part, *words)
    except (AssertionError, NotImplementedError):
        raise  # a check's own words name the input
    except Exception as error:
        names = [*inspect.signature(check).parameters][1:len(words) + 1]
        told = [f"{name} {shown(word)}" for name, word in zip(names, words, strict=True)]
        error.add_note(f"the input: {', '.join(told)}")
        raise
