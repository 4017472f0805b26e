"""A grammar that keeps books, and the checks of exercise 11. What is right is asked of the runtime's own parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, Wrong, expect, plain, sides
from shared_runtime import verification
from shared_runtime.constrain.using.draft_rows import fill_along
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageOptions
from shared_runtime.request import Request
from shared_runtime.sampler import SampleOutput
from shared_runtime.vocabulary import Vocabulary
from stages.stage5_backend_jump import base_grammar_backend
from tests.museum.bench import vocabulary_of
from tests.museum.drafts import draft_with
from tests.museum.jumps import ask, automaton, preferring

VOCABULARY = vocabulary_of(*(bytes([byte]) for byte in range(32, 127)), b"ab", b"cd", stops=2)


def ids(text: str) -> list[int]:
    """A token for each character; "." is the stop token 1, "?" an id that no vocabulary has."""
    return [{".": 1, "?": 10_000}.get(character, ord(character) - 30) for character in text]


class Grammar:
    """A regex over `VOCABULARY`; `texts` is what it has accepted. `trap`: the token on which it fails badly."""

    def __init__(self, pattern: str, trap: int | None = None) -> None:
        self._dfa = automaton(pattern)
        self._states = [0]
        self._trap = trap

    @property
    def accepted(self) -> int:
        """How many tokens it stands behind."""
        return len(self._states) - 1

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """One row."""
        bits = torch.zeros(32 * mask.shape[1], dtype=torch.int64)
        for token_id, spelled in enumerate(VOCABULARY.token_bytes):
            bits[token_id] = int(bool(spelled) and self._dfa.walk(self._states[-1], spelled) >= 0)
        bits[list(VOCABULARY.stop_ids)] = int(self._dfa.accepting[self._states[-1]])
        words = (bits.view(-1, 32) << torch.arange(32)).sum(-1)
        mask[row] = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)

    def accept_token(self, token_id: int) -> None:
        """One token further."""
        if token_id == self._trap:
            raise RuntimeError("the library failed")
        spelled = VOCABULARY.token_bytes[token_id] if 0 <= token_id < len(VOCABULARY) else b""
        after = self._dfa.walk(self._states[-1], spelled) if spelled else -1
        if after < 0:
            raise ConstraintError(f"the grammar does not allow token {token_id}")
        self._states.append(after)

    def rollback(self, k: int) -> None:
        """`k` tokens back."""
        if not 0 <= k <= self.accepted:
            raise ValueError(f"cannot take back {k} of {self.accepted} tokens")
        del self._states[len(self._states) - k:]


def the_masks_are_those_of_the_runtime(part: Any, pattern: str, come: str, guess: str) -> None:
    """Same rows, same count, and the grammar where it was."""
    grammar, real = Grammar(pattern), Grammar(pattern)
    for token_id in ids(come):
        grammar.accept_token(token_id)
        real.accept_token(token_id)
    draft, words = ids(guess), -(-VOCABULARY.width // 32)
    got, wanted = torch.full((len(draft) + 3, words), -1, dtype=torch.int32), torch.full(
        (len(draft) + 3, words), -1, dtype=torch.int32)
    count = plain(part.masks(grammar, got, 1, draft, VOCABULARY))
    right = fill_along(real, wanted, 1, draft, VOCABULARY)
    where = f"regex {pattern!r}, behind {come!r}, the draft {guess!r}"
    expect(grammar.accepted == len(come), f"{where}: afterwards the grammar stands behind {grammar.accepted} tokens, "
                                          f"it stood behind {len(come)}")
    names = [repr(spelled) if spelled else "a stop token" for spelled in VOCABULARY.token_bytes]
    for row in range(right):
        differs = sides(_set_bits(got[1 + row]), _set_bits(wanted[1 + row]), names)
        expect(not differs, f"{where}: row {row} (behind {guess[:row]!r}): {differs}")
    expect(count == right, f"{where}: {right} rows can be reached, yours says {count}")
    expect(torch.equal(got, wanted), f"{where}: a row that cannot be reached, or one in front of `row`, was written")


def _set_bits(words: Tensor) -> list[int]:
    return [token_id for token_id in range(VOCABULARY.width) if int(words[token_id // 32]) >> token_id % 32 & 1]


def a_failing_library_leaves_the_grammar_where_it_was(part: Any) -> None:
    """The third token of the draft throws."""
    grammar = Grammar("[a-z]+", trap=ids("c")[0])
    mask = torch.full((6, -(-VOCABULARY.width // 32)), -1, dtype=torch.int32)
    with suppress(RuntimeError):
        part.masks(grammar, mask, 0, ids("abcd"), VOCABULARY)
    expect(grammar.accepted == 0,
           f"accept_token raised in the middle of a draft, and the grammar stands behind {grammar.accepted} tokens")


def the_run_is(part: Any, sampled: str, draft: str, wanted: str) -> None:
    """Which tokens count."""
    got = plain(list(part.verdict(ids(sampled), ids(draft), VOCABULARY.stop_ids)))
    spelled = {token_id: character for character in sampled for token_id in ids(character)}
    shown = "".join(spelled.get(token_id, "!") for token_id in got)
    expect(got == ids(wanted), f"drafted {draft!r}, sampled {sampled!r} ('.' is a stop token): the run is "
                                     f"{wanted!r}, yours is {shown!r}")


@contextmanager
def in_the_loop(part: Any) -> Iterator[None]:
    """Both halves in the place of the runtime's."""
    real: Callable[..., verification.Run] = verification._run

    def run(req: Request, first: int, draft: tuple[int, ...], output: SampleOutput,
            stop_ids: frozenset[int]) -> verification.Run:
        if any(row in output.errors for row in range(first, first + len(draft) + 1)):
            return real(req, first, draft, output, stop_ids)
        ends = stop_ids | set(req.sampling.stop_token_ids)
        tokens = tuple(part.verdict(output.token_ids[first:first + len(draft) + 1], draft, frozenset(ends)))
        pairs = zip(tokens, draft, strict=False)
        matched = next((index for index, (one, other) in enumerate(pairs) if one != other),
                       min(len(tokens), len(draft)))
        return verification.Run(req, first, tokens, draft, matched)

    def masks(grammar: Any, mask: Tensor, row: int, draft: Sequence[int], vocabulary: Vocabulary) -> int:
        return int(part.masks(grammar, mask, row, draft, vocabulary))

    with in_place(verification, "_run", run), in_place(base_grammar_backend, "fill_along", masks):
        yield


def drafts_change_no_token(part: Any, pattern: str, guess: str, likes: str) -> None:
    """Stage 5 with guesses, judged by the learner's class, and without any."""
    with bench() as made:
        plain = made.engine(5, backend="outlines")
        wanted = ask(pattern, max_new_tokens=16, logit_bias=preferring(plain, likes))
        right = made.run(plain, [wanted])[0]
        engine = made.engine(5, backend="outlines", options=StageOptions(spec="ngram"))
        guessed = tuple(engine.tokenizer.encode(guess))
        draft_with(engine, lambda _: guessed)
        with in_the_loop(part):
            try:
                got = made.run(engine, [wanted])[0]
            except ConstraintError as error:
                raise Wrong(f"in stage 5, regex {pattern!r}, drafting {guess!r}: {error}") from None
    expect(got.error is None, f"in stage 5, regex {pattern!r}, drafting {guess!r}: {got.error}")
    expect(got.token_ids == right.token_ids, f"in stage 5, regex {pattern!r}, drafting {guess!r}: the answer is "
                                             f"{got.text!r}, without drafts {right.text!r}")


def picture(part: Any) -> list[Row]:
    """What may come along a draft, and what counts of a pass."""
    rows = []
    pattern, guess = "ab(c|d)x?", "abce"
    got, wanted = (torch.full((6, -(-VOCABULARY.width // 32)), -1, dtype=torch.int32) for _ in range(2))
    count, right = part.masks(Grammar(pattern), got, 0, ids(guess), VOCABULARY), fill_along(
        Grammar(pattern), wanted, 0, ids(guess), VOCABULARY)
    for row in range(len(guess) + 1):
        rows.append(Row(f"{pattern}, draft {guess}: behind {guess[:row]!r}", _drawn(got[row], row < count),
                        _drawn(wanted[row], row < right)))
    for draft, sampled, run in (("abc", "abcd", "abcd"), ("abc", "axcd", "ax"), ("abc", "a.cd", "a.")):
        ids_of = part.verdict(ids(sampled), ids(draft), VOCABULARY.stop_ids)
        rows.append(Row(f"drafted {draft}, sampled {sampled}", sampled[:len(ids_of)], run))
    return rows


def _drawn(words: Tensor, reached: bool) -> str:
    found = _set_bits(words)
    if not reached:
        return "not reached"
    return "anything" if len(found) > 90 else " ".join(
        VOCABULARY.token_bytes[token_id].decode() or "end" for token_id in found)
