"""Where the time of a pass goes, by torch's profiler."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile

_KINDS = {
    "linear": ("_linear_pointwise", "aten::mm", "aten::addmm", "_weight_int8pack_mm", "aten::mv"),
    "attention": ("_scaled_dot_product",),
    "gather": ("aten::index_select",),
}


def shares_of(one: Callable[[], object], passes: int) -> dict[str, float]:
    """The share of time inside the operations of each kind, those with another name under "other"; they add up to 1.

    The profiler makes small operations longer, so that "other" is rather less than it says.
    """
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(passes):
            one()
    spent = dict.fromkeys([*_KINDS, "other"], 0.0)
    for event in seen.key_averages():
        kind = next((kind for kind, names in _KINDS.items() if any(name in event.key for name in names)), "other")
        spent[kind] += event.self_cpu_time_total
    total = sum(spent.values())
    return {kind: round(time / total, 4) for kind, time in spent.items()}
