"""Host numbers become the tensors that they were meant to be; pinned memory is CUDA's alone."""

from __future__ import annotations

import torch

from shared_runtime.transfer import moved, to_device

CPU = torch.device("cpu")


def test_lists_become_tensors_of_the_type_asked_for() -> None:
    assert to_device([3, 1], CPU).tolist() == [3, 1]
    assert to_device([], CPU).dtype == torch.int64
    assert to_device([[1, 2], [3, 4]], CPU).shape == (2, 2)
    assert to_device([[0.5], [1.0]], CPU, torch.float64).dtype == torch.float64
    assert to_device([2**40], CPU).item() == 2**40


def test_on_a_cpu_nothing_is_copied() -> None:
    host = torch.arange(3)
    assert moved(host, CPU) is host
