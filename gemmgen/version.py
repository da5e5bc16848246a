"""The version of gemmgen, the only place it is written."""

__version__ = "0.1.0"
