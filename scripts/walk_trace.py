"""Is it the grammar or the loop? Walks a trace of `jumpforward run --trace FILE` in the order that finds out soonest.

    python scripts/walk_trace.py FILE

Four questions are about the loop, and only the last is about the grammar. The exit code is 1 when one of them finds
something, and 2 when the file is no trace.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, what the trace answers, and whether one should look there."""

    question: str
    answer: str
    suspect: bool = False


def findings(records: Sequence[Record]) -> list[Finding]:
    """The five answers, in the order in which to ask."""
    turns = [one for one in records if one["requests"]]
    return [_has_grammar(turns), _filled(turns), _ranks(turns), _order(turns), _grammar(turns)]


def _has_grammar(turns: Sequence[Record]) -> Finding:
    having = [one["step"] for one in turns if one["has_grammar"]]
    question = "1. Does the batch know of a grammar? (has_grammar)"
    if not having:
        return Finding(question, "in no turn: the constraint never came as far as the batch; look at the request's "
                       "options and at admission", suspect=True)
    return Finding(question, f"in {len(having)} of {len(turns)} turns, first in turn {having[0]}")


def _filled(turns: Sequence[Record]) -> Finding:
    question = "2. Was a mask filled for each row that samples under one? (grammars_filled)"
    for one in turns:
        row = 0  # of the logits: a request has one, and one more for each drafted token
        for request in one["requests"]:
            if request["state_before"] and request["sampled"] and row not in one["grammars_filled"]:
                return Finding(question, f"turn {one['step']}: not for {request['rid']}, row {row} of the logits; it "
                               "was sampled unmasked", suspect=True)
            row += (1 + len(request["draft"])) * request["sampled"]
    filled = sum(len(one["grammars_filled"]) for one in turns)
    return Finding(question, f"yes, {filled} rows over all turns")


def _ranks(turns: Sequence[Record]) -> Finding:
    question = "3. Did the ranks agree on the tokens? (tp_token_sync)"
    synced = sum(one["tp_token_sync"] for one in turns)
    if 0 < synced < sum(one["has_grammar"] for one in turns):
        return Finding(question, f"in {synced} turns only, and a grammar was there in more", suspect=True)
    return Finding(question, f"synchronised in {synced} turns" if synced else
                   "never asked: one rank, or several that nothing holds together (was it run with --tp?)")


def _order(turns: Sequence[Record]) -> Finding:
    question = "4. Was each mask made of the results before it? (events, overlap)"
    at = {(event["name"], event["step"]): event["seq"] for one in turns for event in one["events"]}
    steps = sorted({step for _, step in at})
    for before, step in pairwise(steps):
        done, made = at.get(("results_processed", before)), at.get(("mask_ready", step))
        if done is not None and made is not None and made < done:
            return Finding(question, f"the mask of turn {step} was ready before turn {before} was accepted",
                           suspect=True)
    overlapped = sum(one["overlap"]["on"] for one in turns)
    gates = sorted({one["overlap"]["gate_reason"] for one in turns} - {None})
    return Finding(question, f"yes; {overlapped} of {len(turns)} turns overlapped"
                   + (f", kept from it by: {', '.join(gates)}" if gates else ""))


def _grammar(turns: Sequence[Record]) -> Finding:
    question = "5. Only now the grammar: did it leave a token, and did the request end as one should?"
    for one in turns:
        for request in one["requests"]:
            if request["n_allowed"] == 0:
                return Finding(question, f"turn {one['step']}: no token was allowed in state {request['state_before']}",
                               suspect=True)
            if request["finish"] in ("error", "abort"):
                return Finding(question, f"turn {one['step']}: {request['rid']} ended as {request['finish']}",
                               suspect=True)
    fewest = min((request["n_allowed"] for one in turns for request in one["requests"]
                  if request["n_allowed"] is not None), default=None)
    ends = sorted({request["finish"] for one in turns for request in one["requests"]} - {None})
    return Finding(question, f"yes; at least {fewest} token allowed wherever it chose; ended by: {', '.join(ends)}")


def report(records: Sequence[Record]) -> str:
    """The walk as text: it stops mattering at the first `LOOK HERE`."""
    return "\n".join(f"{one.question}\n   {'LOOK HERE: ' if one.suspect else ''}{one.answer}"
                     for one in findings(records))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python scripts/walk_trace.py FILE", file=sys.stderr)
        return 2
    try:
        lines = Path(arguments[0]).read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
        text, suspect = report(records), any(one.suspect for one in findings(records))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {arguments[0]} is no trace ({type(error).__name__}: {error}); "
              "jumpforward run --trace FILE writes one", file=sys.stderr)
        return 2
    print(text)
    return int(suspect)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
