"""A grammar library that raises, at any of its methods and with anything: one request ends, and nobody else notices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext, StageOptions
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from stages.stage4_backends import base_grammar_backend as stage4
from stages.stage5_backend_jump import base_grammar_backend as stage5
from stages.stage5_backend_jump.decoder import GrammarManagerPolicy
from tests.conftest import EngineFactory

pytestmark = pytest.mark.model

ONLY_FASTER = {"fill_vocab_mask_batched"}
"""Where such a call fails there is a slower one with the same result, and nobody has to end."""
STAGES: dict[int, ModuleType] = {4: stage4, 5: stage5}
PATTERN = "[a-f]{2}: so it goes[xyz]"
PROMPTS = {"bad": "One: ", "good": "Two: ", "free": "Three: ", "also good": "Four: "}
SAMPLING = SamplingParams(max_new_tokens=12, top_logprobs=1, seed=7, temperature=0.8)


class Panic(BaseException):
    """What a Rust library throws is no `Exception`."""


def methods_of(kind: type) -> list[str]:
    """Every method and property of a base class, private ones too: a library may fail behind each."""
    return [name for name, value in inspect.getmembers_static(kind)
            if not name.startswith("__") and (isinstance(value, property | staticmethod) or inspect.isfunction(value))]


@dataclass
class Saboteur:
    """Makes one method raise from its call number `from_call` on, when it works for `constraint`."""

    method: str = ""
    error: type[BaseException] = Panic
    from_call: int = 1
    constraint: Constraint | None = None
    calls: int = 0

    @property
    def struck(self) -> bool:
        """Whether it has raised."""
        return self.calls >= self.from_call

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which may raise instead."""

        def instead(*args: object, **kwargs: object) -> object:
            self.calls += 1
            if self.struck:
                raise self.error(f"sabotaged {self.method}")
            return original(*args, **kwargs)

        return instead

    def spoil_grammar(self, grammar: Any) -> None:
        """Put a class over the object's own; copies get it too."""
        own = type(grammar)

        def copy(one: Any) -> Any:
            made = own.copy(one)
            self.spoil_grammar(made)
            return made

        body: dict[str, object] = {"copy": copy}
        found = inspect.getattr_static(own, self.method, None)
        if self.method == "copy":
            body["copy"] = self.before(copy)
        elif isinstance(found, property | cached_property):
            getter = found.fget if isinstance(found, property) else found.func
            assert getter is not None
            body[self.method] = property(self.before(getter))
        elif isinstance(found, staticmethod):
            body[self.method] = staticmethod(self.before(found.__func__))
        elif found is not None:
            body[self.method] = self.before(found)
        grammar.__class__ = type(f"Sabotaged{own.__name__}", (own,), body)

    def spoil_backend(self, backend: Any) -> Any:
        """Methods of the backend raise for the constraint; its grammar of the constraint is spoiled."""
        compile_it = backend.init_value
        for name in methods_of(type(backend)):
            if name != "init_value":
                setattr(backend, name, self._guard(name, getattr(backend, name)))

        def init_value(constraint: Constraint) -> Any:
            compiled = self._guard("init_value", compile_it)(constraint)
            if constraint == self.constraint:
                self.spoil_grammar(compiled.grammar)
                return type(compiled)(compiled.grammar, compiled.warnings)  # as a backend makes it
            return compiled

        backend.init_value = init_value
        return backend

    def _guard(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: object) -> object:
            if self.method == f"backend.{name}" and (not args or self.constraint in args):
                return self.before(original)(*args)
            return original(*args)

        return instead


@dataclass
class Scene:
    """An engine of one stage with one library, in which any method can be made to raise."""

    engine: Engine
    saboteur: Saboteur
    stage: int
    sampling: SamplingParams = SAMPLING
    batches: int = 0

    def run(self, method: str = "", error: type[BaseException] = Panic, from_call: int = 1) -> dict[str, Result]:
        """Four requests together, one of them with a constraint that nobody has compiled yet; books balance always."""
        self.batches += 1
        bad, good = Constraint.regex(f"{PATTERN}(?#{self.batches})"), Constraint.regex(PATTERN)
        constraints = {"bad": bad, "good": good, "also good": good}
        self.saboteur.__init__(method, error, from_call, bad)  # type: ignore[misc]  # the backend knows this object
        for name, prompt in PROMPTS.items():
            sampling = self.sampling if name in constraints else SAMPLING
            self.engine.add_request(prompt, rid=name, constraint=constraints.get(name), sampling=sampling)
        done: dict[str, Result] = {}
        while self.engine.has_work:
            self.engine.step()
            self.engine.check_integrity()
            done |= {event.rid: event.result for event in self.engine.take_events() if event.result is not None}
        assert done.keys() == PROMPTS.keys(), f"{method}: a request is lost"
        return done


@pytest.fixture
def scene(request: pytest.FixtureRequest, make_engine: EngineFactory) -> Iterator[Scene]:
    stage, name, settings = request.param
    module, saboteur = STAGES[stage], Saboteur()

    def make(context: StageContext) -> Any:
        return saboteur.spoil_backend(module.REGISTRY.create(name, context))

    module.register_backend("sabotaged", make)
    try:
        yield Scene(make_engine(stage=stage, backend="sabotaged", exact=True, prefix_cache="naive", **settings),
                    saboteur, stage, BRIEF if settings is THINKING else SAMPLING)
    finally:
        del module.REGISTRY.factories["sabotaged"]


THINKING = {"options": StageOptions(think_end="<file_sep>")}
BRIEF = replace(SAMPLING, thinking_budget=2)
FORCING = {"options": StageOptions(backend_jump="force+draft")}
DRAFTING = {"options": StageOptions(backend_jump="draft", spec="ngram")}
each_scene = pytest.mark.parametrize("scene", [
    pytest.param((4, "xgrammar", {}), id="stage4-xgrammar"),
    pytest.param((4, "outlines", {}), id="stage4-outlines", marks=pytest.mark.slow),
    pytest.param((4, "llguidance", {}), id="stage4-llguidance", marks=pytest.mark.slow),
    pytest.param((5, "xgrammar", {}), id="stage5-xgrammar"),
    pytest.param((5, "outlines", {}), id="stage5-outlines", marks=pytest.mark.slow),
    pytest.param((5, "llguidance", {}), id="stage5-llguidance", marks=pytest.mark.slow),
    pytest.param((5, "xgrammar", THINKING), id="stage5-thinking"),
    pytest.param((5, "xgrammar", FORCING), id="stage5-forcing"),
    pytest.param((5, "llguidance", FORCING), id="stage5-forcing-llguidance", marks=pytest.mark.slow),
    pytest.param((5, "xgrammar", DRAFTING), id="stage5-drafting", marks=pytest.mark.slow),
    pytest.param((5, "outlines", DRAFTING), id="stage5-drafting-outlines", marks=pytest.mark.slow),
], indirect=True)


def fingerprint(result: Result) -> object:
    return result.text, result.token_ids, result.finish_reason, str(result.error), result.logprobs


def check(scene: Scene, reference: dict[str, Result], method: str, error: type[BaseException], from_call: int) -> bool:
    """Whether the method was called so often; the failing request and the others are looked at."""
    done = scene.run(method, error, from_call)
    for name in PROMPTS.keys() - {"bad"}:
        assert fingerprint(done[name]) == fingerprint(reference[name]), f"{method} at call {from_call}: {name}"
    if scene.saboteur.struck and method not in ONLY_FASTER:
        bad = done["bad"]
        assert bad.finish_reason == "error", f"{method} at call {from_call}: {bad}"
        assert isinstance(bad.error, ConstraintError)
        assert f"sabotaged {method}" in str(bad.error)
        assert error.__name__ in str(bad.error)
        assert bad.token_ids == reference["bad"].token_ids[:len(bad.token_ids)]
    else:
        assert fingerprint(done["bad"]) == fingerprint(reference["bad"]), method
    return scene.saboteur.struck


@each_scene
def test_whatever_method_raises_one_request_ends_and_the_others_are_bit_identical(scene: Scene) -> None:
    reference = scene.run()
    assert {result.finish_reason for result in reference.values()} <= {"stop", "length"}
    module = STAGES[scene.stage]
    methods = [*methods_of(module.BaseGrammarObject),
               *(f"backend.{name}" for name in methods_of(module.BaseGrammarBackend))]
    struck = {method for method in methods if check(scene, reference, method, Panic, 1)}
    assert {"accept_token", "copy", "is_terminated", "nbytes", "backend.init_value"} <= struck
    assert scene.stage == 5 or "fill_vocab_mask" in struck
    for method in sorted(struck):
        check(scene, reference, method, MemoryError, 3)
    assert fingerprint(scene.run()["bad"]) == fingerprint(reference["bad"]), "the engine is as good as before"


@pytest.mark.parametrize("scene", [pytest.param((5, "xgrammar", {}), id="stage5-xgrammar")], indirect=True)
def test_a_batch_call_that_fails_is_followed_by_row_by_row_and_only_who_fails_there_ends(
        scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = scene.run()
    grammar = type(scene.engine.parts.policy.backend.init_value(  # type: ignore[attr-defined]  # stage 5's has one
        Constraint.regex("a")).grammar)

    def batch_call_fails(*_: object) -> None:
        raise Panic("in the batch")

    monkeypatch.setattr(grammar, "fill_vocab_mask_batched", batch_call_fails)
    assert not check(scene, reference, "", Panic, 1)
    assert check(scene, reference, "fill_vocab_mask", Panic, 2)


class Anything(RuntimeError):
    """Not even its text can be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("stage", [4, 5])
@pytest.mark.parametrize("method", ["accept_token", "init_value", "fill_vocab_mask"])
def test_an_error_without_a_text_is_an_error_all_the_same(stage: int, method: str, make_engine: EngineFactory,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise Anything

    engine = make_engine(stage=stage, backend="xgrammar")
    backend = type(engine.parts.policy.backend)  # type: ignore[attr-defined]  # both policies have one
    target = backend if method == "init_value" else type(
        engine.parts.policy.backend.init_value(Constraint.regex("a")).grammar)  # type: ignore[attr-defined]
    monkeypatch.setattr(target, method, raises)
    bad, free = engine.generate(["x", "y"], constraint=[Constraint.regex("[ab]{9}"), None], sampling=SAMPLING)
    assert "Anything" in str(bad.error)
    assert free.error is None


@pytest.mark.parametrize("stage", [4, 5])
def test_an_interrupt_by_the_user_reaches_the_user(stage: int, make_engine: EngineFactory,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(stage=stage, backend="xgrammar")
    engine.generate_one("x", constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING)
    grammar = type(engine.parts.policy.backend.init_value(Constraint.regex("a")).grammar)  # type: ignore[attr-defined]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(grammar, "accept_token", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(["x"], constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING)
    assert engine.generate_one("x", constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING).error is None


@pytest.mark.parametrize("stage", [4, 5])
@pytest.mark.parametrize("method", ["accepting", "is_terminated", "try_jump_forward"])
def test_a_trace_that_cannot_ask_a_grammar_says_so_and_the_request_is_not_touched(
        stage: int, method: str, make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(stage=stage, backend="xgrammar")
    policy = engine.parts.policy
    engine.add_request("x", constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING)
    while not engine.scheduler.queues.running:
        engine.step()
    req, = engine.scheduler.queues.running
    grammar: Any = req.grammar if stage == 5 else req.grammar.grammar  # type: ignore[attr-defined]
    shown = policy.describe(req)
    with monkeypatch.context() as patch:
        broken = Saboteur(method)
        patch.setattr(type(grammar), method, property(broken.before(lambda _: True)) if method == "accepting"
                      else broken.before(lambda _: None))
        failing = policy.describe(req)
    if stage == 4 or method != "try_jump_forward":
        assert "sabotaged" in str(failing["failed"])
    assert policy.describe(req) == shown
    while engine.has_work:
        engine.step()
    result, = [event.result for event in engine.take_events() if event.result is not None]
    assert result.error is None


def test_a_reset_that_raises_leaves_no_grammar_of_before(make_engine: EngineFactory,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(stage=5)
    policy = engine.parts.policy
    assert isinstance(policy, GrammarManagerPolicy)
    engine.generate_one("x", constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING)
    assert len(policy.manager.cache) == 1
    monkeypatch.setattr(policy.backend, "reset", Saboteur("reset").before(lambda: None))
    with pytest.raises(Panic):
        policy.manager.reset()
    assert len(policy.manager.cache) == 0
    assert engine.generate_one("x", constraint=Constraint.regex("[ab]{9}"), sampling=SAMPLING).error is None
