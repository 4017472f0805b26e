from __future__ import annotations

import math

import pytest
import torch

from shared_runtime.sampling_noise import (
    NOISE_BITS,
    gumbel_noise,
    mix64,
    noise_bits,
    stream_key,
    uniform_noise,
    unit_interval,
)
from tests.unit.sampling_cases import ALPHA, CPU, DRAWS, chi_square_p

WORD = 1 << 64


def naive_bits(seed: int, position: int, token_id: int) -> int:
    """The same hash on Python ints, one token at a time."""
    value = (stream_key(seed, position) + (token_id + 1) * 0x9E3779B97F4A7C15) % WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return (value ^ (value >> 31)) >> (64 - NOISE_BITS)


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


def test_the_tensor_hash_equals_the_hash_on_python_ints() -> None:
    seeds, positions = [0, 1, 2**63 - 1, 2**63, 2**64 - 1], [0, 1, 7, 8191, 12345]
    bits = noise_bits(seeds, positions, 40, CPU)
    for row, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
        assert bits[row].tolist() == [naive_bits(seed, position, token_id) for token_id in range(40)]


def test_the_bits_are_pinned_so_that_a_seed_means_the_same_in_every_version() -> None:
    assert noise_bits([42], [3], 3, CPU).tolist() == [[1377999005112938, 3770763288960130, 1575367365005727]]


def test_the_first_output_of_the_generator_is_that_of_splitmix64() -> None:
    # SplitMix64 seeded with 0 gives 0xE220A8397B1DCDAF first; the key of the naive hash plays its seed.
    assert mix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize("width", [1, 7, 64, 1003, 4096])
def test_a_row_alone_is_bit_identical_to_the_row_in_company(width: int) -> None:
    seeds, positions = list(range(100, 116)), [row * row for row in range(16)]
    together = gumbel_noise(seeds, positions, width, CPU)
    for row in range(16):
        assert torch.equal(gumbel_noise([seeds[row]], [positions[row]], width, CPU)[0], together[row])


def test_noise_of_a_token_does_not_depend_on_the_width_of_the_vocabulary() -> None:
    assert torch.equal(noise_bits([5], [9], 1000, CPU)[:, :49], noise_bits([5], [9], 49, CPU))


def test_uniform_noise_reaches_neither_0_nor_1_at_the_ends_of_its_range() -> None:
    ends = unit_interval(torch.tensor([0, 2**NOISE_BITS - 1]))
    assert 0.0 < ends[0] < ends[1] < 1.0
    assert torch.isfinite(-(-ends.log()).log()).all()


def test_all_gumbel_noise_is_finite() -> None:
    assert torch.isfinite(gumbel_noise(list(range(40)), [0] * 40, 49152, CPU)).all()


@pytest.mark.parametrize("along", ["tokens", "positions", "seeds"])
def test_uniform_noise_is_uniform_along_every_axis(along: str) -> None:
    drawn = {
        "tokens": lambda: uniform_noise([1], [1], DRAWS, CPU),
        "positions": lambda: uniform_noise([1] * DRAWS, list(range(DRAWS)), 1, CPU),
        "seeds": lambda: uniform_noise(list(range(DRAWS)), [1] * DRAWS, 1, CPU),
    }[along]()
    counts = torch.histc(drawn, bins=64, min=0.0, max=1.0).long().tolist()
    assert sum(counts) == DRAWS
    assert chi_square_p(counts, [1 / 64] * 64) > ALPHA


@pytest.mark.parametrize(("seed_step", "position_step"), [(1, 0), (0, 1), (1, 1), (1, -1), (2, 0), (0, 16)])
def test_neighbouring_seeds_and_positions_draw_independently(seed_step: int, position_step: int) -> None:
    count, width = 500, 64
    seeds, positions = [10 + i for i in range(count)], [100] * count
    here = uniform_noise(seeds, positions, width, CPU)
    there = uniform_noise([s + seed_step for s in seeds], [p + position_step for p in positions], width, CPU)
    # A correlation of n independent pairs has standard deviation 1 / sqrt(n); 4 of them is alpha 6e-5.
    assert abs(correlation(here, there)) < 4 / math.sqrt(count * width)
    pairs = ((here * 8).long() * 8 + (there * 8).long()).flatten()
    assert chi_square_p(torch.bincount(pairs, minlength=64).tolist(), [1 / 64] * 64) > ALPHA


def test_neighbouring_tokens_draw_independently() -> None:
    noise = uniform_noise([3] * 20, list(range(20)), 2000, CPU)
    for lag in (1, 2, 3, 64):
        assert abs(correlation(noise[:, :-lag], noise[:, lag:])) < 4 / math.sqrt(20 * (2000 - lag))


def test_gumbel_noise_has_the_mean_and_variance_of_the_gumbel_distribution() -> None:
    noise = gumbel_noise(list(range(50)), [0] * 50, 4000, CPU)
    # Standard errors over 200,000 draws: 0.0029 for the mean, 0.0077 for the variance; 5 of them are allowed.
    assert float(noise.mean()) == pytest.approx(0.5772156649, abs=0.0145)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.0385)


def test_no_two_streams_of_a_large_batch_share_a_key() -> None:
    keys = {stream_key(seed, position) for seed in range(200) for position in range(500)}
    assert len(keys) == 200 * 500
