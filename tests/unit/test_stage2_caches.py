"""Stage 2's caches: figures that add up, and a disk that is not trusted."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex import token_functions
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError, GrammarTimeoutError, JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.verified_file import read_verified, version_of, write_verified
from shared_runtime.vocabulary import Vocabulary
from stages.stage2_jump_forward import disk_cache
from stages.stage2_jump_forward.base_cache import BaseCache
from stages.stage2_jump_forward.decoder import JumpForwardPolicy
from stages.stage2_jump_forward.disk_cache import DiskCache
from stages.stage2_jump_forward.fsm import RegexFSM, build_fsm
from stages.stage2_jump_forward.regex import make_byte_automaton
from stages.stage2_jump_forward.tokenizer import ReducedVocabulary
from tests.conftest import EngineFactory
from tests.unit.stage1_helpers import vocabulary_of

PATTERN = "(ab|ba)+c?"
LIMITS = GrammarLimits()
SMALL = vocabulary_of(b"a", b"b", b"c", b"ab", b"ba", b"bac")


@dataclass(frozen=True)
class Thing:
    nbytes: int = 1


# ---------------------------------------------------------------- BaseCache


def test_one_miss_and_nine_hits_are_a_rate_of_nine_tenths() -> None:
    """Museum row 11: upstream said 9.0."""
    cache: BaseCache[Thing] = BaseCache()
    assert cache.hit_rate == 0.0
    got = [cache.get("k", Thing) for _ in range(10)]
    assert len({id(thing) for thing in got}) == 1
    assert (cache.hits, cache.misses, cache.hit_rate) == (9, 1, 0.9)
    assert cache.average_build_s == cache.build_s >= 0
    cache.reset()
    assert (cache.hits, cache.misses, cache.hit_rate, cache.build_s) == (0, 0, 0.0, 0.0)
    cache.get("k", Thing)
    assert cache.misses == 1


def test_a_refusal_is_remembered_and_counts_as_a_value() -> None:
    cache: BaseCache[Thing] = BaseCache()
    builds = []

    def build() -> Thing:
        builds.append(1)
        raise GrammarSyntaxError("missing )", offset=3)

    for _ in range(3):
        with pytest.raises(GrammarSyntaxError, match="missing"):
            cache.get("(", build)
    assert (len(builds), cache.hits, cache.misses) == (1, 2, 1)


def test_what_the_machine_did_to_a_build_does_not_condemn_the_key() -> None:
    cache: BaseCache[Thing] = BaseCache()
    errors: list[JumpforwardError] = [ConstraintError("the child was killed").blamed("machine"),
                                      GrammarTimeoutError("too slow").blamed("unclear")]

    def build() -> Thing:
        if errors:
            raise errors.pop()
        return Thing()

    for _ in range(2):
        with pytest.raises(ConstraintError):
            cache.get("k", build)
    assert cache.get("k", build) == Thing()
    assert (cache.hits, cache.misses) == (0, 3)


def test_a_build_that_is_late_each_time_is_tried_ever_more_rarely() -> None:
    cache: BaseCache[Thing] = BaseCache()

    def build() -> Thing:
        raise GrammarTimeoutError("too slow").blamed("unclear")

    for _ in range(40):
        with pytest.raises(GrammarTimeoutError):
            cache.get("k", build)
    assert (cache.hits, cache.misses) == (34, 6)


def test_a_defect_is_raised_and_leaves_no_entry_and_no_lock() -> None:
    cache: BaseCache[Thing] = BaseCache()

    def build() -> Thing:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get("k", build)
    assert cache.get("k", Thing) == Thing()


def test_the_least_recently_used_is_forgotten_first_and_the_newest_stays() -> None:
    cache: BaseCache[Thing] = BaseCache(max_entries=2)
    for key in ("a", "b", "a", "c"):
        cache.get(key, Thing)
    assert (cache.hits, cache.misses) == (1, 3)
    cache.get("a", Thing)
    assert cache.hits == 2
    cache.get("b", Thing)
    assert cache.misses == 4
    tight: BaseCache[Thing] = BaseCache(max_bytes=10)
    for key in ("a", "b", "b"):
        tight.get(key, lambda: Thing(nbytes=100))
    assert (tight.hits, tight.misses) == (1, 2)


def test_thirty_two_threads_build_one_value() -> None:
    cache: BaseCache[Thing] = BaseCache()
    builds: list[int] = []

    def build() -> Thing:
        builds.append(1)
        return Thing()

    with ThreadPoolExecutor(32) as pool:
        got = list(pool.map(lambda _: cache.get("k", build), range(32)))
    assert len(builds) == 1
    assert len({id(thing) for thing in got}) == 1
    assert (cache.hits, cache.misses) == (31, 1)


# ---------------------------------------------------------------- DiskCache


def disk_over(folder: Path, vocabulary: Vocabulary = SMALL, limits: GrammarLimits = LIMITS) -> DiskCache:
    return DiskCache(folder, ReducedVocabulary(vocabulary), limits)


def built(pattern: str = PATTERN, vocabulary: Vocabulary = SMALL) -> RegexFSM:
    budget = Budget(LIMITS)
    return build_fsm(make_byte_automaton(pattern, budget), ReducedVocabulary(vocabulary), budget)


def load(disk: DiskCache, pattern: str = PATTERN) -> RegexFSM | None:
    budget = Budget(LIMITS)
    return disk.load(pattern, make_byte_automaton(pattern, budget), budget)


@pytest.fixture
def saved(tmp_path: Path) -> DiskCache:
    """A cache with one index, and nothing else in its folder."""
    disk = disk_over(tmp_path / "new" / "folder")
    disk.save(PATTERN, built())
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == [disk.path(PATTERN).name]
    return disk


def test_what_is_loaded_is_what_was_built(saved: DiskCache) -> None:
    fsm, fresh = load(saved), built()
    assert fsm is not None
    assert saved.loads == 1
    assert fsm.rows == fresh.rows
    for state in fresh.rows:
        assert np.array_equal(fsm.allowed(state), fresh.allowed(state))
        assert [fsm.next_state(state, i) for i in range(-1, 12)] == [fresh.next_state(state, i) for i in range(-1, 12)]


def test_a_file_that_is_not_there_is_built(tmp_path: Path) -> None:
    assert load(disk_over(tmp_path / "nowhere")) is None


def test_every_part_of_the_key_makes_another_file(saved: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Museum row 20: upstream's key was the pattern alone, and a repaired map was never used."""
    folder = saved.path(PATTERN).parent
    others = [disk_over(folder, vocabulary_of(b"a", b"b", b"c")), disk_over(folder, limits=GrammarLimits(max_states=9))]
    monkeypatch.setattr(disk_cache, "FORMAT", 2)
    others.append(disk_over(folder))
    monkeypatch.setattr(disk_cache, "FORMAT", 1)
    monkeypatch.setattr(disk_cache, "version_of", lambda *_: "other code")
    others.append(disk_over(folder))
    paths = {saved.path(PATTERN), saved.path("ab"), *(disk.path(PATTERN) for disk in others)}
    assert len(paths) == 6
    assert all(load(disk) is None for disk in others)


def test_the_version_of_the_code_follows_its_sources(tmp_path: Path) -> None:
    (tmp_path / "fsm.py").write_text("a = 1\n")
    first = version_of(tmp_path)
    assert version_of(tmp_path) == first
    (tmp_path / "fsm.py").write_text("a = 2\n")
    assert version_of(tmp_path) != first


def test_an_index_under_another_name_is_not_used(saved: DiskCache) -> None:
    """A file of another pattern, or of older code, that somebody renamed."""
    saved.path(PATTERN).replace(saved.path("ab"))
    assert load(saved, "ab") is None


Damage = Callable[[bytes], bytes]


@pytest.mark.parametrize("damage", [
    lambda raw: raw[:-1], lambda raw: raw[:70], lambda raw: raw[:65], lambda raw: raw[:10], lambda raw: b"",
    lambda raw: raw + b"\0", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda raw: bytes([raw[0] ^ 1]) + raw[1:],
    lambda raw: raw[:80] + bytes([raw[80] ^ 1]) + raw[81:], lambda raw: raw * 2, lambda raw: b"\0" * len(raw),
    lambda raw: pickle.dumps({"rows": {}}), lambda raw: raw.replace(b'"format": 1', b'"format": 0'),
])
def test_a_damaged_file_is_built_again(saved: DiskCache, damage: Damage) -> None:
    path = saved.path(PATTERN)
    path.write_bytes(damage(path.read_bytes()))
    assert load(saved) is None
    saved.save(PATTERN, built())
    assert load(saved) is not None


def test_every_flipped_byte_is_noticed(saved: DiskCache) -> None:
    path = saved.path(PATTERN)
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1:])
        assert load(saved) is None, at


class _Bomb:
    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return os._exit, (99,)


def forge(saved: DiskCache, payload: bytes) -> None:
    """A file with a right checksum and a right head, by somebody who can compute both."""
    raw = saved.path(PATTERN).read_bytes()
    head = raw[65:raw.index(b"\n", 65) + 1]
    write_verified(saved.path(PATTERN), head, payload)
    assert read_verified(saved.path(PATTERN), head, most=1 << 20) == payload


def payload_of(rows: list[tuple[int, int]], masks: list[bytes], counts: tuple[int, int] | None = None) -> bytes:
    count = np.array(counts or (len(rows), len(masks)), dtype="<i8").tobytes()
    return count + np.array(rows, dtype="<i4").tobytes() + b"".join(masks)


ONE = bytes([0b01111110, 0])  # the six tokens, no control token, no padding


@pytest.mark.parametrize("payload", [
    b"", b"\0" * 15, b"\0" * 16, pickle.dumps(_Bomb()), payload_of([(0, 0)], [ONE], (1 << 62, 1)),
    payload_of([(0, 0)], [ONE], (-1, 1)), payload_of([(0, 0)], [ONE], (1, -5)), payload_of([(0, 1)], [ONE]),
    payload_of([(0, -1)], [ONE]), payload_of([(-1, 0)], [ONE]), payload_of([(10**6, 0)], [ONE]),
    payload_of([(1, 0)], [ONE]), payload_of([(0, 0)], [ONE + b"\0"]), payload_of([(0, 0)], [bytes([0b11111110, 0])]),
    payload_of([(0, 0)], [bytes([0b01111111, 0])]), payload_of([(0, 0)], [bytes([0b01111110, 0x80])]),
    payload_of([(0, 0)] * 500, [ONE]),
])
def test_a_forged_file_is_built_again(saved: DiskCache, payload: bytes) -> None:
    """Counts and numbers without a meaning, and tokens that spell nothing: EOS, padding."""
    forge(saved, payload)
    assert load(saved) is None


@pytest.mark.parametrize("forgery", ["all tokens everywhere", "one state left out", "a dead end", "one bit more",
                                     "one bit less", "two states swapped", "a state twice"])
def test_a_forged_index_is_built_again(saved: DiskCache, forgery: str) -> None:
    """Every number has a meaning, and the index is not the one of the pattern: it would fail a request, or lead it."""
    fresh = built()
    rows, masks = list(fresh.rows.items()), [bytearray(mask.tobytes()) for mask in fresh.masks]
    if forgery == "all tokens everywhere":
        rows, masks = [(state, 0) for state, _ in rows], [bytearray(ONE)]
    elif forgery == "one state left out":
        rows = rows[:-1]
    elif forgery == "a dead end":
        masks[rows[-1][1]][:] = bytes(len(masks[0]))
    elif forgery == "one bit more":
        masks[rows[0][1]][0] |= 0b00010000
    elif forgery == "one bit less":
        masks[rows[0][1]][0] &= 0b11011111
    elif forgery == "two states swapped":
        rows[0], rows[-1] = (rows[0][0], rows[-1][1]), (rows[-1][0], rows[0][1])
    else:
        rows.append(rows[0])
    assert rows != list(fresh.rows.items()) or masks != [bytearray(mask.tobytes()) for mask in fresh.masks]
    forge(saved, payload_of(rows, [bytes(mask) for mask in masks]))
    assert load(saved) is None


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_mutation_with_a_right_checksum_changes_what_a_request_may_say(
        data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    pattern = data.draw(st.sampled_from([PATTERN, "a{0,3}(bac|b)*", "(ab){2,}c", "a|b|c"]))
    disk, fresh = disk_over(tmp_path_factory.mktemp("cache")), built(pattern)
    disk.save(pattern, fresh)
    raw = disk.path(pattern).read_bytes()
    head = raw[65:raw.index(b"\n", 65) + 1]
    payload = bytearray(raw[65 + len(head):])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        kind = data.draw(st.sampled_from(["flip", "set", "cut", "grow", "swap"]))
        if kind == "flip":
            payload[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "set":
            payload[at] = data.draw(st.integers(0, 255))
        elif kind == "cut" and len(payload) > 1:
            del payload[at]
        elif kind == "grow":
            payload.insert(at, data.draw(st.integers(0, 255)))
        else:
            other = data.draw(st.integers(0, len(payload) - 1))
            payload[at], payload[other] = payload[other], payload[at]
    write_verified(disk.path(pattern), head, bytes(payload))
    fsm = load(disk, pattern)
    if fsm is not None:
        assert fsm.rows.keys() == fresh.rows.keys()
        for state in fresh.rows:
            assert np.array_equal(fsm.allowed(state), fresh.allowed(state))


@pytest.mark.model
def test_an_engine_answers_the_same_whatever_lies_in_its_cache_folder(
        make_engine: EngineFactory, tmp_path: Path) -> None:
    """A file that says "nothing can follow" in every state, and others: each with a right checksum."""
    constraint = Constraint.regex("[a-d]{2}(x|yz){2,4}!")
    sampling = SamplingParams(max_new_tokens=12, temperature=1.0, seed=3)

    def answer() -> tuple[str, list[int], bool]:
        engine = make_engine(stage=2, options=StageOptions(disk_cache=tmp_path))
        result = engine.generate_one("x", constraint=constraint, sampling=sampling)
        policy = engine.parts.policy
        assert isinstance(policy, JumpForwardPolicy)
        assert policy.fsm_cache.disk is not None
        return result.text, result.token_ids, policy.fsm_cache.disk.loads == 1

    text, ids, loaded = answer()
    assert not loaded
    assert answer() == (text, ids, True)
    file, = tmp_path.iterdir()
    raw = file.read_bytes()
    head = raw[65:raw.index(b"\n", 65) + 1]
    payload = raw[65 + len(head):]
    n_rows = int(np.frombuffer(payload, "<i8", 1)[0])
    masks_at = 16 + 8 * n_rows
    for forged in (payload[:masks_at] + bytes(len(payload) - masks_at),
                   payload[:masks_at] + bytes(byte | 1 for byte in payload[masks_at:]),
                   payload[:16] + payload[24:masks_at] + payload[16:24] + payload[masks_at:],
                   payload[:16] + payload[20:24] + payload[16:20] + payload[24:]):
        write_verified(file, head, forged)
        assert answer()[:2] == (text, ids)


def test_what_costs_more_to_check_than_to_build_is_built(saved: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(saved) is not None
    monkeypatch.setattr(token_functions, "_MOST_FUNCTIONS", 1)
    assert load(saved) is None


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a pipe", "endless"])
def test_what_is_no_plain_file_is_not_read(saved: DiskCache, kind: str) -> None:
    path = saved.path(PATTERN)
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        pipe = path if kind == "pipe" else path.with_suffix(".pipe")
        os.mkfifo(pipe)
        if pipe != path:
            path.symlink_to(pipe)
    assert load(saved) is None


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    disk = disk_over(tmp_path / "file" / "below")
    disk.save(PATTERN, built())
    assert load(disk) is None


def test_a_write_that_fails_halfway_leaves_the_old_file_and_no_other(
        saved: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.path(PATTERN).read_bytes()

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    saved.save(PATTERN, built())
    assert [path.read_bytes() for path in saved.path(PATTERN).parent.iterdir()] == [before]


def test_a_file_is_its_checksum_a_line_of_json_and_plain_arrays(saved: DiskCache) -> None:
    raw = saved.path(PATTERN).read_bytes()
    checksum, head, payload = raw.split(b"\n", 2)
    assert checksum.decode() == hashlib.sha256(raw[65:]).hexdigest()
    assert json.loads(head)["pattern"] == PATTERN
    fresh = built()
    assert payload == payload_of(list(fresh.rows.items()), [mask.tobytes() for mask in fresh.masks])
