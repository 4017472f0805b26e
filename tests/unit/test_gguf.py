"""A GGUF becomes the Hugging Face folder it stands for, or an error that names what is in the way."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from shared_runtime.errors import CheckpointError
from shared_runtime.model.gguf import convert_gguf
from shared_runtime.model.gguf_cache import gguf_folder
from shared_runtime.model.gguf_reader import GgufFile
from shared_runtime.tokenizer import Tokenizer
from tests.tiny_gguf import TinyGguf

FAMILIES = [("llama", "smollm"), ("qwen2", "qwen2"), ("qwen3", "qwen2")]


def converted(tiny: TinyGguf, tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    convert_gguf(tiny.write(tmp_path / "tiny.gguf"), folder)
    return folder


def refusal(tiny: TinyGguf, tmp_path: Path) -> str:
    """The error of a conversion, which must name the file."""
    with pytest.raises(CheckpointError) as caught:
        converted(tiny, tmp_path)
    assert str(tmp_path / "tiny.gguf") in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("arch", "pre"), FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_weights_come_back_in_hugging_face_layout(arch: str, pre: str, tied: bool, tmp_path: Path) -> None:
    tiny = TinyGguf(arch=arch, pre=pre, tied=tied)
    loaded = load_file(converted(tiny, tmp_path) / "model.safetensors")
    original = tiny.weights()
    assert len(loaded) == len(original)
    pairs = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight", "blk.1.attn_q.weight": "model.layers.1.self_attn.q_proj.weight",
             "blk.1.attn_k.weight": "model.layers.1.self_attn.k_proj.weight",
             "blk.0.attn_k.bias": "model.layers.0.self_attn.k_proj.bias",
             "blk.0.attn_q_norm.weight": "model.layers.0.self_attn.q_norm.weight",
             "blk.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
             "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight"}
    for name, hf_name in pairs.items():
        assert (name in original) == (hf_name in loaded)
        if name in original:
            np.testing.assert_array_equal(loaded[hf_name], original[name])


def test_quantised_blocks_come_back_as_the_reference_reads_them(tmp_path: Path) -> None:
    path = TinyGguf(quantised=True).write(tmp_path / "tiny.gguf")
    reference = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with GgufFile(path) as file:
        assert {file.tensors[name].kind.name for name in file.tensors} == {"F32", "Q8_0", "Q4_1"}
        for name, tensor in reference.items():
            np.testing.assert_array_equal(file.array(name), gguf.dequantize(tensor.data, tensor.tensor_type))


def test_keys_are_read_as_the_reference_reads_them(tmp_path: Path) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    reference = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()
                 if not key.startswith("GGUF.")}
    with GgufFile(path) as file:
        assert file.metadata == reference


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "pre"), FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_those_of_transformers_on_the_same_gguf(arch: str, pre: str, tied: bool, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    # transformers reads no head size for qwen3 and takes that of every released one, 128.
    head_dim = 128 if arch == "qwen3" else 16
    folder = converted(TinyGguf(arch=arch, pre=pre, tied=tied, quantised=True, head_dim=head_dim), tmp_path)
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    assert ours.config.model_type == theirs.config.model_type == arch
    for name in ("rms_norm_eps", "num_key_value_heads", "max_position_embeddings", "eos_token_id"):
        assert getattr(ours.config, name, None) == pytest.approx(getattr(theirs.config, name, None), rel=1e-6), name
    ids = torch.arange(40).reshape(2, 20)
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_tied_and_untied_heads_are_told_apart(tmp_path: Path) -> None:
    config = json.loads((converted(TinyGguf(tied=False), tmp_path) / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert config["rms_norm_eps"] == 1e-5  # stored as fp32 9.999999747378752e-06


def test_rows_that_only_pad_the_embedding_are_no_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(converted(TinyGguf(padding=7), tmp_path))
    n_tokens = len(TinyGguf().tokens[0])
    assert len(tokenizer.vocabulary) == n_tokens
    assert tokenizer.vocabulary.width == n_tokens + 7
    assert tokenizer.decode(tokenizer.encode("[PAD3]")) == "[PAD3]"


def test_a_file_cut_anywhere_is_an_error_that_says_truncated(tmp_path: Path) -> None:
    whole = TinyGguf().write(tmp_path / "tiny.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    lengths = [*range(4, 400, 3), *range(400, len(whole) - 64, 997), len(whole) - 64]
    for length in lengths:
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cut\.gguf: the file is truncated: .*(ends inside|needs bytes)"):
            GgufFile(cut)


def test_a_truncated_file_names_the_field_it_ends_in(tmp_path: Path) -> None:
    whole = TinyGguf().write(tmp_path / "tiny.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[:whole.index(b"tokenizer.ggml.tokens") + 300])
    with pytest.raises(CheckpointError, match=r"ends inside key 'tokenizer\.ggml\.tokens'"):
        GgufFile(cut)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip", b"GGUF\x01\x00\x00\x00" + b"\0" * 16])
def test_what_is_no_gguf_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"other\.gguf: .*GGUF"):
        GgufFile(path)


def test_a_damaged_header_is_an_error_of_ours_or_still_reads(tmp_path: Path) -> None:
    """Whatever one byte of the header becomes, nothing but a CheckpointError comes out."""
    whole = TinyGguf(layers=1).write(tmp_path / "tiny.gguf").read_bytes()
    header = len(whole) - sum(v.nbytes for v in TinyGguf(layers=1).weights().values())
    rng = random.Random(0)
    damaged, folder = tmp_path / "damaged.gguf", tmp_path / "out"
    folder.mkdir()
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        content[rng.randrange(header)] = rng.randrange(256)
        damaged.write_bytes(content)
        try:
            convert_gguf(damaged, folder)
        except CheckpointError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(("tiny", "named"), [
    (TinyGguf(arch="gemma"), "general.architecture = 'gemma'"),
    (TinyGguf(pre="llama-bpe"), "tokenizer.ggml.pre = 'llama-bpe'"),
    (TinyGguf(keys={"tokenizer.ggml.model": "llama"}), "tokenizer.ggml.model = 'llama'"),
    (TinyGguf(keys={"llama.expert_count": 8}), "llama.expert_count = 8"),
    (TinyGguf(keys={"llama.rope.scaling.type": "yarn"}), "llama.rope.scaling.type = 'yarn'"),
    (TinyGguf(keys={"llama.rope.dimension_count": 8}), "llama.rope.dimension_count = 8"),
    (TinyGguf(keys={"llama.attention.head_count": 0}), "llama.attention.head_count is 0"),
    (TinyGguf(keys={"llama.block_count": "two"}), "llama.block_count is 'two', not an integer"),
    (TinyGguf(keys={"llama.rope.freq_base": float("nan")}), "llama.rope.freq_base is nan"),
    (TinyGguf(keys={"llama.block_count": 3}), "tensor 'blk.2.attn_norm.weight' is missing"),
    (TinyGguf(keys={"llama.attention.head_count_kv": 4}), "tensor 'blk.0.attn_k.weight' has shape [32, 64]"),
    (TinyGguf(keys={"tokenizer.ggml.eos_token_id": 9999}), "tokenizer.ggml.eos_token_id = 9999"),
    (TinyGguf(keys={"tokenizer.ggml.add_eos_token": True}), "tokenizer.ggml.add_eos_token = True"),
    (TinyGguf(drop=["tokenizer.ggml.eos_token_id"]), "'tokenizer.ggml.eos_token_id' is missing"),
    (TinyGguf(drop=["tokenizer.ggml.merges"]), "'tokenizer.ggml.merges' is missing"),
    (TinyGguf(drop=["blk.1.ffn_up.weight"]), "tensor 'blk.1.ffn_up.weight' is missing"),
    (TinyGguf(drop=["token_embd.weight"]), "tensor 'token_embd.weight' is missing"),
    (TinyGguf(tensors={"rope_freqs.weight": np.ones(8, np.float32)}), "tensor 'rope_freqs.weight' is not supported"),
    (TinyGguf(tokens=(["<|im_end|>", "b", "a"], ["a b"])), "tokenizer.ggml.merges[0] = 'a b'"),
    (TinyGguf(tokens=(["<|im_end|>", "a", "a"], [])), "the same token twice"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_was_not_tested_is_refused_by_name(tiny: TinyGguf, named: str, tmp_path: Path) -> None:
    assert named in refusal(tiny, tmp_path)


def test_a_persons_gguf_is_converted_once_and_again_when_it_changes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMPFORWARD_CACHE", str(tmp_path / "cache"))
    path = TinyGguf().write(tmp_path / "my model.gguf")
    conversions: list[int] = []

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "convert" and done == total:
            conversions.append(total)

    first = gguf_folder(path, progress)
    assert gguf_folder(path, progress) == first
    assert len(conversions) == 1
    assert Tokenizer.from_folder(first).decode([3]) == "\0"

    TinyGguf(seed=1).write(path)
    os.utime(path, ns=(1, 1))
    second = gguf_folder(path, progress)
    assert len(conversions) == 2
    np.testing.assert_array_equal(load_file(second / "model.safetensors")["model.norm.weight"],
                                  TinyGguf(seed=1).weights()["output_norm.weight"])


def test_a_gguf_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.gguf: cannot be read"):
        gguf_folder(tmp_path / "missing.gguf")


@pytest.mark.slow
def test_qwen2_splitting_is_that_of_transformers_own_qwen2_tokenizer(tmp_path: Path) -> None:
    from transformers import Qwen2Tokenizer

    from tests.text_samples import random_texts

    folder = converted(TinyGguf(arch="qwen2", pre="qwen2"), tmp_path)
    tokens, merges = TinyGguf().tokens
    pairs = [tuple(merge.split(" ")) for merge in merges]
    theirs = Qwen2Tokenizer(vocab={token: i for i, token in enumerate(tokens)},
                            merges=pairs)  # type: ignore[arg-type]  # annotated as texts, takes pairs
    ours = Tokenizer.from_folder(folder)
    differing = 0
    for text in random_texts(3000, seed=3):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text
        differing += len(ours.encode(text)) != len(text.encode())
    assert differing > 1000  # merges were at work


def test_a_gguf_that_asks_for_a_first_token_gets_it_in_prompts_alone(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(converted(TinyGguf(keys={"tokenizer.ggml.add_bos_token": True}), tmp_path))
    assert tokenizer.encode_prompt("the") == [1, *tokenizer.encode("the")]
    assert 1 not in tokenizer.encode("the")
