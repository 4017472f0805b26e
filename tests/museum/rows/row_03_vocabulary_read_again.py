"""Row 3: two wrappers of one tokenizer never compare equal, so what is remembered is never found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shared_runtime.constraint import Constraint
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm import decoder
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary, TokenTrie, build_trie
from stages.stage2_jump_forward import tokenizer as stage2
from tests.museum.bench import Bench, hold, request, vocabulary_of
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.policies import ready


class Trie(Protocol):
    """What this row asks of a `ReducedVocabulary`."""

    builds: int

    def trie(self) -> object: ...


TrieOf = Callable[[Vocabulary], Trie]


class _Wrapper:
    """A cache key that is equal to nothing, itself aside."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class NeverEqualVocabulary(ReducedVocabulary):
    """Specimen of `ReducedVocabulary`: the memo is keyed by a wrapper that is made anew for each look-up."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._memo: dict[_Wrapper, TokenTrie] = {}

    def trie(self) -> TokenTrie:
        """The trie, built at each call."""
        key = _Wrapper()
        if key not in self._memo:
            self.builds += 1
            self._memo[key] = build_trie(self.vocabulary)
        return self._memo[key]


def one_vocabulary_is_read_once(trie_of: TrieOf, bench: Bench) -> None:
    """However often the trie is asked for, it is built once."""
    reduced = trie_of(vocabulary_of(b"a", b"b"))
    for _ in range(2):
        reduced.trie()
    hold(reduced.builds == 1, f"the vocabulary was read {reduced.builds} times")


def scenario(bench: Bench) -> None:
    """Two regexes in one policy."""
    policy = decoder.CopiedFSMPolicy(bench.context())
    ready(policy, request(Constraint.regex("a")), request(Constraint.regex("b")))
    hold(policy.vocabulary.builds == 1, "two regexes read the vocabulary more than once")


EXHIBIT: Exhibit[TrieOf] = Exhibit(
    3, NeverEqualVocabulary, {"stage1": ReducedVocabulary, "stage2": stage2.ReducedVocabulary},
    one_vocabulary_is_read_once, "vocabulary was read 2 times",
    Injection(decoder, "ReducedVocabulary", NeverEqualVocabulary, scenario, "read the vocabulary more than once"))
