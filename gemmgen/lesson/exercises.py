"""The exercises as data: those of the lesson, and ten more."""

from __future__ import annotations

from gemmgen.lesson.rows import Exercise, Race, least, most, spec

SEED = "the lesson"
NEW = "gemmgen"
PLAIN = "use coalescing, smem"
WIDE = "use coalescing, smem, transposeA, float4"
WARP = "use coalescing, smem, transposeA, float4, warptile"
BLOCKED = ("tile block 128x128x8", "tile thread 8x8")

EXERCISES: tuple[Exercise | Race, ...] = (
    Exercise(
        "Coalesce the loads",
        SEED,
        "In the naive kernel a warp's load of A touches 32 rows, and its load of B one value. After the lanes are "
        "mapped to "
        "columns, which of A, B and C is a broadcast, and which is coalesced? Change the spec so that a request of A "
        "moves "
        "one sector.",
        spec("tile block 32x32"),
        (most("sectors per request of A", 1), most("sectors per request of B", 4)),
        (
            "Consecutive lanes must walk along a row of C, the contiguous dimension.",
            "One toggle does it: `gemmgen settings` lists them.",
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
        ("A thread may compute several elements of C.", "`tile thread TMxTN` divides the threads by TM x TN."),
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
            "2 TM TN / (TM + TN) is largest for a square: which square gives 8?",
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
            "One toggle stores the A tile transposed, another moves 16 bytes per access.",
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
            "Halve one side of the thread tile.",
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
        ("Intensity is S/4 for tiles of S x S.", "S = 128. A small BK keeps the tiles small."),
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
            "Outer products in registers (a square thread tile) and a larger block tile.",
        ),
        spec(*BLOCKED, WIDE),
        "Register blocking is the pivotal rung. `gemmgen ladder` shows the same step measured.",
    ),
    Exercise(
        "No spills",
        SEED,
        "A thread tile of 16x16 is 256 sums, and a thread has at most 255 registers: the compiler spills to memory. "
        "Name at "
        "most 128 registers, and keep 8 flop per value from shared memory.",
        spec("tile block 128x128x8", "tile thread 16x16", PLAIN),
        (most("registers named per thread", 128), least("flop per value from shared memory", 8)),
        ("TM x TN sums, TM + TN fragments, and addresses.", "8x8 is the largest square below 128."),
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
            "128x128 with 8x8 is 256 threads; which BK fits?",
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
            "`tile warp 64x64`, with the toggle that makes warps own tiles.",
            "The pieces of a thread follow: 64 x 64 / (32 lanes x 8 x 4) = 4.",
        ),
        spec("tile block 128x128x16", "tile warp 64x64", "tile thread 8x4", WARP),
        "ThreadblockShape is `tile block`, WarpShape `tile warp`; a thread computes 1 x 4 pieces of 8x4.",
        keep=("block", "warp", "thread"),
        use=("warptile",),
    ),
    Race(
        "Find the race: written, then read",
        NEW,
        "A barrier is missing from this tile program: some threads read elements of the tiles that others have not yet "
        "written. Add one line, `barrier`, where it belongs.",
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
        "that a slow one still reads. Add one line, `barrier`.",
        "smem",
        1,
        ("What follows the last read of a tile? The next iteration's copies.", "At the end of the loop over k0."),
        "A write-after-read race. A second stage of shared memory makes this barrier unnecessary: rung `doublebuffer`.",
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
            "Elements left empty after each row shift the next row by as many banks: `pad_a`.",
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
        "Each load of B's tile is a 2-way bank conflict, because the lanes of a warp read columns that are far "
        "apart. Padding "
        "does not help: the columns lie in one row. Remove the conflict with the same block tile.",
        spec("tile block 128x128x16", "tile thread 8x4", WIDE, "pad_b 4"),
        (most("bank conflict of shared loads", 1), least("flop per value from shared memory", 8)),
        (
            "The lanes of a warp should share rows and columns: give each warp a tile of its own.",
            "`tile warp 64x64` with `warptile`.",
        ),
        spec("tile block 128x128x16", "tile warp 64x64", "tile thread 8x4", WARP),
        "In a warp tile the lanes are 8 x 4: they read few distinct values, which lie side by side.",
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
        ("An SM of an H200 has 228 KB of shared memory for all of its blocks.", "2 x 3 x 32 KB fits."),
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
            "Copy the next tiles while this one is multiplied: several `stages`.",
            "cp.async copies past the registers, and `prefetch` loads fragments one step early.",
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
        (least("blocks", 132), most("expected time", 0.02)),
        ("The sum over K can be shared by several blocks.", "`split_k 4` gives 256 blocks."),
        spec("tile block 64x64x16", "tile thread 8x4", WIDE, "split_k 4"),
        "Each block sums a quarter of K; a second kernel adds the parts in a fixed order, so that the bits repeat.",
        keep=("block",),
        size=(512, 512, 512),
    ),
    Exercise(
        "A skinny product",
        NEW,
        "C has 16 rows, and the block tile 128: seven of eight FMAs compute rows that do not exist. Waste nothing, "
        "and reach "
        "50 us by the model.",
        spec(*BLOCKED, WIDE),
        (most("FMAs computed per FMA needed", 1.01), most("expected time", 0.05)),
        (
            "BM = 16. Then C has few tiles: see the exercise on split_k.",
            "Keep many loads of B in flight: narrow tiles, stages, cp.async; the rung `skinny` does all of it.",
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
    ),
    Exercise(
        "Half the bytes",
        NEW,
        "Store the same tiles in half the shared memory: A and B in bfloat16, sums and C in float32.",
        spec("tile block 128x128x16", "tile thread 8x8", WIDE),
        (most("shared memory per block", 8192),),
        ("`operands` gives the element type of each matrix.", "operands A bf16 row, B bf16 row, C f32 row"),
        spec("tile block 128x128x16", "tile thread 8x8", WIDE, "operands A bf16 row, B bf16 row, C f32 row"),
        "2 bytes per element. Each product of two bfloat16 is exact in float32, and so the sums lose nothing more.",
        keep=("block", "thread"),
    ),
    Exercise(
        "Let one thread copy",
        NEW,
        "All 128 threads compute addresses and issue 12.6 million requests of global loads. Let the tensor memory "
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
        ("One toggle replaces another: both are ways of copying.", "`tma` in place of `cpasync`."),
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
