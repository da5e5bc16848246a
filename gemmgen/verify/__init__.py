"""Verification: results against float64, within the error bound of the arithmetic."""

from __future__ import annotations

from gemmgen.verify.reference import Verification, verify

__all__ = ["Verification", "verify"]
