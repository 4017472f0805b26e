"""Exact mode: a token's logits are the same to the bit whatever else is in the pass, and however it got there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.model.linear import ExactLinear, FastLinear, exact_silu
from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver
from tests.tiny_models import LLAMA_CONFIG, random_weights

LENGTH = 150  # crosses two borders of the padded length, 64 and 128
SHAPES: dict[str, dict[str, object]] = {
    # The embedded model's layer, twice.
    "smollm2_layers": {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
                       "num_key_value_heads": 3, "head_dim": 64},
    # Widths that fill no vector register, so that every loop has a remainder.
    "odd_widths": {"hidden_size": 60, "intermediate_size": 103, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 301},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 32, "attention_bias": True,
              "tie_word_embeddings": False},
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def make_decoder(shape: str, dtype: torch.dtype, *, exact: bool = True) -> tuple[ModelConfig, Decoder]:
    config = ModelConfig.from_json(LLAMA_CONFIG | SHAPES[shape])
    weights = {name: tensor.to(dtype) for name, tensor in random_weights(config).items()}
    return config, Decoder(config, weights, exact=exact)


def ids_of(length: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(300) for _ in range(length)]


def one_at_a_time(driver: ModelDriver, ids: list[int], name: str = "it") -> Tensor:
    """[len(ids), width]: the sequence alone, one token a pass; what everything is compared with."""
    return torch.cat([driver.feed({name: [token]})[name] for token in ids])


def same_bits(found: Tensor, expected: Tensor) -> bool:
    assert torch.isfinite(expected).all()
    return torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_do_not_depend_on_how_the_prompt_is_cut(shape: str, dtype: torch.dtype) -> None:
    config, decoder = make_decoder(shape, dtype)
    driver = ModelDriver(config, decoder)
    ids = ids_of(LENGTH, 1)
    expected = one_at_a_time(driver, ids)

    assert same_bits(driver.feed({"whole": ids})["whole"], expected)
    for size in (2, 16, 17, 64, 100):
        name = f"by {size}"
        found = [driver.feed({name: ids[i : i + size]})[name] for i in range(0, LENGTH, size)]
        assert same_bits(torch.cat(found), expected), name


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_do_not_depend_on_company(shape: str, dtype: torch.dtype) -> None:
    config, decoder = make_decoder(shape, dtype)
    ids = ids_of(LENGTH, 1)
    expected = one_at_a_time(ModelDriver(config, decoder), ids)
    # Fifteen others, ragged, some prefilled in its passes and some decoding beside it.
    source = random.Random(5)
    driver = ModelDriver(config, decoder, slots=8192)
    others = {f"other {n}": ids_of(source.randrange(1, 200), 100 + n) for n in range(15)}
    found: list[Tensor] = []
    while len(found) < LENGTH:
        size = source.choice([1, 1, 1, 5, 30])
        company = {name: [rest.pop(0) for _ in range(min(len(rest), source.choice([1, 1, 3, 40])))]
                   for name, rest in others.items() if rest}
        before = {name: new for name, new in company.items() if source.random() < 0.5}
        after = {name: new for name, new in company.items() if name not in before}
        chunk = ids[len(found) : len(found) + size]
        found += driver.feed({**before, "it": chunk, **after})["it"]
    assert same_bits(torch.stack(found), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16", "fp16"])
def test_logits_do_not_depend_on_a_cached_prefix_or_on_where_its_slots_lie(dtype: torch.dtype) -> None:
    config, decoder = make_decoder("smollm2_layers", dtype)
    ids = ids_of(LENGTH, 1)
    expected = one_at_a_time(ModelDriver(config, decoder), ids)

    driver = ModelDriver(config, decoder, shuffle_seed=9)
    driver.feed({"first": [*ids[:90], 7, 7, 7]})
    driver.share_prefix("first", "it", 90)
    prefill = driver.feed({"it": ids[90:130]})["it"]
    decoded = [driver.feed({"it": [token], "first": [3]})["it"] for token in ids[130:]]

    assert same_bits(torch.cat([prefill, *decoded]), expected[90:])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.usefixtures("two_threads")
def test_two_threads_are_exact_among_themselves(dtype: torch.dtype) -> None:
    config, decoder = make_decoder("smollm2_layers", dtype)
    ids = ids_of(70, 1)
    expected = one_at_a_time(ModelDriver(config, decoder), ids)
    driver = ModelDriver(config, decoder)
    company = {f"other {n}": ids_of(1 + 7 * n, n) for n in range(15)}

    assert same_bits(driver.feed({**company, "it": ids[:66]})["it"], expected[:66])
    decoded = [driver.feed({**{name: [i] for name in company}, "it": [ids[i]]})["it"] for i in range(66, 70)]
    assert same_bits(torch.cat(decoded), expected[66:])


def test_slots_that_others_left_behind_do_not_show() -> None:
    config, decoder = make_decoder("odd_widths", torch.float32)
    ids = ids_of(80, 1)
    expected = one_at_a_time(ModelDriver(config, decoder), ids)
    driver = ModelDriver(config, decoder, slots=100, rows=1)
    driver.feed({"gone": ids_of(100, 2)})
    for layer in range(config.n_layers):
        driver.runner.kv_pool.k[layer][1:] = float("nan")
        driver.runner.kv_pool.v[layer][1:] = float("nan")
    driver.close("gone")

    assert same_bits(driver.feed({"it": ids})["it"], expected)


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_a_neighbour_whose_keys_are_not_numbers_does_no_harm(exact: bool) -> None:
    config, decoder = make_decoder("smollm2_layers", torch.float32, exact=exact)
    driver = ModelDriver(config, decoder)
    driver.feed({"sick": ids_of(70, 2), "it": ids_of(20, 1)})
    table = driver.runner.req_to_token.table
    table[1, 21:71] = table[0, :50]  # a row that is used again still names the slots of whoever had it before
    driver.runner.kv_pool.k[0][table[0, :70]] = float("nan")

    logits = driver.feed({"sick": [5], "it": [6]})

    assert torch.isnan(logits["sick"]).all()
    assert torch.isfinite(logits["it"]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16", "fp16"])
def test_silu_of_an_element_does_not_depend_on_where_it_stands(dtype: torch.dtype) -> None:
    x = torch.randn(70_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    alone = torch.cat([exact_silu(x[i : i + 1]) for i in range(0, len(x), 997)])

    assert torch.equal(exact_silu(x)[::997], alone)
    assert torch.equal(exact_silu(x.view(1, -1)[:, 5:]).flatten(), exact_silu(x)[5:])
    assert (exact_silu(x).float() - torch.nn.functional.silu(x.float())).abs().max() < 0.02
    assert exact_silu(x[:0].view(0, 4)).shape == (0, 4)


def test_an_exact_linear_layer_gives_a_row_the_same_bits_alone_and_among_others() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn((1536, 576), generator=generator), torch.randn(1536, generator=generator)
    x = torch.randn((70, 576), generator=generator)
    exact, fast = ExactLinear(weight, bias), FastLinear(weight, bias)

    assert torch.equal(torch.cat([exact(row[None]) for row in x]), exact(x))
    assert (exact(x) - fast(x)).abs().max() < 1e-3
    assert exact(x[:0]).shape == (0, 1536)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_embedded_model_is_exact_in_a_batch_and_in_chunks(dtype: torch.dtype, embedded_folder: Path) -> None:
    config, decoder = load_model(embedded_folder, dtype=dtype, device=torch.device("cpu"), exact=True)
    ids = ids_of(70, 1)
    driver = ModelDriver(config, decoder)
    expected = one_at_a_time(driver, ids)

    assert same_bits(driver.feed({"whole": ids})["whole"], expected)
    company = {f"other {n}": ids_of(1 + 7 * n, n) for n in range(15)}
    assert same_bits(driver.feed({**company, "batch": ids[:66]})["batch"], expected[:66])
    for i in range(66, 70):
        step = driver.feed({**{name: [i] for name in company}, "batch": [ids[i]]})
        assert same_bits(step["batch"], expected[i : i + 1])
