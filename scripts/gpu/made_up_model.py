"""A model folder made on the spot: the embedded model's shape, and a vocabulary of its size, without any file."""

from __future__ import annotations

import itertools
import json
import string
from pathlib import Path

VOCABULARY = 49_152


def make_model(folder: Path, *, small: bool) -> Path:
    """Write config.json and tokenizer.json into `folder`; weights are what `--load-format dummy` makes.

    Args:
        small: two narrow layers, for a quick trial.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary, merges = vocabulary_and_merges(sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_act": "silu",
        "hidden_size": 64 if small else 576, "intermediate_size": 128 if small else 1536,
        "num_hidden_layers": 2 if small else 30, "num_attention_heads": 4 if small else 9,
        "num_key_value_heads": 2 if small else 3, "head_dim": 16 if small else 64, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192, "rope_theta": 100_000.0, "tie_word_embeddings": True,
        "bos_token_id": 0, "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def vocabulary_and_merges(alphabet: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Every byte, then words of up to three letters (with a space in front, too), numbers, and words of four letters.

    Each longer token is one merge of a shorter one with a letter, so that the tokenizer spells with all of them.

    Args:
        alphabet: the byte-level symbols; `Ġ` stands for a space.

    Returns:
        Token -> id, with `<|end|>` as 0, and the merges in order.
    """
    letters, digits = string.ascii_lowercase, string.digits
    words = itertools.chain(  # of two merges that are possible the earlier one is made: words with their space first
        *(map("".join, itertools.product("Ġ", *[letters] * count)) for count in (1, 2, 3)),
        *(map("".join, itertools.product(digits, repeat=count)) for count in (2, 3)),
        *(map("".join, itertools.product(letters, repeat=count)) for count in (2, 3, 4)))
    tokens = ["<|end|>", *alphabet]
    longer = list(itertools.islice(words, VOCABULARY - len(tokens)))
    return {token: index for index, token in enumerate([*tokens, *longer])}, [(one[:-1], one[-1]) for one in longer]
