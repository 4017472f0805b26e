"""`FSMCache`: one compile per regex, at arrival, on the scheduler's own thread.

The thread of stage 1 went in ca13f3b8c5 (#63): its only caller had waited for it anyway.
"""

from __future__ import annotations

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.policy import StageContext

from .base_cache import BaseCache
from .disk_cache import DiskCache
from .fsm import RegexFSM, build_fsm
from .regex import make_byte_automaton
from .tokenizer import ReducedVocabulary


class FSMCache(BaseCache[RegexFSM]):
    """Compiled regexes; `disk` keeps their indexes for the next process, where the options name a folder."""

    def __init__(self, context: StageContext) -> None:
        super().__init__()
        self._context = context
        self.vocabulary = ReducedVocabulary(context.vocabulary)
        folder = context.options.disk_cache
        self.disk = None if folder is None else DiskCache(folder, self.vocabulary, context.limits)

    def compiled(self, pattern: str) -> RegexFSM:
        """The FSM of a pattern. Raises the JumpforwardError of a pattern that is refused, each time the same."""
        return self.get(pattern, lambda: self._compile(pattern))

    def _compile(self, pattern: str) -> RegexFSM:
        budget = Budget(self._context.limits, self._context.progress)
        dfa = make_byte_automaton(pattern, budget)
        fsm = None if self.disk is None else self.disk.load(pattern, dfa, budget)
        if fsm is None:
            fsm = build_fsm(dfa, self.vocabulary, budget)
            if self.disk is not None:
                self.disk.save(pattern, fsm)
        return fsm
