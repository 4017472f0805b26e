"""Stage 5's packed masks: the fast ways write exactly what the naive one does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.stage5_backend_jump.torch_ops.bitmask_torch_ops import (
    apply_token_bitmask,
    naive_apply_token_bitmask,
    words_for,
)
from stages.stage5_backend_jump.torch_ops.token_filter_torch_ops import set_token_filter

KERNELS = """
import torch
from stages.stage5_backend_jump.torch_ops.bitmask_torch_ops import naive_apply_token_bitmask, words_for
from stages.stage5_backend_jump.torch_ops.token_filter_torch_ops import set_token_filter
from stages.stage5_backend_jump.triton_ops.bitmask_ops import apply_token_bitmask_triton
from stages.stage5_backend_jump.triton_ops.token_filter_ops import set_token_filter_triton

generator = torch.Generator().manual_seed(7)
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for n, width in ((1, 1), (2, 31), (3, 32), (3, 33), (4, 300), (2, 9000)):
        logits = torch.randn(n, width + 5, generator=generator).to(dtype)[:, :width]  # rows further apart than wide
        logits[0, 0] = float("nan")
        mask = torch.randint(-2**31, 2**31, (n + 1, words_for(width) + 1), dtype=torch.int32, generator=generator)
        mask[0], mask[n - 1] = -1, 0
        for rows in (list(range(n)), [n - 1], list(range(0, n, 2)), []):
            fast, naive = logits.clone(), logits.clone()
            apply_token_bitmask_triton(fast, mask, torch.tensor(rows, dtype=torch.int64))
            naive_apply_token_bitmask(naive, mask, rows)
            assert torch.equal(fast.view(torch.uint8), naive.view(torch.uint8)), (dtype, n, width, rows)
for ids in ([0], [31], [32, 31, 33], list(range(0, 9000, 7)), list(range(600)), []):
    for allowed in (True, False):
        for reset in (True, False):
            fast = torch.randint(-2**31, 2**31, (3, 300), dtype=torch.int32, generator=generator)
            plain = fast.clone()
            set_token_filter_triton(fast, 1, ids, allowed=allowed, reset=reset)
            set_token_filter(plain, 1, ids, allowed=allowed, reset=reset)
            assert torch.equal(fast, plain), (ids[:3], allowed, reset)
one_word, strided = torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 8, dtype=torch.int32)[:, ::2]
for logits, mask in ((torch.zeros(1, 33), one_word), (torch.zeros(8, 1).T, strided)):
    try:
        apply_token_bitmask_triton(logits, mask, torch.tensor([0]))
    except ValueError:
        continue
    raise AssertionError("a mask that does not fit was applied")
print("kernels equal")
"""


def _bits_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 700), kinds=st.lists(st.sampled_from(["open", "shut", "random", "one", "all but one"]),
                                                min_size=1, max_size=6), seed=st.integers(0, 10**6))
def test_the_fast_apply_writes_what_the_naive_one_does(width: int, kinds: list[str], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    words = words_for(width)
    mask = torch.empty((len(kinds), words), dtype=torch.int32)
    for row, kind in enumerate(kinds):
        mask[row] = {"open": -1, "all but one": -1}.get(kind, 0)
        if kind == "random":
            mask[row] = torch.randint(-2**31, 2**31, (words,), dtype=torch.int32, generator=generator)
        if kind in ("one", "all but one"):
            mask[row, int(torch.randint(words, (), generator=generator))] ^= 1 << seed % 31
    logits = torch.randn((len(kinds), width), generator=generator)
    logits[0, 0], logits[-1, -1] = float("nan"), -0.0
    rows = [row for row in range(len(kinds)) if (seed >> row) & 1]
    for chosen in (None, rows):
        fast, naive = logits.clone(), logits.clone()
        apply_token_bitmask(fast, mask, chosen)
        naive_apply_token_bitmask(naive, mask, chosen)
        assert _bits_equal(fast, naive)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_every_floating_type_and_a_view_are_masked(dtype: torch.dtype) -> None:
    wide = torch.randn(4, 1000).to(dtype)
    mask = torch.tensor([[-1] * 31, [0] * 31, [3] + [0] * 30, [1 << 30] * 31], dtype=torch.int32)
    fast, naive = wide.clone(), wide.clone()
    apply_token_bitmask(fast[:, 3:973], mask)
    naive_apply_token_bitmask(naive[:, 3:973], mask)
    assert _bits_equal(fast, naive)
    assert torch.isinf(fast).sum() > 970


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [6_400, 6_413])
def test_rows_with_many_tokens_open_and_many_shut_are_masked(dtype: torch.dtype, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    mask = torch.randint(-2**31, 2**31, (3, words_for(width)), dtype=torch.int32, generator=generator)
    logits = torch.randn((3, width), generator=generator).to(dtype)
    logits[0, :50], logits[1, :50], logits[2, :50] = float("nan"), float("inf"), -0.0
    fast, naive = logits.clone(), logits.clone()
    apply_token_bitmask(fast, mask, [0, 2])
    naive_apply_token_bitmask(naive, mask, [0, 2])
    assert _bits_equal(fast, naive)


def test_a_mask_of_another_size_is_refused() -> None:
    for mask in (torch.zeros((1, 1), dtype=torch.int32), torch.zeros((1, 2), dtype=torch.int64)):
        with pytest.raises(ValueError, match="a mask of"):
            apply_token_bitmask(torch.zeros(2 if mask.shape[1] == 1 else 1, 33), mask)


@given(ids=st.lists(st.integers(0, 319)), allowed=st.booleans(), reset=st.booleans())
def test_the_token_filter_sets_just_the_bits_it_is_told(ids: list[int], allowed: bool, reset: bool) -> None:
    mask = torch.randint(-2**31, 2**31, (2, 10), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    before = mask.clone()
    set_token_filter(mask, 1, ids, allowed=allowed, reset=reset)
    assert torch.equal(mask[0], before[0])
    for token_id in range(320):
        was = (not allowed) if reset else bool(int(before[1, token_id // 32]) >> token_id % 32 & 1)
        assert bool(int(mask[1, token_id // 32]) >> token_id % 32 & 1) == (allowed if token_id in ids else was)


def test_the_token_filter_refuses_ids_outside_the_mask() -> None:
    mask = torch.zeros((1, 2), dtype=torch.int32)
    with pytest.raises(ValueError, match="-1"):
        set_token_filter(mask, 0, [-1], allowed=True)
    with pytest.raises(IndexError):
        set_token_filter(mask, 0, [64], allowed=True)
    assert not mask.any()


def test_the_triton_kernels_write_what_the_naive_ones_do() -> None:
    """In a process of its own: Triton decides when a kernel is defined whether its interpreter runs it."""
    pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", KERNELS], capture_output=True, text=True, check=False,
                          env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "kernels equal"
