"""What a grammar library must offer to constrain a request, and the registry of those that do.

Upstream drew this line in 54479d6f30 (#2020): before it, the scheduler asked "which library?" at every turn. Since
then anybody can add a backend: `register_backend("mine", MyBackend)`, then `--backend mine`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from shared_runtime.constrain.compiling.lazy_registry import LazyRegistry
from shared_runtime.constrain.using.respell import common_length
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

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

    Used from one thread. `vocabulary` is the engine's: what a token spells, and the one stop set. `finished` says
    that a stop token was taken (upstream's flag of #2377: a terminated grammar must not be asked for a mask).
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.finished = False

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

    def accept_token(self, token_id: int) -> bool:
        """Move over one token. A stop token is taken iff the grammar accepts here, and ends it.

        Returns:
            False when the grammar does not allow it; then nothing has changed. Ids outside the vocabulary and
            control tokens are refused here, so no library ever sees one (museum row 47).
        """
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
        if ended:
            self.finished = False

    def is_terminated(self) -> bool:
        """True when nothing can follow: neither may a mask be asked for, nor a token be accepted."""
        return self.finished

    @abstractmethod
    def _accept_text(self, token_id: int) -> bool:
        """`accept_token` for a token that spells text."""

    @abstractmethod
    def _rollback_text(self, k: int) -> None:
        """`rollback` over `k` >= 1 tokens that spell text."""

    # masks: int32 words, 32 tokens each, the lowest bit first; 1 = allowed

    @staticmethod
    def allocate_vocab_mask(width: int, rows: int, device: torch.device) -> Tensor:
        """[rows, ceil(width / 32)] int32 with every bit set: a row that nobody fills forbids nothing.

        Made new in each step. A mask that is kept must be set to ones again before each filling, or a free row
        stays bound by whoever had it before (museum row 61, upstream until #23653).
        """
        return torch.full((rows, (width + 31) // 32), -1, dtype=torch.int32, device=device)

    @abstractmethod
    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write the tokens that may come next into one row of a mask in host memory; every word of it.

        The stop set is allowed iff `accepting`. All zero means that no token can follow: a dead end.

        Raises:
            ConstraintError: the library failed, or the grammar is terminated.
        """

    @staticmethod
    def move_vocab_mask(mask: Tensor, device: torch.device) -> Tensor:
        """The mask on the logits' device; the copy does not wait."""
        return mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: Tensor, mask: Tensor) -> None:
        """-inf where a bit is 0, in place; all rows at once.

        Args:
            logits: [rows, width] float32. mask: [rows, ceil(width / 32)] int32 on the same device.
        """
        shifts = torch.arange(32, dtype=torch.int32, device=mask.device)
        forbidden = ((mask.unsqueeze(-1) >> shifts) & 1 == 0).flatten(1)[:, :logits.shape[1]]
        logits.masked_fill_(forbidden, -torch.inf)

    # jump-forward (used by this generation's decoder; nothing calls it any more since 935cda944b, #4032)

    def try_jump_forward(self) -> JumpHelper | None:
        """The text that is forced from here, None when the next byte is not, or when the backend cannot tell."""
        return None

    def jump_forward_str_state(self, helper: JumpHelper) -> tuple[str, int]:
        """The string to append to the text, and the state behind it (-1 where states have no numbers)."""
        return helper.text, helper.next_state

    def jump_and_retokenize(self, old_output_ids: Sequence[int], new_output_ids: Sequence[int],
                            next_state: int) -> bool:
        """Move from behind `old_output_ids` to behind `new_output_ids`.

        By rollback to their common prefix and the new ids after it. Upstream's window for the way back was 10
        tokens, then 200 (museum row 34); here it is as long as the output.

        Returns:
            False when the grammar refuses one of the new ids; then it stands where it stood.
        """
        common = common_length(old_output_ids, new_output_ids)
        if len(old_output_ids) > common:
            self.rollback(len(old_output_ids) - common)
        for count, token_id in enumerate(new_output_ids[common:]):
            if not self.accept_token(token_id):
                if count:
                    self.rollback(count)
                if not all(map(self.accept_token, old_output_ids[common:])):
                    raise ConstraintError("the grammar no longer takes the text it took before", where="rollback")
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


class BaseGrammarBackend(ABC):
    """Compiles constraints with one library, over one vocabulary.

    Made once per engine; what costs (the library's import, its view of the vocabulary) waits for the first compile.

    Attributes:
        name: what `--backend` calls it. kinds: what it can compile.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[ConstraintKind]]

    def __init__(self, context: StageContext) -> None:
        self.context = context

    @abstractmethod
    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile a constraint of one of `kinds`. Called on any thread, several at once.

        Raises:
            ConstraintError: the constraint cannot be served, and why. Never an unconstrained answer.
        """


REGISTRY: LazyRegistry[BaseGrammarBackend] = LazyRegistry("stages.stage4_backends", {
    "outlines": ".outlines_backend:OutlinesGrammarBackend",
    "xgrammar": ".xgrammar_backend:XGrammarGrammarBackend",
    "llguidance": ".llguidance_backend:LLGuidanceGrammarBackend",
})
"""The one registry of this process: the command line, tests and third parties mean the same by a name."""


def register_backend(name: str, factory: Callable[[StageContext], BaseGrammarBackend]) -> None:
    """Add a backend, or put another in the place of one, for engines made from now on."""
    REGISTRY.factories[name] = factory
