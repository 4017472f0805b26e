"""What a grammar library must offer to constrain a request, and the registry of those that do.

Since the generation before: one `dispatch_*` a kind (#4030), a refusal that is a value of its own instead of None
(#6803), `accept_token` that raises (#6188), reasoning (#4984), and one fill for the whole batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from shared_runtime.constrain.compiling.lazy_registry import LazyRegistry
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constrain.using.draft_rows import fill_along
from shared_runtime.constrain.using.respell import common_length
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.errors import ConstraintError, JumpforwardError, UnsupportedConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .json_schema_validation import validate_json_schema
from .utils import apply_bitmask, new_bitmask

DEVIATIONS = Path(__file__).with_name("deviations.toml")
"""What the libraries silently get wrong, per backend."""


@dataclass(frozen=True, slots=True)
class JumpHelper:
    """The text that a grammar forces next.

    Attributes:
        suffix: bytes that complete a character whose first bytes have come out already (b"" between characters).
        text: whole characters after them.
        next_state: the grammar's state behind both, for a backend that numbers its states; -1 for the others.
    """

    suffix: bytes
    text: str
    next_state: int = -1

    @classmethod
    def of(cls, forced: bytes, next_state: int = -1) -> JumpHelper | None:
        """From forced bytes that may begin and end inside a character; None when they hold nothing whole."""
        start = next((index for index, byte in enumerate(forced) if byte & 0xC0 != 0x80), len(forced))
        text = forced[start:].decode("utf-8", "ignore")
        return cls(forced[:start], text, next_state) if forced[:start] or text else None


class BaseGrammarObject(ABC):
    """One request's place in a grammar. The compiled part behind it is shared between copies and never changes.

    Used from one thread. `vocabulary` is the engine's: what a token spells, and the one stop set. `accepted` counts the
    tokens taken. `finished` says that a stop token was (upstream's flag of #2377: then no mask may be asked for).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.finished = False
        self.accepted = 0

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """About how much memory the compiled part holds, in bytes: what the cache counts."""

    @property
    @abstractmethod
    def accepting(self) -> bool:
        """Whether the text so far is complete."""

    @abstractmethod
    def copy(self) -> BaseGrammarObject:
        """A fresh place at the beginning of the same grammar, whatever happened to this one."""

    def maybe_init_reasoning(self, reasoning: bool, budget: int | None = None) -> None:
        """Say whether the answer begins with a reasoning part. An object that knows of none has nothing to do."""
        return

    def accept_token(self, token_id: int) -> None:
        """Move over one token. A stop token is taken iff the grammar accepts here, and ends it.

        Raises:
            ConstraintError: the grammar does not allow it; then nothing has changed. Ids outside the vocabulary and
                control tokens are refused here, so no library ever sees one (museum row 47).
        """
        if not self._accept(token_id):
            raise ConstraintError(f"the grammar does not allow token {token_id} after {self.accepted} tokens")
        self.accepted += 1

    def _accept(self, token_id: int) -> bool:
        if self.finished:
            return False
        if token_id in self.vocabulary.stop_ids:
            self.finished = self.accepting
            return self.finished
        in_text = 0 <= token_id < len(self.vocabulary) and self.vocabulary.token_bytes[token_id] != b""
        return in_text and self._accept_text(token_id)

    def rollback(self, k: int) -> None:
        """Take back the last `k` accepted tokens, a stop token among them.

        Raises:
            ValueError: fewer were accepted.
        """
        ended = min(k, int(self.finished))
        if k > ended:
            self._rollback_text(k - ended)
        self.finished = self.finished and not ended
        self.accepted -= k

    def is_terminated(self) -> bool:
        """True when nothing can follow: neither may a mask be asked for, nor a token be accepted."""
        return self.finished

    @abstractmethod
    def _accept_text(self, token_id: int) -> bool:
        """`accept_token` for a token that spells text; False when it is refused."""

    @abstractmethod
    def _rollback_text(self, k: int) -> None:
        """`rollback` over `k` >= 1 tokens that spell text."""

    # masks: int32 words, 32 tokens each, the lowest bit first; 1 = allowed. On this class, so that every backend has
    # them: where only one did, a wrapper that asked for them failed with the others (museum row 67).

    def allocate_vocab_mask(self, width: int, rows: int, device: torch.device) -> Tensor:
        """[rows, ceil(width / 32)] int32 with every bit set: a row that nobody fills forbids nothing."""
        return new_bitmask(width, rows, device)

    @abstractmethod
    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write the tokens that may come next into one row of a mask in host memory; every word of it.

        The stop set is allowed iff `accepting`. All zero means that no token can follow: a dead end.

        Raises:
            ConstraintError: the library failed, or the grammar is terminated.
        """

    def fill_vocab_mask_batched(self, entries: Sequence[tuple[int, BaseGrammarObject]], mask: Tensor) -> None:
        """Fill many rows at once; asked of any of the grammars, all of one backend. (Upstream: newer than 8905cbd42f.)

        The result equals filling one by one, bit for bit; rows that are not listed stay as they are.
        """
        for row, grammar in entries:
            grammar.fill_vocab_mask(mask, row)

    def fill_vocab_mask_drafted(self, mask: Tensor, row: int, draft: Sequence[int]) -> int:
        """Fill rows from `row` on: the mask here, and behind each token of `draft`, as far as it can be followed.

        Returns how many rows that is, at least 1; the others stay all ones. A library's call for drafts equals it.
        """
        return fill_along(self, mask, row, draft, self.vocabulary)

    def move_vocab_mask(self, mask: Tensor, device: torch.device) -> Tensor:
        """The mask on another device; from pinned memory the copy does not wait."""
        return mask.to(device, non_blocking=True)

    def apply_vocab_mask(self, logits: Tensor, mask: Tensor, rows: Sequence[int] | None = None) -> None:
        """-inf where a bit is 0, in place; all rows, or those listed, by one kernel. Mask and logits on one device."""
        apply_bitmask(logits, mask, rows)

    def forced_bytes(self) -> bytes:
        """What every text goes on with (ours, for `backend_jump.py`); it may begin and end inside a character."""
        return b""

    # Jump-forward. Nothing calls these three since 935cda944b (#4032): the scheduler's side went, they stayed.

    def try_jump_forward(self) -> JumpHelper | None:
        """The text that is forced from here, None when the next byte is not, or when the backend cannot tell."""
        return JumpHelper.of(self.forced_bytes())

    def jump_forward_str_state(self, helper: JumpHelper) -> tuple[str, int]:
        """The string to append to the text, and the state behind it (-1 where states have no numbers)."""
        return helper.text, helper.next_state

    def jump_and_retokenize(self, old_output_ids: Sequence[int], new_output_ids: Sequence[int],
                            next_state: int) -> bool:
        """Move from behind `old_output_ids` to behind `new_output_ids`, by rollback to their common prefix.

        Returns:
            False when the grammar refuses one of the new ids; then it stands where it stood.
        """
        common = common_length(old_output_ids, new_output_ids)
        self.rollback(len(old_output_ids) - common)
        try:
            for token_id in new_output_ids[common:]:
                self.accept_token(token_id)
        except ConstraintError:
            self.rollback(self.accepted - common)
            for token_id in old_output_ids[common:]:
                self.accept_token(token_id)
            return False
        return True


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the cache keeps of a constraint: a grammar at its beginning, and what its requests are to be warned of.

    `nbytes` is asked for here, on the compiling thread: a library that fails over it fails one compile.
    """

    grammar: BaseGrammarObject
    warnings: tuple[str, ...] = ()
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", int(self.grammar.nbytes))


@dataclass(frozen=True, slots=True)
class InvalidGrammarObject:
    """What the cache keeps of a constraint that cannot be served: the error its requests end with.

    Not None: that meant "not in the cache", "invalid" and "no constraint" at once, so a bad grammar was compiled again
    for every request and the request then ran unconstrained (museum row 37, until #6803).
    """

    error: JumpforwardError


class BaseGrammarBackend(ABC):
    """Compiles constraints with one library, over one vocabulary; overrides `dispatch_*` for the kinds it has.

    Made once per engine; what costs (the library's import, its view of the vocabulary) waits for the first compile.

    Attributes:
        name: what `--backend` calls it. kinds: what it can compile.
    """

    name: str
    kinds: frozenset[ConstraintKind]

    def __init__(self, context: StageContext) -> None:
        self.context = context

    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile a constraint, on any thread. Raises ConstraintError when it cannot be served."""
        dispatch: dict[ConstraintKind, Callable[[Constraint], Compiled]] = {
            "regex": self.dispatch_regex, "choice": self.dispatch_choice, "json_schema": self.dispatch_json_schema,
            "json_object": self.dispatch_json_object, "ebnf": self.dispatch_ebnf,
            "structural_tag": self.dispatch_structural_tag,
        }
        if constraint.kind == "json_schema":
            validate_json_schema(constraint.source)
        return dispatch[constraint.kind](constraint)

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """Compile a regex of the dialect."""
        raise self.refuse(constraint)

    def dispatch_choice(self, constraint: Constraint) -> Compiled:
        """Compile a list of texts; as a regex unless a backend knows better."""
        return self.dispatch_regex(Constraint.regex(escape_choice(constraint.choices)))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """Compile a JSON Schema that is one: `validate_json_schema` has seen it."""
        raise self.refuse(constraint)

    def dispatch_json_object(self, constraint: Constraint) -> Compiled:
        """Compile "any JSON object"."""
        raise self.refuse(constraint)

    def dispatch_ebnf(self, constraint: Constraint) -> Compiled:
        """Compile a grammar in the GBNF style."""
        raise self.refuse(constraint)

    def dispatch_structural_tag(self, constraint: Constraint) -> Compiled:
        """Compile structural tags, in either form."""
        raise self.refuse(constraint)

    def refuse(self, constraint: Constraint) -> UnsupportedConstraintError:
        """The error for a kind that this backend lacks."""
        return UnsupportedConstraintError(
            f"the {self.name} backend has no {constraint.kind}", where="constraint",
            fix=f"use --backend xgrammar; this one has: {', '.join(sorted(self.kinds))}")

    def reset(self) -> None:
        """Forget what the library has cached by itself (museum row 59: a flush must empty every layer)."""
        return


REGISTRY: LazyRegistry[BaseGrammarBackend] = LazyRegistry("stages.stage5_backend_jump", {
    "xgrammar": ".xgrammar_backend:XGrammarGrammarBackend",
    "outlines": ".outlines_backend:OutlinesGrammarBackend",
    "llguidance": ".llguidance_backend:LLGuidanceGrammarBackend",
})
"""The one registry of this process: the command line, tests and third parties mean the same by a name."""


def register_backend(name: str, factory: Callable[[StageContext], BaseGrammarBackend]) -> None:
    """Add a backend, or put another in the place of one, for engines made from now on."""
    REGISTRY.factories[name] = factory
