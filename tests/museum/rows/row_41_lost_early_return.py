"""Row 41: a refactoring loses the `return` behind an error, and the name that was to be set is used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from stages.stage4_backends import base_grammar_backend as stage4
from stages.stage4_backends.base_grammar_backend import REGISTRY as REGISTRY_OF_STAGE_4
from stages.stage5_backend_jump import outlines_backend
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarBackend, Compiled
from stages.stage5_backend_jump.outlines_backend import OutlinesGrammarBackend
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, Broken, hold
from tests.museum.exhibit import Exhibit, Injection

BackendBuild = Callable[[StageContext], BaseGrammarBackend | stage4.BaseGrammarBackend]

INVALID = (
    Constraint.regex("("), Constraint.regex("a{5,2}"), Constraint.regex("[z-a]"),
    Constraint("json_schema", source="{"), Constraint("json_schema", source='{"type": "strnig"}'),
    Constraint("json_schema", source="7"), Constraint("ebnf", source="root ::= undefined_rule"),
    Constraint("structural_tag", source="{"), Constraint("structural_tag", source='{"structures": [], "triggers": []}'),
)
"""What no backend can compile, a kind it lacks included."""
NESTED = Constraint.json_schema({"$ref": "#/$defs/list", "$defs": {
    "list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}})
"""A schema of unbounded depth: good, and beyond a regex."""


class FallsThrough(OutlinesGrammarBackend):
    """Specimen of the outlines backend: the error is caught, and the function goes on."""

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """Compile a schema, by its regex."""
        with contextlib.suppress(ConstraintError):
            compiled = super().dispatch_json_schema(constraint)
        return compiled


def every_invalid_input_is_an_error_of_ours(build: BackendBuild, bench: Bench) -> None:
    """One backend, each invalid input."""
    backend = build(bench.context())
    for constraint in (NESTED, *INVALID):
        try:
            backend.init_value(constraint)
        except ConstraintError:
            continue
        except Exception as error:
            raise Broken(f"{constraint.text} is answered with {type(error).__name__}") from error
        hold(constraint is NESTED, f"{constraint.text} is compiled")


def _backends() -> dict[str, BackendBuild]:
    found: dict[str, BackendBuild] = {f"stage5-{name}": partial(REGISTRY.create, name) for name in REGISTRY.lazy}
    return found | {f"stage4-{name}": partial(REGISTRY_OF_STAGE_4.create, name) for name in REGISTRY_OF_STAGE_4.lazy}


def scenario(bench: Bench) -> None:
    """A schema that outlines has to refuse, on stage 5."""
    result = bench.run(bench.engine(5, backend="outlines"), [Ask("x", NESTED)])[0]
    hold(result.error is not None and "UnboundLocalError" not in str(result.error),
         f"a schema beyond a regex is answered with {result.error}")


EXHIBIT: Exhibit[BackendBuild] = Exhibit(
    41, FallsThrough, _backends(), every_invalid_input_is_an_error_of_ours, "is answered with UnboundLocalError",
    Injection(outlines_backend, "OutlinesGrammarBackend", FallsThrough, scenario, "UnboundLocalError"))
