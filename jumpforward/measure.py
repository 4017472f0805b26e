"""`doctor --measure`: which dtype and how many threads are fastest here, on the embedded model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jumpforward.console import ProgressLine

if TYPE_CHECKING:
    from shared_runtime.config import DtypeName

_PROMPT = "one two three four five six seven eight nine ten " * 12
_NEW_TOKENS = 16
# A request of some size: a prompt like the one measured, and this many tokens after it.
_TYPICAL_TOKENS = 64
# Below this gain the fixed default stays: readings on a shared machine differ by more than a few percent.
_WORTHWHILE = 0.9


@dataclass(frozen=True, slots=True)
class Reading:
    """What one setting took.

    Attributes:
        dtype, threads: the setting.
        prefill_ms: time to the first token of a prompt of about 120 tokens. decode_ms: time per further token.
    """

    dtype: DtypeName
    threads: int
    prefill_ms: float
    decode_ms: float

    @property
    def request_ms(self) -> float:
        """A typical request: the prompt and 64 tokens."""
        return self.prefill_ms + (_TYPICAL_TOKENS - 1) * self.decode_ms


def measure_settings(*, quiet: bool) -> dict[str, object]:
    """Measure every setting for a few seconds, print a table unless `quiet`, and name the one to use.

    Raises:
        JumpforwardError: the embedded model cannot be loaded.
    """
    from shared_runtime.config import default_threads, usable_cores

    cores = usable_cores()
    progress = ProgressLine()
    readings = []
    try:
        for threads in thread_counts(cores):
            for dtype in ("fp32", "bf16"):
                progress(f"measuring {dtype}, {threads} threads", 0, 0)
                readings.append(_measure(dtype, threads, progress))
    finally:
        progress.clear()
    best = recommend(readings, default_threads(cores))
    if not quiet:
        print("dtype  threads  prefill ms  decode ms/token")
        for one in readings:
            print(f"{one.dtype:<5}  {one.threads:>7}  {one.prefill_ms:>10.0f}  {one.decode_ms:>15.1f}")
        print(f"fastest for a request of about 120 + {_TYPICAL_TOKENS} tokens: --dtype {best.dtype} "
              f"--threads {best.threads}")
    return {"readings": [asdict(one) for one in readings], "recommended": asdict(best)}


def thread_counts(cores: int) -> list[int]:
    """Powers of two up to `cores`, and `cores`."""
    return sorted({1 << power for power in range(cores.bit_length()) if 1 << power <= min(cores, 16)}
                  | {min(cores, 16)})


def recommend(readings: Sequence[Reading], default_threads: int) -> Reading:
    """The fastest reading, or the default setting's when nothing beats it by a tenth.

    Raises:
        ValueError: the default setting was not measured.
    """
    default = next((one for one in readings if (one.dtype, one.threads) == ("fp32", default_threads)), None)
    if default is None:
        raise ValueError(f"no reading of fp32 with {default_threads} threads")
    best = min(readings, key=lambda one: one.request_ms)
    return best if best.request_ms < _WORTHWHILE * default.request_ms else default


def _measure(dtype: DtypeName, threads: int, progress: ProgressLine) -> Reading:
    from shared_runtime.config import EngineConfig
    from shared_runtime.engine import Engine
    from shared_runtime.sampling_params import SamplingParams

    with Engine(EngineConfig(dtype=dtype, threads=threads), progress=progress) as engine:
        # The first pass of a process pays for allocation and choice of kernels.
        engine.generate_one("Hello there", sampling=SamplingParams(max_new_tokens=2, ignore_eos=True))
        result = engine.generate_one(
            _PROMPT, sampling=SamplingParams(max_new_tokens=_NEW_TOKENS, ignore_eos=True))
    metrics = result.metrics
    return Reading(dtype, threads, 1e3 * (metrics.ttft_s or 0.0), 1e3 * (metrics.tpot_s or 0.0))
