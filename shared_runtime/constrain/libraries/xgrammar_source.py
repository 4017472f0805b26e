"""What xgrammar is told: a vocabulary, and constraints in words that it cannot take for others.

Both generations with that library share this; how they compile and fill masks is each one's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from shared_runtime.constrain.grammars.gbnf import check_gbnf
from shared_runtime.constrain.grammars.structural_format import replace_leaves
from shared_runtime.constrain.grammars.structural_tag import StructuralTag
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import render
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.schema.conjoined_schema import conjoined_schema
from shared_runtime.constrain.schema.counted_strings import write_out
from shared_runtime.constrain.schema.explicit_schema import explicit_schema
from shared_runtime.constrain.schema.finite_schema import finite_part
from shared_runtime.constrain.schema.json_schema_checks import AskedSchema, SchemaSource, read_schema
from shared_runtime.constrain.schema.whitespace import MOST_BLANKS
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from shared_runtime.policy import StageContext

if TYPE_CHECKING:
    import xgrammar

# The library's errors begin with the time and the line of its own source.
_NOISE = re.compile(r"^\[[\d:]+\] \S+: |Check failed: \(.*?\) is false: |\n$")

# Neither NUL nor a line end in a class may stand as it is, and `\x0a` would swallow more hexadecimal digits.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

START_RULE = "the-whole-text"
"""A rule above `root`: where `root` contains itself, its masks lack tokens that end it twice (`))`)."""


class JsonOptions(TypedDict, total=False):
    """The library's own options for a schema: our blanks, and objects as open as the schema says."""

    any_whitespace: bool
    separators: tuple[str, str]
    max_whitespace_cnt: int
    strict_mode: bool


class XGrammarSource:
    """Writes constraints for the library. Immutable; may be shared between threads."""

    def __init__(self, context: StageContext) -> None:
        self._speller = Speller(context.vocabulary)
        self._json: JsonOptions = (
            {"any_whitespace": False, "separators": (", ", ": ")} if context.options.whitespace == "compact"
            else {"any_whitespace": True, "max_whitespace_cnt": MOST_BLANKS})
        self._json["strict_mode"] = False  # else an object that says nothing of further properties has none

    def tokens(self) -> xgrammar.TokenizerInfo:
        """The vocabulary: 30 ms for 49,152 tokens.

        Control and stop tokens go in empty; the library would match them by their printed text otherwise. The stop
        set is the engine's, not the tokenizer's own (museum row 48, upstream until #8422).
        """
        import xgrammar

        vocabulary = self._speller.vocabulary
        hidden = vocabulary.control_ids | vocabulary.stop_ids
        spelled = [b"" if token_id in hidden else text for token_id, text in enumerate(vocabulary.token_bytes)]
        return xgrammar.TokenizerInfo(spelled, xgrammar.VocabType.RAW, vocab_size=vocabulary.width,
                                      stop_token_ids=sorted(vocabulary.stop_ids))

    def regex(self, pattern: str) -> str:
        """The pattern's normal form: written out, nothing in it means another thing to the library."""
        tree = self._speller.restrict(normalise(pattern).tree)
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", render(tree, negated_classes=False))

    def ebnf(self, source: str) -> str:
        """The grammar under `START_RULE`. Raises ConstraintError when it is none, or can never be finished."""
        check_gbnf(source)
        return f"{source}\n{START_RULE} ::= root\n"

    def schema(self, constraint: Constraint, where: str = "json_schema") -> SchemaSource:
        """A schema, or the one of `json_object`, said so that the library overlooks little of it, as a grammar.

        Raises:
            ConstraintError: it is no schema, or cannot be served; `where` is its place.
        """
        import xgrammar

        try:
            asked = finite_part(conjoined_schema(read_schema(constraint, where)))
            text = json.dumps(explicit_schema(asked, self._speller), ensure_ascii=False)
        except RecursionError:
            raise GrammarSyntaxError("the schema is nested too deep, or a name or pattern in it is too long",
                                     where=where) from None
        with own_errors(where):
            grammar = _readable(str(xgrammar.Grammar.from_json_schema(text, **self._json)))
        return SchemaSource(write_out(grammar, self._speller), ((where, asked),))

    def tag(self, tag: StructuralTag) -> SchemaSource:
        """A tag, said in the `format` form, the only one that the library still reads.

        Raises:
            ConstraintError: one of its schemas cannot be served.
        """
        asked: list[AskedSchema] = []
        form = {"type": "triggered_tags", "triggers": tag.triggers, "tags": [
            {"begin": one.begin, "end": one.end, "content": self._grammar(one.where, json.loads(one.schema), asked)}
            for one in tag.structures]}
        return SchemaSource(json.dumps({"type": "structural_tag", "format": form}, ensure_ascii=False), tuple(asked))

    def format_tag(self, constraint: Constraint) -> SchemaSource:
        """A tag of the `format` form (#10691), its regexes in normal form.

        Raises:
            ConstraintError: it is no JSON, or a schema, regex or grammar in it cannot be served.
        """
        asked: list[AskedSchema] = []

        def leaf(kind: str, where: str, value: object) -> dict[str, object]:
            if kind == "json_schema":
                return self._grammar(where, value, asked)
            try:
                if kind == "regex":
                    return {"type": kind, "pattern": self.regex(str(value))}
                check_gbnf(str(value))
            except ConstraintError as error:
                error.where = f"{where}, {error.where}"
                raise
            return {"type": kind, "grammar": value}

        return SchemaSource(replace_leaves(constraint.source, leaf), tuple(asked))

    def _grammar(self, where: str, schema: object, asked: list[AskedSchema]) -> dict[str, object]:
        """A tag's schema as the library's grammar, which keeps our blanks; noted in `asked`."""
        source = self.schema(Constraint.json_schema(json.dumps(schema, ensure_ascii=False)), where)
        asked += source.asked
        return {"type": "grammar", "grammar": source.text}


@contextmanager
def own_errors(where: str) -> Iterator[None]:
    """The library's errors as ours."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise GrammarSyntaxError(f"xgrammar refuses the grammar: {_NOISE.sub('', str(error))}", where=where) from None


def _readable(grammar: str) -> str:
    r"""The library's own text as it reads it back: it writes U+00DF as \xdf, and reads as many hex digits as come."""
    return re.sub(r"\\(?:x([0-9a-f]{2})|.)", lambda found: f"\\u00{found[1]}" if found[1] else found[0], grammar)
