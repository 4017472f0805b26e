"""The oracles against each other, against `re`, and against trying every way to go on."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.vocabulary import Vocabulary
from tests.oracles.byte_derivatives import utf8_ranges
from tests.oracles.byte_reachability import MAX_TOKENS, ByteReachability
from tests.oracles.nfa_oracle import MaskOracle
from tests.oracles.partial_oracle import PartialOracle
from tests.oracles.random_regex import random_pattern, random_prefix, random_text
from tests.oracles.utf8 import spellable_intervals, split_text, tail_intervals
from tests.oracles.vocabularies import END, every_byte, vocabulary_of
from tests.unit.regex_readers import python

CASES = Path(__file__).parents[1] / "data/cases.jsonl"
# Whole characters, halves that end or begin inside one, and both at once.
LONGER = (b"ab", "中".encode(), "中".encode()[:2], b"a\xc3", " é".encode(), b"\n\n", b"aa", "🌈".encode()[:2],
          "🌈".encode()[2:], b"\xa9b", b"\x84\x80\xe4", b"1.", b"AB", b"\xbf\xbf", b"\xed\xa0", b"\xf0\x9f\x8c\x88\xf0")
# Few bytes, each a token of its own, so that "spellable" and "reachable by tokens" are one thing.
FEW = [*(bytes([value]) for value in sorted(set("ab-\n.1A中🌈é".encode()))),
       b"ab", b"\xe4\xb8", b"\xadab", "é".encode()]
FEWER_ATOMS = ("a", "b", "c", "é", "中", "ß", ".", "[^a]", r"\d", r"\w", r"\W", "[à-ÿ]", "[一-鿿]", "[🌀-🌟]",
               "(?i:ab)")


def satisfiable_patterns(seed: int, count: int, depth: int, atoms: tuple[str, ...] | None = None) -> list[str]:
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        pattern = random_pattern(rng, depth) if atoms is None else random_pattern(rng, depth, atoms)
        try:
            normalise(pattern)
        except UnsatisfiableConstraintError:
            continue
        found.append(pattern)
    return found


def walk(rng: random.Random, oracle: MaskOracle, steps: int) -> list[bytes]:
    """The prefixes that a random choice among the allowed tokens goes through."""
    prefixes = [b""]
    for _ in range(steps):
        choices = sorted(oracle.allowed(prefixes[-1]) - {END})
        if not choices:
            break
        prefixes.append(prefixes[-1] + oracle.vocabulary.token_bytes[rng.choice(choices)])
    return prefixes


def check_against_partial_matching(seed: int, count: int, depth: int) -> None:
    rng = random.Random(seed)
    vocabulary = every_byte(*LONGER)
    inside = 0
    for pattern in satisfiable_patterns(seed, count, depth):
        oracle, partial = MaskOracle(pattern, vocabulary), PartialOracle(pattern, vocabulary)
        tree = normalise(pattern).tree
        for prefix in {b"", *(random_prefix(rng, tree) for _ in range(3)), walk(rng, oracle, 3)[-1], b"a\xc3", b"\xed"}:
            allowed = oracle.allowed(prefix)
            assert allowed == partial.allowed(prefix), (pattern, prefix)
            assert oracle.viable(prefix) == partial.viable(prefix)
            parts = split_text(prefix)
            inside += bool(allowed) and parts is not None and bool(parts[1])
        for text in [random_text(rng, tree), random_text(rng, tree) + "a", "ab", "é"]:
            right = python(pattern).fullmatch(text) is not None
            assert oracle.accepts(text) == partial.accepts(text) == right
    # The half of the question that is hard: prefixes that end inside a character.
    assert inside > count / 3


def test_simulation_and_partial_matching_allow_the_same_tokens() -> None:
    check_against_partial_matching(seed=1, count=200, depth=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_simulation_and_partial_matching_allow_the_same_tokens_on_more_patterns(seed: int) -> None:
    check_against_partial_matching(seed, count=400, depth=2)


def check_against_backward_search(seed: int, count: int, depth: int) -> None:
    rng = random.Random(seed)
    vocabulary = vocabulary_of(FEW)
    dead_ends = 0
    for pattern in satisfiable_patterns(seed, count, depth, FEWER_ATOMS):
        oracle, search = MaskOracle(pattern, vocabulary), ByteReachability(pattern, vocabulary)
        for prefix in {prefix for _ in range(3) for prefix in walk(rng, oracle, 5)}:
            assert oracle.allowed(prefix) == search.allowed(prefix), (pattern, prefix)
            assert oracle.viable(prefix) == search.viable(prefix)
        dead_ends += oracle.allowed(b"") != PartialOracle(pattern, vocabulary).allowed(b"")
    # Patterns that need a missing byte somewhere, which partial matching does not see.
    assert dead_ends > count / 40


def test_simulation_and_backward_search_agree_where_bytes_are_missing() -> None:
    check_against_backward_search(seed=10, count=200, depth=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(11, 15))
def test_simulation_and_backward_search_agree_where_bytes_are_missing_on_more_patterns(seed: int) -> None:
    check_against_backward_search(seed, count=400, depth=1)


def completions(vocabulary: Vocabulary, longest: int) -> list[tuple[tuple[int, ...], str]]:
    """Every row of at most `longest` tokens that spells a text, with that text."""
    ids = [token_id for token_id, spelled in enumerate(vocabulary.token_bytes) if spelled]
    rows = [row for length in range(longest + 1) for row in itertools.product(ids, repeat=length)]
    split = [(row, split_text(vocabulary.decode(list(row)))) for row in rows]
    return [(row, parts[0]) for row, parts in split if parts is not None and not parts[1]]


@pytest.mark.parametrize("tokens", [
    [b"a", b"b", b"ab", b"\xc3", b"\xa9"],
    [b"a", b"bc", b"\xc3", b"\xa9a", b"\xe4\xb8", b"\xad"],
    [b"b", "é".encode(), b"\xc3\xa9\xc3", b"\xa9b", b"c"],
], ids=["every piece", "pieces missing", "only inside longer tokens"])
def test_backward_search_allows_what_some_row_of_tokens_completes(tokens: list[bytes]) -> None:
    vocabulary = vocabulary_of(tokens)
    rows = completions(vocabulary, 4)
    # Two characters at most, each of two tokens at most: four tokens are enough for any completion.
    atoms = ("a", "b", "c", "é", "中", "[^a]", "[à-ÿ]", ".")
    rng = random.Random(20)
    for _ in range(60):
        branches = ["".join(rng.choice(atoms) for _ in range(rng.randint(0, 2))) for _ in range(rng.randint(1, 3))]
        pattern = "|".join(branches)
        matches = python(pattern).fullmatch
        right: dict[tuple[int, ...], set[int]] = {}
        for row, text in rows:
            if matches(text):
                for at in range(len(row)):
                    right.setdefault(row[:at], set()).add(row[at])
                right.setdefault(row, set()).add(END)
        search = ByteReachability(pattern, vocabulary)
        for prefix in [(), *right]:
            assert search.allowed(vocabulary.decode(list(prefix))) == right.get(prefix, set()), (pattern, prefix)


def test_a_branch_that_no_token_can_finish_is_not_begun() -> None:
    vocabulary = vocabulary_of([b"a", b"b"])
    for oracle in (MaskOracle("ax|b", vocabulary), ByteReachability("ax|b", vocabulary)):
        assert oracle.allowed(b"") == {2}
        assert not oracle.viable(b"a")
    # Partial matching looks at the pattern alone.
    assert PartialOracle("ax|b", vocabulary).allowed(b"") == {1, 2}


def test_only_backward_search_sees_that_a_byte_is_there_in_longer_tokens_alone() -> None:
    vocabulary = vocabulary_of([b"a", b"bc"])
    assert ByteReachability("ab|bc", vocabulary).allowed(b"") == {2}
    assert MaskOracle("ab|bc", vocabulary).allowed(b"") == {1, 2}


def test_a_language_that_cannot_be_spelled_allows_nothing_not_even_the_end() -> None:
    vocabulary = vocabulary_of([b"a"])
    assert MaskOracle("ax", vocabulary).allowed(b"") == set()
    assert ByteReachability("ax", vocabulary).allowed(b"") == set()


@pytest.mark.parametrize(("prefix", "first", "last"), [
    (b"\xe0", 0xA0, 0xBF), (b"\xed", 0x80, 0x9F), (b"\xf0", 0x90, 0xBF), (b"\xf4", 0x80, 0x8F),
    (b"\xe4\xb8", 0x80, 0xBF)])
def test_inside_a_character_only_well_formed_bytes_go_on(prefix: bytes, first: int, last: int) -> None:
    vocabulary = every_byte()
    right = {value + 1 for value in range(first, last + 1)}
    assert MaskOracle(".*", vocabulary).allowed(prefix) == right
    assert PartialOracle(".*", vocabulary).allowed(prefix) == right
    assert ByteReachability(".*", vocabulary).allowed(prefix) == right


def test_no_text_begins_with_a_byte_that_utf8_does_not_have() -> None:
    ids = MaskOracle("(?s).*", every_byte()).allowed(b"")
    assert ids == {END} | {value + 1 for value in [*range(0x80), *range(0xC2, 0xF5)]}


def test_a_character_goes_on_only_inside_its_class() -> None:
    vocabulary = every_byte("🌈".encode()[2:], b" \xf0\x9f\x98")
    oracle = MaskOracle("[🌀-🌟]{2}", vocabulary)
    assert oracle.allowed(b"") == {0xF0 + 1}
    assert oracle.allowed(b"\xf0\x9f") == {0x8C + 1, 257}
    assert oracle.allowed("🌀".encode() + b"\xf0\x9f\x8c") == {value + 1 for value in range(0x80, 0xA0)}
    assert oracle.allowed("🌀🌟".encode()) == {END}


@pytest.mark.parametrize("pattern", ["(n/a)?", "a*", "^$", "$^", "", "(^a|b$)?", r"(?x)  # nothing", "a{0}"])
def test_the_end_is_allowed_at_once_where_the_empty_text_matches(pattern: str) -> None:
    vocabulary = every_byte()
    for oracle in (MaskOracle(pattern, vocabulary), PartialOracle(pattern, vocabulary),
                   ByteReachability(pattern, vocabulary)):
        assert END in oracle.allowed(b"")


@pytest.mark.parametrize("pattern", ["a[^b]*?b.", "[0-9]*?b", "(a*?b){2}"])
def test_lazy_quantifiers_make_no_difference_to_any_oracle(pattern: str) -> None:
    vocabulary, greedy = every_byte(), pattern.replace("?", "")
    for prefix in (b"", b"a", b"1", b"1x", b"ax\n", b"axb", b"abab"):
        right = MaskOracle(greedy, vocabulary).allowed(prefix)
        for oracle in (MaskOracle(pattern, vocabulary), PartialOracle(pattern, vocabulary),
                       ByteReachability(pattern, vocabulary)):
            assert oracle.allowed(prefix) == right


def test_every_byte_of_a_handed_text_may_come_next_and_the_end_only_behind_a_whole_one() -> None:
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    cases = [row for row in rows if row["kind"] == "regex" and row["accept"] and row["id"] != "hand-015"]
    assert len(cases) > 10
    vocabulary = every_byte()
    for case in cases:
        oracle = MaskOracle(case["grammar"], vocabulary)
        for text in case["accept"]:
            data = text.encode()[:60] if len(text) > 100 else text.encode()
            for at in range(len(data)):
                allowed = oracle.allowed(data[:at])
                assert data[at] + 1 in allowed
                parts = split_text(data[:at])
                whole = parts is not None and not parts[1] and oracle.accepts(parts[0])
                assert (END in allowed) == whole
        for text in case["reject"]:
            assert END not in oracle.allowed(text.encode())


def test_the_oracle_of_small_vocabularies_refuses_a_large_one() -> None:
    with pytest.raises(ValueError, match="at most 300"):
        ByteReachability("a", vocabulary_of([b"a"] * MAX_TOKENS))


def test_spellable_characters_are_those_whose_bytes_all_are() -> None:
    missing = frozenset({0x04, 0x1D, 0x61, 0x8C, 0xC3, 0xF1, 0xF2, 0xED})
    present = frozenset(range(256)) - missing
    held = {code for first, last in spellable_intervals(present) for code in range(first, last + 1)}
    # Four-byte characters by their two outer bytes and a sample of the inner ones.
    codes = itertools.chain(range(0xD800), range(0xE000, 0x12000), range(0x12000, 0x110000, 61))
    assert [code for code in codes if (code in held) == bool(missing & set(chr(code).encode()))] == []
    assert not any(code in held for code in range(0xD800, 0xE000))


def test_a_tail_stands_for_the_characters_that_begin_with_it() -> None:
    begun: dict[bytes, set[int]] = {}
    for code in itertools.chain(range(0xD800), range(0xE000, 0x11000), range(0x10F000, 0x110000)):
        encoded = chr(code).encode()
        for length in range(1, len(encoded)):
            begun.setdefault(encoded[:length], set()).add(code)
    for tail, codes in begun.items():
        (first, last), = tail_intervals(tail)
        assert codes <= set(range(first, last + 1))
        assert (first in codes) or first > 0x11000
        assert chr(first).encode().startswith(tail)
        assert chr(last).encode().startswith(tail)
    dead = [b"\x80", b"\xc0", b"\xc1", b"\xe0\x80", b"\xed\xa0", b"\xf0\x8f", b"\xf4\x90", b"\xf5", b"\xff", b"a"]
    assert [tail for tail in dead if tail_intervals(tail)] == []


def test_byte_ranges_of_an_interval_are_the_encodings_of_its_characters() -> None:
    rng = random.Random(30)
    for _ in range(40):
        first = rng.choice([0, 0x41, 0x7E, 0x7F0, 0x9FF, 0xD7F0, 0xE000, 0xFFF0, 0x10000, 0x1F300, 0xFFFF0, 0x10FE00])
        last = first + rng.randint(0, 300)
        if first < 0xD800 <= last:
            last = 0xD7FF
        found = sorted(bytes(row) for ranges in utf8_ranges(first, last)
                       for row in itertools.product(*(range(low, high + 1) for low, high in ranges)))
        assert found == sorted(chr(code).encode() for code in range(first, last + 1))


def test_the_simulation_reads_the_pattern_as_written_and_refuses_what_it_cannot_be_right_about() -> None:
    for pattern in ("a(?=b)b", r"(a)\1", r"\ba", "(?>a|ab)c", "a*+b", "(a)(?(1)b|c)"):
        with pytest.raises(ValueError, match="no automaton"):
            MaskOracle(pattern, every_byte())
    with pytest.raises(re.error):
        MaskOracle("(a", every_byte())
