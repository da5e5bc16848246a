"""The exercises of the lesson, as data."""

from __future__ import annotations

from gemmgen.lesson.rows import Exercise, least, most, spec

SEED = "the lesson"
PLAIN = "use coalescing, smem"
WIDE = "use coalescing, smem, transposeA, float4"
WARP = "use coalescing, smem, transposeA, float4, warptile"
BLOCKED = ("tile block 128x128x8", "tile thread 8x8")

OF_THE_LESSON: tuple[Exercise, ...] = (
    Exercise(
        "Coalesce the loads",
        SEED,
        "In the naive kernel a warp's load of A touches 32 rows, and its load of B one value. After the lanes are "
        "mapped to "
        "columns, which of A, B and C is a broadcast, and which is coalesced? Change the spec so that a request of A "
        "moves one sector.",
        spec("tile block 32x32"),
        (most("sectors per request of A", 1), most("sectors per request of B", 4)),
        (
            "Consecutive lanes must walk along a row of C, the contiguous dimension.",
            "The toggle for that: `use coalescing`.",
        ),
        spec("tile block 32x32", "use coalescing"),
        "All lanes of a warp read the same value of A: a broadcast, 1 sector. B and C are coalesced: 32 neighbouring "
        "values are 128 bytes, 4 sectors.",
        keep=("block",),
    ),
    Exercise(
        "A tile of 64 x 64 in shared memory",
        SEED,
        "With tiles of 64 x 64 each value is used 64 times: 16 flop per byte, in 32 KB of shared memory. But one "
        "thread per "
        "element would be 4096 threads per block, and a block has at most 1024. Make the spec legal without a "
        "smaller tile.",
        spec("tile block 64x64x64", PLAIN),
        (
            least("flop per byte of global memory", 16),
            most("shared memory per block", 32768),
            most("threads per block", 1024),
        ),
        ("A thread may compute several elements of C.", "`tile thread 4x1` divides the threads by 4."),
        spec("tile block 64x64x64", "tile thread 4x1", PLAIN),
        "The traffic falls by the side of the tile, whatever computes it. Several elements per thread are the idea of "
        "the next rung.",
        keep=("block",),
    ),
    Exercise(
        "Reuse values in registers",
        SEED,
        "A larger tile of shared memory does not help a kernel that is limited by shared-memory bandwidth: the inner "
        "loop "
        "loads as often. Reach 8 flop per value read from shared memory, with the same block tile.",
        spec("tile block 128x128x8", "tile thread 16x1", PLAIN),
        (least("flop per value from shared memory", 8), least("threads per block", 128)),
        (
            "With TM x TN sums, a step reads TM + TN values for TM x TN FMAs.",
            "2 TM TN / (TM + TN) is largest for a square: 8 for `tile thread 8x8`.",
        ),
        spec(*BLOCKED, PLAIN),
        "8x8 sums: 16 values feed 64 FMAs, 128 flop. The global traffic is the same; the shared memory is asked an "
        "eighth as often as with two loads per FMA.",
        keep=("block",),
    ),
    Exercise(
        "Load 16 bytes at once",
        SEED,
        "Each shared load of the text feeds 4 FMAs, because a thread loads its rows and columns one by one. Its rows "
        "of A are apart in memory. Make each shared load of the text feed 16 FMAs, with the same tiles.",
        spec(*BLOCKED, PLAIN),
        (least("FMAs per shared load", 16), most("global load requests", 8.4)),
        (
            "A load of 16 bytes needs 4 neighbours: the rows of A at one k must lie side by side.",
            "Store the A tile transposed and move 16 bytes per access: `use transposeA, float4`.",
        ),
        spec(*BLOCKED, WIDE),
        "The transposed store costs a scatter of four values once per tile, and makes every load of the inner loop "
        "four times as wide, whether or not a compiler would have merged them (`gemmgen explain` shows both). The "
        "price is in the next exercises: its bank conflicts.",
        keep=("block", "thread"),
    ),
    Exercise(
        "Budgets: threads, shared memory, registers",
        SEED,
        "BM = BN = 128, BK = 8 and TM = TN = 8 are 256 threads and 8 KB. Registers limit the occupancy to 25%: two "
        "whole "
        "blocks fit, 512 of 2048 threads. Reach 50% with the same block tile, by the registers that the text names, "
        "and keep at least 5 flop per value from shared memory.",
        spec(*BLOCKED, PLAIN),
        (least("occupancy", 50), least("flop per value from shared memory", 5)),
        (
            "Fewer sums per thread are more threads per block, with fewer registers each.",
            "Halve one side of the thread tile: `tile thread 8x4`.",
        ),
        spec("tile block 128x128x8", "tile thread 8x4", PLAIN),
        "8x4 sums: 512 threads with half the accumulators. The cost: 12 values feed 32 FMAs, 5.33 flop per value "
        "instead of 8. A compiler may take more registers than the text names: `gemmgen explain` says how many, and "
        "min_blocks limits them. Whether it pays is measured, not guessed.",
        keep=("block",),
    ),
    Exercise(
        "Move to the right on the roofline",
        SEED,
        "Tiles of 32 x 32 give 8 flop per byte. An A6000 is limited by its DRAM below 50 (without caches). Reach 32 "
        "flop per "
        "byte as tiled, in at most 16 KB of shared memory.",
        spec("tile block 32x32x32", PLAIN),
        (least("flop per byte of global memory", 32), most("shared memory per block", 16384)),
        (
            "Intensity is S/4 for tiles of S x S.",
            "S = 128, and a small BK: `tile block 128x128x8`. With `tile thread 8x8` it is legal.",
        ),
        spec(*BLOCKED, PLAIN),
        "128/4 = 32. BK does not enter: it changes how often tiles are loaded, and how large they are, but not how "
        "often "
        "a value is used.",
        size=(4096, 4096, 4096),
        gpu="a6000",
    ),
    Exercise(
        "60% of cuBLAS",
        SEED,
        "The model expects 37% of cuBLAS of this kernel on an H200. Shared-memory bandwidth limits it. Reach 60% by "
        "the "
        "model, with any settings.",
        spec("tile block 64x64x64", "tile thread 4x1", PLAIN),
        (least("speed", 60),),
        (
            "`gemmgen explain FILE` names the bottleneck and a change that reduces it.",
            "Outer products in registers, a larger block tile and wide accesses: `tile thread 8x8`, "
            "`tile block 128x128x8`, `use transposeA, float4`.",
        ),
        spec(*BLOCKED, WIDE),
        "Register blocking is the pivotal rung. `gemmgen ladder` shows the same step measured.",
        without=(),
    ),
    Exercise(
        "No spills",
        SEED,
        "A thread tile of 16x16 is 256 sums, and a thread has at most 255 registers: the compiler spills to memory. "
        "Name at "
        "most 128 registers, let the compiler spill nothing, and keep 8 flop per value from shared memory.",
        spec("tile block 128x128x8", "tile thread 16x16", PLAIN),
        (
            most("registers named per thread", 128),
            least("flop per value from shared memory", 8),
            most("spills", 0),
        ),
        (
            "TM x TN sums, TM + TN fragments, and addresses.",
            "`tile thread 8x8` is the largest square (of a power of 2) below 128.",
        ),
        spec(*BLOCKED, PLAIN),
        "64 sums and 16 fragments. `gemmgen explain` shows the registers and spills of the compiler.",
        keep=("block",),
    ),
    Exercise(
        "Sweep the tiles",
        SEED,
        "Find tiles with at least 32 flop per byte as tiled, 8 flop per value from shared memory, 256 threads, and "
        "fewer "
        "than 9 KB of shared memory.",
        spec("tile block 64x64x16", "tile thread 4x4", WIDE),
        (
            least("flop per byte of global memory", 32),
            least("flop per value from shared memory", 8),
            least("threads per block", 256),
            most("shared memory per block", 9 * 1024),
        ),
        (
            "Threads are BM BN / (TM TN); bytes are 4 BK (BM + BN).",
            "128x128 with `tile thread 8x8` is 256 threads, and BK = 8 fits: `tile block 128x128x8`.",
        ),
        spec(*BLOCKED, WIDE),
        "This is a tuner by hand. `gemmgen tune` searches such a space, and times what the model prefers.",
    ),
    Exercise(
        "In the words of CUTLASS",
        SEED,
        "A CUTLASS kernel has ThreadblockShape 128x128x16, WarpShape 64x64 and a thread tile of 8x4 pieces. Write it "
        "as a spec: "
        "128 threads, 10 flop per value from shared memory, and no bank conflict in shared loads.",
        spec("tile block 128x128x16", "tile thread 8x4", WIDE),
        (
            most("threads per block", 128),
            least("threads per block", 128),
            least("flop per value from shared memory", 10),
            most("bank conflict of shared loads", 1),
        ),
        (
            "`tile warp 64x64`, with the toggle that makes warps own tiles: `use warptile`.",
            "The pieces of a thread follow: 64 x 64 / (32 lanes x 8 x 4) = 4.",
        ),
        spec("tile block 128x128x16", "tile warp 64x64", "tile thread 8x4", WARP),
        "ThreadblockShape is `tile block`, WarpShape `tile warp`; a thread computes 1 x 4 pieces of 8x4.",
        keep=("block", "warp", "thread"),
        use=("warptile",),
    ),
)
