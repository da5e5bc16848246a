"""Floating-point expressions of the epilogue: values of registers and of the kernel's scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gemmgen.ir.memory import Ref

if TYPE_CHECKING:
    from gemmgen.isa.functions import Function


@dataclass(frozen=True)
class Read:
    """The value in a register element."""

    ref: Ref


@dataclass(frozen=True)
class Scalar:
    """A floating-point kernel argument: alpha or beta."""

    name: str


@dataclass(frozen=True)
class FConst:
    value: float


@dataclass(frozen=True)
class FBin:
    """``a op b`` in the dtype of the destination, each operation rounded; op is one of + * max."""

    op: str
    a: FExpr
    b: FExpr


@dataclass(frozen=True)
class FCall:
    """A function of ``isa`` applied to values in float32."""

    function: Function
    args: tuple[FExpr, ...]


FExpr: TypeAlias = Read | Scalar | FConst | FBin | FCall
