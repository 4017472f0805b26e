"""The regex dialect: one language, whoever reads the pattern; anything else is an error at the right place."""

from __future__ import annotations

import itertools
import random
import re
import sys
import threading
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.regex.charset import EVERYTHING, LAST_CODE_POINT, NOTHING, CharSet
from shared_runtime.constrain.regex.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex.regex_parser import MAX_COUNT, MAX_NESTING
from shared_runtime.errors import (
    GrammarSyntaxError,
    RequestError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)
from tests.unit.regex_readers import SHORT, check_interegular, check_same_language, python

# What interegular 0.3.3 makes of a pattern as written; the normal form must repair each.
EQUAL = ["ab", ".", "(?s).", "(?i)ab", "(?i)é", "(?i:a)b", "(?i)(?-i:a)b", "a|b|", "a{2}", "a{1,2}", "a{,2}", "a*?b",
         "a??b", "(?P<n>a)b", r"\x61", r"\141", "[a-]", "[a&&b]"]
REFUSED_THERE = ["^a$", r"\Aa\Z", "(?m)a", "(?x) a b", r"(?a)\w", r"\u0061", r"\U00000061", r"\N{LATIN SMALL LETTER A}",
                 "a{b", "a{1", r"\0", r"\é", "(?#note)a"]
ANOTHER_LANGUAGE = [r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", "[]a]", "[^]a]", r"[\W\D]", r"[\S\W]", "a{}", "(?i)k",
                    "(?i)s", "(?i)ß"]


@pytest.mark.parametrize("pattern", EQUAL + REFUSED_THERE + ANOTHER_LANGUAGE)
def test_interegular_reads_the_normal_form_as_python_reads_the_pattern(pattern: str) -> None:
    strange = ["\u212a", "ſ", "ß", "SS", "ss", "É", "٣", "\u00a0", "\x1c", "\ufeff", "{", "}", "a{}", "a{b", "a{1",
               "&", "\0", "🌈"]
    check_same_language(pattern, SHORT + strange)
    check_interegular(pattern, SHORT + strange)


@pytest.mark.parametrize("pattern", ["a*+a", "a(?=b)", "a(?!b)", r"\ba", "(?>a)", r"(a)\1", "(?u)a", "(a)(?(1)b|c)"])
def test_what_interegular_would_take_for_another_language_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedConstraintError):
        normalise(pattern)


@pytest.mark.parametrize("pattern", ["a**", "a{2}{1}", "[^]", "[]", "a(?i)b"])
def test_what_python_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        python(pattern)
    with pytest.raises(GrammarSyntaxError):
        normalise(pattern)


@pytest.mark.parametrize("pattern", [
    r"\w", r"\W", r"\s", r"\d", ".", "(?s).", "[^a]", "(?i)[^k]", "(?i)[à-é]", "(?i)[k-m]", "(?i)[Z-a]", r"(?i)[\w]",
    r"(?i)\u212a", r"(?i)[\u017f-\u0180]", r"(?i)[\U00010400-\U00010427]", r"(?i)[^\U00010400-\U00010427]",
    r"(?i)[\u00e0-\U00010400]", r"(?i)[\U00010400\U00010401]", r"[^\u0000-\u00ff]", r"[^\W\d]"])
def test_a_class_holds_the_characters_that_re_says_it_holds(pattern: str) -> None:
    tree = normalise(pattern).tree
    assert isinstance(tree, CharSet)
    matches = python(pattern).fullmatch
    # Past the last cased block every plane is alike: its ends stand for it.
    codes = itertools.chain(range(0xD800), range(0xE000, 0x1F000), range(0x1F000, LAST_CODE_POINT + 1, 0xFFF))
    held = {code for first, last in tree.intervals for code in range(first, last + 1)}
    assert [code for code in codes if (code in held) != (matches(chr(code)) is not None)] == []


@pytest.mark.parametrize("pattern", ["[[a]", "[+--]", "[a&&b]", "[a~~b]", "[a||b]", "[[:alpha:]]"])
def test_a_class_python_warns_about_is_read_as_python_reads_it_now(pattern: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        normalise(pattern)
    assert seen == []
    check_same_language(pattern, [*SHORT, "[", "&", "|", "~", "-", ":", "a]", "l]", "[]", "+", ","])


def test_threads_that_normalise_such_classes_leave_the_warning_filters_alone() -> None:
    before, interval = list(warnings.filters), sys.getswitchinterval()
    threads = [threading.Thread(target=lambda: [normalise("[[a]|[+--]") for _ in range(500)]) for _ in range(4)]
    # Switch as often as possible: two threads inside the filters at once would restore each other's.
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before


@pytest.mark.parametrize(("pattern", "text"), [(r"a(?#x\)y)b", "ab"), ("(?x)a# c\\\nb\nc", "ac"), ("(?x)a#c\n b", "ab"),
                                               ("(?x: a # b\n) c", "a c"), ("(?x)a [ #] (?#b) +", "a##"),
                                               ("(?#a)(?i)(?#b)(?x) k", "K"), ("(?x)a{1 ,2}", "a{1,2}")])
def test_comments_end_where_python_ends_them(pattern: str, text: str) -> None:
    check_same_language(pattern, [*SHORT, text, "a c", "a ", "ac", "ab"])
    assert python(pattern).fullmatch(text)


def test_nesting_up_to_the_limit_is_read_by_everyone_and_one_more_is_an_error() -> None:
    def nested(depth: int) -> str:
        pattern = "a"
        for _ in range(depth):
            pattern = f"({pattern}b)?"
        return pattern

    deepest = nested(MAX_NESTING)
    texts = ["", "a", "ab", "abb", "a" + "b" * MAX_NESTING, "a" + "b" * (MAX_NESTING + 1)]
    check_same_language(deepest, texts)
    check_interegular(deepest, texts)
    with pytest.raises(GrammarSyntaxError, match="more than 100 deep") as caught:
        normalise(nested(MAX_NESTING + 1))
    assert caught.value.offset == MAX_NESTING


def test_thousands_of_nested_groups_are_an_error_and_no_crash() -> None:
    for pattern in ("(" * 3000 + "a" + ")" * 3000, "(" * 3000, "(?:" * 3000 + "a" + ")*" * 3000):
        with pytest.raises(GrammarSyntaxError):
            normalise(pattern)


def test_groups_without_meaning_cost_no_depth_in_the_tree() -> None:
    assert normalise("(" * 100 + "a" + ")" * 100).text == "a"


def test_counts_are_not_expanded() -> None:
    assert normalise("a{1,100000}").text == "a{1,100000}"
    assert normalise(f"(a{{1,{MAX_COUNT}}}b){{2,}}").text == f"(a{{1,{MAX_COUNT}}}b){{2,}}"


@pytest.mark.parametrize("digits", [str(MAX_COUNT + 1), "9" * 20, "9" * 5_000])
def test_a_count_past_the_limit_is_an_error_at_the_count(digits: str) -> None:
    with pytest.raises(GrammarSyntaxError, match="too large") as caught:
        normalise(f"ab{{1,{digits}}}")
    assert caught.value.offset == 5


@pytest.mark.parametrize(("pattern", "text"), [("\0", "\0"), ("\x01\x7f\x1b", "\x01\x7f\x1b"), ("[\0-\x08]", "\x07"),
                                               ("a\nb", "a\nb"), ("", "")])
def test_control_characters_stand_for_themselves(pattern: str, text: str) -> None:
    check_same_language(pattern, [text, text + "x"])
    check_interegular(pattern, [text, text + "x"])


@pytest.mark.parametrize("pattern", ["\ud800", r"a\udfff", r"[\ud800-\udbff][\udc00-\udfff]"])
def test_half_a_surrogate_pair_is_never_part_of_a_text(pattern: str) -> None:
    with pytest.raises(UnsatisfiableConstraintError):
        normalise(pattern)
    assert normalise(f"x|{pattern}").text == "x"


def test_no_class_of_the_normal_form_holds_a_surrogate() -> None:
    for pattern in (".", "(?s).", r"[^a]", r"\W", r"[\u0000-\uffff]"):
        tree = normalise(pattern).tree
        assert isinstance(tree, CharSet)
        assert 0xD7FF in tree
        assert 0xE000 in tree
        assert not any(code in tree for code in range(0xD800, 0xE000))
        explicit = re.compile(normalise(pattern).explicit_text)
        assert not any(explicit.fullmatch(chr(code)) for code in range(0xD800, 0xE000))


def test_avoided_characters_leave_every_class_and_may_not_be_asked_for() -> None:
    avoid = frozenset({0x4FFFE})
    for pattern in (".", r"\W", "(?s).", "[^a]", r"[\U00040000-\U0004ffff]"):
        normal = normalise(pattern, avoid=avoid)
        assert python(pattern).fullmatch("\U0004fffe")
        for text in (normal.text, normal.explicit_text):
            assert not re.fullmatch(text, "\U0004fffe")
            assert re.fullmatch(text, "\U0004fffd")
    for pattern in (r"a\U0004FFFE", "a\U0004fffe", r"a[\U0004FFFE]*"):
        with pytest.raises(UnsupportedConstraintError, match=r"U\+4FFFE is reserved") as caught:
            normalise(pattern, avoid=avoid)
        assert caught.value.offset == 1


def test_anchors_are_dropped_only_where_they_cannot_matter() -> None:
    for pattern, text in [("^a$", "a"), ("(^a|^b)$", "[ab]"), ("^^a$$", "a"), ("()^a", "a"), ("x{0}^a", "a"), ("$", ""),
                          ("^$", ""), ("$^", ""), ("(^a)?b", "a?b"), ("(a$)?", "a?"), ("(a|b$)()", "[ab]")]:
        assert normalise(pattern).text == text
        check_same_language(pattern, [*SHORT, "x"])
    for pattern, offset in [("a^", 1), ("$a", 0), ("(a|^)b^", 6), ("(a$|b)c", 2), ("x?^a", 2), ("(^a)+", 1),
                            ("(a$){2}", 2), (r"a\Ab", 1), (r"a\Zb", 1), ("(a|b$)c?", 4)]:
        with pytest.raises(UnsupportedConstraintError, match="anchor") as caught:
            normalise(pattern)
        assert caught.value.offset == offset


def test_a_choice_is_its_texts_and_nothing_else() -> None:
    choices = ["a.b", "", "a|b", "(x)", "[é]", "\\d", "^$", "a{2}", " #", "a\nb", "中文", "-", "a.b"]
    pattern = escape_choice(choices)
    check_same_language(pattern, [*choices, "axb", "a", "b", "x", "é", "1", "aa", "a.", "ab"])
    check_interegular(pattern, [*choices, "axb", "a"])
    assert all(python(pattern).fullmatch(choice) for choice in choices)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=5), st.text())
@settings(max_examples=80, deadline=None)
def test_a_choice_matches_exactly_its_texts(choices: list[str], other: str) -> None:
    matches = re.compile(normalise(escape_choice(choices)).text).fullmatch
    assert all(matches(choice) for choice in choices)
    assert (matches(other) is not None) == (other in choices)


def test_a_choice_that_is_no_text_is_refused_by_its_index() -> None:
    with pytest.raises(RequestError, match="at least one choice"):
        escape_choice([])
    with pytest.raises(RequestError, match="choice 1: "):
        escape_choice(["a", "b\ud800"])


def test_sets_of_characters_obey_the_laws_of_sets() -> None:
    rng = random.Random(5)
    for _ in range(200):
        edges = sorted(rng.sample(range(LAST_CODE_POINT + 1), 6))
        left = CharSet.of([(edges[0], edges[2]), (edges[1], edges[3])])
        right = CharSet.of([(edges[4], edges[5]), (edges[2], edges[2])])
        assert left.complement().complement() == left
        assert left | left.complement() == EVERYTHING
        assert left - left == NOTHING
        assert left - right == (left.complement() | right).complement()
        assert len(left) + len(left.complement()) == LAST_CODE_POINT + 1 - 0x800
    with pytest.raises(ValueError, match="no interval"):
        CharSet.of([(2, 1)])


@pytest.mark.parametrize("pattern", ["ab?" * 20_000, "(?i)" + r"[\x00-\U0010ffff]" * 65,
                                     "(?s)x(?i:" + "[a-\U0001f600]" * 70 + ")"])
def test_a_pattern_that_takes_long_to_read_is_refused(pattern: str) -> None:
    """Reading is outside the compile limits, so it must be short by itself."""
    with pytest.raises(GrammarSyntaxError, match="are the most"):
        normalise(pattern)


def test_many_ranges_are_no_trouble_without_the_flag() -> None:
    assert normalise(r"[\x00-\U0010ffff]" * 70).tree
