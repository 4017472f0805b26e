"""Is an answer in the language that was asked for? Decided without the decoder that made it."""

from __future__ import annotations

import json
import subprocess
import sys

from jumpforward.recognisers.ebnf import EbnfRecogniser, TooMuchWork
from jumpforward.recognisers.structural_format import FormatRecogniser, UnknownFormatError
from jumpforward.recognisers.structural_tag import TagRecogniser
from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarSyntaxError

# Python's matcher can take exponential time on some patterns and cannot be interrupted, and a schema holds
# patterns too: both run in a process of their own, which can be killed.
_FULLMATCH = """
import json, re, sys
pattern, text = json.load(sys.stdin)
print(re.fullmatch(pattern, text, re.ASCII) is not None)
"""
_SCHEMA = """
import json, sys
import jsonschema
def refuse(name):
    raise ValueError(name)
schema, text = json.load(sys.stdin)
try:
    value = json.loads(text, parse_constant=refuse)
except ValueError:
    print(False)
else:
    schema = json.loads(schema)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    print(kind(schema).is_valid(value))
"""
_OBJECT = '{"type": "object"}'


class _NotDecided(Exception):
    """The check failed or ran too long."""


def is_valid(constraint: Constraint | None, text: str, *, timeout_s: float = 5.0) -> bool | None:
    """True or False where an independent check exists, None where none does or it ran longer than `timeout_s`.

    `regex` is Python's `re.fullmatch` with ASCII classes, as `docs/regex.md` defines the dialect; `choice` is
    membership; JSON is Python's strict parser and `jsonschema` (formats are not looked at); `ebnf` and
    `structural_tag`, in both forms, have small recognisers of their own.
    """
    if constraint is None:
        return None
    try:
        return _decide(constraint, text, timeout_s)
    except (_NotDecided, TooMuchWork, UnknownFormatError, GrammarSyntaxError, RecursionError, KeyError, TypeError,
            ValueError):
        return None  # a grammar that the check cannot read is not the answer's fault


def _decide(constraint: Constraint, text: str, timeout_s: float) -> bool | None:
    match constraint.kind:
        case "choice":
            return text in constraint.choices
        case "regex":
            return _in_a_process(_FULLMATCH, constraint.source, text, timeout_s)
        case "json_schema":
            return _in_a_process(_SCHEMA, constraint.source, text, timeout_s)
        case "json_object":
            return _in_a_process(_SCHEMA, _OBJECT, text, timeout_s)
        case "ebnf":
            return EbnfRecogniser(constraint.source).accepts(text)
        case "structural_tag":
            def fits(schema: str, part: str) -> bool:
                return _in_a_process(_SCHEMA, schema, part, timeout_s)

            def matches(pattern: str, part: str) -> bool:
                return _in_a_process(_FULLMATCH, pattern, part, timeout_s)

            tag = TagRecogniser.of(constraint.source)
            if tag is not None:
                return tag.accepts(text, fits)
            form = FormatRecogniser.of(constraint.source, fits, matches)
            return None if form is None else form.accepts(text)


def _in_a_process(code: str, grammar: str, text: str, timeout_s: float) -> bool:
    command = [sys.executable, "-I", "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(command, input=json.dumps([grammar, text]), capture_output=True, text=True,
                              timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise _NotDecided from None
    if done.returncode != 0:
        raise _NotDecided
    return done.stdout.strip() == "True"
