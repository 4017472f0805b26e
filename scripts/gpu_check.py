"""Checks this project under CUDA and measures it: one run of a few minutes, one ledger file.

It needs no model files and no network: `--load-format dummy` makes random weights of the embedded model's shape, and
its vocabulary is made here. Where the embedded model is in place, `--model embedded --load-format auto` uses it. What
needs a library that is not installed is left out, with a note. Without CUDA it says so and ends with exit code 0; with
`--device cpu` it runs everything it can on the CPU, which is how the script itself is tested.

    python scripts/gpu_check.py --out results.json
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # nothing is installed on a bare machine


def main() -> int:
    """Run everything; 1 when a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--model", default="", help="a folder or 'embedded'; empty: one made here")
    parser.add_argument("--load-format", default="dummy", choices=["dummy", "auto"])
    parser.add_argument("--small", action="store_true", help="a model of two narrow layers, for a quick trial")
    parser.add_argument("--only", default="both", choices=["both", "checks", "measures"])
    parser.add_argument("--seconds", type=float, default=240.0, help="how long measuring may take")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    options = parser.parse_args()

    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu_check: no CUDA device; nothing to check (--device cpu runs it on the CPU)")
        return 0

    from benchmarks.ledger import Ledger
    from scripts.gpu.bench import Bench
    from scripts.gpu.checks import run_checks
    from scripts.gpu.made_up_model import make_model
    from scripts.gpu.measures import run_measurements

    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(make_model(Path(scratch), small=options.small))
        ledger = Ledger.begin(options.device, {"model": options.model or "made up", "small": str(options.small),
                                               "load_format": options.load_format, "device": options.device})
        bench = Bench(ledger, model, options.load_format, options.device)
        try:
            if options.only != "measures":
                run_checks(bench)
            if options.only != "checks":
                few = options.device == "cpu"
                run_measurements(bench, seconds=options.seconds, batches=(2,) if few else (1, 16),
                                 dtypes=("fp32",) if few else ("bf16", "fp32"), repeats=1 if few else 3)
        finally:
            ledger.write(options.out)
    print(f"gpu_check: {len(ledger.checks)} checks, {len(ledger.failed)} failed, {len(ledger.measurements)} rows "
          f"measured; written to {options.out}")
    return 1 if ledger.failed else 0


if __name__ == "__main__":
    sys.exit(main())
