"""Options that several commands share are declared once, as the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import get_type_hints


def expand_groups(command: Callable[..., int]) -> Callable[..., int]:
    """A function with one parameter for each field of the dataclasses that `command` takes, for typer to read.

    A parameter of `command` whose type is a dataclass becomes that dataclass's fields (type, `typer.Option` and
    default from the field); every other one stays as it is. The call builds the dataclasses again.

    Raises:
        TypeError: two groups have a field of one name, or a group's field has no default.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, _Group] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and is_dataclass(kind):
            expanded = _parameters_of(kind)
            groups[name] = _Group(kind, [one.name for one in expanded])
            parameters += expanded
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
    names = [parameter.name for parameter in parameters]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise TypeError(f"{command.__name__}: declared twice: {', '.join(sorted(repeated))}")

    @functools.wraps(command)
    def expanded_command(**values: object) -> int:
        built = {name: group.build(values) for name, group in groups.items()}
        return command(**built, **values)

    signature = inspect.Signature(parameters, return_annotation=int)
    expanded_command.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature reads
    expanded_command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    del expanded_command.__wrapped__  # else its annotations are read instead
    return expanded_command


@dataclass(frozen=True, slots=True)
class _Group:
    kind: type
    names: list[str]

    def build(self, values: dict[str, object]) -> object:
        """One object of the group, from the values that it takes out of `values`."""
        return self.kind(**{name: values.pop(name) for name in self.names})


def _parameters_of(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for one in fields(kind):
        if one.default is not MISSING:
            default: object = one.default
        elif one.default_factory is not MISSING:
            default = one.default_factory()
        else:
            raise TypeError(f"{kind.__name__}.{one.name} has no default")
        parameters.append(inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default,
                                            annotation=hints[one.name]))
    return parameters
