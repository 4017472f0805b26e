"""Guides and schemas with each library, and the checks of exercise 7."""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exercises.bench import in_place
from jumpforward.exercises.case import Row, Wrong, expect, expect_equal, plain, sides
from shared_runtime.constrain.regex.byte_automaton import DEAD
from shared_runtime.errors import ConfigError
from stages.stage3_outlines import compat
from tests.museum.jumps import after, automaton

from .fakes import END, Library, Words, earlier, installed, today, words

ShimClass = Callable[[Callable[[str], Any], Callable[[str], str]], Any]


def expected(regex: str, tokenizer: Words, text: str) -> set[int]:
    """What may come behind a text."""
    dfa = automaton(regex)
    state = after(dfa, text)
    ids = {token_id for token_id, spelled in tokenizer.texts.items() if dfa.walk(state, spelled.encode()) != DEAD}
    return ids | ({END} if dfa.accepting[state] else set())


@contextmanager
def named(library: Library) -> Iterator[None]:
    """What goes wrong in here is told with the library that it went wrong with."""
    try:
        yield
    except (AssertionError, NotImplementedError):
        raise
    except Exception as error:
        raise Wrong(f"{library}: it raised {type(error).__name__}: {error}{_line(error)}") from error


def _line(error: Exception) -> str:
    """Where in the learner's file it came from: the newest frame that is neither here nor in a library."""
    elsewhere = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((*elsewhere, "<"))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def a_guide_is_followed(part: ShimClass, library: Library, regex: str, tokenizer: Words, path: Sequence[int]) -> None:
    """Along a path of ids: what may come, what may not, and the end."""
    names = {token_id: token for token, token_id in tokenizer.vocabulary.items()}
    shown = [repr(names.get(token_id, "no token")) for token_id in range(max(names) + 2)]
    with named(library):
        guide, other = (part(library.load, library.version).guide(regex, tokenizer) for _ in range(2))
        text = ""
        for step, token_id in enumerate([*path, END]):
            wanted = expected(regex, tokenizer, text)
            where = f"{library}: regex {regex!r}, behind {text!r}"
            _same_ids(guide.allowed(), wanted, shown, where)
            expect_equal(plain(guide.complete), END in wanted, f"{where}: complete")
            refused = next(one for one in range(len(shown)) if one not in wanted)
            got = guide.take(refused)
            expect(got is False, f"{where}: token {refused} ({shown[refused]}) is not allowed, and take({refused}) "
                                 f"gives {got!r}, expected False")
            _same_ids(guide.allowed(), wanted, shown, f"{where}, and a refused token {refused} ({shown[refused]})")
            if step == len(path) and END not in wanted:
                return
            got = guide.take(token_id)
            expect(got is True, f"{where}: token {token_id} ({shown[token_id]}) is allowed, and take({token_id}) gives "
                                f"{got!r}, expected True")
            text += tokenizer.texts.get(token_id, "")
        where = f"{library}: regex {regex!r}, behind {text!r} and the end"
        _same_ids(guide.allowed(), set(), shown, where)
        expect(guide.complete, f"{where}: complete is False")
        for token_id in (END, path[0]):
            got = guide.take(token_id)
            expect(got is False, f"{where}: nothing may follow, and take({token_id}) gives {got!r}")
        _same_ids(other.allowed(), expected(regex, tokenizer, ""), shown,
                  f"{library}: regex {regex!r}: one guide was moved, and another, at the beginning")


def _same_ids(got: object, wanted: set[int], shown: Sequence[str], where: str) -> None:
    expect(isinstance(got, set | frozenset) and all(type(one) is int for one in got),
           f"{where}: allowed() must give a set of int, yours gives {got!r:.80}")
    differs = sides(got, wanted, shown)  # type: ignore[arg-type]  # as checked in the line above
    expect(not differs, f"{where}: {differs}")


def a_schema_is_handed_over(part: ShimClass, library: Library, schema: dict[str, Any] | str, whitespace: str) -> None:
    """With its whitespace, to the builder of that version."""
    text = json.dumps(json.loads(schema) if isinstance(schema, str) else schema)
    shape = "0.1" if library.versions["outlines"].startswith("0.") else "1"
    with named(library):
        got = part(library.load, library.version).schema_regex(schema, whitespace)
    expect_equal(plain(got), f"{shape} {text} {whitespace}", f"{library}: schema_regex({schema!r}, {whitespace!r})")


def nothing_is_imported_before_it_is_needed(part: ShimClass) -> None:
    """A stage is imported with or without the library."""
    for library in (earlier(), today()):
        part(library.load, library.version)
        expect(not library.asked, f"{library}: making a Shim asks for {library.asked}, before anything is needed")


def what_is_not_served_is_said(part: ShimClass, library: Library, said: str) -> None:
    """By name, once it is needed."""
    shim = part(library.load, library.version)
    for what, values in (("schema_regex", ({"type": "null"}, "")), ("guide", ("a", words("a")))):
        try:
            getattr(shim, what)(*values)
        except ConfigError as error:
            expect(said in str(error), f"{library}: {what} raises ConfigError({str(error)!r}), which does not name "
                                       f"{said!r}")
        except NotImplementedError:
            raise
        except Exception as error:
            raise Wrong(f"{library}: {what} raises {type(error).__name__}: {error}; expected ConfigError") from error
        else:
            raise Wrong(f"{library}: {what} is served; expected ConfigError")


def stage_3_takes_your_schemas(part: ShimClass, schema: dict[str, Any]) -> None:
    """Stage 3 asks for a level at a time; the regex is the one that it makes itself."""
    library, source = installed(), json.dumps(schema)
    wanted = compat.schema_regex(source, "compact")
    shim = part(library.load, library.version)
    with named(library), in_place(compat, "_by_outlines", shim.schema_regex):
        got = compat.schema_regex(source, "compact")
    expect_equal(got, wanted, f"{library}: in stage 3, schema {source}")


def picture(part: ShimClass) -> list[Row]:
    """What may come, with each library."""
    rows, tokenizer = [], words("a", "b", "Ġa", "▁a", "ab")
    for library in (earlier(), today(), installed()):
        guide = part(library.load, library.version).guide("ab?( a)?", tokenizer)
        for path in ("", "a"):
            if path:
                guide.take(3)
            wanted = expected("ab?( a)?", tokenizer, path)
            rows.append(Row(f"{library}, behind {path!r}", str(sorted(guide.allowed())), str(sorted(wanted))))
    return rows
