"""Programmatic dependent launch: a kernel that is put on the GPU while the one before it on the stream still runs.

PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.isa.table import Instruction, Needs, Ordering

if TYPE_CHECKING:
    from gemmgen.isa.machine import Lanes

DEPENDENT_ARCH = Needs(90)


def _allow(lanes: Lanes) -> None:
    """Says only how early the next kernel may start: what it reads is seen to by its own wait."""


def _wait(lanes: Lanes) -> None:
    """The active lanes see all that the kernel before wrote."""
    lanes.await_previous()


ALLOW_NEXT_KERNEL = Instruction(
    "allow_next_kernel",
    """// The next kernel may be put on the GPU as soon as all blocks of this one have started. It still waits for what
// they write: see wait_for_previous_kernel in its text.
__device__ __forceinline__ void allow_next_kernel()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
""",
    meaning=_allow,
    orders=Ordering.ALLOW,
    arch=DEPENDENT_ARCH,
)

WAIT_FOR_PREVIOUS_KERNEL = Instruction(
    "wait_for_previous_kernel",
    """// Waits until the kernel before has ended and all that it wrote is seen here. At once where it has ended.
__device__ __forceinline__ void wait_for_previous_kernel()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
""",
    meaning=_wait,
    orders=Ordering.WAIT,
    arch=DEPENDENT_ARCH,
)
