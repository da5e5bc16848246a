"""The glossary of the page and of docs/glossary.md: names of bottlenecks, and terms of the hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gemmgen.analysis.bottleneck import CAUSES, MEANS, RESOURCES
from gemmgen.analysis.paragraph import LIMIT

GLOSSARY: Mapping[str, str] = {
    "limited by": (
        "the resource that takes most of the expected time. For instruction issue and exposed latency the cause "
        "follows in brackets, with the time that the kernel would save without it"
    ),
    RESOURCES["l1"]: f"the L1 cache finds data by its 128-byte line: {LIMIT['l1']}",
    RESOURCES["shared"]: f"shared memory is inside an SM, and the threads of a block share it: {LIMIT['shared']}",
    RESOURCES["issue"]: LIMIT["issue"],
    RESOURCES["latency"]: f"latency that no other work hides: {LIMIT['latency']}",
    RESOURCES["dram"]: "bytes per second of the GPU\u2019s main memory",
    RESOURCES["l2"]: "bytes per second between the SMs and the L2, the cache that all SMs share",
    **{CAUSES[cause]: MEANS[cause] for cause in MEANS if cause not in ("shared", "l1")},
    CAUSES["ports"]: (
        f"{MEANS['ports']}. A register with an even number is in one bank, one with an odd number in the other, and a "
        "bank delivers one register of a warp per clock. The compiler chooses the numbers: the more registers a thread "
        "may use, the more often it finds numbers without a conflict"
    ),
    "SM": "streaming multiprocessor; a GPU has many, and each block of threads runs on one of them",
    "warp, lane": "a warp is 32 threads that execute an instruction together; a lane is one of them",
    "sector, request": (
        "a request is one load or store instruction of one warp; it moves whole sectors, 32 bytes of global memory each"
    ),
    "wavefront, bank conflict": (
        "shared memory has 32 banks of 4-byte words and serves a warp in wavefronts, one after another. Lanes that "
        "access different words of the same bank need one wavefront each: a bank conflict. Accesses of 16 bytes per "
        "lane are served eight lanes at a time, so they need four wavefronts without conflicts, or two where "
        "neighbouring lanes load the same words"
    ),
    "step": "one value of k: a column of the A tile times a row of the B tile; a tile has BK steps",
    "separators": "a toggle that keeps the compiler from mixing the instructions of one step with those of the next",
    "snake order": "every other row of a thread\u2019s FMAs runs backwards, to reuse an operand of the previous FMA",
    "barrier": "a point that no thread of a block passes before all threads have reached it",
    "workspace, W": "memory for the partial sums of the blocks that share a sum over K; a second kernel adds them",
    "fragment": "the values that a thread loads from shared memory for one step along k",
    "FMA": "fused multiply-add: one instruction that multiplies and adds, 2 flop",
    "TMA": "Tensor Memory Accelerator: hardware that copies whole tiles to shared memory; one thread issues the copy",
    "as written, as compiled": (
        "counts of the program\u2019s text; and counts after the compiler has merged neighbouring loads into wider ones"
    ),
}

IN_README = (
    "SM", "warp, lane", "sector, request", "wavefront, bank conflict", "step", "fragment", CAUSES["ports"],
    CAUSES["instructions"], "separators", "workspace, W", CAUSES["idle"], "as written, as compiled",
)  # fmt: skip
"""Terms that commands print, and that docs/glossary.md explains."""


def words_markdown() -> str:
    """The terms of docs/glossary.md as a Markdown list."""
    return "\n".join(_items())


def _items() -> Iterator[str]:
    for word in IN_README:
        yield f"- **{word}**: {GLOSSARY[word]}".replace("\u2019", "'")
