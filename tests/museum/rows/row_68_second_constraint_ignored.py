"""Row 68: the check that constraints exclude each other lists three kinds of four, so the fourth is ignored."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from jumpforward.cli import main
from jumpforward.options import ConstraintOptions
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from tests.museum.bench import Bench, Broken, hold
from tests.museum.exhibit import Exhibit, Injection

OptionsClass = type[ConstraintOptions]

_right = ConstraintOptions.constraint


class ChecksThreeOfFour(ConstraintOptions):
    """Specimen of `ConstraintOptions`: a structural tag beside another kind goes unnoticed."""

    def constraint(self) -> Constraint | None:
        """What was asked for, less a tag that came second."""
        others = (self.regex, self.json_schema, self.ebnf)
        if self.structural_tag is not None and any(other is not None for other in others):
            return _right(replace(self, structural_tag=None))
        return _right(self)


def all_kinds_exclude_each_other(options_class: OptionsClass, bench: Bench) -> None:
    """Every pair of kinds."""
    grammar = bench.scratch / "grammar.gbnf"
    grammar.write_text('root ::= "a"', encoding="utf-8")
    for first, second in itertools.combinations(_one_of_each(options_class, grammar), 2):
        given = {**_set_fields(first), **_set_fields(second)}
        try:
            replace(options_class(), **given).constraint()  # type: ignore[arg-type]  # fields of the class itself
        except ConfigError:
            continue
        raise Broken(f"{' and '.join(given)} were both given, and one of them is ignored")


def _one_of_each(options_class: OptionsClass, grammar: Path) -> list[ConstraintOptions]:
    return [options_class(regex="a"), options_class(choice=["a"]), options_class(json_schema="{}"),
            options_class(ebnf=grammar), options_class(structural_tag="{}"), options_class(json_object=True)]


def _set_fields(options: ConstraintOptions) -> dict[str, object]:
    plain = ConstraintOptions()
    values = {"regex": options.regex, "choice": options.choice, "json_schema": options.json_schema,
              "ebnf": options.ebnf, "structural_tag": options.structural_tag, "json_object": options.json_object}
    unset = {"regex": plain.regex, "choice": plain.choice, "json_schema": plain.json_schema, "ebnf": plain.ebnf,
             "structural_tag": plain.structural_tag, "json_object": plain.json_object}
    return {name: value for name, value in values.items() if value != unset[name]}


def scenario(bench: Bench) -> None:
    """A regex and a structural tag on the command line."""
    code = main(["run", "x", "--no-chat", "--model", str(bench.model), "--regex", "a", "--structural-tag", "{}"])
    hold(code == 2, f"both constraints were given, and the command ended with {code}")


EXHIBIT: Exhibit[OptionsClass] = Exhibit(
    68, ChecksThreeOfFour, {"command line": ConstraintOptions}, all_kinds_exclude_each_other, "one of them is ignored",
    Injection(ConstraintOptions, "constraint", ChecksThreeOfFour.constraint, scenario, "the command ended with 0"))
