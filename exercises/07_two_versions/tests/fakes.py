"""Two libraries of the shapes that Outlines had, the one that is installed, and a tokenizer for them: exercise 7."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from shared_runtime.constrain.regex.byte_automaton import DEAD
from tests.museum.jumps import automaton

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
