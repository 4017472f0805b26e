"""Grammars token by token, whole engines, the conformance suite, and the checks of exercise 8."""

from __future__ import annotations

import inspect
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from exercises.bench import bench
from jumpforward.exercises.case import Row, Wrong, expect, expect_equal, plain, sides
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.vocabulary import Vocabulary
from stages import get_stage
from stages.stage4_backends.base_grammar_backend import (
    REGISTRY,
    BaseGrammarBackend,
    BaseGrammarObject,
    register_backend,
)
from tests.conformance.harness import Ask, Walkers
from tests.museum.bench import Bench
from tests.oracles.nfa_oracle import MaskOracle

from .fakes import interrupted

BackendClass = Callable[[Any], BaseGrammarBackend]
NAME = "pocketre"
_MOST_LINES = 40


@contextmanager
def registered(part: BackendClass) -> Iterator[Target]:
    """The learner's backend in the registry, and stage 4 with it as the conformance suite sees one."""
    spec = get_stage(4)
    kinds: frozenset[ConstraintKind] = frozenset({"regex", "choice"})
    backends = {**spec.capabilities.backend_constraints, NAME: kinds}
    able = replace(spec.capabilities, backends=(*spec.capabilities.backends, NAME), backend_constraints=backends)
    register_backend(NAME, part)
    try:
        yield Target(replace(spec, capabilities=able), NAME)
    finally:
        del REGISTRY.factories[NAME]


def wider(vocabulary: Vocabulary) -> Vocabulary:
    """With logits past the tokens."""
    return replace(vocabulary, width=vocabulary.width + 77, fingerprint="")


def allowed(grammar: BaseGrammarObject, was: int = -1) -> set[int]:
    """The ids of a mask that is filled over what was in it; the rows beside must stay."""
    width = grammar.vocabulary.width
    mask = torch.full((3, -(-width // 32)), was, dtype=torch.int32)
    grammar.fill_vocab_mask(mask, 1)
    expect(bool((mask[[0, 2]] == was).all()), "fill_vocab_mask(mask, 1) changes other rows than 1")
    bits = (mask[1].unsqueeze(1) >> torch.arange(32)) & 1
    return {int(one) for one in bits.flatten().nonzero().flatten()}


def named(vocabulary: Vocabulary) -> list[str]:
    """What tokens spell, for people."""
    texts = [repr(text) if text else "a stop token" if token_id in vocabulary.stop_ids else "spells nothing"
             for token_id, text in enumerate(vocabulary.token_bytes)]
    return texts + ["past the tokens"] * (vocabulary.width + 31 - len(texts))


def accepts(grammar: BaseGrammarObject, token_id: int, where: str) -> bool:
    """What `accept_token` says."""
    try:
        got = grammar.accept_token(token_id)
    except Exception as error:
        raise Wrong(f"{where}: accept_token({token_id}) raised {type(error).__name__}: {error}") from error
    expect(type(got) is bool, f"{where}: accept_token({token_id}) gives {got!r}; _accept_text must return a bool")
    return got


def _same_mask(grammar: BaseGrammarObject, wanted: set[int], where: str) -> None:
    for was in (-1, 0):
        try:
            differs = sides(allowed(grammar, was), wanted, named(grammar.vocabulary))
        except Wrong:
            raise
        except Exception as error:
            raise Wrong(f"{where}: fill_vocab_mask raised {type(error).__name__}: {error}") from error
        expect(not differs, f"{where}: {differs}")


def _grammar(part: BackendClass, made: Bench, pattern: str) -> BaseGrammarObject:
    vocabulary = wider(made.tokenizer.vocabulary)
    return part(replace(made.context(), vocabulary=vocabulary)).init_value(Constraint.regex(pattern)).grammar


def masks_along_a_walk(part: BackendClass, pattern: str, seed: int) -> None:
    """What is allowed is allowed, what is not is refused and changes nothing, to the end and no further."""
    chance = random.Random(seed)
    with bench() as made:
        grammar = _grammar(part, made, pattern)
        vocabulary = grammar.vocabulary
        oracle, text = MaskOracle(pattern, vocabulary), b""
        for _ in range(12):
            where, wanted = f"regex {pattern!r}, behind {text!r}", oracle.allowed(text)
            _same_mask(grammar, wanted, where)
            complete = not wanted.isdisjoint(vocabulary.stop_ids)
            expect_equal(plain(grammar.accepting), complete, f"{where}: accepting")
            for bad in chance.sample(sorted(set(range(len(vocabulary))) - wanted), 3):
                expect(not accepts(grammar, bad, where), f"{where}: token {bad} ({named(vocabulary)[bad]}) is not "
                                                         "allowed, and is accepted")
                _same_mask(grammar, wanted, f"{where}, and a refused token {bad} ({named(vocabulary)[bad]})")
            ways = sorted(wanted - vocabulary.stop_ids)
            if not ways:
                break
            token_id = chance.choice(ways)
            expect(accepts(grammar, token_id, where), f"{where}: token {token_id} ({named(vocabulary)[token_id]}) is "
                                                      "in the mask, and is not accepted")
            text += vocabulary.token_bytes[token_id]


def the_end_ends_it(part: BackendClass, pattern: str, text: str) -> None:
    """A stop token, each of them; then nothing, and back."""
    with bench() as made:
        for stop in sorted(made.tokenizer.vocabulary.stop_ids):
            grammar = _grammar(part, made, pattern)
            _take(grammar, made.tokenizer.encode(text))
            before, where = allowed(grammar), f"regex {pattern!r}, behind {text!r} and the stop token {stop}"
            expect(accepts(grammar, stop, where), f"{where}: it is not accepted")
            expect(grammar.is_terminated(), f"{where}: is_terminated() is False")
            try:
                allowed(grammar)
            except ConstraintError:
                grammar.rollback(1)
                _same_mask(grammar, before, f"{where}, taken back")
            else:
                raise Wrong(f"{where}: fill_vocab_mask must raise ConstraintError")


def the_way_back(part: BackendClass, pattern: str, text: str, steps: Sequence[int]) -> None:
    """Token by token forward, then back in steps, as if they had never come."""
    with bench() as made:
        grammar = _grammar(part, made, pattern)
        ids = [grammar.vocabulary.byte_tokens[byte] for byte in text.encode()]
        masks = [allowed(grammar)]
        for token_id in ids:
            _take(grammar, [token_id])
            masks.append(allowed(grammar))
        behind = len(ids)
        for k in steps:
            where = f"regex {pattern!r}, {behind} tokens have come, rollback({k})"
            try:
                grammar.rollback(k)
            except Exception as error:
                raise Wrong(f"{where}: it raised {type(error).__name__}: {error}") from error
            behind -= k
            _same_mask(grammar, masks[behind], where)
        try:
            grammar.rollback(behind + 1)
        except ValueError:
            return
        raise Wrong(f"regex {pattern!r}, {behind} tokens have come: rollback({behind + 1}) must raise ValueError")


def copies_begin_at_the_beginning(part: BackendClass) -> None:
    """And go their own way."""
    with bench() as made:
        grammar, encode = _grammar(part, made, "(red|green), done"), made.tokenizer.encode
        start = allowed(grammar)
        _take(grammar, encode("red"))
        here, other = allowed(grammar), grammar.copy()
        _same_mask(other, start, "regex '(red|green), done', behind 'red': a copy must be at the beginning")
        _take(other, encode("green"))
        _same_mask(grammar, here, "a copy went on, and the original with it")
        expect(grammar.nbytes > 0, "nbytes must say how much memory the compiled part holds, yours says 0")


def _take(grammar: BaseGrammarObject, ids: Sequence[int]) -> None:
    for token_id in ids:
        told = f"token {token_id} ({named(grammar.vocabulary)[token_id]}) is allowed"
        expect(accepts(grammar, token_id, told), f"{told}, and is not accepted")


def what_is_forced(part: BackendClass, pattern: str, come: bytes, suffix: bytes, text: str) -> None:
    """As the interface says it."""
    with bench() as made:
        grammar = _grammar(part, made, pattern)
        _take(grammar, [grammar.vocabulary.byte_tokens[byte] for byte in come])
        helper = grammar.try_jump_forward()
    got = None if helper is None else (helper.suffix, helper.text)
    expect_equal(got, (suffix, text) if suffix or text else None,
                 f"regex {pattern!r}, behind {come!r}: (suffix, text) of try_jump_forward()")


def a_bad_pattern_is_refused(part: BackendClass, pattern: str, offset: int | None) -> None:
    """With the error of this project, and the place."""
    with bench() as made:
        try:
            _grammar(part, made, pattern)
        except GrammarSyntaxError as error:
            expect_equal(error.offset, offset, f"regex {pattern!r}: offset of the GrammarSyntaxError")
        except Exception as error:
            raise Wrong(f"regex {pattern!r}: init_value raises {type(error).__name__}: {error}; expected "
                        "GrammarSyntaxError") from error
        else:
            raise Wrong(f"regex {pattern!r} is no regular expression, and is served")


def two_compile_at_once(part: BackendClass, first: Constraint, second: Constraint) -> None:
    """While one thread is at a line of `init_value`, another calls it, too: at each line, one after the other."""
    with bench() as made:
        context = replace(made.context(), vocabulary=wider(made.tokenizer.vocabulary))
        wanted = {one: _begins_with(_compiled(part(context), one)) for one in (first, second)}
        line, lines = 1, 1
        while line <= min(lines, _MOST_LINES):
            backend, others = part(context), list[Any]()
            file = inspect.getfile(type(backend))
            with interrupted(file, line, lambda: others.append(_compiled(backend, second))) as seen:  # noqa: B023
                ours = _compiled(backend, first)
            for one, got in ((first, ours), *((second, other) for other in others)):
                begins, right = _begins_with(got), wanted[one]
                differs = (sides(begins, right, named(context.vocabulary))
                           if isinstance(begins, set) and isinstance(right, set) else f"yours is {begins}")
                expect(begins == right, f"one thread compiles {first.text}, another {second.text} at the same time: in "
                                        f"the mask of {one.text}, {differs}")
            line, lines = line + 1, len(seen)


def _compiled(backend: BaseGrammarBackend, constraint: Constraint) -> BaseGrammarObject | str:
    """A grammar, or the error that is one of the contract."""
    try:
        return backend.init_value(constraint).grammar
    except GrammarSyntaxError as error:
        return f"GrammarSyntaxError at {error.offset}"


def _begins_with(compiled: BaseGrammarObject | str) -> set[int] | str:
    """What may come first, for the next request that gets it."""
    return compiled if isinstance(compiled, str) else allowed(compiled.copy())


def stage_4_answers(part: BackendClass, constraints: Sequence[Constraint]) -> None:
    """Together with a free request: the tokens, passes and jumps that Outlines gives."""
    asks = [*(Ask("x", one, SamplingParams(max_new_tokens=24)) for one in constraints), Ask("y")]
    with bench() as made, registered(part):
        wanted = made.run(made.engine(4, backend="outlines"), asks)
        got = made.run(made.engine(4, backend=NAME), asks)
    for one, ours, theirs in zip([*constraints, None], wanted, got, strict=True):
        where = f"in stage 4, {'no grammar' if one is None else one.text}"
        expect((ours.error is None) == (theirs.error is None),
               f"{where}: the request ends with {theirs.error}, expected {ours.error}")
        expect(ours.token_ids == theirs.token_ids, f"{where}: the answer is {theirs.text!r}, expected {ours.text!r}")
        for count in ("forward_passes", "jumped"):
            expect_equal(theirs.counts[count], ours.counts[count], f"{where}: {count}")


def the_suite_is_content(part: BackendClass, test: Callable[..., None], *values: object) -> None:
    """A test of tests/conformance, on stage 4 with the learner's backend and the tiny model's tokens."""
    with bench() as made, registered(part) as target:
        known = {"target": target, "walkers": Walkers(made.tokenizer), "tokenizer": made.tokenizer}
        wanted = test.__code__.co_varnames[:test.__code__.co_argcount]
        rest = dict(zip([name for name in wanted if name not in known], values, strict=True))
        try:
            test(**{name: known[name] for name in wanted if name in known}, **rest)
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            raise Wrong(f"the conformance suite, {test.__name__}{values or ''}: {str(error) or line.line}") from error


def picture(part: BackendClass) -> list[Row]:
    """Masks and forced text along a short text."""
    rows, pattern = [], "(ab|é)!+"
    with bench() as made:
        grammar = _grammar(part, made, pattern)
        oracle = MaskOracle(pattern, grammar.vocabulary)
        for text, forced in ((b"", None), (b"\xc3", (b"\xa9", "!")), (b"\xc3\xa9!", None)):
            _take(grammar, [grammar.vocabulary.byte_tokens[byte] for byte in text[len(text) // 2:]])
            helper = grammar.try_jump_forward()
            told = None if helper is None else (helper.suffix, helper.text)
            rows.append(Row(f"{pattern} behind {text!r}", f"{_drawn(grammar, allowed(grammar))}; forced {told}",
                            f"{_drawn(grammar, oracle.allowed(text))}; forced {forced}"))
    return rows


def _drawn(grammar: BaseGrammarObject, ids: set[int]) -> str:
    names = named(grammar.vocabulary)
    return " ".join(f"end({one})" if one in grammar.vocabulary.stop_ids else names[one] for one in sorted(ids))
