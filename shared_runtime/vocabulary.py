"""What a token is, as bytes. The one view of the vocabulary that engine, grammars and detokenizer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Vocabulary:
    """Token ids and the bytes they spell.

    Attributes:
        token_bytes: per id of the tokenizer, the bytes it contributes to the text. b"" for a control token: its
            printed name (`<|im_end|>`) is not what it spells, so no grammar may match or force it by that name.
        control_ids: ids that are control tokens (b"" above; never matched, allowed or forced as text).
        stop_ids: the one stop set (config and generation_config EOS lists) of engine and grammars.
        width: width of the logits. Ids at or past `len(token_bytes)` are padding and are never allowed.
        fingerprint: a hash of everything above; part of every cache key.
    """

    token_bytes: tuple[bytes, ...]
    control_ids: frozenset[int]
    stop_ids: frozenset[int]
    width: int
    fingerprint: str = field(default="")

    def __post_init__(self) -> None:
        if not self.fingerprint:
            import hashlib

            digest = hashlib.sha256()
            for spelled in self.token_bytes:
                digest.update(len(spelled).to_bytes(4, "little") + spelled)
            digest.update(repr((sorted(self.control_ids), sorted(self.stop_ids), self.width)).encode())
            object.__setattr__(self, "fingerprint", digest.hexdigest())

    def __len__(self) -> int:
        return len(self.token_bytes)

    @cached_property
    def byte_tokens(self) -> dict[int, int]:
        """Byte value -> lowest id of the token that is exactly that byte. Bytes without one are absent."""
        found: dict[int, int] = {}
        for token_id, spelled in enumerate(self.token_bytes):
            if len(spelled) == 1:
                found.setdefault(spelled[0], token_id)
        return found

    @cached_property
    def spellable_bytes(self) -> frozenset[int]:
        """Byte values that occur in at least one token. A text with any other byte cannot be generated."""
        return frozenset(b for spelled in self.token_bytes for b in set(spelled))

    def shown(self, token_id: int) -> str:
        """A token as text: half characters as escapes, so that no two tokens look the same for that reason."""
        if token_id >= len(self):
            return f"<pad {token_id}>"
        if token_id in self.control_ids:
            return f"<control {token_id}>"
        return self.token_bytes[token_id].decode("utf-8", "backslashreplace")

    def decode(self, token_ids: list[int]) -> bytes:
        """The bytes that a sequence of ids spells; control tokens spell nothing.

        Raises:
            IndexError: an id is outside the tokenizer's vocabulary.
        """
        return b"".join(self.token_bytes[i] for i in token_ids)
