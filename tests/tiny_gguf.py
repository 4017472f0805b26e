"""Writes tiny GGUF files as llama.cpp's converter would, from weights in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
UNSPELLABLE = 0x04
"""The one byte that has no token in the tiny vocabulary."""

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level BPE, in the order of the bytes."""
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in _PRINTABLE else chr(next(others)) for byte in range(256)]


def tiny_vocabulary() -> tuple[list[str], list[str]]:
    """(tokens, merges): three control tokens, all bytes but one, and a few merges with blanks, digits and letters."""
    characters = [c for byte, c in enumerate(byte_characters()) if byte != UNSPELLABLE]
    merges = ["Ġ Ġ", "ĠĠ ĠĠ", "Ġ t", "h e", "Ġt he", "i n", "e r", "1 2", "Ċ Ċ", "Ã ©", "' s", "Ġ a", "l l", "Ċ Ġ"]
    return [*CONTROL, *characters, *(merge.replace(" ", "") for merge in merges)], merges


@dataclass
class TinyGguf:
    """What to write. Change a field, or an entry of `keys`, `drop` and `tensors`, to spoil the file in one place."""

    arch: str = "llama"
    pre: str = "smollm"
    layers: int = 2
    hidden: int = 64
    intermediate: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    tied: bool = True
    quantised: bool = False
    padding: int = 0
    seed: int = 0
    keys: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    drop: Sequence[str] = ()
    tensors: Mapping[str, Array] = field(default_factory=dict)
    tokens: tuple[list[str], list[str]] = field(default_factory=tiny_vocabulary)

    def weights(self) -> dict[str, Array]:
        """Random weights under GGUF's names but in Hugging Face's row order; the same for the same seed."""
        rng = np.random.default_rng(self.seed)
        q, kv, n_tokens = self.heads * self.head_dim, self.kv_heads * self.head_dim, self._rows
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (self.hidden,), "ffn_norm.weight": (self.hidden,),
            "attn_q.weight": (q, self.hidden), "attn_k.weight": (kv, self.hidden),
            "attn_v.weight": (kv, self.hidden), "attn_output.weight": (self.hidden, q),
            "ffn_gate.weight": (self.intermediate, self.hidden), "ffn_up.weight": (self.intermediate, self.hidden),
            "ffn_down.weight": (self.hidden, self.intermediate)}
        if self.arch == "qwen2":
            block |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if self.arch == "qwen3":
            block |= {"attn_q_norm.weight": (self.head_dim,), "attn_k_norm.weight": (self.head_dim,)}
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_tokens, self.hidden)}
        shapes |= {f"blk.{i}.{name}": shape for i in range(self.layers) for name, shape in block.items()}
        shapes["output_norm.weight"] = (self.hidden,)
        if not self.tied:
            shapes["output.weight"] = (n_tokens, self.hidden)
        return {name: (rng.standard_normal(shape) * 0.1 + ("norm" in name)).astype(np.float32)
                for name, shape in shapes.items()}

    @property
    def _rows(self) -> int:
        return len(self.tokens[0]) + self.padding

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        writer = gguf.GGUFWriter(path, self.arch)
        self._write_keys(writer)
        for name, values in (self.weights() | dict(self.tensors)).items():
            if name in self.drop:
                continue
            if self.arch == "llama" and name.endswith("attn_q.weight"):
                values = permuted(values, self.heads)
            elif self.arch == "llama" and name.endswith("attn_k.weight"):
                values = permuted(values, self.kv_heads)
            if self.quantised and values.ndim == 2:
                kind = gguf.GGMLQuantizationType.Q8_0 if "embd" in name else gguf.GGMLQuantizationType.Q4_1
                writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
            else:
                writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _write_keys(self, writer: gguf.GGUFWriter) -> None:
        tokens, merges = self.tokens
        kind = gguf.TokenType
        padding = [f"[PAD{i}]" for i in range(self.padding)]
        numbers: dict[str, int | float | str | bool] = {
            f"{self.arch}.block_count": self.layers, f"{self.arch}.context_length": 512,
            f"{self.arch}.embedding_length": self.hidden, f"{self.arch}.feed_forward_length": self.intermediate,
            f"{self.arch}.attention.head_count": self.heads, f"{self.arch}.attention.head_count_kv": self.kv_heads,
            f"{self.arch}.attention.key_length": self.head_dim, f"{self.arch}.attention.value_length": self.head_dim,
            f"{self.arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{self.arch}.rope.freq_base": 100000.0,
            f"{self.arch}.vocab_size": self._rows, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": self.pre,
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.padding_token_id": 2, "tokenizer.chat_template": CHAT_TEMPLATE}
        for key, value in (numbers | dict(self.keys)).items():
            if key in self.drop:
                continue
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_string(key, value)
        kinds = [kind.CONTROL if token in CONTROL else kind.NORMAL for token in tokens] + [kind.UNUSED] * self.padding
        lists: dict[str, Sequence[str | int]] = {"tokenizer.ggml.tokens": [*tokens, *padding],
                                                 "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges}
        for key, items in lists.items():
            if key not in self.drop:
                writer.add_array(key, items)


def permuted(weight: Array, heads: int) -> Array:
    """Rows (head, half, pair) as llama.cpp's converter lays them out: (head, pair, half)."""
    rows, cols = weight.shape
    return np.ascontiguousarray(weight.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2)).reshape(rows, cols)
