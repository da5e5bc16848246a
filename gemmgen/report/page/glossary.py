"""The page's words: what a bottleneck's name means, and the terms of the hardware that it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gemmgen.analysis.bottleneck import CAUSES, MEANS
from gemmgen.analysis.paragraph import LIMIT

GLOSSARY: Mapping[str, str] = {
    "bound by": (
        "the resource that needs most of the expected time; where that is instruction issue or waiting, what it is "
        "lost to stands behind the colon, with what would be saved if that cost nothing"
    ),
    "look-ups in L1": f"the first-level cache, L1, finds data by its line: {LIMIT['l1']}",
    "shared memory": f"memory inside an SM that a block\u2019s threads share: {LIMIT['shared']}",
    "instruction issue": LIMIT["issue"],
    "waiting": LIMIT["latency"],
    "DRAM bandwidth": "bytes a second of the GPU\u2019s main memory, outside the chip",
    **{CAUSES[cause]: MEANS[cause] for cause in MEANS if cause not in ("shared", "l1")},
    "SM": "streaming multiprocessor: a GPU has many, and a block of threads runs on one of them",
    "warp, lane": "32 threads that execute an instruction together; a lane is one of them",
    "sector, request": "32 bytes of global memory; a request is one load or store of a warp, and moves whole sectors",
    "wavefront, bank conflict": (
        "shared memory serves a warp in wavefronts, one after another: lanes that ask one of its 32 banks for "
        "different words need one each, which is a conflict. Accesses of 16 bytes a lane are served eight lanes at a "
        "time, and need four without any; or two, where neighbouring lanes load the same words"
    ),
    "step": "one value of k: a column of A's tile times a row of B's; a tile has BK of them",
    "closed step": "one that the compiler may not mix with the next (separators)",
    "snake order": "every other row of a thread's products is walked backwards, to use one operand twice running",
    "barrier": "a place where all threads of a block wait for one another",
    "workspace, W": "memory in which the blocks that share a sum leave their parts, for a second kernel to add up",
    "L2": "the cache that all SMs share, between them and DRAM",
    "fragment": "the values that a thread fetches from shared memory for one step along k",
    "FMA": "fused multiply-add: a product and a sum in one instruction, two flop",
    "TMA": "tensor memory accelerator: an engine that copies whole tiles to shared memory when one thread asks it to",
    "as written": "of the program\u2019s text, before the compiler joins, moves or adds instructions",
}

IN_README = (
    "SM", "warp, lane", "sector, request", "wavefront, bank conflict", "step", "fragment", "register ports",
    "other instructions", "closed step", "workspace, W", "idle multiprocessors", "as written",
)  # fmt: skip
"""Words that commands print, and that a reader of the README alone would not find."""


def words_markdown() -> str:
    """The words that the README explains, as a list in Markdown."""
    return "\n".join(_items())


def _items() -> Iterator[str]:
    for word in IN_README:
        yield f"- **{word}**: {GLOSSARY[word]}".replace("\u2019", "'")
