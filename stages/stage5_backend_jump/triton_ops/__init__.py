"""Mask operations as Triton kernels: the way on CUDA. Importing a module of this folder imports Triton."""
