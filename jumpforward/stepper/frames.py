"""From the trace of a request to what a person sees, step by step: one `Frame` a turn of the loop.

A frame is data that needs no vocabulary and no engine any more, so the terminal, the notebook and the web page show the
same things in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jumpforward.stepper.automaton import Automaton
from jumpforward.stepper.words import ended, here_differs, says
from shared_runtime.constrain.using.respell import origins_after
from shared_runtime.result import Result
from shared_runtime.trace import RequestRecord, StepRecord, TokenOrigin
from shared_runtime.vocabulary import Vocabulary

MOST_CANDIDATES = 6
MARKS = ("mask", "jump", "draft", "rejection", "overlap", "gate")
"""What a reader can go to next."""


@dataclass(slots=True)
class Token:
    """A token of the answer: id, text, how it came."""

    id: int
    text: str
    origin: str


@dataclass(slots=True)
class Rewrite:
    """What a stage wrote into the answer, and the ids before and after; the first `common` stayed."""

    text: str
    old: list[Token]
    new: list[Token]
    common: int


@dataclass(slots=True)
class Mask:
    """What the grammar left of the vocabulary.

    Attributes:
        allowed, width: how many tokens, of how many. mass: the probability that the model had given them.
        raw, masked: the best candidates before and after, (text, probability, allowed).
    """

    allowed: int
    width: int
    mass: float
    raw: list[tuple[str, float, bool]]
    masked: list[tuple[str, float, bool]]


@dataclass(slots=True)
class TreeNode:
    """A node of the radix tree: its text, how many slots it holds, whether a request holds on to it."""

    text: str
    slots: int
    locked: bool
    children: list[int]


@dataclass(slots=True)
class Frame:
    """What one turn shows of one request.

    Attributes:
        step: the turn's number in the trace. mode: extend, decode or idle. passes: forward passes so far.
        says: what happened, in sentences. here: what this stage does otherwise than its neighbours, here.
        keep: tokens of the answer that stay from the frame before; `tokens` follow them.
        fed: how many tokens the pass read; fed_text: the last of them. prefix_hit: found in the cache.
        rewrite, mask: None where nothing was rewritten or masked. draft: offered for verification.
        state: the automaton's state behind the answer; None off the automaton or without one.
        grammar: the grammar's own account of its state behind this turn.
        batch: (request, mode, tokens fed) of every request of the pass. queues: request ids by queue.
        kv: the pool's slots by use. tree: the radix tree's nodes, the root first.
        events: the order of events, as names with step numbers. overlap: whether the next pass was launched early;
        gate: why not. ms: milliseconds by phase. marks: what a reader can go to.
        finish: why the request ended here, None while it runs.
    """

    step: int
    mode: str
    passes: int
    says: list[str] = field(default_factory=list)
    here: str = ""
    keep: int = 0
    tokens: list[Token] = field(default_factory=list)
    fed: int = 0
    fed_text: str = ""
    prefix_hit: int = 0
    kv_len: int = 0
    rewrite: Rewrite | None = None
    mask: Mask | None = None
    draft: list[Token] = field(default_factory=list)
    state: int | None = None
    grammar: dict[str, object] = field(default_factory=dict)
    batch: list[tuple[str, str, int]] = field(default_factory=list)
    queues: dict[str, list[str]] = field(default_factory=dict)
    kv: dict[str, int] = field(default_factory=dict)
    tree: list[TreeNode] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    overlap: bool = False
    gate: str | None = None
    ms: dict[str, float] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    finish: str | None = None


class FrameMaker:
    """Turns records into frames, in order; keeps the answer so far.

    Args:
        rid: the request to follow. stage: its stage's number, for what differs there.
        vocabulary: to show ids as text. automaton: of its constraint, None when it has none that can be drawn.
    """

    def __init__(self, rid: str, stage: int, vocabulary: Vocabulary, automaton: Automaton | None) -> None:
        self._rid = rid
        self._stage = stage
        self._vocabulary = vocabulary
        self._automaton = automaton
        self._answer: list[Token] = []
        self._passes = 0

    def frame(self, record: StepRecord) -> Frame:
        """The frame of the next turn."""
        own = next((one for one in record.requests if one.rid == self._rid), None)
        before = list(self._answer)
        frame = Frame(record.step, own.mode if own else "idle", self._passes)
        if own is not None:
            self._passes += 1
            frame.passes = self._passes
            self._show_pass(frame, own)
        frame.keep = _common(before, self._answer)
        frame.tokens = self._answer[frame.keep:]
        frame.state = self._state()
        self._show_loop(frame, record)
        frame.marks = _marks(frame)
        frame.says = says(frame, self._rid)
        frame.here = here_differs(self._stage, frame)
        return frame

    def end(self, frame: Frame, result: Result) -> None:
        """Complete the last frame where the request ended without a pass: a jump wrote its last text, or it failed."""
        if frame.finish is not None:
            return
        before = self._answer
        self._answer = [Token(one, self._vocabulary.shown(one), how)
                        for one, how in zip(result.token_ids, result.origins, strict=True)]
        common = _common(before, self._answer)
        frame.keep, frame.tokens = min(frame.keep, common), self._answer[min(frame.keep, common):]
        frame.finish, frame.state = result.finish_reason, self._state()
        frame.marks = _marks(frame)
        frame.says = ended(frame, self._answer[common:])

    def _show_pass(self, frame: Frame, own: RequestRecord) -> None:
        frame.fed, frame.prefix_hit, frame.kv_len = len(own.fed), own.prefix_hit, own.kv_len
        frame.fed_text = self._vocabulary.shown(own.fed[-1]) if own.fed else ""
        frame.finish = own.finish
        frame.grammar = own.state_after or own.state_before
        frame.draft = [Token(one.id, one.text, one.origin) for one in own.draft]
        if own.jump is not None:
            frame.rewrite = self._rewrite(own)
        self._answer += [Token(one.id, one.text, one.origin) for one in own.tokens]
        if own.n_allowed is not None and own.state_before:
            kept = {one.id for one in own.top_masked}
            frame.mask = Mask(
                own.n_allowed, self._vocabulary.width, _short(own.allowed_mass or 0.0),
                [(one.text, _short(one.prob), one.id in kept) for one in own.top_raw[:MOST_CANDIDATES]],
                [(one.text, _short(one.prob), True) for one in own.top_masked[:MOST_CANDIDATES]])

    def _rewrite(self, own: RequestRecord) -> Rewrite:
        note = own.jump
        assert note is not None
        came: list[TokenOrigin] = [token.origin for token in self._answer]  # type: ignore[misc]  # they came from records
        old = self._answer
        if len(came) == len(note.old_ids):
            origins = origins_after(self._vocabulary, note, came, "jumped")
        else:  # a trace that begins in the middle of a request
            origins = ["jumped"] * len(note.new_ids)
        self._answer = [Token(one, self._vocabulary.shown(one), how)
                        for one, how in zip(note.new_ids, origins, strict=True)]
        return Rewrite(note.text, old, list(self._answer), note.common_prefix)

    def _show_loop(self, frame: Frame, record: StepRecord) -> None:
        frame.batch = [(one.rid, one.mode, len(one.fed)) for one in record.requests]
        frame.queues = {name: list(getattr(record, name)) for name in
                        ("waiting", "compiling", "running", "retracted", "requeued", "ended")
                        if getattr(record, name)}
        frame.kv = dict(record.kv)
        frame.tree = self._tree(record.tree)
        frame.events = [f"{event.name}({event.step})" for event in sorted(record.events, key=lambda one: one.seq)]
        frame.overlap, frame.gate = record.overlap.on, record.overlap.gate_reason
        frame.ms = {name: round(value, 3) for name, value in record.ms.items()}

    def _tree(self, tree: dict[str, object] | None) -> list[TreeNode]:
        nodes = [] if tree is None else tree["nodes"]
        assert isinstance(nodes, list)
        return [TreeNode("".join(map(self._vocabulary.shown, node["ids"])), len(node["slots"]), node["lock_count"] > 0,
                         node["children"]) for node in nodes]

    def _state(self) -> int | None:
        if self._automaton is None:
            return None
        spelled = b"".join(self._vocabulary.token_bytes[token.id] for token in self._answer)
        return self._automaton.walk(spelled.decode("utf-8", "ignore"))


def _short(probability: float) -> float:
    """As many digits as fp32 has, so that a recording is small."""
    return float(f"{probability:.9g}")


def _common(old: Sequence[Token], new: Sequence[Token]) -> int:
    length = 0
    while length < min(len(old), len(new)) and old[length] == new[length]:
        length += 1
    return length


def _marks(frame: Frame) -> list[str]:
    found = {
        "mask": frame.mask is not None,
        "jump": frame.rewrite is not None or any(token.origin in ("forced", "jumped") for token in frame.tokens),
        "draft": any(token.origin == "draft_accepted" for token in frame.draft),
        "rejection": any(token.origin == "draft_rejected" for token in frame.draft),
        "overlap": frame.overlap,
        "gate": frame.gate is not None,
    }
    return [mark for mark in MARKS if found[mark]]
