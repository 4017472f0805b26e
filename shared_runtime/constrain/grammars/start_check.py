"""Whether a compiled grammar has any text at all."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from shared_runtime.errors import ConstraintError, UnsatisfiableConstraintError
from shared_runtime.vocabulary import Vocabulary


class Startable(Protocol):
    """A grammar at its beginning."""

    vocabulary: Vocabulary

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write what may come first into a row."""


def check_start(grammar: Startable, where: str) -> None:
    """Ask for the first mask: a library compiles a language without any text, and is then stuck.

    Raises:
        UnsatisfiableConstraintError: neither a token nor the end may come first.
    """
    mask = torch.zeros((1, (grammar.vocabulary.width + 31) // 32), dtype=torch.int32)
    why = ""
    try:
        grammar.fill_vocab_mask(mask, 0)
    except ConstraintError as error:
        why = f" ({error.message})"
    if why or not mask.any():
        raise UnsatisfiableConstraintError(f"no text is in the language, or none that this vocabulary can spell{why}",
                                           where=where)
