"""How a regex becomes masks and jumps, step by step, with the size and the time of each.

The steps are those of stages 1 and 2, by the code that these stages run; only the minimal automaton is made here, for
the picture: the stages do without it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import TypeVar

from jumpforward.notebook import NO_FORMULAS
from jumpforward.stepper.automaton import Edge, minimal, visible_text
from jumpforward.stepper.picture import draw
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import spell_in_utf8
from shared_runtime.constrain.regex.char_fsm import make_deterministic_fsm
from shared_runtime.constrain.regex.positions import Positions
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import ConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.vocabulary import Vocabulary

_MOST_ROWS = 12
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step: its name, what it does in a sentence, its sizes, its milliseconds, and some of what it made.

    Attributes:
        sizes: (what, how many). rows: lines of a small table, the first its head. svg: a picture, "" without one.
    """

    name: str
    text: str
    sizes: list[tuple[str, int]]
    ms: float
    rows: list[tuple[str, ...]] = field(default_factory=list)
    svg: str = ""

    @property
    def sizes_text(self) -> str:
        """The sizes, as `24 states, 15 keys`."""
        return ", ".join(f"{count:,} {what}" for what, count in self.sizes)

    def as_html(self) -> str:
        """What it does and what it made: the picture where there is one, else the table."""
        parts = [f"<p>{escape(self.text)}</p>", self.svg]
        if self.rows and not self.svg:
            head, *body = self.rows
            parts.append('<table class="jf-table"><thead><tr>'
                         + "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head) + "</tr></thead><tbody>"
                         + "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                                   for row in body) + "</tbody></table>")
        return "".join(parts)


@dataclass(frozen=True)
class Pipeline:
    """The steps for one pattern, in order."""

    pattern: str
    steps: list[PipelineStep]

    def _repr_html_(self) -> str:
        """The steps for a notebook."""
        parts = [f"<h4>From <code>{escape(self.pattern)}</code> to masks and jumps</h4>"]
        for number, step in enumerate(self.steps, 1):
            parts.append(f"<h5>{number}. {escape(step.name)}: {escape(step.sizes_text)} "
                         f"<small>({step.ms:.2f} ms)</small></h5>{step.as_html()}")
        return f'<div class="jf-pipeline {NO_FORMULAS}">' + "".join(parts) + "</div>"


def pipeline_of(pattern: str, vocabulary: Vocabulary, limits: GrammarLimits | None = None) -> Pipeline:
    """Compile `pattern` over `vocabulary`, and keep what each step made.

    Raises:
        ConstraintError: the dialect does not have the pattern, no text of it can be spelled, or it is past a limit.
    """
    budget = Budget(limits or GrammarLimits())
    try:
        return Pipeline(pattern, _Steps(pattern, vocabulary, budget).all())
    except RecursionError:
        raise ConstraintError("the pattern is nested too deep", where="constraint", fix="take out groups") from None


class _Steps:
    def __init__(self, pattern: str, vocabulary: Vocabulary, budget: Budget) -> None:
        self._pattern = pattern
        self._vocabulary = vocabulary
        self._budget = budget
        self._steps: list[PipelineStep] = []

    def all(self) -> list[PipelineStep]:
        """Every step, each from what the one before made."""
        from stages.stage1_copied_fsm.fsm import build_fsm
        from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary
        from stages.stage2_jump_forward.jump_forward import JumpForwardMap

        parsed, ms = _timed(lambda: normalise(self._pattern))
        self._add("parse", "The pattern in plain form: classes written out, outer anchors gone, lazy as greedy.",
                  [("characters", len(parsed.explicit_text))], ms,
                  [("plain form",), (visible_text(parsed.explicit_text),)])
        nfa, ms = _timed(lambda: Positions.of(parsed.tree, self._budget))
        self._add("NFA", "Counts are written out; each position reads one character of one class.",
                  [("nodes", len(nfa.skips)), ("positions", len(nfa.after)), ("classes", len(nfa.classes))], ms)
        fsm, ms = _timed(lambda: make_deterministic_fsm(parsed.tree, self._budget))
        self._add("FSM", "The subset construction: characters that no class tells apart share one key.",
                  [("states", len(fsm.rows)), ("keys", len({key for _, _, key in fsm.alphabet.intervals})),
                   ("edges", sum(map(len, fsm.rows)))], ms)
        smallest, ms = _timed(lambda: minimal(fsm))
        edges = smallest.edges()
        self._add("minimal FSM", "States that no text tells apart are one; a chain of forced text is one drawn edge.",
                  [("states", len(smallest.rows)), ("drawn edges", len(edges)),
                   ("chains", sum(bool(edge.inside) for edge in edges))], ms, _edge_rows(edges), draw(smallest).svg)
        dfa, ms = _timed(lambda: spell_in_utf8(fsm.alphabet.intervals, fsm.rows, fsm.finals, self._budget))
        self._add("byte automaton", "Tokens are bytes and may end inside a character, so there are states there, too.",
                  [("states", len(dfa.table)), ("of them inside a character", len(dfa.table) - len(fsm.rows))], ms)
        reduced = ReducedVocabulary(self._vocabulary)
        trie, ms = _timed(reduced.trie)
        self._add("vocabulary trie", "Every token's bytes in one tree: shared beginnings are walked once. Built once "
                  "per engine.", [("tokens", len(self._vocabulary)), ("nodes", len(trie.byte))], ms)
        index, ms = _timed(lambda: build_fsm(dfa, reduced, self._budget))
        counts = {state: int(index.allowed(state).sum()) for state in index.rows}
        self._add("token index", "From every state that tokens reach: which tokens may come. This is the mask.",
                  [("states", len(index.rows)), ("different masks", len(index.masks))], ms,
                  _index_rows(counts, set(dfa.accepting.nonzero()[0].tolist())))
        jumps, ms = _timed(lambda: JumpForwardMap.of(dfa))
        forced = {state: jumps.forced(state) for state in index.rows}
        self._add("jump map", "From states with one way on, the text that is forced there. Accepting states have none.",
                  [("states with one way on", len(jumps.edges)),
                   ("token boundaries with forced text", sum(bool(text) for text in forced.values()))], ms,
                  [("state", "forced text"), *((str(state), visible_text(text.decode("utf-8", "replace")))
                                               for state, text in sorted(forced.items())[:_MOST_ROWS] if text)])
        return self._steps

    def _add(self, name: str, text: str, sizes: list[tuple[str, int]], ms: float,
             rows: list[tuple[str, ...]] | None = None, svg: str = "") -> None:
        self._steps.append(PipelineStep(name, text, sizes, ms, rows or [], svg))


def _edge_rows(edges: list[Edge]) -> list[tuple[str, ...]]:
    """The drawn edges in words, as far as there is room, for who sees no picture."""
    return [("from", "by", "to", "states inside"),
            *((str(edge.start), edge.label, str(edge.end), str(len(edge.inside) or ""))
              for edge in edges[:_MOST_ROWS])]


def _index_rows(counts: dict[int, int], accepting: set[int]) -> list[tuple[str, ...]]:
    """The states whose masks are not like most others, as far as there is room."""
    common = Counter(counts.values()).most_common(1)[0][0]
    unusual = [state for state in sorted(counts) if counts[state] != common]
    shown = (sorted(counts) if len(counts) <= _MOST_ROWS else unusual or sorted(counts))[:_MOST_ROWS]
    return [("state", "tokens allowed", "accepts"),
            *((str(state), f"{counts[state]:,}", "yes" if state in accepting else "") for state in shown)]


def _timed(work: Callable[[], _Made]) -> tuple[_Made, float]:
    started = time.perf_counter()
    made = work()
    return made, (time.perf_counter() - started) * 1e3
