"""What is graded: half characters, long ways back, choices, jumps, and the conformance suite."""

from __future__ import annotations

from exercises.bench import each
from shared_runtime.constraint import Constraint
from tests.conformance import test_cases, test_masks
from tests.conformance.harness import REGEXES, cases

from .common import (
    a_bad_pattern_is_refused,
    masks_along_a_walk,
    stage_4_answers,
    the_end_ends_it,
    the_suite_is_content,
    the_way_back,
    two_compile_at_once,
    what_is_forced,
)

SAME = test_masks.test_mask_equals_the_oracle
QUICK = ("hand-004", "hand-006", "hand-007", "hand-013", "hand-015", "hand-016", "hand-018")
"""The handed cases that take a few tenths of a second at most; PocketRE is right about the others, too."""

CASES = [
    *each(masks_along_a_walk, {
        "masks: half characters": ("(é|ß|ü){2}!", 3), "masks: the empty text": ("(ab)*", 4),
        "masks: any character": (".{1,6}", 5), "masks: what looks like a control token": (r"<\|end\|>a", 6)}),
    *each(the_end_ends_it, {"the end: of the empty text": ("(ab)?", "")}),
    *each(the_way_back, {
        "the way back: all of it": ("[a-z]{12}", "abcdefghijkl", [12]),
        "the way back: in steps, to the start": ("([a-z]-){10}", "a-b-c-d-e-f-g-h-", [1, 9, 6]),
        "the way back: over half a character": ("é{3}", "éé", [1, 2])}),
    *each(what_is_forced, {
        "forced: a begun character": ("é!(a|b)", b"\xc3", b"\xa9", "!"),
        "forced: an optional tail is not": ("[ab]c?", b"a", b"", ""),
        "forced: up to half a character": ("x(é|ê)", b"", b"", "x")}),
    *each(a_bad_pattern_is_refused, {"a bad class": ("x[z-a]", 2), "a bad count": ("a{3,2}", 2)}),
    *each(two_compile_at_once, {
        "two threads at once, of two kinds": (Constraint.choice(["red", "green"]), Constraint.regex("[0-9]")),
        "two threads at once, one with a bad pattern": (Constraint.regex("[a-c]"), Constraint.regex("ab(c")),
        "two threads at once, a bad pattern first": (Constraint.regex("x)"), Constraint.regex("[a-c]"))}),
    *each(stage_4_answers, {
        "stage 4: choices": ([Constraint.choice(["name: true", "name: tru", "age"]), Constraint.choice(["é"])],),
        "stage 4: several jumps": ([Constraint.regex(r'\{"name": "[a-z]{1,3}", "age": [0-9]{2}\}')] * 2,),
        "stage 4: a bad one among good ones": ([Constraint.regex("("), Constraint.regex("[a-c]{2}")],)}),
    *each(the_suite_is_content, {f"suite: masks of {pattern}": (SAME, pattern) for pattern in REGEXES[::4]}),
    *each(the_suite_is_content, {f"suite: {test.__name__[5:].replace('_', ' ')}": (test,) for test in (
        test_masks.test_free_rows_stay_bit_identical, test_masks.test_each_request_has_its_own_state,
        test_masks.test_accept_reports_rows_in_order)}),
    *each(the_suite_is_content, {f"suite: case {case.id}": (test_cases.test_case_is_right, case)
                                 for case in cases("regex") if case.id in QUICK}),
]
