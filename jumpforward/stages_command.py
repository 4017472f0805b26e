"""`jumpforward stages`: what each generation could do, read from the data that scheduler and tests read."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jumpforward.console import page_width, print_rich, speaks_unicode
from jumpforward.exit_codes import OK
from jumpforward.page import Column, tables
from shared_runtime.constraint import CONSTRAINT_KINDS, ConstraintKind

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shared_runtime.policy import Capabilities, StageSpec

_SWITCHES = ("async compile", "overlap", "speculation", "tensor parallel", "reasoning")
FEATURES = (*CONSTRAINT_KINDS, "backends", "jump-forward", *_SWITCHES)


def show_stages(as_json: bool) -> int:
    """Print the capability matrix of the stages that exist; returns the exit code."""
    from stages import all_stages

    specs = all_stages()
    if as_json:
        json.dump({"stages": [_as_json(spec) for spec in specs]}, sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        print_rich(*_matrix(specs, width=page_width(sys.stdout), unicode=speaks_unicode(sys.stdout)))
    return OK


def _matrix(specs: Sequence[StageSpec], *, width: int, unicode: bool) -> list[RenderableType]:
    """Who they are, then what each could do; a table below another where the page is narrow."""
    from rich.text import Text

    names = Text("\n".join(f"{spec.id}  {spec.name} ({spec.years})\n   {spec.title}" for spec in specs))
    columns = [Column(f"stage {spec.id}", ["\n".join(cell) for cell in cells(spec.capabilities)], is_number=False)
               for spec in specs]
    return [names, *tables(Column("", FEATURES, is_number=False), [columns], width=width, unicode=unicode)]


def cells(capabilities: Capabilities) -> list[list[str]]:
    """A stage's column of the matrix: for each of `FEATURES` a word, or several that belong below each other."""
    return [*(_cell(kind, capabilities) for kind in CONSTRAINT_KINDS), list(capabilities.backends),
            list(capabilities.jump_forward), *([_yes(has)] for has in _switches(capabilities).values())]


def _cell(kind: ConstraintKind, capabilities: Capabilities) -> list[str]:
    """Yes, no, or the backends that have the kind where some have not."""
    if kind not in capabilities.constraints:
        return ["no"]
    having = [name for name in capabilities.backends if kind in capabilities.kinds_of(name)]
    return ["yes"] if len(having) == len(capabilities.backends) else having


def _switches(capabilities: Capabilities) -> dict[str, bool]:
    values = (capabilities.async_compile, bool(capabilities.overlap), capabilities.speculation,
              capabilities.tensor_parallel, capabilities.reasoning)
    return dict(zip(_SWITCHES, values, strict=True))


def _yes(has: bool) -> str:
    return "yes" if has else "no"


def _as_json(spec: StageSpec) -> dict[str, object]:
    capabilities = spec.capabilities
    return {
        "id": spec.id, "name": spec.name, "title": spec.title, "years": spec.years,
        "commits": [{"hash": commit, "what": what} for commit, what in spec.commits],
        "constraints": [kind for kind in CONSTRAINT_KINDS if kind in capabilities.constraints],
        "backends": list(capabilities.backends),
        "kinds": {name: [kind for kind in CONSTRAINT_KINDS if kind in capabilities.kinds_of(name)]
                  for name in capabilities.backends},
        "jump_forward": list(capabilities.jump_forward),
        **{name.replace(" ", "_"): has for name, has in _switches(capabilities).items()},
    }
