"""A recorded request: everything that a player needs, as one JSON file. Its schema is `recording.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jumpforward.stepper.automaton import Automaton, automaton_of
from jumpforward.stepper.frames import Frame, FrameMaker, Mask, Rewrite, Token, TreeNode
from jumpforward.stepper.picture import MOST_STATES, draw
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from shared_runtime.config import EngineConfig
    from shared_runtime.engine import Message

RECORDING_SCHEMA = "jumpforward.recording/1"


@dataclass(slots=True)
class Recording:
    """A request on one stage, turn by turn.

    Attributes:
        request: prompt and constraint as people wrote them. stage: number, name and title. settings: backend,
            overlap, backend jump, dtype, model.
        picture: the automaton as SVG and in words, with its edges (start, end, label, states inside) when it is small
            enough to be drawn whole; None when the constraint has none that can be drawn.
        frames: one a turn. answer: the text. counts: as results give them.
        versions: of what decides the numbers.
    """

    request: dict[str, object]
    stage: dict[str, object]
    settings: dict[str, object]
    frames: list[Frame]
    answer: str
    counts: dict[str, int]
    picture: dict[str, object] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    schema: str = RECORDING_SCHEMA

    def tokens_at(self, index: int) -> list[Token]:
        """The answer's tokens behind frame `index`."""
        tokens: list[Token] = []
        for frame in self.frames[:index + 1]:
            tokens = tokens[:frame.keep] + frame.tokens
        return tokens

    def as_dict(self) -> dict[str, object]:
        """The recording as JSON values."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write it to a file.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":")) + "\n",
                            encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write the recording: {error.strerror}", where=str(path),
                              fix="name a file in a folder you can write to") from error


def record(config: EngineConfig, prompt: str | None, *, messages: Sequence[Message] | None = None,
           constraint: Constraint | None = None, sampling: SamplingParams | None = None,
           progress: Callable[[str, int, int], None] | None = None) -> Recording:
    """Run a request and keep what happened.

    Args:
        config: where it runs; its trace settings are replaced.
        prompt, messages, constraint, sampling: the request; one answer of it is recorded.
        progress: as `Engine`'s.

    Raises:
        JumpforwardError: the request cannot be served. One that fails on its way is recorded up to there, and its
            last frame says why.
    """
    from shared_runtime.engine import Engine

    with Engine(replace(config, trace=True, trace_tree=True), progress=progress) as engine:
        automaton = automaton_of(constraint)
        stage = engine.parts.stage
        [rid] = engine.add_request(prompt, messages=messages, constraint=constraint,
                                   sampling=replace(sampling or SamplingParams(), n=1))
        maker = FrameMaker(rid, stage.id, engine.tokenizer.vocabulary, automaton)
        frames, result = [], None
        while result is None:
            turn = engine.step()
            assert turn is not None
            if turn.requests or turn.requeued or turn.ended:
                frames.append(maker.frame(turn))
            result = next((event.result for event in engine.take_events() if event.result is not None), None)
        if result.error is not None and not any(frame.passes for frame in frames):
            raise result.error
        maker.end(frames[-1], result)
        if result.error is not None:
            frames[-1].says.append(str(result.error))
        backend = config.backend or next(iter(stage.capabilities.backends), None)
    shown = messages[-1]["content"] if messages else prompt
    return Recording(
        request={"prompt": shown, "constraint": None if constraint is None else
                 {"kind": constraint.kind, "source": constraint.source, "choices": list(constraint.choices)}},
        stage={"id": stage.id, "name": stage.name, "title": stage.title},
        settings={"model": config.model, "backend": backend, "dtype": config.dtype, "exact": config.exact,
                  "overlap": config.overlap, "backend_jump": config.options.backend_jump, "spec": config.options.spec},
        frames=frames, answer=result.text, counts=dict(result.counts), versions=_versions(),
        picture=None if automaton is None else _picture(automaton))


def _picture(automaton: Automaton) -> dict[str, object]:
    drawn = draw(automaton)
    whole = len(automaton.rows) <= MOST_STATES
    return {"svg": drawn.svg, "text": drawn.text, "whole": whole, "edges": [
        [edge.start, edge.end, edge.label, list(edge.inside)] for edge in (automaton.edges() if whole else ())]}


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "outlines-core", "xgrammar", "llguidance", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def load(path: Path) -> Recording:
    """Read a recording from a file that nobody vouches for.

    Raises:
        ConfigError: it cannot be read, or is no recording of this version; the message says where.
    """
    from jsonschema import Draft202012Validator

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the recording: {error.strerror}", where=str(path),
                          fix="jumpforward step --save FILE makes one") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is no JSON: {str(error).splitlines()[0]}", where=str(path),
                          fix="jumpforward step --save FILE makes one") from error
    schema = json.loads((Path(__file__).with_name("recording.schema.json")).read_text(encoding="utf-8"))
    wrong = next(iter(Draft202012Validator(schema).iter_errors(value)), None)
    if wrong is not None:
        place = "/".join(map(str, wrong.absolute_path)) or "the whole"
        raise ConfigError(f"this is no recording of {RECORDING_SCHEMA}: at {place}: {wrong.message[:120]}",
                          where=str(path), fix="jumpforward step --save FILE makes one")
    return Recording(**value | {"frames": [_frame(frame) for frame in value["frames"]]})


def _frame(value: dict[str, object]) -> Frame:
    def tokens(name: str, of: object) -> list[Token]:
        assert isinstance(of, dict)
        return [Token(**one) for one in of[name]]

    rewrite, mask, tree = value["rewrite"], value["mask"], value["tree"]
    assert isinstance(tree, list)
    changed: dict[str, object] = {
        "tokens": tokens("tokens", value), "draft": tokens("draft", value), "tree": [TreeNode(**one) for one in tree]}
    if isinstance(rewrite, dict):
        changed["rewrite"] = Rewrite(rewrite["text"], tokens("old", rewrite), tokens("new", rewrite), rewrite["common"])
    if isinstance(mask, dict):
        changed["mask"] = Mask(**mask | {name: [tuple(one) for one in mask[name]] for name in ("raw", "masked")})
    return Frame(**value | changed)  # type: ignore[arg-type]  # the schema has checked each field
