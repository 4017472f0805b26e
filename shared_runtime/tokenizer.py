"""Text to token ids and back, for one checkpoint folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tokenizers

from shared_runtime.chat_template import Messages, check_messages, render_chat, shield
from shared_runtime.errors import CheckpointError, RequestError, UnsatisfiableConstraintError
from shared_runtime.model.json_fields import JsonFields, read_json_object
from shared_runtime.tokenizer_files import BLANK, TokenizerFile, read_tokenizer_file
from shared_runtime.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The tokenizer of a checkpoint. Immutable; may be shared between threads.

    Attributes:
        vocabulary: what each id spells, the control tokens and the one stop set.
        bos_id: the token a text begins with, None when the checkpoint names none. See `encode_prompt`.
        bos_token, eos_token: printed names for the chat template, "" when the checkpoint names none.
        chat_template: Jinja source, None for a model that is not for chat.
    """

    vocabulary: Vocabulary
    bos_id: int | None
    bos_token: str
    eos_token: str
    chat_template: str | None
    _file: TokenizerFile
    _library: tokenizers.Tokenizer

    @classmethod
    def from_folder(cls, path: Path, *, vocab_width: int | None = None) -> Tokenizer:
        """Read tokenizer.json, tokenizer_config.json, config.json and generation_config.json of a folder.

        Args:
            path: a Hugging Face folder.
            vocab_width: width of the model's logits; `vocab_size` of config.json by default.

        Raises:
            CheckpointError: a file is missing or damaged, or they contradict each other; it names file and
                field.
        """
        file = read_tokenizer_file(path / "tokenizer.json")
        config = JsonFields(read_json_object(path / "config.json"), str(path / "config.json"))
        settings = _optional(path / "tokenizer_config.json")
        width = config.integer("vocab_size") if vocab_width is None else vocab_width
        if file.size > width:
            raise CheckpointError(f"has ids up to {file.size - 1}, but the logits are {width} wide",
                                  where=str(path / "tokenizer.json"),
                                  fix="take tokenizer and weights from the same checkpoint")
        by_name = {name: token_id for token_id, name in (file.pieces | file.added).items()}
        bos_token, eos_token = _token_name(settings, "bos_token"), _token_name(settings, "eos_token")
        stop_ids = _stop_ids(config, _optional(path / "generation_config.json"), by_name.get(eos_token), width)
        return cls(vocabulary=_vocabulary(file, stop_ids, width), bos_id=by_name.get(bos_token),
                   bos_token=bos_token, eos_token=eos_token, chat_template=_chat_template(path, settings),
                   _file=file, _library=_load(file.fields.where, path.joinpath("tokenizer.json").read_text("utf-8")))

    # ------------------------------------------------------------------ text to ids

    def encode(self, text: str, *, parse_control: bool = True) -> list[int]:
        """The ids of `text`, without any that a model wants at the start of a prompt.

        Args:
            text: any text.
            parse_control: whether the printed name of a control token stands for that token. With False it is
                plain text, as it must be for what a user typed.

        Raises:
            RequestError: the text needs a byte that no token spells (the library would drop it without a
                word), or holds half a surrogate pair; names the byte and its offset in characters.
        """
        return self._checked(text, self._encode(self._library if parse_control else self._literal, text))

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a plain prompt: `encode(text)` behind what the checkpoint puts before a text.

        That is nothing for SmolLM2 and Qwen, and the begin-of-text token for Llama and Mistral.

        Raises:
            RequestError: as `encode`.
        """
        return [*self._prefix_ids, *self.encode(text)]

    def spell(self, text: str) -> list[int]:
        """Ids that spell `text` exactly where it stands: as plain text, not normalised, no blank put before
        it.

        This is how text that a grammar forces is written.

        Raises:
            UnsatisfiableConstraintError: the text needs a byte that no token spells; names it.
        """
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise UnsatisfiableConstraintError(f"half a surrogate pair, {text[error.start]!a}, is not text",
                                               where=f"offset {error.start}") from None
        ids = self._exact.encode(text, add_special_tokens=False).ids
        spelled = self.vocabulary.decode(ids)
        if spelled != raw:
            same = next((i for i, (a, b) in enumerate(zip(raw, spelled, strict=False)) if a != b), len(spelled))
            at = min(same, len(raw) - 1)
            offset = len(raw[:at].decode("utf-8", "ignore"))
            raise UnsatisfiableConstraintError(f"no token spells the byte 0x{raw[at]:02X} of {text[offset]!r}",
                                               where=f"offset {offset} of {text[:60]!r}",
                                               fix="leave this character out of the constraint")
        return ids

    def apply_chat(self, messages: Messages, *, add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation.

        Control tokens are those the template writes. A control token's name that a user typed into a message
        is plain text: it cannot end a turn or begin another.

        Raises:
            RequestError: the model has no chat template, the messages are malformed, the template refuses
                them, or they need a byte that no token spells.
        """
        check_messages(messages)
        shielded = shield(messages, self._printed.values())
        text = self.render_chat(shielded.messages, add_generation_prompt=add_generation_prompt)
        if not shielded.typed:
            return self.encode(text)
        ids: list[int] = []
        at = 0
        parsed = self._library.encode(text, add_special_tokens=False)
        for token_id, (start, end) in zip(parsed.ids, parsed.offsets, strict=True):
            # An unknown-token id can also stand for a character that has no token: then its name is not
            # there.
            if token_id in self._printed and self._printed[token_id] in text[start:end]:
                ids += [*self._run(shielded.restore(text[at:start]), first=at == 0), token_id]
                at = end
        return ids + self._run(shielded.restore(text[at:]), first=at == 0)

    def render_chat(self, messages: Messages, *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation, for people; `apply_chat` gives the ids.

        Raises:
            RequestError: as `apply_chat`.
        """
        if self.chat_template is None:
            raise RequestError("this model has no chat template", where="messages", fix="give a plain prompt instead")
        return render_chat(self.chat_template, messages, add_generation_prompt=add_generation_prompt,
                           bos_token=self.bos_token, eos_token=self.eos_token)

    # ------------------------------------------------------------------ ids to text

    def decode(self, ids: Sequence[int]) -> str:
        """The text that `ids` spell; control tokens spell nothing, a broken character becomes U+FFFD.

        The blank before a SentencePiece word stays, also at the start: ids of an answer continue a text.
        """
        return self.vocabulary.decode(list(ids)).decode("utf-8", "replace")

    # ------------------------------------------------------------------ inside

    @cached_property
    def _printed(self) -> dict[int, str]:
        """Control tokens' printed names."""
        names = self._file.pieces | self._file.added
        return {i: names[i] for i in sorted(self.vocabulary.control_ids) if names.get(i)}

    @cached_property
    def _prefix_ids(self) -> tuple[int, ...]:
        """What the file's post-processor puts before a text; what it puts behind is for training."""
        return tuple(i for i in self._library.encode("", add_special_tokens=True).ids
                     if i not in self.vocabulary.stop_ids or i == self.bos_id)

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """Reads control tokens' names as plain text. A second object: the switch is a state of the library's."""
        return self._variant(inside=False, exact=False)

    @cached_property
    def _inside(self) -> tokenizers.Tokenizer:
        """As `_literal`, for a text that does not stand at the start."""
        return self._variant(inside=True, exact=False)

    @cached_property
    def _exact(self) -> tokenizers.Tokenizer:
        return self._variant(inside=True, exact=True)

    def _variant(self, *, inside: bool, exact: bool) -> tokenizers.Tokenizer:
        variant = _load(self._file.fields.where, self._file.variant(
            control_as_text=self.vocabulary.control_ids, inside=inside, exact=exact))
        variant.encode_special_tokens = True
        return variant

    def _run(self, text: str, *, first: bool) -> list[int]:
        """Ids of the plain text between two control tokens: one text, so that tokens form across what was typed."""
        return self._checked(text, self._encode(self._literal if first else self._inside, text))

    def _encode(self, library: tokenizers.Tokenizer, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"half a surrogate pair, {text[error.start]!a}, is not text",
                               where=f"offset {error.start}") from None
        return library.encode(text, add_special_tokens=False).ids

    def _checked(self, text: str, ids: list[int]) -> list[int]:
        lost = self._lost(text, ids)
        if lost is not None:
            byte, offset = lost
            raise RequestError(f"no token of this model spells the byte 0x{byte:02X} of {text[offset]!r}",
                               where=f"offset {offset} of the text", fix="remove this character")
        return ids

    def _lost(self, text: str, ids: list[int]) -> tuple[int, int] | None:
        """A byte of `text` that `ids` lost, and the offset of its character in `text`; None when none is lost.

        Only a byte that is no token by itself can be lost: every other one is at worst spelled alone.
        """
        normalizer = self._library.normalizer
        seen = text if normalizer is None else normalizer.normalize_str(text).replace(BLANK, " ")
        doubtful = set(seen.encode()) - self.vocabulary.byte_tokens.keys()
        if not doubtful:
            return None
        spelled = b"".join(self._printed[i].encode() if i in self._printed else self.vocabulary.token_bytes[i]
                           for i in ids)
        lost = {byte for byte in doubtful if spelled.count(byte) < seen.encode().count(byte)}
        for offset, character in enumerate(text):
            for byte in character.encode():
                if byte in lost:
                    return byte, offset
        return (min(lost), 0) if lost else None


def _load(where: str, source: str) -> tokenizers.Tokenizer:
    try:
        library = tokenizers.Tokenizer.from_str(source)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"the tokenizer cannot be built: {error}", where=where) from error
    library.no_truncation()  # some checkpoints carry the limits they were trained with
    library.no_padding()
    return library


def _vocabulary(file: TokenizerFile, stop_ids: frozenset[int], width: int) -> Vocabulary:
    """Control tokens are the special ones, the stop set, and every id that spells nothing."""
    token_bytes = tuple(b"" if i in stop_ids else file.spelled(i) for i in range(file.size))
    control = frozenset(i for i, spelled in enumerate(token_bytes) if not spelled)
    return Vocabulary(token_bytes, control_ids=control, stop_ids=stop_ids, width=width)


def _stop_ids(config: JsonFields, generation: JsonFields, named: int | None, width: int) -> frozenset[int]:
    """The union of both files' end-of-text ids; where neither names one, the tokenizer's own."""
    found: set[int] = set()
    for fields in (config, generation):
        value = fields.values.get("eos_token_id")
        for token_id in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < width:
                raise fields.error("eos_token_id", f"{token_id!r} is no token id below {width}")
            found.add(token_id)
    if not found and named is not None:
        found.add(named)
    if not found:
        raise config.error("eos_token_id", "no end-of-text token is named, so no answer could end",
                           fix="name it here or in generation_config.json")
    return frozenset(found)


def _optional(path: Path) -> JsonFields:
    return JsonFields(read_json_object(path) if path.exists() else {}, str(path))


def _token_name(settings: JsonFields, name: str) -> str:
    """A special token's printed name: a text, or an object with the text in `content`."""
    value = settings.values.get(name)
    return settings.inner(name).text("content") if isinstance(value, dict) else settings.text(name, "")


def _chat_template(path: Path, settings: JsonFields) -> str | None:
    """From chat_template.jinja, else tokenizer_config.json; of several named ones the one called `default`."""
    separate = path / "chat_template.jinja"
    if separate.exists():
        try:
            return separate.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"the chat template cannot be read: {error}", where=str(separate)) from error
    value = settings.values.get("chat_template")
    if isinstance(value, list):
        named = [JsonFields(item if isinstance(item, dict) else {}, settings.where) for item in value]
        return next((item.text("template") for item in named if item.text("name") == "default"), None)
    return settings.text("chat_template") if value is not None else None
