"""Workloads, what is measured on them, and the ledger that the numbers of this project come from."""
