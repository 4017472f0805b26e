"""Exercise 7: one file for two versions of a library."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable
from typing import Any

from shared_runtime.errors import ConfigError

OLDEST, TODAY = (0, 1), (0, 2)


class Earlier:
    """A guide of 0.1, and the state that it leaves to its user."""

    def __init__(self, guide: Any, end: int) -> None:
        self.inner = guide
        self.end = end
        self.state = 0
        self.ended = False

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return self.ended or self.end in self.allowed()

    def allowed(self) -> set[int]:
        """What may come next."""
        return set() if self.ended else set(self.inner.get_next_instruction(self.state).tokens.tolist())

    def take(self, token_id: int) -> bool:
        """Move over a token. Asked for first: -1 is both a refusal and the end."""
        if token_id not in self.allowed():
            return False
        if token_id == self.end:
            self.ended = True
        else:
            self.state = self.inner.get_next_state(self.state, token_id)
        return True


class Today:
    """A guide of outlines_core 0.2, which has no step over the end."""

    def __init__(self, guide: Any, end: int) -> None:
        self.inner = guide
        self.end = end
        self.ended = False

    @property
    def complete(self) -> bool:
        """Whether the text may end here."""
        return self.ended or self.end in self.allowed()

    def allowed(self) -> set[int]:
        """What may come next."""
        return set() if self.ended else set(self.inner.get_tokens())

    def take(self, token_id: int) -> bool:
        """Move over a token."""
        if token_id not in self.allowed():
            return False
        if token_id == self.end:
            self.ended = True
        else:
            self.inner.advance(token_id)
        return True


class Shim:
    """What a stage needs of Outlines, whichever of the two is installed."""

    def __init__(self, load: Callable[[str], Any], version: Callable[[str], str]) -> None:
        self.load = load
        self.version = version

    def schema_regex(self, schema: dict[str, Any] | str, whitespace: str) -> str:
        """The regex of a JSON schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if self.is_todays():
            library = self.load("outlines.types.dsl")
            return str(library.to_regex(library.JsonSchema(text, whitespace)))
        return str(self.load("outlines_core.fsm.json_schema").build_regex_from_schema(text, whitespace))

    def guide(self, regex: str, tokenizer: Any) -> Earlier | Today:
        """A guide at the beginning of the regex."""
        end = tokenizer.eos_token_id
        if not self.is_todays():
            return Earlier(self.load("outlines.fsm.guide").RegexGuide.from_regex(regex, tokenizer), end)
        texts: dict[str, list[int]] = {}
        for token, token_id in tokenizer.vocabulary.items():
            if token not in tokenizer.special_tokens and token_id != end:
                texts.setdefault(tokenizer.convert_token_to_string(token), []).append(token_id)
        core = self.load("outlines_core")
        return Today(core.Guide(core.Index(regex, core.Vocabulary(end, texts))), end)

    def is_todays(self) -> bool:
        """Whether it is the newer shape; versions are compared as numbers."""
        try:
            text = self.version("outlines_core")
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError("outlines_core is not installed", where="stage 3", fix="pip install it") from None
        numbers = tuple(map(int, re.findall(r"\d+", text)[:2]))
        if numbers < OLDEST:
            raise ConfigError(f"outlines_core {text} is older than 0.1", where="stage 3", fix="install a newer one")
        return numbers >= TODAY
