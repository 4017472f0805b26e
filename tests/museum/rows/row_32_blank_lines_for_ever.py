"""Row 32: any run of whitespace is allowed between the tokens of JSON, and a model may like blank lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions, Whitespace
from shared_runtime.sampling_params import SamplingParams
from stages.stage3_outlines import fsm_cache
from stages.stage3_outlines.compat import schema_regex
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection

SchemaRegex = Callable[[str, Whitespace], str]
SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                     "additionalProperties": False})


def any_run_of_blanks(source: str, whitespace: Whitespace) -> str:
    """Specimen of `schema_regex`: the bound on a run of blanks is left out."""
    return schema_regex(source, "any").replace("{0,16}", "*")


def a_run_of_blanks_has_an_end(regex_of: SchemaRegex, bench: Bench) -> None:
    """However much a model likes blank lines."""
    regex = regex_of(SCHEMA, "any")
    hold(re.fullmatch(regex, '{"a":true}') is not None, "plain JSON is not in the language")
    hold(re.fullmatch(regex, "{" + "\n" * 1000 + '"a":true}') is None, "a thousand blank lines are in the language")


def scenario(bench: Bench) -> None:
    """A model that prefers a blank line to everything else."""
    engine = bench.engine(3, options=StageOptions(whitespace="any"))
    newline = engine.tokenizer.encode("\n")[0]
    params = SamplingParams(max_new_tokens=120, logit_bias={newline: 1000.0})
    result = bench.run(engine, [Ask("x", Constraint.json_schema(SCHEMA), params)])[0]
    hold(result.finish_reason == "stop", f"{result.text.count(chr(10))} blank lines, up to the limit, and no answer")


EXHIBIT: Exhibit[SchemaRegex] = Exhibit(
    32, any_run_of_blanks, {"stage3": schema_regex}, a_run_of_blanks_has_an_end, "a thousand blank lines",
    Injection(fsm_cache, "schema_regex", any_run_of_blanks, scenario, "blank lines, up to the limit"))
