"""The one regex dialect of every stage: a pattern in, its normal form or an error with a position out.

The language of a pattern is what Python's `re.fullmatch(pattern, text, re.ASCII)` accepts among the texts
that UTF-8 can hold. The regex libraries disagree about many constructs (`\\w`, `.`, anchors, escapes,
look-ahead), some of them silently; so each engine is given the normal form, in which nothing is left to
disagree about.
`docs/regex.md` is the user's page.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from shared_runtime.constrain.regex.charset import NOTHING, CharSet
from shared_runtime.constrain.regex.regex_classes import Malformed, is_surrogate
from shared_runtime.constrain.regex.regex_parser import PatternReader
from shared_runtime.constrain.regex.regex_tree import Node, escape, render
from shared_runtime.errors import GrammarSyntaxError, RequestError, UnsatisfiableConstraintError

MAX_PATTERN = 50_000
"""Most characters of a pattern. Reading one takes time in proportion, outside the limits that are on compiling it."""

_MAX_WIDE_FOLDED = 64  # Python's own compiler takes 15 ms for each
_WIDE_RANGE = re.compile(r"-(?:\\U00(?:0[1-9a-fA-F]|10)|[\U00010000-\U0010ffff])")
_FOLDING = re.compile(r"\(\?[a-zA-Z]*i")

_WARNING_PAIRS = ("[[", "--", "&&", "~~", "||")
_WARNING_FILTERS = Lock()


@dataclass(frozen=True)
class NormalisedRegex:
    """A pattern of the dialect, read once.

    Attributes:
        source: the pattern as the user wrote it.
        tree: its language; never the empty one.
        text: the same language as regex text that Python, `regex`, interegular, outlines-core, xgrammar and
            llguidance read alike: literal characters, classes, greedy `* + ? {n,m}`, `(...)` and `|`. Put it
            in parentheses before adding anything to it: an outermost alternation has none. Classes are
            written by their complement where that is smaller, so surrogates are not cut out of those.
    """

    source: str
    tree: Node
    text: str

    @property
    def explicit_text(self) -> str:
        """`text` with every class as ascending ranges without surrogates, none by its complement."""
        return render(self.tree, negated_classes=False)


def normalise(pattern: str, *, avoid: frozenset[int] = frozenset()) -> NormalisedRegex:
    """Read a pattern of the dialect.

    The work grows with the length of the pattern alone: counts are not expanded.

    Args:
        pattern: a Python regular expression.
        avoid: code points that no text may contain (an engine's own terminator). Classes lose them.

    Raises:
        GrammarSyntaxError: the pattern is not valid or too long, a count is too large, or groups are nested too
            deep.
        UnsupportedConstraintError: a construct outside the dialect, or a character of `avoid` asked for by
            name; `offset` points at it.
        UnsatisfiableConstraintError: no text matches.
    """
    tree = read_tree(PatternReader(pattern, CharSet.of((code, code) for code in avoid)))
    return NormalisedRegex(pattern, tree, render(tree))


def read_tree(reader: PatternReader) -> Node:
    """The language of a reader's pattern, after the checks that belong to every pattern. Raises as `normalise`."""
    pattern = reader.pattern
    if len(pattern) > MAX_PATTERN:
        raise GrammarSyntaxError(f"the pattern has {len(pattern)} characters, and {MAX_PATTERN} are the most",
                                 where="regex", fix="shorten it")
    wide = len(_WIDE_RANGE.findall(pattern)) if _FOLDING.search(pattern) else 0
    if wide > _MAX_WIDE_FOLDED:
        raise GrammarSyntaxError(f"{wide} ranges past U+FFFF under (?i), and {_MAX_WIDE_FOLDED} are the most",
                                 where="regex", fix="take some out, or the flag")
    try:
        tree = reader.read()
    except Malformed:
        _ask_python(pattern)
        raise GrammarSyntaxError("this is not a valid regular expression", where="regex") from None
    _ask_python(pattern)
    if tree == NOTHING:
        raise _unsatisfiable(pattern, reader.first_empty or 0)
    return tree


def escape_choice(choices: Sequence[str]) -> str:
    """The pattern of a choice constraint: an alternation of the escaped choices, repeats dropped.

    Raises:
        RequestError: no choice, or one that holds half of a surrogate pair.
    """
    unique = tuple(dict.fromkeys(choices))
    if not unique:
        raise RequestError("a choice constraint needs at least one choice", where="choice",
                           fix="give --choice TEXT once for each alternative")
    for index, choice in enumerate(choices):
        if any(is_surrogate(ord(char)) for char in choice):
            raise RequestError(f"{choice!r} holds half of a surrogate pair, which is no character",
                               where=f"choice {index}", fix="give the text as valid Unicode")
    return f"({'|'.join(map(escape, unique))})"


def _ask_python(pattern: str) -> None:
    """Let Python's `re` refuse what it refuses, in its words and at its offset."""
    try:
        if not any(pair in pattern for pair in _WARNING_PAIRS):
            re.compile(pattern, re.ASCII)
            return
        # `re` warns that sets like "[[a]" may mean something else one day. The dialect means what they mean
        # now. Warning filters belong to the process, so threads take turns, and only for such patterns.
        with _WARNING_FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(pattern, re.ASCII)
    except re.error as error:
        raise _syntax_error(pattern, error) from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise GrammarSyntaxError(f"Python's re refuses the pattern: {error}", where="regex") from None


def _syntax_error(pattern: str, error: re.error) -> GrammarSyntaxError:
    fix = None
    if error.pos is not None and pattern.startswith("(?<", error.pos - 1):
        fix = "a named group is (?P<name>...)"
    return GrammarSyntaxError(f"not a valid regular expression: {error.msg}", offset=error.pos, fix=fix)


def _unsatisfiable(pattern: str, offset: int) -> UnsatisfiableConstraintError:
    found = re.compile(r"\\u([0-9a-fA-F]{4})|(.)", re.DOTALL).match(pattern, offset)
    if found is not None:
        code = int(found[1], 16) if found[1] else ord(found[2])
        if is_surrogate(code):
            return UnsatisfiableConstraintError(
                f"no text matches: U+{code:04X} is half of a surrogate pair, which is no character",
                where=f"position {offset}", fix="write a character past U+FFFF as \\UXXXXXXXX")
    return UnsatisfiableConstraintError("no text matches: every way through the pattern needs an empty "
                                        "class, the first of them here", where=f"position {offset}",
                                        fix="add a character to the class")
