"""A tiny model whose tokenizer has a token for every byte and a few merges: a whole engine in some milliseconds."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiny_gguf import byte_characters
from tests.tiny_models import LLAMA_CONFIG, write_folder

STOPS = ("<|end|>", "<|eot|>")
"""Ids 0 and 1: the model's config names both as its end, the tokenizer only the first."""

THINK_END = "<|think|>"
"""Id 2: the control token that ends a reasoning part."""

MERGES = ("Ġ b", "a b", "ab c", "n a", "na m", "nam e", "a g", "ag e", '" :', "t r", "tr u", "tru e")


def tiny_bytes_folder(folder: Path) -> Path:
    """Write the model and its tokenizer; returns `folder`."""
    tokens = [*STOPS, THINK_END, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
    write_folder(folder, LLAMA_CONFIG | {"vocab_size": len(tokens), "eos_token_id": [0, 1], "bos_token_id": 0})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [
            {"id": index, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True} for index, name in enumerate((*STOPS, THINK_END))],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)},
                  "merges": list(MERGES)},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": STOPS[0]}), encoding="utf-8")
    return folder
