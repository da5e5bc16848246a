"""``gemmgen.export``: specs as a C++ project, with compiled kernels, launcher and check."""

from gemmgen.export.project import export

__all__ = ["export"]
