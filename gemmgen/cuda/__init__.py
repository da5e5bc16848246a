"""Kernel IR to CUDA C++ text."""
