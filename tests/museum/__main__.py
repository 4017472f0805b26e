"""`python -m tests.museum 27`: see one bug happen, and the real parts that do not have it. Without a number, all."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from jumpforward.museum import get_row
from shared_runtime.errors import ConfigError
from shared_runtime.tokenizer import Tokenizer
from tests.museum.bench import Bench, Broken
from tests.museum.exhibit import Exhibit
from tests.museum.exhibits import all_exhibits
from tests.museum.tiny import tiny_bytes_folder

SLOW_IMPORTS = ("llguidance", "outlines_core", "xgrammar")
"""What takes seconds to import: done first, so that no bounded wait has to wait for it."""

MakeBench = Callable[[], Bench]


def import_libraries() -> None:
    """Import what is slow to import."""
    for name in SLOW_IMPORTS:
        importlib.import_module(name)


@contextmanager
def benches() -> Iterator[MakeBench]:
    """A maker of benches over one tiny model; everything goes at the end."""
    made: list[Bench] = []
    with tempfile.TemporaryDirectory(prefix="museum-") as folder:
        model = tiny_bytes_folder(Path(folder) / "model")
        tokenizer = Tokenizer.from_folder(model)

        def make() -> Bench:
            scratch = Path(tempfile.mkdtemp(dir=folder))
            made.append(Bench(model, tokenizer, scratch))
            return made[-1]

        try:
            yield make
        finally:
            for bench in made:
                bench.close()


def visit(exhibit: Exhibit[Any], make: MakeBench) -> bool:
    """Show a row: the specimen, the real parts, and a stage without and with the specimen in it.

    Returns:
        Whether each did as it should: the specimen breaks, everything real holds.
    """
    row, injection = get_row(exhibit.row), exhibit.injection
    print(f"{row.number}. {row.title}")
    outcomes = [_show("specimen", exhibit.symptom, exhibit.invariant, exhibit.specimen, make())]
    outcomes += [_show(name, None, exhibit.invariant, part, make()) for name, part in exhibit.real.items()]
    if injection is None:
        print(f"  {'whole':<24}  not tried: {row.not_injectable}")
    else:
        outcomes.append(_show("whole, as it is", None, injection.scenario, make()))
        with injection.in_place():
            outcomes.append(_show("whole, with the specimen", injection.symptom, injection.scenario, make()))
    return all(outcomes)


def _show(name: str, symptom: str | None, call: Callable[..., None], *words: object) -> bool:
    """Run it, say what came of it, and return whether that is what should come: the symptom, None for nothing."""
    said = None
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # one row runs the command line
            call(*words)
    except Broken as broken:
        said = str(broken)
    shown = "holds" if said is None else f"breaks: {textwrap.shorten(said, 160, placeholder=' ...')}"
    print(f"  {name:<24}  {shown}")
    return said is None if symptom is None else said is not None and re.search(symptom, said) is not None


def main(words: Sequence[str]) -> int:
    """Visit the rows named, or all; returns 0 when all went as it should, 1 when not, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m tests.museum", description=__doc__)
    parser.add_argument("rows", metavar="N", type=int, nargs="*", help="numbers of rows; none for all of them")
    asked = parser.parse_args(words).rows
    try:
        for number in asked:
            get_row(number)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    import_libraries()
    with benches() as make:
        outcomes = [visit(exhibit, make) for exhibit in all_exhibits() if not asked or exhibit.row in asked]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
