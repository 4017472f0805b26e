"""The vocabulary and the tokenizer under the names that llguidance looks for."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary


class TokenView:
    """What each token spells, and how a text is tokenized.

    Attributes:
        tokens: per id below the width of the logits its bytes; a control token and a padding id have a name in
            place of them, and are listed as special.
        eos_token_id, bos_token_id, special_token_ids: as the library calls them.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        padding = range(len(vocabulary), vocabulary.width)
        self.tokens: Sequence[bytes] = [text or f"<|control {token_id}|>".encode() for token_id, text in
                                        enumerate((*vocabulary.token_bytes, *(b"" for _ in padding)))]
        self.special_token_ids = sorted({*vocabulary.control_ids, *vocabulary.stop_ids, *padding})
        self.eos_token_id = min(vocabulary.stop_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        self._byte_tokens = vocabulary.byte_tokens
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        """Canonical ids of a text. Never raises: an exception in here ends the library's matcher."""
        plain = text if isinstance(text, str) else text.decode(errors="replace")
        try:
            return self._tokenizer.encode(plain, parse_control=False)
        except JumpforwardError:  # a byte without a token: it is left out here, and the mask is a dead end there
            return [self._byte_tokens[byte] for byte in plain.encode(errors="replace") if byte in self._byte_tokens]
