"""The parts of `scripts/gpu_check.py`: a model made on the spot, what is checked, what is measured, and the ledger."""
