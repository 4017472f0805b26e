"""What a `tokenizer.json` says about its tokens: how each is spelled in bytes, and which are control tokens.

Two ways of writing bytes as text are read. Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2) writes each byte as
one printable character. SentencePiece-style BPE (Llama 2, Mistral) writes a blank as U+2581 and a byte that
has no character as `<0xE4>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared_runtime.model.json_fields import JsonFields, read_json_object

Spelling = Literal["byte_level", "sentencepiece"]

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class TokenizerFile:
    """A parsed `tokenizer.json`.

    Attributes:
        fields: the whole file.
        spelling: how its tokens write bytes.
        pieces: id -> token of the BPE model.
        added: id -> added token, special or not.
        special: ids of the added tokens that are special: control tokens.
        unknown: id of the model's unknown token, which spells nothing; None when it has none.
    """

    fields: JsonFields
    spelling: Spelling
    pieces: dict[int, str]
    added: dict[int, str]
    special: frozenset[int]
    unknown: int | None

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return max((*self.pieces, *self.added), default=-1) + 1

    def spelled(self, token_id: int) -> bytes:
        """The bytes that the token contributes to a text; b"" for a control token and for an id without a
        token.

        The blank that a SentencePiece token begins with stays, also where a decoder would strip it from the
        start of a whole text: what a token spells does not depend on where it stands.
        """
        if token_id in self.special or token_id == self.unknown:
            return b""
        piece = self.added.get(token_id, self.pieces.get(token_id, ""))
        if self.spelling == "sentencepiece":
            return _sentencepiece(piece)
        return piece.encode() if token_id in self.added else _byte_level(piece)

    def variant(self, *, control_as_text: frozenset[int], inside: bool, exact: bool) -> str:
        """The file as JSON, changed for one purpose.

        Args:
            control_as_text: ids to mark special, so that the library can be told to read them as plain text.
            inside: the text does not stand at the start: no blank is put before it because of that.
            exact: the text is to be spelled as it is: no normalisation, and no blank before it at all.
        """
        value: dict[str, object] = json.loads(json.dumps(self.fields.values))
        for token in _objects(value.get("added_tokens")):
            if token["id"] in control_as_text:
                token["special"] = True
        for part in _parts(value.get("pre_tokenizer"), "pretokenizers"):
            if part["type"] == "Metaspace" and (exact or (inside and part.get("prepend_scheme") == "first")):
                part["prepend_scheme"] = "never"
                part.pop("add_prefix_space", None)
            elif part["type"] == "ByteLevel" and exact:
                part["add_prefix_space"] = False
        if exact:
            kept = [part for part in _parts(value.get("normalizer"), "normalizers") if part["type"] == "Replace"]
            value["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
        return json.dumps(value)


def read_tokenizer_file(path: Path) -> TokenizerFile:
    """Read `path`.

    Raises:
        CheckpointError: the file is missing or damaged, or of a kind whose tokens cannot be spelled in bytes.
    """
    fields = JsonFields(read_json_object(path), str(path))
    model = fields.inner("model")
    kind = model.text("type", "BPE")
    if kind != "BPE" or model.text("continuing_subword_prefix", "") or model.text("end_of_word_suffix", ""):
        raise fields.error("model", f"the tokenizer model {kind!r} is not supported (plain BPE is)")
    pieces = _pieces(model)
    added: dict[int, str] = {}
    special: set[int] = set()
    for item in fields.items("added_tokens"):
        token = JsonFields(item if isinstance(item, dict) else {}, f"{path}: added_tokens")
        token_id = token.integer("id", least=0)
        added[token_id] = token.text("content")
        if token.flag("special", False):
            special.add(token_id)
    unknown = model.text("unk_token", "")
    by_piece = {piece: token_id for token_id, piece in (pieces | added).items()}
    return TokenizerFile(fields, _spelling(fields), pieces, added, frozenset(special), by_piece.get(unknown))


def _pieces(model: JsonFields) -> dict[int, str]:
    pieces: dict[int, str] = {}
    for piece, token_id in model.inner("vocab").values.items():
        if not isinstance(token_id, int) or token_id < 0:
            raise model.error("vocab", f"the id of {piece!r} must be a whole number, not {token_id!r}")
        pieces[token_id] = piece
    if not pieces:
        raise model.error("vocab", "holds no tokens")
    return pieces


def _spelling(fields: JsonFields) -> Spelling:
    types = [part["type"] for part in _parts(fields.values.get("decoder"), "decoders")]
    if "ByteLevel" in types:
        return "byte_level"
    if "ByteFallback" in types or "Metaspace" in types:
        return "sentencepiece"
    raise fields.error("decoder", f"{types or None} is not supported (ByteLevel, ByteFallback and Metaspace are)")


def _parts(value: object, inner: str) -> Iterator[dict[str, object]]:
    """The steps of a normalizer, pre-tokenizer or decoder, with any sequence taken apart."""
    if not isinstance(value, dict):
        return
    if value.get("type") == "Sequence":
        for item in _objects(value.get(inner)):
            yield from _parts(item, inner)
    elif "type" in value:
        yield value


def _objects(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _sentencepiece(piece: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(BLANK, " ").encode()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in piece)
    except KeyError:  # a token that was never written byte by byte stands for its own text
        return piece.encode()


def _byte_characters() -> dict[str, int]:
    """GPT-2's writing of bytes: a printable Latin-1 character is itself, the 68 others come from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_characters()
