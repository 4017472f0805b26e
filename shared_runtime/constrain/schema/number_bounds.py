"""Number bounds for llguidance 1.9.1, which refuses numbers that are written with fewer digits than a bound.

Between 0.1 and 0.25 it takes 0.20 and not 0.2. So beside each bound stand the nearest ones inside that have fewer
digits: 0.2 for 0.25. What is inside of them is inside of the bound, and together they take every spelling.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import product

from shared_runtime.constrain.schema.json_schema_walk import Schema, map_subschemas

_SIDES = ((("minimum", "exclusiveMinimum"), ROUND_CEILING), (("maximum", "exclusiveMaximum"), ROUND_FLOOR))


def with_shorter_bounds(schema: Schema) -> Schema:
    """The same language; `schema` is one that `tidy_schema` has written."""
    own = map_subschemas(schema, lambda inner: with_shorter_bounds(inner) if isinstance(inner, dict) else inner)
    sides: list[list[Schema]] = []
    for keys, rounding in _SIDES:
        bounds: list[Schema] = [{key: own[key] for key in keys if key in own}]
        for key, value in bounds[0].items():
            exact = Decimal(repr(value)).normalize()
            digits = -int(exact.as_tuple().exponent)
            bounds += [{keys[0]: float(exact.quantize(Decimal(1).scaleb(-kept), rounding))}
                       for kept in range(digits) if len(bounds[0]) == 1 and key]
        sides.append(bounds)
    if max(map(len, sides)) == 1:
        return own
    rest = {key: value for key, value in own.items() if all(key not in keys for keys, _ in _SIDES)}
    ways = [low | high for low, high in product(*sides) if _in_order(low, high)]
    both = rest.pop("allOf", [])
    assert isinstance(both, list)
    return rest | {"allOf": [*both, {"anyOf": ways}]}


def _in_order(low: Schema, high: Schema) -> bool:
    """Whether numbers may lie between: the library refuses bounds that none does."""
    ends = [value for side in (low, high) for value in side.values() if isinstance(value, int | float)]
    open_end = bool({"exclusiveMinimum", "exclusiveMaximum"} & (low.keys() | high.keys()))
    return len(ends) < 2 or ends[0] < ends[1] or (ends[0] == ends[1] and not open_end)
