"""Renders messages with a model's own chat template, and keeps what a user typed from becoming a control
token.

Templates are Jinja programs that come with a checkpoint; they run in Jinja's sandbox. The surroundings they
expect (trimmed blocks, `raise_exception`, `strftime_now`, `tojson` without escapes, `break`/`continue`, `{%
generation %}`) are those of Hugging Face's chat templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared_runtime.errors import CheckpointError, RequestError

Messages = Sequence[Mapping[str, str]]


def render_chat(template: str, messages: Messages, *, add_generation_prompt: bool = True, bos_token: str = "",
                eos_token: str = "") -> str:
    """The text of a conversation, as `template` writes it.

    Args:
        template: Jinja source.
        messages: each with a `role` and a `content`; which roles exist is the template's business.
        add_generation_prompt: end with the opening of the assistant's answer.
        bos_token, eos_token: their printed names, for templates that use them.

    Raises:
        RequestError: no messages, a message without role or content, or one the template refuses.
        CheckpointError: the template itself does not parse, or does what the sandbox forbids.
    """
    check_messages(messages)
    try:
        program = _program(template)
    except jinja2.TemplateSyntaxError as error:
        raise CheckpointError(f"does not parse: {error.message}",
                              where=f"chat template, line {error.lineno}") from error
    try:
        # `tools` and `documents` are given as None: templates ask `is not none`, which an undefined name
        # passes.
        return program.render(messages=[dict(message) for message in messages], tools=None, documents=None,
                              add_generation_prompt=add_generation_prompt, bos_token=bos_token, eos_token=eos_token)
    except _Refusal as error:
        raise RequestError(f"the chat template refuses the messages: {error}", where="messages") from error
    except SecurityError as error:
        raise CheckpointError(f"is forbidden to do this: {error}", where="chat template") from error
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise RequestError(f"the chat template cannot write these messages: {error}", where="messages") from error


def check_messages(messages: Messages) -> None:
    """Raise RequestError unless `messages` is a non-empty list of {role, content}, both texts."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise RequestError(f"must be a list of messages, not {type(messages).__name__}", where="messages")
    if not messages:
        raise RequestError("there are no messages", where="messages",
                           fix='give at least one, as {"role": "user", "content": "..."}')
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise RequestError(f"must be an object with role and content, not {type(message).__name__}", where=where)
        for field in ("role", "content"):
            if field not in message:
                raise RequestError(f"{field} is missing", where=where)
        for field, value in message.items():
            if not isinstance(value, str):
                raise RequestError(f"must be a text, not {type(value).__name__}", where=f"{where}.{field}")


@dataclass(frozen=True, slots=True)
class Shielded:
    """Messages in which nothing can be taken for a control token.

    Attributes:
        messages: the messages, with placeholders where a control token's name, or part of one, was typed.
        typed: placeholder -> what was typed there.
    """

    messages: list[dict[str, str]]
    typed: dict[str, str]

    def restore(self, text: str) -> str:
        """`text` with what was typed instead of the placeholders."""
        for placeholder, typed in self.typed.items():
            text = text.replace(placeholder, typed)
        return text


def shield(messages: Messages, names: Iterable[str]) -> Shielded:
    """Hide the printed names of control tokens in every field of `messages`.

    What could join with the template's text to make up a name is hidden too: a field's edges (`<|im_` at the
    end, before a template's `end|>`), and a content that is part of a name. A role may be: templates that write
    `<|{{ message.role }}|>` mean the control token of that role.

    Args:
        messages: checked messages.
        names: printed names of all control tokens.
    """
    longest_first = sorted(names, key=len, reverse=True)
    typed: dict[str, str] = {}
    mark = _unused_mark([value for message in messages for value in message.values()])

    def placeholder(text: str) -> str:
        key = f"{mark}{len(typed)}{mark}"
        typed[key] = text
        return key

    def hide(field: str, text: str) -> str:
        body = text.strip()  # templates trim what they are given
        if field != "role" and body and any(body in name for name in longest_first):
            return text.replace(body, placeholder(body), 1)
        for name in longest_first:
            while name in text:
                text = text.replace(name, placeholder(name), 1)
        return _hide_edges(text, longest_first, placeholder)

    return Shielded([{field: hide(field, value) for field, value in message.items()} for message in messages], typed)


def _hide_edges(text: str, names: list[str], placeholder: Callable[[str], str]) -> str:
    body = text.strip()  # templates trim what they are given
    tail = max((size for name in names for size in range(1, len(name)) if body.endswith(name[:size])), default=0)
    if tail:
        end = len(text.rstrip())
        text = text[:end - tail] + placeholder(text[end - tail:end]) + text[end:]
    body = text.strip()
    head = max((size for name in names for size in range(1, len(name)) if body.startswith(name[-size:])), default=0)
    if head:
        start = len(text) - len(text.lstrip())
        text = text[:start] + placeholder(text[start:start + head]) + text[start + head:]
    return text


def _unused_mark(texts: list[str]) -> str:
    """Letters that occur in no message: plain letters pass every filter a template may apply."""
    mark = "Shield"
    while any(mark in text for text in texts):
        mark += "d"
    return mark


class _Refusal(jinja2.TemplateError):
    """A template called `raise_exception`."""


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's words for training; only its body counts here."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Keep the body, drop the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def _program(template: str) -> jinja2.Template:
    """Parsed and compiled, which takes 2 ms, a twentieth of a short request's time."""
    return _environment().from_string(template)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlock])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise _Refusal(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False,
             separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
