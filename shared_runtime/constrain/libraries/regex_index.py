"""What is used of outlines-core: an index from states to tokens, a position in it, and the regex of a JSON schema."""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.schema import schema_regex as regular
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import Whitespace
from shared_runtime.vocabulary import Vocabulary

END = "\U0004fffe"
"""Stands behind every text in the language of an index, as a token of its own that means the stop set.

outlines-core 0.2.14 loses texts without it: `[0-9]+(\\.[0-9]+)?` never gives 1.5, `abc|abcd` never abcd. With it no
text is the beginning of another, so nothing can be cut."""

START = "\U0004fffd"
"""Stands in front of every text, as a token of its own that each guide takes first.

outlines-core builds the automaton of a *search*, too, and never uses it. Where a match may begin at every character
(`[A-Z].{0,20}`), its build takes twice as long for every character more. What begins with a character that comes
nowhere else begins only once."""


def bracketed(regex: str) -> str:
    """A regex in normal form between `START` and `END`: what the library is given."""
    return f"{START}({regex}){END}"


class Guide(Protocol):
    """A position in an index."""

    def advance(self, token_id: int, return_tokens: bool = False) -> object:
        """Take a token. Raises ValueError where it is not allowed; the state is then unchanged."""
        ...

    def write_mask_into(self, data_ptr: int, numel: int, element_size: int) -> None:
        """Write the allowed ids as bits, lowest first, into `numel` words of 4 bytes."""
        ...

    def accepts_tokens(self, sequence: list[int]) -> bool:
        """Whether the tokens could be taken one after the other."""
        ...


def make_guide(index: object) -> Guide:
    """A position at the start of an index, behind `START`."""
    import outlines_core

    guide = outlines_core.Guide(index)
    start, = guide.get_tokens()
    guide.advance(start, return_tokens=False)
    return cast(Guide, guide)


def spelled_ids(vocabulary: Vocabulary, needed: NDArray[np.bool_] | None = None) -> dict[bytes, list[int]]:
    """What the library's vocabulary is made of: per text the ids that spell it, `END` under the first id that is free,
    `START` under the third: the one between them is the library's own end token.

    Args:
        vocabulary: the model's. Tokens that could begin `START` or `END`, which begin with the same byte, are left out:
            only their own may lead into them.
        needed: [width] bool, leave out the others; None: all.
    """
    hidden = vocabulary.control_ids | vocabulary.stop_ids
    ids = range(len(vocabulary)) if needed is None else np.flatnonzero(needed).tolist()
    spelled = {END.encode(): [vocabulary.width], START.encode(): [vocabulary.width + 2]}
    for token_id in ids:
        text = vocabulary.token_bytes[token_id]
        if text and token_id not in hidden and END.encode()[0] not in text:
            spelled.setdefault(text, []).append(token_id)
    return spelled


def make_vocabulary(vocabulary: Vocabulary, needed: NDArray[np.bool_] | None = None) -> object:
    """The vocabulary, or the part of it that is needed, in the library's own form."""
    import outlines_core

    return outlines_core.Vocabulary(vocabulary.width + 1, spelled_ids(vocabulary, needed))


def make_index(regex: str, vocabulary: object) -> object:
    """The index of a regex in normal form, `bracketed`. Cannot be stopped, and holds no GIL.

    Raises:
        ConstraintError: the library refuses it.
    """
    import outlines_core

    try:
        return outlines_core.Index(bracketed(regex), vocabulary)
    except ValueError as error:
        raise ConstraintError(f"outlines-core refuses the pattern: {error}", where="constraint") from None


def schema_regex(source: str, whitespace: Whitespace) -> str:
    """The regex of a JSON schema.

    Raises:
        ConstraintError: the schema is none, or needs what a regex or the library cannot hold, or is too large.
    """
    return regular.schema_regex(source, whitespace, _by_outlines_core,
                                library_depth="outlines-core would cut it off after 3 levels")


def _by_outlines_core(schema: str, blank: str) -> str:
    from outlines_core import json_schema

    try:
        return str(json_schema.build_regex_from_schema(schema, blank))
    except (ValueError, TypeError) as error:
        raise ConstraintError(f"outlines-core refuses the schema: {str(error).splitlines()[0]}",
                              where="json_schema") from None
