"""NVRTC, the cache of compiled kernels, launching, timing and the cuBLAS baseline.

The only package that imports CUDA, and it does so inside functions: importing any module here is cheap and works
with no CUDA library, no driver and no GPU.
"""
