"""Two libraries of the shapes that Outlines had, the one that is installed, and the checks of exercise 7."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from exercises.bench import in_place
from jumpforward.exercises.case import Row, Wrong, expect, expect_equal, plain, sides
from shared_runtime.constrain.regex.byte_automaton import DEAD
from shared_runtime.errors import ConfigError
from stages.stage3_outlines import compat
from tests.museum.jumps import after, automaton

ShimClass = Callable[[Callable[[str], Any], Callable[[str], str]], Any]
END = 2
SEAL = "<|im_end|>"


@dataclass(frozen=True)
class Words:
    """A tokenizer in the style of 0.1. Frozen: whoever writes to it is told so."""

    vocabulary: Mapping[str, int]
    special_tokens: frozenset[str] = frozenset({"<s>", SEAL})
    eos_token_id: int = END

    def convert_token_to_string(self, token: str) -> str:
        """The marks of two families of tokenizers are blanks."""
        return token.replace("Ġ", " ").replace("▁", " ")

    @property
    def texts(self) -> dict[int, str]:
        """Per id that is text, what it spells."""
        return {token_id: self.convert_token_to_string(token) for token, token_id in self.vocabulary.items()
                if token not in self.special_tokens}


def words(*tokens: str) -> Words:
    """The tokens from id 3 on; ids 1 and 2 are special, and 2 is the end."""
    return Words({"<s>": 1, SEAL: END} | {token: 3 + index for index, token in enumerate(tokens)})


def expected(regex: str, tokenizer: Words, text: str) -> set[int]:
    """What may come behind a text."""
    dfa = automaton(regex)
    state = after(dfa, text)
    ids = {token_id for token_id, spelled in tokenizer.texts.items() if dfa.walk(state, spelled.encode()) != DEAD}
    return ids | ({END} if dfa.accepting[state] else set())


# the shape of 0.1


@dataclass(frozen=True)
class Instruction:
    """Its `Write` and `Generate` in one."""

    tokens: torch.Tensor


class RegexGuide:
    """Its guide: the state is the caller's."""

    def __init__(self, *_: object) -> None:
        raise TypeError("RegexGuide() takes an index since 0.1: use RegexGuide.from_regex(regex, tokenizer)")

    @classmethod
    def from_regex(cls, regex: str, tokenizer: Any) -> RegexGuide:
        """The factory."""
        made = cls.__new__(cls)
        texts = {token_id: tokenizer.convert_token_to_string(token)
                 for token, token_id in tokenizer.vocabulary.items() if token not in tokenizer.special_tokens}
        made.dfa, made.texts, made.end = automaton(regex), texts, tokenizer.eos_token_id
        return made

    dfa: Any
    texts: dict[int, str]
    end: int

    def get_next_instruction(self, state: int) -> Instruction:
        """The ids that may come, the end where the text is complete."""
        if state == -1:
            return Instruction(torch.tensor([self.end]))
        ids = [token_id for token_id, text in self.texts.items() if self.dfa.walk(state, text.encode()) != DEAD]
        return Instruction(torch.tensor(ids + [self.end] * bool(self.dfa.accepting[state])))

    def get_next_state(self, state: int, token_id: int) -> int:
        """-1 behind the end, and where a token is not allowed."""
        if state == -1 or token_id not in self.texts:
            return -1
        return int(self.dfa.walk(state, self.texts[token_id].encode()))


def build_regex_from_schema(text: object, whitespace: object = None) -> str:
    """Its schema builder, which takes text only since 0.0.32."""
    if not isinstance(text, str):
        raise TypeError(f"build_regex_from_schema() takes text, not {type(text).__name__}")
    return f"0.1 {json.dumps(json.loads(text))} {whitespace}"


# the shape of 1


@dataclass(frozen=True)
class Vocabulary:
    """What its tokens spell."""

    end: int
    texts: Mapping[str, Sequence[int]]

    def __post_init__(self) -> None:
        if not all(isinstance(ids, list) for ids in self.texts.values()):
            raise TypeError("Expected a dict with keys of type str or bytes and values of type list[int]")
        if any(self.end in ids for ids in self.texts.values()):
            raise ValueError("EOS token should not be inserted into Vocabulary")


@dataclass(frozen=True)
class Index:
    """A regex and a vocabulary."""

    regex: str
    vocabulary: Vocabulary


class Guide:
    """Its guide: the state is its own, and it has no step over the end."""

    def __init__(self, index: Index) -> None:
        self.dfa, self.words, self.state = automaton(index.regex), index.vocabulary, 0

    def get_tokens(self) -> list[int]:
        """The ids that may come, the end where the text is complete."""
        ids = [token_id for text, ids in self.words.texts.items() for token_id in ids
               if self.dfa.walk(self.state, text.encode()) != DEAD]
        return [self.words.end] * bool(self.dfa.accepting[self.state]) + ids

    def advance(self, token_id: int, return_tokens: bool | None = None) -> list[int]:
        """A step."""
        spelled = next((text for text, ids in self.words.texts.items() if token_id in ids), None)
        state = DEAD if spelled is None else self.dfa.walk(self.state, spelled.encode())
        if state == DEAD:
            raise ValueError(f"No next state found for the current state: {self.state} with token ID: {token_id}")
        self.state = int(state)
        return self.get_tokens() if return_tokens is not False else []


class JsonSchema:
    """A schema with its whitespace."""

    def __init__(self, schema: object, whitespace_pattern: object = None) -> None:
        self.text = json.dumps(json.loads(schema) if isinstance(schema, str) else schema)
        self.whitespace = whitespace_pattern


def to_regex(term: JsonSchema) -> str:
    """Its schema builder."""
    return f"1 {term.text} {term.whitespace}"


# libraries


@dataclass
class Library:
    """What is installed. `asked` says what was imported or looked up."""

    versions: Mapping[str, str]
    modules: Mapping[str, Mapping[str, object]] | None
    asked: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return " with ".join(f"{name} {version}" for name, version in self.versions.items()) or "nothing installed"

    def load(self, name: str) -> Any:
        """Import a module."""
        self.asked.append(name)
        if self.modules is None:
            return importlib.import_module(name)
        if name not in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        made = ModuleType(name)
        vars(made).update(self.modules[name])
        return made

    def version(self, package: str) -> str:
        """The release of a package."""
        self.asked.append(package)
        if package not in self.versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return self.versions[package]


def earlier(outlines: str = "0.1.11", core: str = "0.1.26") -> Library:
    """The shape of outlines_core 0.1."""
    return Library({"outlines": outlines, "outlines_core": core}, {
        "outlines": {}, "outlines.fsm": {}, "outlines.fsm.guide": {"RegexGuide": RegexGuide}, "outlines_core": {},
        "outlines_core.fsm": {}, "outlines_core.fsm.json_schema": {"build_regex_from_schema": build_regex_from_schema}})


def today(outlines: str = "1.3.3", core: str = "0.2.14") -> Library:
    """The shape of outlines_core 0.2."""
    return Library({"outlines": outlines, "outlines_core": core}, {
        "outlines": {}, "outlines.types": {}, "outlines.types.dsl": {"JsonSchema": JsonSchema, "to_regex": to_regex},
        "outlines_core": {"Vocabulary": Vocabulary, "Index": Index, "Guide": Guide}})


def installed() -> Library:
    """The real one."""
    found = {package: importlib.metadata.version(package) for package in ("outlines", "outlines_core")}
    return Library(found, None)


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
    elsewhere = (__file__, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((*elsewhere, "<"))]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


# checks


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
