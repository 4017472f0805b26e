"""Mask operations in torch: the way on a CPU, and the naive oracle of every other way."""
