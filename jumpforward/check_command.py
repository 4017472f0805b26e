"""`jumpforward check`: is a text in a grammar's language, by the masks that a decoder would sample under?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jumpforward.check_options import CheckOptions
from jumpforward.check_view import case_lines, summary_table, text_lines
from jumpforward.console import ProgressLine, print_rich, speaks_unicode
from jumpforward.decoding_options import GrammarOptions
from jumpforward.exit_codes import OK, REQUEST_ERROR, USAGE_ERROR
from jumpforward.options import ConstraintOptions, reread
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError

if TYPE_CHECKING:
    from shared_runtime.conformance.case_file import BadLine, Case
    from shared_runtime.conformance.target import Target
    from shared_runtime.conformance.verdict import CaseVerdict, Judge


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Everything `check` was asked for: one grammar with texts, or a case file."""

    what: CheckOptions
    as_json: bool
    constraint: ConstraintOptions = field(default_factory=ConstraintOptions)
    grammar: GrammarOptions = field(default_factory=GrammarOptions)


def check(request: CheckRequest) -> int:
    """Judge and print; returns 0, 1 when some verdict is WRONG, 2 when lines of the case file cannot be used.

    Raises:
        ConfigError: the command line asks for nothing that can be done.
        GrammarSyntaxError: text that should be JSON and is not.
    """
    constraint = _asked(request)
    progress = ProgressLine()
    progress(f"loading the tokenizer of {request.what.model}", 0, 0)
    from shared_runtime.conformance.target import targets_of

    targets = targets_of(request.what.stage, request.grammar.backend)
    judge = _judge(request, strict=constraint is None)
    lines: Iterator[Case | BadLine] = (
        _lines(request.what.cases) if constraint is None
        else iter([_typed_case(constraint, tuple(map(reread, request.what.text)))]))
    try:
        verdicts, bad_lines = _judged(judge, lines, targets, progress)
    finally:
        progress.clear()
    _show(request, verdicts)
    return _summarise(verdicts, bad_lines)


def _asked(request: CheckRequest) -> Constraint | None:
    """The one grammar to check; None when there is a case file."""
    constraint = request.constraint.constraint()
    if request.what.cases is None:
        if constraint is None:
            raise ConfigError("nothing to check", where="check",
                              fix="give a grammar (--regex, --json-schema, ...) and --text, or --cases FILE")
        if not request.what.text:
            raise ConfigError("no text to check", where="--text", fix="give --text TEXT, once for each")
    elif constraint is not None or request.what.text:
        raise ConfigError("a case file brings its own grammars and texts", where="--cases",
                          fix="leave the others out")
    return constraint


def _lines(path: Path | None) -> Iterator[Case | BadLine]:
    from shared_runtime.conformance.case_file import read_cases

    assert path is not None
    return read_cases(path)


def _judge(request: CheckRequest, *, strict: bool) -> Judge:
    """A judge of languages rather than of forms: any whitespace, and with a case file no grammar is bent."""
    import torch

    from shared_runtime.conformance.deviations import shipped_deviations
    from shared_runtime.conformance.verdict import Judge
    from shared_runtime.model.locate import locate_model
    from shared_runtime.tokenizer import Tokenizer

    torch.set_num_threads(1)  # one row's mask is small work: a second thread only waits
    tokenizer = Tokenizer.from_folder(locate_model(request.what.model, None))
    return Judge(tokenizer, shipped_deviations(), all_tokenizations=request.what.all_tokenizations,
                 options=request.grammar.stage_options(whitespace="any", strict=strict))


def _typed_case(constraint: Constraint, texts: tuple[str, ...]) -> Case:
    """A grammar and texts from the command line: nothing is expected of them."""
    from shared_runtime.conformance.case_file import Case

    return Case(line=1, id="command-line", kind=constraint.kind, constraint=constraint, optional=texts,
                expect="ok_or_error")


def _judged(judge: Judge, lines: Iterator[Case | BadLine], targets: tuple[Target, ...],
            progress: ProgressLine) -> tuple[list[CaseVerdict], int]:
    from shared_runtime.conformance.case_file import BadLine

    verdicts: list[CaseVerdict] = []
    bad_lines = 0
    for line in lines:
        if isinstance(line, BadLine):
            progress.clear()
            print(f"{'warning' if line.usable else 'error'}: line {line.line}: {line.message}", file=sys.stderr)
            bad_lines += not line.usable
            continue
        progress(f"checking {line.id[:40]}" if sys.stderr.isatty() else "checking", 0, 0)
        verdicts += [judge.judge(line, target) for target in targets]
    if not verdicts and not bad_lines:
        raise ConfigError("the file has no case in it", where="--cases")
    return verdicts, bad_lines


def _show(request: CheckRequest, verdicts: list[CaseVerdict]) -> None:
    if request.as_json:
        rows = [verdict.as_dict() for verdict in verdicts]
        text = json.dumps(rows, ensure_ascii=False)
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair has no UTF-8; its escape is the same JSON
            text = json.dumps(rows)
        sys.stdout.write(f"{text}\n")
    elif request.what.cases is None:
        print_rich(*text_lines(verdicts))
    else:
        print_rich(*case_lines(verdicts), summary_table(verdicts, unicode=speaks_unicode(sys.stdout)))


def _summarise(verdicts: list[CaseVerdict], bad_lines: int) -> int:
    counts = Counter[str](verdict.verdict for verdict in verdicts)
    names = ("right", "clear_error", "listed_deviation", "not_applicable", "WRONG")
    told = ", ".join(f"{counts[name]} {name}" for name in names)
    unusable = f"; {bad_lines} lines cannot be used" if bad_lines else ""
    print(f"{len(verdicts)} verdicts: {told}{unusable}", file=sys.stderr)
    if counts["WRONG"]:
        return REQUEST_ERROR
    return USAGE_ERROR if bad_lines else OK
