"""The exercises as data: those of the lesson, and ten more."""

from __future__ import annotations

from gemmgen.lesson.rows import Exercise, Race, least, most, spec
from gemmgen.lesson.seed import BLOCKED, OF_THE_LESSON, WARP, WIDE

NEW = "gemmgen"

EXERCISES: tuple[Exercise | Race, ...] = (
    *OF_THE_LESSON,
    Race(
        "Find the race: written, then read",
        NEW,
        "A barrier is missing from this tile program: some threads read elements of the tiles that others have not yet "
        "written. Add one line, `barrier`, where it belongs: once per tile.",
        "smem",
        0,
        ("All threads copy; all threads read what others copied.", "Between the copies and the loop over k."),
        "Without it a fast warp reads shared memory that a slow one has not filled: a read-after-write race.",
    ),
    Race(
        "Find the race: read, then overwritten",
        NEW,
        "Another barrier is missing. The results are often right, which makes it worse: a fast warp may overwrite a "
        "tile "
        "that a slow one still reads. Add one line, `barrier`, that runs once per tile.",
        "smem",
        1,
        (
            "What follows the last read of a tile? The next iteration's copies.",
            "At the end of the loop over k0, or at its start.",
        ),
        "A write-after-read race. The barrier may also stand at the start of the loop over k0. A second stage of "
        "shared memory makes this barrier unnecessary: rung `doublebuffer`.",
    ),
    Exercise(
        "Pad against a bank conflict",
        NEW,
        "The transposed store of A has a 2-way bank conflict: lanes that loaded neighbouring pieces of a row meet in "
        "one bank. "
        "Remove it without changing the tiles.",
        spec(*BLOCKED, WIDE),
        (most("bank conflict of shared stores", 1),),
        (
            "`gemmgen banks FILE` draws which lane meets which bank.",
            "Elements left empty after each row shift the next row by as many banks: `pad_a 4`.",
        ),
        spec(*BLOCKED, WIDE, "pad_a 4"),
        "With 4 elements of padding a row starts 4 banks further, so that the two rows that a phase writes use "
        "different "
        "banks.",
        keep=("block", "thread"),
        use=("transposeA", "float4"),
    ),
    Exercise(
        "Neighbouring lanes, neighbouring values",
        NEW,
        "Each load of B's tile has a 2-way bank conflict: neighbouring lanes read columns that are 8 apart. Padding "
        "does not help, because the columns lie in one row. Remove the conflict, and keep 8 flop per value from shared "
        "memory.",
        spec("tile block 128x128x16", "tile thread 8x8", WIDE),
        (most("bank conflict of shared loads", 1), least("flop per value from shared memory", 8)),
        (
            "The lanes of a warp should share rows and columns: give each warp a tile of its own.",
            "`tile warp 64x64` and `use warptile`.",
        ),
        spec("tile block 128x128x16", "tile warp 64x64", "tile thread 8x8", WARP),
        "In a warp tile the lanes are 8 x 4, instead of 2 x 16: 4 different pieces of a row of B are read at once, "
        "which lie in different banks. `tile thread 8x4` alone removes the conflict too, but reads more "
        "values per FMA.",
        keep=("block",),
    ),
    Exercise(
        "Two blocks per SM",
        NEW,
        "Four stages of 32 KB leave room for one block per SM, so that nothing runs while it waits. Let two fit, and "
        "keep the "
        "TMA copies and the block tile.",
        spec(
            "tile block 128x128x32",
            "tile warp 32x128",
            "tile thread 1x4",
            "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, release, prefetch, alongK, snake",
            "stages 4",
            "min_blocks 1",
        ),
        (least("blocks per SM", 2), most("exposed latency", 10)),
        (
            "An SM of an H200 has 228 KB of shared memory for all of its blocks.",
            "2 x 3 x 32 KB fits: `stages 3` and `min_blocks 2`.",
        ),
        spec(
            "tile block 128x128x32",
            "tile warp 32x128",
            "tile thread 1x4",
            "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, release, prefetch, alongK, snake",
            "stages 3",
            "min_blocks 2",
        ),
        "Three stages are 96 KB. More stages hide more latency within a block; a second block hides it across blocks.",
        keep=("block", "warp"),
        use=("tma", "release"),
    ),
    Exercise(
        "Hide the latency of global memory",
        NEW,
        "A seventh of the expected time is exposed latency: every block waits for its next tile. Bring it below a "
        "tenth, with "
        "the same block tile.",
        spec("tile block 128x128x16", "tile warp 64x64", "tile thread 8x4", WARP, "unroll 8", "min_blocks 3"),
        (most("exposed latency", 10), least("flop per value from shared memory", 10)),
        (
            "Copy the next tiles while this one is multiplied, and load fragments one step early: `stages 3` and "
            "`use cpasync, prefetch`.",
            "cp.async stores the transposed A tile 4 bytes at a time, which is a 16-way bank conflict. `pad_a 4` "
            "reduces it to 2-way (`gemmgen banks FILE` draws it).",
        ),
        spec(
            "tile block 128x128x16",
            "tile warp 64x64",
            "tile thread 8x4",
            f"{WARP}, cpasync, prefetch, spread",
            "stages 3",
            "pad_a 4",
        ),
        "Three stages: two tiles are on their way while one is multiplied.",
        keep=("block",),
    ),
    Exercise(
        "Few tiles, many SMs",
        NEW,
        "C has 512 x 512 elements: 64 tiles of 64 x 64, and an H200 has 132 SMs. More than half are idle. Give each "
        "SM work, "
        "in at most 20 us by the model, without smaller tiles.",
        spec("tile block 64x64x16", "tile thread 8x4", WIDE),
        (least("blocks", 132), most("expected time", 20)),
        ("The sum over K can be shared by several blocks.", "`split_k 4` gives 256 blocks."),
        spec("tile block 64x64x16", "tile thread 8x4", WIDE, "split_k 4"),
        "Each block sums a quarter of K; a second kernel adds the parts in a fixed order, so that the bits repeat.",
        keep=("block",),
        size=(512, 512, 512),
        without=(),
    ),
    Exercise(
        "A skinny product",
        NEW,
        "C has 16 rows, and the block tile 128: seven of eight FMAs compute rows that do not exist. Waste nothing, "
        "and reach "
        "50 us by the model.",
        spec(*BLOCKED, WIDE),
        (most("FMAs computed per FMA needed", 1.01), most("expected time", 50)),
        (
            "BM = 16: `tile block 16x64x32`, `tile warp 16x32`, `tile thread 4x4` and `use warptile`. C then has few "
            "tiles: `split_k 8`.",
            "Keep many loads of B in flight: `use cpasync, prefetch` and `stages 3`. `pad_a 4` avoids bank conflicts. "
            "The rung skinny is this kernel.",
        ),
        spec(
            "tile block 16x64x32",
            "tile warp 16x32",
            "tile thread 4x4",
            f"{WARP}, cpasync, prefetch",
            "stages 3",
            "pad_a 4",
            "split_k 8",
        ),
        "B is read once, and nearly all of the traffic. The kernel is now near the bandwidth of DRAM.",
        size=(16, 4096, 4096),
        without=(),
    ),
    Exercise(
        "Half the bytes",
        NEW,
        "Store the same tiles in half the shared memory: A and B in bfloat16, sums and C in float32.",
        spec("tile block 128x128x16", "tile thread 8x8", WIDE),
        (most("shared memory per block", 8192),),
        ("`operands` gives the element type of each matrix.", "`operands A bf16 row, B bf16 row, C f32 row`"),
        spec("tile block 128x128x16", "tile thread 8x8", WIDE, "operands A bf16 row, B bf16 row, C f32 row"),
        "2 bytes per element. Each product of two bfloat16 is exact in float32, and so the sums lose nothing more. "
        "Tensor cores multiply tiles of this type: `math mma 16x8x16`.",
        keep=("block", "thread"),
        use=("smem",),
        operands="A bf16 row, B bf16 row, C f32 row",
    ),
    Exercise(
        "Let one thread copy",
        NEW,
        "All 128 threads compute addresses and issue 8.39 million requests of global loads. Let the tensor memory "
        "accelerator "
        "copy the tiles: no thread shall load from global memory.",
        spec(
            "tile block 128x128x32",
            "tile warp 32x128",
            "tile thread 1x4",
            "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), cpasync, alongK, prefetch",
            "stages 2",
        ),
        (most("global load requests", 0), most("exposed latency", 10)),
        ("One toggle replaces another: both are ways of copying.", "`use tma` without `cpasync`."),
        spec(
            "tile block 128x128x32",
            "tile warp 32x128",
            "tile thread 1x4",
            "use coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, alongK, prefetch",
            "stages 2",
        ),
        "One thread issues a box per tile. The engine cannot transpose: `alongK` reads A row by row.",
        keep=("block", "warp"),
    ),
)
