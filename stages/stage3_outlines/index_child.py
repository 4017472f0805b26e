"""What the child process builds, with the two libraries and nothing else (see `build_child`). No build can be stopped:
not `outlines_core.Index`, and not interegular's `to_fsm`."""

from __future__ import annotations

import pickle
from typing import Any

MAX_PICKLE = 512 << 20


def vocabulary(job: tuple[int, dict[bytes, list[int]]], _shared: object) -> tuple[str, object]:
    """Outlines' own form of the vocabulary: the id of its end token, and per text the ids that spell it."""
    import outlines_core

    return "shared", outlines_core.Vocabulary(*job)


def index(job: tuple[str, int, dict[bytes, list[int]] | None], shared: object) -> tuple[str, object]:
    """("index", pickled), ("refused", why) or ("large", bytes), of (regex, end token, the tokens if not all)."""
    import outlines_core

    regex, end, some = job
    try:
        tokens = shared if some is None else outlines_core.Vocabulary(end, some)
        pickled = pickle.dumps(outlines_core.Index(regex, tokens))
    except ValueError as error:
        return "refused", str(error)
    return ("index", pickled) if len(pickled) <= MAX_PICKLE else ("large", len(pickled))


def char_fsm(regex: str, _shared: object) -> tuple[str, object]:
    """("fsm", (code points of each key, the key of all others, rows, finals)), or ("refused", why)."""
    import interegular
    from interegular.fsm import anything_else

    try:
        fsm: Any = interegular.parse_pattern(regex).to_fsm()
        fsm = fsm.reduce()
    except Exception as error:  # its messages are mostly empty, and its classes many
        return "refused", repr(error)
    keys: dict[int, list[int]] = {}
    others = -1  # no row has this key
    for symbol in fsm.alphabet:
        if symbol is anything_else:
            others = fsm.alphabet[symbol]
        else:
            keys.setdefault(fsm.alphabet[symbol], []).append(ord(symbol))
    number = {state: place for place, state in enumerate([fsm.initial, *sorted(fsm.states - {fsm.initial})])}
    rows = [{key: number[target] for key, target in fsm.map.get(state, {}).items()} for state in number]
    return "fsm", (keys, others, rows, {number[state] for state in fsm.finals})
