"""Makes `tokenizer.json` out of the tokens and merges that a GGUF file carries.

A GGUF does not carry the pre-tokenizer, only its name (`tokenizer.ggml.pre`); which rule the name stands for
must be known. Getting it wrong is silent: the text still round-trips, but the model meets spellings it never
learned. `transformers` takes plain GPT-2 splitting for `smollm`, which parts the last blank before a digit from
the blanks before it; isolating digits first keeps an indent before a number in one token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from shared_runtime.errors import CheckpointError
from shared_runtime.model.gguf_reader import GgufFile

_CONTROL_TYPES = frozenset({2, 3})
"""Token types `unknown` and `control` (1 normal, 4 user-defined, 5 unused, 6 byte)."""
_USER_DEFINED = 4
_UNUSED = 5

_QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
"""Qwen's published rule: letters with one character before them, single digits, punctuation, line ends, blanks."""


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """The tokenizer files of a Hugging Face folder, as text.

    Attributes:
        tokenizer_json: for the `tokenizers` library.
        tokenizer_config_json: special tokens and the chat template.
        bos_id, pad_id: None when the file names none.
        stop_ids: end of text and, where the file names one, end of turn; ascending.
        size: number of tokens.
    """

    tokenizer_json: str
    tokenizer_config_json: str
    bos_id: int | None
    pad_id: int | None
    stop_ids: tuple[int, ...]
    size: int


def read_tokenizer(file: GgufFile) -> GgufTokenizer:
    """Build the tokenizer of `file`.

    Raises:
        CheckpointError: a tokenizer model or pre-tokenizer that was not tested, or fields that contradict
            each other.
    """
    where = str(file.path)
    model = file.string("tokenizer.ggml.model")
    if model != "gpt2":
        raise CheckpointError(f"tokenizer.ggml.model = {model!r} is not supported ('gpt2', byte-level BPE, is)",
                              where=where, fix="use the model's Hugging Face folder instead")
    tokens = file.strings("tokenizer.ggml.tokens")
    types = file.integers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise CheckpointError(f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens",
                              where=where)
    for flag in ("add_eos_token", "add_space_prefix"):
        if file.metadata.get(f"tokenizer.ggml.{flag}", False) is not False:
            raise CheckpointError(f"tokenizer.ggml.{flag} = {file.metadata[f'tokenizer.ggml.{flag}']!r} "
                                  "is not supported", where=where)
    if len(set(tokens)) != len(tokens):
        raise CheckpointError("tokenizer.ggml.tokens holds the same token twice", where=where)
    ids = {name: _token_id(file, name, len(tokens)) for name in ("bos", "eos", "eot", "unknown", "padding")}
    if ids["eos"] is None:
        raise CheckpointError("the key 'tokenizer.ggml.eos_token_id' is missing", where=where)
    tokenizer = _byte_level_bpe(file, tokens, types)
    if file.metadata.get("tokenizer.ggml.add_bos_token", False) is True and ids["bos"] is not None:
        tokenizer.post_processor = processors.Sequence([tokenizer.post_processor, _begin_with(
            tokens[ids["bos"]], ids["bos"])])
    return GgufTokenizer(
        tokenizer_json=tokenizer.to_str(),
        tokenizer_config_json=_config_json(file, tokens, ids),
        bos_id=ids["bos"], pad_id=ids["padding"],
        stop_ids=tuple(sorted({i for i in (ids["eos"], ids["eot"]) if i is not None})),
        size=len(tokens))


def _token_id(file: GgufFile, name: str, size: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    found = file.optional_integer(key)
    if found is not None and not 0 <= found < size:
        raise CheckpointError(f"{key} = {found} is outside the vocabulary of {size} tokens", where=str(file.path))
    return found


def _byte_level_bpe(file: GgufFile, tokens: list[str], types: list[int]) -> Tokenizer:
    where = str(file.path)
    merges: list[tuple[str, str]] = []
    known = set(tokens)
    for index, merge in enumerate(file.strings("tokenizer.ggml.merges")):
        left, _, right = merge.partition(" ")
        if left not in known or right not in known or left + right not in known:
            raise CheckpointError(f"tokenizer.ggml.merges[{index}] = {merge!r} joins tokens that do not exist",
                                  where=where)
        merges.append((left, right))
    # Unused entries only fill the embedding up to a round size; as pieces they would be matched by their names.
    used = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind != _UNUSED}
    tokenizer = Tokenizer(models.BPE(used, merges))
    _set_splitting(tokenizer, file)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False)
         for token, kind in zip(tokens, types, strict=True) if kind in _CONTROL_TYPES])
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False)
         for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED])
    return tokenizer


def _set_splitting(tokenizer: Tokenizer, file: GgufFile) -> None:
    """The rule that `tokenizer.ggml.pre` names; only rules that a test holds are known."""
    name = file.string("tokenizer.ggml.pre")
    if name == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
    elif name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    else:
        raise CheckpointError(f"tokenizer.ggml.pre = {name!r} is not supported ('smollm' and 'qwen2' are)",
                              where=str(file.path), fix="use the model's Hugging Face folder instead")


def _begin_with(token: str, token_id: int) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", "$B"], special_tokens=[(token, token_id)])


def _config_json(file: GgufFile, tokens: list[str], ids: dict[str, int | None]) -> str:
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for field, name in (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")):
        token_id = ids[name]
        if token_id is not None:
            config[field] = tokens[token_id]
    if "tokenizer.chat_template" in file.metadata:
        config["chat_template"] = file.string("tokenizer.chat_template")
    return json.dumps(config, ensure_ascii=False, indent=2) + "\n"
