"""`FSMCache`: one cache for regexes, choices and schemas; a value is an index and, from the same regex, a jump map.

Upstream had two caches until e4d68afcf0 (#1357) made it one with the key (kind, text). A schema with another
description or other blanks is another text: it is compiled again, to an equal index. The order of its properties
decides the order of the output, so it must be another key, and is.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.build_process import BuildProcess
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.libraries.index_plan import IndexPlanner
from shared_runtime.constrain.libraries.regex_index import END as END
from shared_runtime.constrain.libraries.regex_index import bracketed, spelled_ids
from shared_runtime.constrain.regex.factoring import factored
from shared_runtime.constrain.regex.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex.regex_tree import Node, render
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, UnsupportedConstraintError
from shared_runtime.policy import StageContext

from .base_cache import BaseCache
from .compat import installed, schema_regex
from .jump_forward import CharFSM, JumpForwardMap

_MAX_MAP_CHARACTERS = 1_000  # characters of the pattern, counts written out; beyond, interegular takes seconds


@dataclass(frozen=True)
class CompiledRegex:
    """What requests with the same constraint share: the library's index, and `jumps`, None where there are none.

    `nbytes` is the memory of both, as the index measures when pickled.
    """

    index: object
    jumps: JumpForwardMap | None
    nbytes: int


class FSMCache:
    """Compiles, once a constraint, and remembers refusals. `cache` has the figures, `process` does the builds.

    END gets the id behind the model's last one, the library's own end token the one behind that, START the third.
    """

    def __init__(self, context: StageContext) -> None:
        # Tokens that could begin END are none of the index's: then nothing but END's own token leads into it.
        self._tokens = replace(context.vocabulary, token_bytes=tuple(
            b"" if END.encode()[0] in spelled else spelled for spelled in context.vocabulary.token_bytes))
        self.cache: BaseCache[CompiledRegex] = BaseCache()
        self.process = BuildProcess(Path(__file__).with_name("index_child.py"),
                                    ("vocabulary", (self._tokens.width + 1, spelled_ids(self._tokens))))
        self._context = context
        self._speller, self._planner = Speller(self._tokens), IndexPlanner(self._tokens)
        self._whole = self._tokens.byte_tokens.keys() >= self._tokens.spellable_bytes

    def get(self, wanted: Constraint) -> CompiledRegex:
        """The compiled form of a constraint. Raises JumpforwardError: why there is none, the same one every time."""
        text = escape_choice(wanted.choices) if wanted.kind == "choice" else wanted.source
        return self.cache.get(f"{wanted.kind} {text}", lambda: self._compile(wanted.kind, text))

    def _compile(self, kind: str, text: str) -> CompiledRegex:
        deadline = time.monotonic() + self._context.limits.compile_timeout
        installed("outlines_core")
        regex = schema_regex(text, self._context.options.whitespace) if kind == "json_schema" else text
        try:
            tree = factored(normalise(regex).tree)
            spelled = self._speller.restrict(tree)
            budget = Budget(self._context.limits, self._context.progress)
            plan = self._planner.plan(spelled, budget)
            budget.progress("index", 0, 0)
            pickled = self._index(render(spelled), plan.needed, max(0.1, deadline - time.monotonic()))
        except RecursionError:
            raise ConstraintError("the pattern is nested too deep", where="constraint", fix="take out groups") from None
        index = pickle.loads(pickled)
        if not self._whole and _never_ends(index):
            raise _dead_end()
        jumps = self._jumps(tree, deadline - time.monotonic()) if plan.characters <= _MAX_MAP_CHARACTERS else None
        return CompiledRegex(index, jumps, len(pickled) + (jumps.nbytes if jumps else 0))

    def _index(self, regex: str, needed: NDArray[np.bool_] | None, timeout: float) -> bytes:
        ids = None if needed is None else spelled_ids(self._tokens, needed)
        what, value = self.process.run("index", (bracketed(regex), self._tokens.width + 1, ids), timeout)
        if what == "index":
            return cast(bytes, value)
        if what == "refused":
            raise _dead_end() if "incompatible" in str(value) else ConstraintError(
                f"Outlines refuses the pattern: {value}", where="constraint")
        if what == "large":
            raise GrammarTimeoutError(f"the index has {value:,} bytes", where="constraint",
                                      fix="lower the counts in {n,m}, or simplify the pattern")
        why = (f"compiling took longer than {self._context.limits.compile_timeout:g} s" if what == "late" else
               "the process that builds the index died, for want of memory most likely")
        raise GrammarTimeoutError(why, where="constraint", fix="lower the counts in {n,m}, simplify the pattern, "
                                  "raise compile_timeout, or try again").blamed("unclear")

    def _jumps(self, tree: Node, timeout: float) -> JumpForwardMap | None:
        if not self._context.options.jump_forward or timeout <= 0:
            return None
        what, value = self.process.run("char_fsm", render(tree), timeout)
        try:
            return JumpForwardMap.of(cast(CharFSM, value), Budget(self._context.limits)) if what == "fsm" else None
        except GrammarTimeoutError:
            return None


def _dead_end() -> UnsupportedConstraintError:
    return UnsupportedConstraintError("some way through the pattern has no end with these tokens; Outlines cannot tell "
                                      "it from the others", where="constraint",
                                      fix="use --stage 1, or a model with other tokens")


def _never_ends(index: Any) -> bool:
    """For vocabularies with a byte that only longer tokens have: the library notices a dead end, but no endless one."""
    ways: dict[int, dict[int, int]] = index.get_transitions()
    live: set[int] = set(index.get_final_states())
    grown = -1
    while grown != len(live):
        grown = len(live)
        live |= {state for state, row in ways.items() if not live.isdisjoint(row.values())}
    return bool({index.get_initial_state()}.union(*(row.values() for row in ways.values())) - live)
