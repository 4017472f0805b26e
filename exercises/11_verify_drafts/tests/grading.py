"""What is graded: other guesses, ids that nobody has, libraries that throw, whole answers."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    a_failing_library_leaves_the_grammar_where_it_was,
    drafts_change_no_token,
    the_masks_are_those_of_the_runtime,
    the_run_is,
)

CASES = [
    *each(the_run_is, {
        "nothing was guessed": ("a", "", "a"),
        "one right guess": ("ab", "a", "ab"),
        "the last guess was wrong": ("abxd", "abc", "abx"),
        "the end comes first": (".bcd", "abc", "."),
        "the end comes last": ("abc.", "abc", "abc."),
        "the same token again and again": ("aaaa", "aaa", "aaaa"),
        "wrong and then right again": ("xbc", "ab", "x"),
        "the end was guessed": ("ab.d", "ab.", "ab."),
    }),
    *each(the_masks_are_those_of_the_runtime, {
        "an id that no vocabulary has": ("[a-z]+", "", "a?b"),
        "a draft to the end of the text": ("abc", "", "abc"),
        "a draft past the end": ("abc", "ab", "cab"),
        "a draft behind a long text": ("[a-z]+", "abcdefgh", "xyz"),
        "refused at once": ("[0-9]+", "", "abc"),
        "a stop token first": ("a*", "aa", ".aa"),
    }),
    Case("a library that throws in the middle", a_failing_library_leaves_the_grammar_where_it_was),
    *each(drafts_change_no_token, {
        "stage 5, a guess that is wrong": ("(name|age): [0-9]{2}", "xyz", "nam"),
        "stage 5, a guess past the end": ("ab", "abababab", "ab"),
        "stage 5, a guess that is always the same": ("[0-9]{8}", "11", "12"),
        "stage 5, half a right guess": ("(name|age): [0-9]{2}", "nage", "nam"),
    }),
]
