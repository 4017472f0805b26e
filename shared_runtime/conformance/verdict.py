"""Judges a case on a target. Right means right: a decoder that refuses everything fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch

from shared_runtime.conformance.case_file import Case
from shared_runtime.conformance.deviations import About, Deviation, deviation_of
from shared_runtime.conformance.target import Target
from shared_runtime.conformance.text_check import Got, TextCheck, TextChecker
from shared_runtime.constrain.libraries.known_deviations import ListedDeviationError
from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, UnsupportedConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageContext, StageOptions
from shared_runtime.tokenizer import Tokenizer
from stages import first_stage_with

Verdict = Literal["right", "clear_error", "listed_deviation", "not_applicable", "WRONG"]
Expected = Literal["accept", "reject", "optional"]
ErrorJson = dict[str, object]


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """A text, what the case says of it, and what the masks said."""

    text: str
    expected: Expected
    check: TextCheck

    @property
    def right(self) -> bool:
        """Whether the two agree. A text that no token sequence spells cannot be accepted, whatever the case says."""
        if self.expected == "optional" or not self.check.spellable:
            return self.check.spellable or self.check.got != "accepted"
        return (self.check.got == "accepted") == (self.expected == "accept")

    def as_dict(self) -> dict[str, object]:
        """As `check --json` prints it."""
        return {"text": self.text, "expected": self.expected, "got": self.check.got, "byte": self.check.byte,
                "reason": self.check.reason}


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """What a target made of a case: the error it refused the grammar with, or the texts."""

    id: str
    stage: int
    backend: str
    verdict: Verdict
    error: ErrorJson | None = None
    deviation: str | None = None
    texts: tuple[TextVerdict, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """As `check --json` prints it."""
        return {"id": self.id, "stage": self.stage, "backend": self.backend, "verdict": self.verdict,
                "error": self.error, "deviation": self.deviation, "texts": [text.as_dict() for text in self.texts]}


@dataclass(slots=True)
class Judge:
    """Judges cases; each target's policy is built once, and each grammar compiled once per target.

    Attributes:
        tokenizer: its vocabulary is what texts are spelled with. deviations: what is known to be wrong.
        options, limits: of the policies. all_tokenizations: try other spellings of each text too.
    """

    tokenizer: Tokenizer
    deviations: tuple[Deviation, ...] = ()
    options: StageOptions = field(default_factory=StageOptions)
    limits: GrammarLimits = field(default_factory=GrammarLimits)
    all_tokenizations: bool = False
    _walkers: dict[Target, GrammarWalker] = field(default_factory=dict)
    _checkers: dict[Target, TextChecker] = field(default_factory=dict)

    def judge(self, case: Case, target: Target) -> CaseVerdict:
        """The verdict. Whatever a stage raises that is no answer to the user is WRONG, and named."""
        not_here = _out_of_scope(case, target)
        if case.constraint is None or not_here is not None:
            return self._row(case, target, "not_applicable", error=_reason(not_here or "no grammar"))
        try:
            if not target.supports(case.constraint.kind):
                return self._lacking(case, case.constraint, target)
            return self._judged(case, case.constraint, target)
        except Exception as error:
            return self._row(case, target, "WRONG", error={
                "type": type(error).__name__, "message": f"the stage failed: {error}", "offset": None})

    def walker(self, target: Target) -> GrammarWalker:
        """The target's walker."""
        if target not in self._walkers:
            context = StageContext(vocabulary=self.tokenizer.vocabulary, tokenizer=self.tokenizer,
                                   device=torch.device("cpu"), limits=self.limits, backend=target.backend,
                                   options=self.options)
            self._walkers[target] = GrammarWalker(target.spec.build(context), self.tokenizer.vocabulary)
        return self._walkers[target]

    def checker(self, target: Target) -> TextChecker:
        """What checks texts on the target."""
        if target not in self._checkers:
            self._checkers[target] = TextChecker(self.walker(target), self.tokenizer)
        return self._checkers[target]

    def _lacking(self, case: Case, constraint: Constraint, target: Target) -> CaseVerdict:
        """The stage says that it has no such kind; then it must refuse one, and say who has it."""
        try:
            self.walker(target).start(constraint).close()
        except UnsupportedConstraintError as error:
            by_stage = constraint.kind not in target.spec.capabilities.constraints
            named = not by_stage or error.first_stage == first_stage_with(constraint.kind)
            return self._row(case, target, "not_applicable" if named else "WRONG", error=error.as_dict())
        except ConstraintError as error:
            return self._row(case, target, "WRONG", error=error.as_dict())
        return self._row(case, target, "WRONG", error=_reason(
            f"stage {target.spec.id} says that it has no {constraint.kind}, and serves one"))

    def _judged(self, case: Case, constraint: Constraint, target: Target) -> CaseVerdict:
        try:
            self.walker(target).start(constraint).close()
        except ListedDeviationError as error:
            if case.expect == "ok":
                return self._row(case, target, "listed_deviation", error=error.as_dict(), deviation=error.message)
            return self._refused(case, target, error.as_dict())
        except ConstraintError as error:
            return self._refused(case, target, error.as_dict())
        texts = self._texts(case, constraint, target)
        if case.expect == "error":
            stuck = _reason("compiled, and then no token at all is allowed: the request ends with an error")
            if self._stuck(constraint, target):
                return self._row(case, target, "clear_error", error=stuck, texts=texts)
            return self._or_deviation(case, target, "language", error=_reason("the grammar must be refused, and "
                                                                              "is served"), texts=texts)
        wrong = {text.expected for text in texts if not text.right}
        if wrong:
            about: About = "narrower" if wrong == {"accept"} else "language"
            return self._or_deviation(case, target, about, texts=texts)
        if self.all_tokenizations and not all(text.check.spellings_agree for text in texts):
            return self._or_deviation(case, target, "spellings", texts=texts)
        return self._row(case, target, "right", texts=texts)

    def _texts(self, case: Case, constraint: Constraint, target: Target) -> tuple[TextVerdict, ...]:
        checker = self.checker(target)
        return tuple(TextVerdict(text, expected, checker.check(constraint, text,
                                                               all_tokenizations=self.all_tokenizations))
                     for expected, text in _expectations(case))

    def _stuck(self, constraint: Constraint, target: Target) -> bool:
        with self.walker(target).start(constraint) as walk:
            return not bool(walk.mask().any())

    def _refused(self, case: Case, target: Target, error: ErrorJson) -> CaseVerdict:
        match case.expect:
            case "error" | "error_preferred":
                return self._row(case, target, "right", error=error)
            case "ok_or_error":
                return self._row(case, target, "clear_error", error=error)
            case _:
                return self._or_deviation(case, target, "language", error=error)

    def _or_deviation(self, case: Case, target: Target, about: About, *, error: ErrorJson | None = None,
                      texts: tuple[TextVerdict, ...] = ()) -> CaseVerdict:
        row = deviation_of(self.deviations, case, target, about)
        if row is None and about == "narrower":
            row = deviation_of(self.deviations, case, target, "language")
        if row is None:
            return self._row(case, target, "WRONG", error=error, texts=texts)
        return self._row(case, target, "listed_deviation", error=error, deviation=f"{row.what} ({row.upstream})",
                         texts=texts)

    def _row(self, case: Case, target: Target, verdict: Verdict, *, error: ErrorJson | None = None,
             deviation: str | None = None, texts: Iterable[TextVerdict] = ()) -> CaseVerdict:
        return CaseVerdict(case.id, target.spec.id, target.backend, verdict, error, deviation, tuple(texts))


def _out_of_scope(case: Case, target: Target) -> str | None:
    if case.kind == "behaviour":
        return "a behaviour case: its steps are a test of their own, named after its id"
    if target.spec.id not in case.stages:
        return f"the case concerns the stages {', '.join(map(str, case.stages)) or 'none'}"
    return None


def _expectations(case: Case) -> Iterator[tuple[Expected, str]]:
    yield from (("accept", text) for text in case.accept)
    yield from (("reject", text) for text in case.reject)
    yield from (("optional", text) for text in case.optional)


def _reason(message: str) -> ErrorJson:
    return {"type": "Note", "message": message, "offset": None}


__all__ = ["CaseVerdict", "Expected", "Got", "Judge", "TextVerdict", "Verdict"]
