"""Writes a `model.safetensors` one tensor at a time, so that a conversion never holds the whole model in
memory.

Format (safetensors, version 0.x): eight bytes with the header's length, a JSON header of dtype, shape and
data offsets, then the tensors' bytes back to back.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

Float32Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def write_safetensors(path: Path, shapes: Mapping[str, tuple[int, ...]],
                      tensors: Iterable[tuple[str, Float32Array]],
                      progress: Callable[[int, int], None] | None = None) -> None:
    """Write `tensors`, which must come in the order of `shapes`, as little-endian fp32.

    Args:
        path: the file to write.
        shapes: name -> shape of every tensor, in file order.
        tensors: (name, values); taken one by one, so a generator keeps one tensor alive at a time.
        progress: called with (bytes written, bytes in all) after each tensor; the header does not count.

    Raises:
        OSError: the file cannot be written.
        ValueError: `tensors` disagrees with `shapes`.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    done = 0
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for (name, values), (expected, shape) in zip(tensors, shapes.items(), strict=True):
            if name != expected or values.shape != shape:
                raise ValueError(f"expected tensor {expected} {shape}, got {name} {values.shape}")
            file.write(np.ascontiguousarray(values, dtype="<f4").data)
            done += values.nbytes
            if progress is not None:
                progress(done, end)
