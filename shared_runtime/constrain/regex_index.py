"""What is used of outlines-core: an index from states to tokens, a position in it, and the regex of a JSON schema."""

from __future__ import annotations

import json
from typing import Protocol, cast

from shared_runtime.constrain.regular_schema import regular_schema
from shared_runtime.constrain.whitespace import BLANKS
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import Whitespace
from shared_runtime.vocabulary import Vocabulary

END = "\U0004fffe"
"""Stands behind every text in the language of an index, as a token of its own that means the stop set.

outlines-core 0.2.14 loses texts without it: `[0-9]+(\\.[0-9]+)?` never gives 1.5, `abc|abcd` never abcd. With it no
text is the beginning of another, so nothing can be cut. Tokens that could begin it are not given to the library."""


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
    """A position at the start of an index."""
    import outlines_core

    return cast(Guide, outlines_core.Guide(index))


def make_vocabulary(vocabulary: Vocabulary) -> object:
    """The vocabulary in the library's own form, with `END` under the first id that is free."""
    import outlines_core

    hidden = vocabulary.control_ids | vocabulary.stop_ids
    spelled: dict[bytes, list[int]] = {END.encode(): [vocabulary.width]}
    for token_id, text in enumerate(vocabulary.token_bytes):
        if text and token_id not in hidden:
            spelled.setdefault(text, []).append(token_id)
    return outlines_core.Vocabulary(vocabulary.width + 1, spelled)


def make_index(regex: str, vocabulary: object) -> object:
    """The index of a regex in normal form, with `END` behind it. Cannot be stopped, and holds no GIL.

    Raises:
        ConstraintError: the library refuses it.
    """
    import outlines_core

    try:
        return outlines_core.Index(f"({regex}){END}", vocabulary)
    except ValueError as error:
        raise ConstraintError(f"outlines-core refuses the pattern: {error}", where="constraint") from None


def schema_regex(source: str, whitespace: Whitespace) -> str:
    """The regex of a JSON schema. The library has one pattern for all blanks; given a mark, it shows where they go.

    Raises:
        ConstraintError: the schema is none, or needs what a regex or the library cannot hold.
    """
    from outlines_core import json_schema

    plain = json.dumps(regular_schema(source, library_depth="outlines-core would cut it off after 3 levels"),
                       ensure_ascii=False)
    mark = next(chr(code) for code in range(0xFDD0, 0xFDF0) if chr(code) not in plain)
    try:
        regex = str(json_schema.build_regex_from_schema(plain, mark))
    except (ValueError, TypeError) as error:
        raise ConstraintError(f"outlines-core refuses the schema: {str(error).splitlines()[0]}",
                              where="json_schema") from None
    if whitespace == "any":
        return regex.replace(mark, BLANKS)
    return regex.replace("," + mark, ", ").replace(":" + mark, ": ").replace(mark, "")
