"""Reads a GGUF file: its keys, and its tensors as fp32.

The header is parsed here and not by `gguf.GGUFReader`, for two reasons: every length is held against the end
of the file, so a truncated file is an error that names the field it ends in; and it takes a tenth of the time
(that reader makes an array of every string of the vocabulary). Dequantising is the package's own.

Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from shared_runtime.errors import CheckpointError

GgufValue = int | float | bool | str | list["GgufValue"]

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies.

    Attributes:
        name: as llama.cpp spells it, e.g. `blk.0.attn_q.weight`.
        shape: row-major (the file holds it the other way round).
        kind: how its blocks are quantised.
        start, n_bytes: its bytes in the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    n_bytes: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class GgufFile:
    """An open GGUF file; a context manager.

    Attributes:
        path: the file.
        metadata: key -> value, as written.
        tensors: name -> where it lies, in the file's order.

    Raises:
        CheckpointError: the file is missing, no GGUF, of another version, or ends inside a field or a tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, GgufValue] = {}
        self.tensors: dict[str, GgufTensor] = {}
        self._at = 0
        self._field = "the header"
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", where=str(path)) from error
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; arrays already returned stay valid."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    # ------------------------------------------------------------------ keys

    def string(self, key: str) -> str:
        """The text under `key`; CheckpointError when it is absent or no text."""
        value = self._required(key)
        return value if isinstance(value, str) else self._wrong_type(key, value, "a string")

    def integer(self, key: str) -> int:
        """The whole number under `key`; CheckpointError when it is absent or none."""
        value = self._required(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else self._wrong_type(
            key, value, "an integer")

    def positive(self, key: str) -> float:
        """The number above 0 under `key`; CheckpointError when it is absent or none."""
        value = self._required(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        return self._wrong_type(key, value, "a number above 0")

    def count(self, key: str) -> int:
        """The whole number of at least 1 under `key`; CheckpointError when it is absent or none."""
        value = self.integer(key)
        return value if value > 0 else self._wrong_type(key, value, "at least 1")

    def strings(self, key: str) -> list[str]:
        """The list of texts under `key`; CheckpointError when it is absent or none."""
        value = self._required(key)
        if not isinstance(value, list):
            self._wrong_type(key, value, "a list of strings")
        found = [item for item in value if isinstance(item, str)]
        return found if len(found) == len(value) else self._wrong_type(key, value, "a list of strings")

    def integers(self, key: str) -> list[int]:
        """The list of whole numbers under `key`; CheckpointError when it is absent or none."""
        value = self._required(key)
        if not isinstance(value, list):
            self._wrong_type(key, value, "a list of integers")
        found = [item for item in value if isinstance(item, int)]
        return found if len(found) == len(value) else self._wrong_type(key, value, "a list of integers")

    def optional_integer(self, key: str) -> int | None:
        """`integer(key)`, or None when the key is absent."""
        return self.integer(key) if key in self.metadata else None

    def _required(self, key: str) -> GgufValue:
        if key not in self.metadata:
            raise CheckpointError(f"the key {key!r} is missing", where=str(self.path))
        return self.metadata[key]

    def _wrong_type(self, key: str, value: GgufValue, wanted: str) -> NoReturn:
        raise CheckpointError(f"{key} is {_short(value)}, not {wanted}", where=str(self.path))

    # ------------------------------------------------------------------ tensors

    def array(self, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """The tensor `name`, dequantised: fp32, in its row-major shape.

        Raises:
            CheckpointError: there is no such tensor, or its blocks are of a kind that cannot be dequantised.
        """
        if name not in self.tensors:
            raise CheckpointError(f"the tensor {name!r} is missing", where=str(self.path))
        tensor = self.tensors[name]
        raw = np.frombuffer(self._data[tensor.start:tensor.start + tensor.n_bytes], dtype=np.uint8)
        try:
            # One row of blocks a row of the array: the package works on the last axis.
            values = dequantize(raw.reshape(*tensor.shape[:-1], -1), tensor.kind)
        except NotImplementedError as error:
            raise CheckpointError(f"tensor {name!r} is quantised as {tensor.kind.name}, which is not supported",
                                  where=str(self.path)) from error
        return np.asarray(values, dtype=np.float32).reshape(tensor.shape)

    # ------------------------------------------------------------------ parsing

    def _read_header(self) -> None:
        if bytes(self._data[:4]) != b"GGUF":
            raise CheckpointError("this is no GGUF file (it does not begin with 'GGUF')", where=str(self.path))
        self._at = 4
        version = int(self._scalar(4))
        if version not in (2, 3):
            raise CheckpointError(f"GGUF version {version} is not supported (2 and 3 are)", where=str(self.path))
        n_tensors, n_keys = int(self._scalar(10)), int(self._scalar(10))
        for index in range(n_keys):
            self._field = f"key {index} of {n_keys}"
            key = self._text()
            if key in self.metadata:
                raise CheckpointError(f"the key {key!r} is there twice", where=str(self.path))
            self._field = f"key {key!r}"
            self.metadata[key] = self._value(int(self._scalar(4)))
        infos = [self._tensor_info(index, n_tensors) for index in range(n_tensors)]
        alignment = self.optional_integer("general.alignment") or _DEFAULT_ALIGNMENT
        base = -(-self._at // alignment) * alignment
        for name, shape, kind, offset in infos:
            if name in self.tensors:
                raise CheckpointError(f"the tensor {name!r} is there twice", where=str(self.path))
            self.tensors[name] = self._placed(name, shape, kind, base + offset)

    def _tensor_info(self, index: int, count: int) -> tuple[str, tuple[int, ...], int, int]:
        self._field = f"the entry of tensor {index} of {count}"
        name = self._text()
        dims = [int(self._scalar(10)) for _ in range(int(self._scalar(4)))]
        return name, tuple(reversed(dims)), int(self._scalar(4)), int(self._scalar(10))

    def _placed(self, name: str, shape: tuple[int, ...], raw_kind: int, start: int) -> GgufTensor:
        try:
            kind = GGMLQuantizationType(raw_kind)
        except ValueError as error:
            raise CheckpointError(f"tensor {name!r} has the unknown type {raw_kind}", where=str(self.path)) from error
        per_block, block_bytes = GGML_QUANT_SIZES[kind]
        if not math.prod(shape) or not shape or shape[-1] % per_block:
            raise CheckpointError(f"tensor {name!r} of shape {list(shape)} does not divide into {kind.name} blocks",
                                  where=str(self.path))
        tensor = GgufTensor(name, shape, kind, start, math.prod(shape) // per_block * block_bytes)
        if start + tensor.n_bytes > len(self._data):
            raise CheckpointError(
                f"the file is truncated: tensor {name!r} needs bytes up to {start + tensor.n_bytes:,}, "
                f"the file has {len(self._data):,}", where=str(self.path), fix="fetch the file again")
        return tensor

    def _take(self, count: int) -> int:
        """Move past `count` bytes and return where they began."""
        start = self._at
        if count > len(self._data) - start:
            raise CheckpointError(f"the file is truncated: it ends inside {self._field}", where=str(self.path),
                                  fix="fetch the file again")
        self._at = start + count
        return start

    def _scalar(self, kind: int) -> int | float | bool:
        code = _SCALARS[kind]
        (value,) = struct.unpack_from(code, self._data, self._take(struct.calcsize(code)))
        assert isinstance(value, int | float)
        return value

    def _text(self) -> str:
        length = int(self._scalar(10))
        start = self._take(length)
        try:
            return bytes(self._data[start:start + length]).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self._field} is not UTF-8", where=str(self.path)) from error

    def _value(self, kind: int) -> GgufValue:
        if kind == _STRING:
            return self._text()
        if kind in _SCALARS:
            return self._scalar(kind)
        if kind != _ARRAY:
            raise CheckpointError(f"{self._field} has the unknown value type {kind}", where=str(self.path))
        item, length = int(self._scalar(4)), int(self._scalar(10))
        if item in _SCALARS:
            code = f"<{length}{_SCALARS[item][1]}"
            start = self._take(length * struct.calcsize(_SCALARS[item]))
            return list(struct.unpack_from(code, self._data, start))
        if item != _STRING:
            raise CheckpointError(f"{self._field} is a list of the unknown value type {item}", where=str(self.path))
        return [self._text() for _ in range(length)]


def _short(value: GgufValue | Sequence[GgufValue]) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
