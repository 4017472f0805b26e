"""What llguidance is told: a vocabulary, and constraints in its own words.

Both generations with that library share this; how they fill masks is each one's own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shared_runtime.constrain.grammars.gbnf import gbnf_to_lark
from shared_runtime.constrain.grammars.structural_tag import StructuralTag
from shared_runtime.constrain.libraries.token_view import TokenView
from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import render
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.schema.json_schema_checks import AskedSchema, SchemaSource, may_be_number, read_schema
from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas
from shared_runtime.constrain.schema.number_bounds import with_shorter_bounds
from shared_runtime.constrain.schema.whitespace import BLANKS
from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarSyntaxError, UnsupportedConstraintError
from shared_runtime.policy import StageContext

if TYPE_CHECKING:
    import llguidance


class LLGuidanceSource:
    """Writes constraints for the library. Immutable; may be shared between threads."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._speller = Speller(context.vocabulary)
        # The names of further properties may hold no `\u`: the library takes `"\u0061"` for another name than `"a"`.
        self._options: dict[str, object] = {"whitespace_flexible": False, "json_allowed_escapes": 'nrbtf\\"'}
        if context.options.whitespace == "compact":
            self._options |= {"item_separator": ", ", "key_separator": ": "}
        else:
            self._options |= {"whitespace_pattern": BLANKS}

    def tokens(self) -> llguidance.LLTokenizer:
        """The vocabulary: a second for 49,152 tokens."""
        import llguidance

        vocabulary = self._context.vocabulary
        tokens = TokenView(vocabulary, self._context.tokenizer)
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens), n_vocab=vocabulary.width,
                                      eos_token=sorted(vocabulary.stop_ids) or None)

    def regex(self, pattern: str) -> str:
        """The pattern's normal form."""
        import llguidance

        text = render(self._speller.restrict(normalise(pattern).tree), negated_classes=False)
        return llguidance.LLMatcher.grammar_from_regex(text)

    def ebnf(self, source: str) -> str:
        """The grammar, translated. Raises ConstraintError when it is none, or can never be finished."""
        import llguidance

        return llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(source))

    def schema(self, constraint: Constraint) -> SchemaSource:
        """A schema, or the one of `json_object`. Raises ConstraintError when it is none, or can never be finished."""
        import llguidance

        schema = read_schema(constraint)
        return SchemaSource(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(self._spaced(schema))),
                            (("json_schema", schema),))

    def tag(self, tag: StructuralTag) -> SchemaSource:
        """A tag. Raises ConstraintError when a schema in it is none, or can never be finished."""
        import llguidance

        asked: list[AskedSchema] = [(one.where, read_schema(Constraint.json_schema(one.schema), one.where))
                                    for one in tag.structures]
        for one, (_, schema) in zip(tag.structures, asked, strict=True):
            if one.end[:1] in tuple("0123456789.eE") and may_be_number(schema):
                raise UnsupportedConstraintError(
                    f"llguidance 1.9.1 reads {one.end[0]!r} as part of the number before it", where=one.end_at,
                    fix="begin it with another character, or use --backend xgrammar")
        text = llguidance.StructTag.to_grammar(
            [llguidance.StructTag(trigger=one.trigger, begin=one.begin, end=one.end, grammar=self._spaced(schema))
             for one, (_, schema) in zip(tag.structures, asked, strict=True)],
            assume_special=False)  # else a trigger like "<tool>" would have to be a control token
        return SchemaSource(llguidance.LLMatcher.grammar_from_lark(text), tuple(asked))

    def _spaced(self, schema: object) -> dict[str, object]:
        """The schema with our options written into it, and patterns in normal form."""
        assert isinstance(schema, dict | bool)
        return (with_shorter_bounds(_normal(schema)) if isinstance(schema, dict) else {}) | {
            "x-guidance": self._options}


def _normal(schema: Schema) -> Schema:
    own = map_subschemas(schema, lambda inner: _normal(inner) if isinstance(inner, dict) else inner)
    if isinstance(pattern := own.get("pattern"), str):
        own["pattern"] = _anchored(pattern)
    if isinstance(patterns := own.get("patternProperties"), dict):
        own["patternProperties"] = {_anchored(pattern): inner for pattern, inner in patterns.items()}
    return own


def _anchored(pattern: str) -> str:
    return f"^({render(search_tree(pattern), negated_classes=False)})$"


def check_matcher(matcher: llguidance.LLMatcher, where: str) -> tuple[str, ...]:
    """What the library says of a grammar: it raises nothing, so it is asked. Returns its warnings.

    Raises:
        GrammarSyntaxError: it refuses the grammar.
    """
    if matcher.is_error():
        raise GrammarSyntaxError(f"llguidance refuses the grammar: {first_line(matcher.get_error())}", where=where)
    return tuple(f"llguidance: {first_line(text)}" for text in matcher.get_grammar_warnings())


def first_line(message: str) -> str:
    """The library's errors go on with the state of its parser."""
    return message.strip().partition("\n")[0] or "no reason given"
