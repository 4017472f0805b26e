"""Packed and 8-bit linear layers compute what `F.linear` computes, and are left out where they cannot work."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.config import EngineConfig
from shared_runtime.errors import ConfigError
from shared_runtime.model import linear_kind as kinds
from shared_runtime.model import packed_linear
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.model.huge_pages import into_huge_pages
from shared_runtime.model.linear import FastLinear, Part
from shared_runtime.model.packed_linear import Int8Linear, PackedLinear, can_pack
from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver
from tests.tiny_models import LLAMA_CONFIG, random_weights, write_folder

CPU = torch.device("cpu")
ROWS = [0, 1, 2, 4, 5, 8, 16, 17, 70]
SHAPES = [(96, 64), (301, 60), (1, 7)]  # the second and third fill no register
packs = pytest.mark.skipif(not can_pack(torch.bfloat16, CPU), reason="this torch or processor packs no bfloat16")


def parts_of(shapes: list[tuple[int, int]], dtype: torch.dtype, *, biases: bool) -> list[Part]:
    source = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=source).to(dtype),
             torch.randn(shape[0], generator=source).to(dtype) if biases else None) for shape in shapes]


def oracle(parts: list[Part], x: Tensor) -> Tensor:
    """In float64, each part by itself."""
    return torch.cat([F.linear(x.double(), weight.double(), None if bias is None else bias.double())
                      for weight, bias in parts], dim=-1)


@packs
@pytest.mark.parametrize("biases", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_packed_layer_is_the_plain_one(shape: tuple[int, int], dtype: torch.dtype, biases: bool) -> None:
    tolerance = 1e-4 if dtype == torch.float32 else 0.15  # of products that reach 30: bfloat16 has 8 bits
    for parts in (parts_of([shape], dtype, biases=biases), parts_of([shape, (32, shape[1])], dtype, biases=biases)):
        packed, plain = PackedLinear(parts), FastLinear.of(parts)
        for rows in ROWS:
            x = torch.randn((rows, shape[1]), generator=torch.Generator().manual_seed(rows)).to(dtype)
            expected = oracle(parts, x)
            for layer in (packed, plain):
                found = layer(x)
                assert (found.dtype, found.shape) == (dtype, expected.shape)
                assert rows == 0 or float((found - expected).abs().max()) <= tolerance


@packs
@pytest.mark.parametrize("biases", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("tiles", [False, True], ids=["no tiles", "tiles"])
def test_many_rows_are_multiplied_in_float32_where_the_processor_has_no_tiles(
        monkeypatch: pytest.MonkeyPatch, tiles: bool, biases: bool) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    parts = parts_of([(96, 64), (32, 64)], torch.bfloat16, biases=biases)
    layer, real, wide = PackedLinear(parts), F.linear, []

    def watched(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        wide.append(x.dtype == weight.dtype == torch.float32)
        return real(x, weight, bias)

    for rows in (63, 64, 65):
        x = torch.randn((rows, 64), generator=torch.Generator().manual_seed(rows)).bfloat16()
        with monkeypatch.context() as patched:
            patched.setattr(F, "linear", watched)
            wide.clear()
            found = layer(x)
        assert wide == ([True] if rows >= 64 and not tiles else [])
        assert (found.dtype, found.shape) == (torch.bfloat16, (rows, 128))
        # Rounded once, at the end, whichever way it went.
        torch.testing.assert_close(found.double(), oracle(parts, x), rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize(("dtype", "machine", "tiles", "expected"), [
    (torch.bfloat16, "x86_64", False, True), (torch.bfloat16, "AMD64", False, True),
    (torch.bfloat16, "x86_64", True, False), (torch.bfloat16, "aarch64", False, False),
    (torch.float32, "x86_64", False, False)])
def test_float32_is_faster_for_bfloat16_on_x86_without_tiles_alone(
        monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, machine: str, tiles: bool, expected: bool) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    assert packed_linear.has_fast_float32(dtype) is expected


def test_one_part_of_several_may_lack_a_bias() -> None:
    (weight, bias), (other, _) = parts_of([(8, 6), (4, 6)], torch.float32, biases=True)
    parts: list[Part] = [(weight, bias), (other, None)]
    x = torch.randn(3, 6)
    assert float((FastLinear.of(parts)(x) - oracle(parts, x)).abs().max()) < 1e-5


@packs
@pytest.mark.parametrize("biases", [False, True], ids=["no bias", "bias"])
def test_an_8_bit_layer_is_the_plain_one_up_to_half_a_level_of_each_weight(biases: bool) -> None:
    parts = parts_of([(96, 64), (32, 64)], torch.bfloat16, biases=biases)
    layer = Int8Linear(parts)
    for rows in ROWS:
        x = torch.randn((rows, 64), generator=torch.Generator().manual_seed(rows)).bfloat16()
        level = torch.cat([weight for weight, _ in parts]).double().abs().amax(1) / 127
        # Half a level of each weight, the scale's own rounding, and the result's.
        bound = x.double().abs().sum(1, keepdim=True) * level * (0.5 + 127 / 256) + 0.15
        found = layer(x)
        assert found.shape == (rows, 128)
        assert bool(((found - oracle(parts, x)).abs() <= bound).all())
        if rows:
            assert not torch.equal(found, FastLinear.of(parts)(x)), "no weight was rounded"


@packs
def test_an_8_bit_layer_with_an_output_of_zeros_gives_zeros() -> None:
    weight = torch.randn(32, 64).bfloat16()
    weight[5] = 0
    for rows in (1, 9):
        assert (Int8Linear([(weight, None)])(torch.randn(rows, 64).bfloat16())[:, 5] == 0).all()


def decoder_of(kind: kinds.LinearKind, dtype: torch.dtype, **changes: object) -> ModelDriver:
    config = ModelConfig.from_json(LLAMA_CONFIG | changes)
    weights = {name: tensor.to(dtype) for name, tensor in random_weights(config).items()}
    return ModelDriver(config, Decoder(config, weights, exact=False, kind=kind))


@packs
@pytest.mark.parametrize("changes", [{}, {"attention_bias": True, "mlp_bias": True}, {
    "architectures": ["Qwen3ForCausalLM"], "head_dim": 32}], ids=["llama", "biases", "qwen3"])
def test_a_decoder_of_packed_layers_gives_the_logits_of_a_plain_one(changes: dict[str, object]) -> None:
    plain, packed = (decoder_of(kind, torch.float32, **changes) for kind in (kinds.PLAIN, kinds.PACKED))
    steps: list[dict[str, list[int]]] = [{"a": [*range(3, 40)], "b": [7]}, {"a": [5], "b": [6]}, {"b": [1, 2, 3]},
                                         {"a": [9]}]
    for tokens in steps:
        found, expected = packed.feed(tokens), plain.feed(tokens)
        for name in tokens:
            assert float((found[name] - expected[name]).abs().max()) <= 1e-4


@packs
def test_8_bit_weights_change_the_logits_a_little() -> None:
    plain, rounded = (decoder_of(kind, torch.bfloat16) for kind in (kinds.PLAIN, kinds.INT8))
    for tokens in ([*range(3, 40)], [5], [9, 8]):
        expected, found = plain.feed({"a": tokens})["a"], rounded.feed({"a": tokens})["a"]
        assert 0 < float((found - expected).abs().mean()) < 0.1 * float(expected.std())


def weights_of(dtype: torch.dtype) -> dict[str, Tensor]:
    return {"model.embed_tokens.weight": torch.zeros((4, 4), dtype=dtype)}


@packs
def test_auto_packs_what_it_can_and_no_more() -> None:
    def chosen(name: kinds.WeightsName, dtype: torch.dtype, exact: bool = False) -> str:
        return kinds.linear_kind(name, weights_of(dtype), exact=exact).name

    assert chosen("auto", torch.float32) == chosen("auto", torch.bfloat16) == "packed"
    assert chosen("auto", torch.float16) == chosen("plain", torch.bfloat16) == "plain"
    assert chosen("auto", torch.float32, exact=True) == chosen("plain", torch.float32, exact=True) == "exact"
    assert chosen("int8", torch.bfloat16) == "int8"


@packs
def test_auto_makes_no_second_copy_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_MOST_BYTES", 4 * 4 * 4 - 1)
    assert kinds.linear_kind("auto", weights_of(torch.float32), exact=False) is kinds.PLAIN
    assert kinds.linear_kind("packed", weights_of(torch.float32), exact=False) is kinds.PACKED


def no_mkldnn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)


def no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", object())


@pytest.mark.parametrize("lacks", [no_mkldnn, no_operation])
def test_without_the_operation_weights_are_plain_and_what_was_asked_for_is_said(
        lacks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
        caplog: pytest.LogCaptureFixture) -> None:
    lacks(monkeypatch)
    folder = write_folder(tmp_path / "model", LLAMA_CONFIG)
    with caplog.at_level(logging.WARNING):
        _, decoder = load_model(folder, dtype=torch.float32, device=CPU, exact=False)
        assert decoder.kind is kinds.PLAIN
        assert caplog.messages == []
        _, decoder = load_model(folder, dtype=torch.bfloat16, device=CPU, exact=False, weights="int8")
    assert decoder.kind is kinds.PLAIN
    assert caplog.messages == [
        "this torch or processor has no int8 weights in torch.bfloat16; plain ones are used"]


@pytest.mark.parametrize(("settings", "complaint"), [
    ({"weights": "int8"}, "bfloat16"), ({"weights": "int8", "dtype": "bf16", "exact": True}, "exact mode"),
    ({"weights": "packed", "exact": True}, "exact mode"), ({"weights": "int4"}, "not one of")])
def test_weights_that_cannot_be_had_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        EngineConfig(**settings)  # type: ignore[arg-type]  # one of them is wrong by intent
    if settings["weights"] == "packed":
        with pytest.raises(ConfigError, match="for a CPU"):
            kinds.check_weights("packed", dtype=torch.float32, device=torch.device("cuda"), exact=False)


def test_asking_for_huge_pages_changes_no_value() -> None:
    held = torch.arange(3_000_000)
    found = into_huge_pages([(held.data_ptr(), held.numel() * held.element_size())])
    assert 0 <= found <= 13
    assert torch.equal(held, torch.arange(3_000_000))


def test_where_there_are_no_huge_pages_none_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert into_huge_pages([(0, 1 << 30)]) == 0


def test_requests_of_one_count_share_a_piece_and_read_what_each_would_read_alone() -> None:
    config = ModelConfig.from_json(LLAMA_CONFIG)
    decoder = Decoder(config, random_weights(config), exact=False)
    source = torch.Generator().manual_seed(2)

    def ids(count: int) -> list[int]:
        drawn: list[int] = torch.randint(0, 300, (count,), generator=source).tolist()
        return drawn

    first = {f"r{n}": ids(n) for n in (3, 5, 60, 70, 80, 200)}
    then = {"r3": ids(1), "r5": ids(3), "r60": ids(1), "r70": ids(3), "r80": ids(3), "r200": ids(1)}
    together = ModelDriver(config, decoder, shuffle_seed=4)
    together.feed(first)
    found = together.feed(then)
    for name in first:
        alone = ModelDriver(config, decoder)
        alone.feed({name: first[name]})
        assert float((found[name] - alone.feed({name: then[name]})[name]).abs().max()) <= 1e-4
