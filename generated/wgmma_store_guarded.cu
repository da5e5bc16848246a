// wgmma_store, guarded variant: for any M, N, K, and rows of A, B and C whose start and length are multiples
// of 16 bytes.
//
// Launch: grid (min(132, (M + 127) / 128 * ((N + 255) / 256)), 1, 1), 384 threads per block, 213040 bytes of
// dynamic shared memory, sm_90a.
// Tensor maps (cuTensorMapEncodeTiled): mapA of A, bf16, box 64 x 128 elements, 128-byte swizzle, zeros out
// of bounds; mapB of B, bf16, box 64 x 64 elements, 128-byte swizzle, zeros out of bounds; mapC of C, bf16,
// box 64 x 64 elements, 128-byte swizzle, zeros out of bounds.
//
//     kernel wgmma_store
//     tile   block  128x256x64
//     tile   warp   16x256  # each of the four warps of a group has 16 of its 64 rows
//     use    coalescing, smem, float4, warptile, tma, release, smemSwizzle, tmaStore
//     operands A bf16 row, B bf16 row, C bf16 row, accumulate f32
//     math   wgmma 64x256x16
//     roles  producer 1, consumers 2
//     stages 3
//     cta_swizzle 16
//     persistent 132
//
// Rung 8 of bfloat16. C leaves through shared memory of its own: threads leave their parts there, and the TMA
// engine stores whole rows of 128 bytes while the next tile is multiplied. Three stages leave room for it.
// Launched with a block along x for each tile of C, but with no more than 132: then a block goes on to the
// tile that is as many behind its last.
// Made by: gemmgen compile specs/wgmma_store.gemm

constexpr int BM = 128;                     // rows of C that a block computes
constexpr int BN = 256;                     // columns of C that a block computes
constexpr int BK = 64;                      // step along K: the depth of the tiles in shared memory
constexpr int WARP = 32;                    // lanes per warp
constexpr int N_TILES = BN / 8;             // pieces of two columns of a thread's sums, in each of two rows
constexpr int CONSUMERS = 128 * (BM / 64);  // threads that multiply: a warp group of four warps for 64 rows
constexpr int THREADS = CONSUMERS + 128;    // threads in a block: one more group brings tiles
constexpr int GROUP_M = 16;                 // rows of tiles of C in a group, whose blocks go down its columns
constexpr int STAGES = 3;                   // tiles of A and of B in shared memory
constexpr int PANEL = 64;                   // elements of a row of a tile that lie together
constexpr int PANEL_C = 64;                 // elements of a row of a tile that lie together
constexpr int TILE_BYTES = 2 * (BM * BK + BK * BN);  // bytes of one tile of A and one of B

static_assert(BM % 64 == 0 && BN == 256,
              "each warp group computes 64 rows and all columns of the block's tile");
static_assert(BK % 16 == 0, "a tile is whole steps of wgmma");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

using bf16 = unsigned short;  // the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits

__device__ __forceinline__ float bf16_to_float(bf16 x) { return __uint_as_float((unsigned int)x << 16); }

// Rounds to the nearest bf16, ties to even.
__device__ __forceinline__ bf16 float_to_bf16(float x)
{
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}

// 4 bytes in one access: p must be aligned to 4 bytes.
__device__ __forceinline__ unsigned int& as_bf16x2(bf16* p) { return *reinterpret_cast<unsigned int*>(p); }

// The layout of a matrix in memory, for the TMA engine. Made at launch; instructions take its address, which
// must be a multiple of 64: alignas.
struct alignas(128) TensorMap { unsigned long long opaque[16]; };

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

// A barrier in shared memory: a phase completes when all have arrived and all expected bytes are written.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible: the first fence to the threads of the cluster, the second to the async
// proxy, which is how the TMA engine accesses shared memory.
__device__ __forceinline__ void mbarrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Each thread of this warp group takes as many as 232 registers from here on.
__device__ __forceinline__ void registers_take232()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}

// Waits until the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, int parity)
{
    asm volatile(
        "{\n"
        ".reg .pred ready;\n"
        "wait_%=: mbarrier.try_wait.parity.shared.b64 ready, [%0], %1;\n"
        "@!ready bra wait_%=;\n"
        "}" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// The registers that this warp group wrote are there for the wgmma that follow.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// What wgmma knows of an operand in shared memory: where it starts, and how many bytes apart its parts are.
// Rows are 128 bytes, swizzled over 128 bytes, as TMA wrote them.
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* tile, int leading, int stride)
{
    const unsigned long long swizzle128 = 1ull << 62;
    const unsigned int start = (shared_address(tile) & 0x3ffff) >> 4;
    return swizzle128 | (unsigned long long)(stride >> 4) << 32 | (unsigned int)(leading >> 4) << 16 | start;
}

// Starts d += A B: 64 x 256 sums, 16 steps along k, by the four warps of a warp group. A and B are
// read from shared memory until a wait for the group returns. Each thread has 128 sums: of row lane / 4 of its
// warp's 16 rows, and of the row 8 further down.
__device__ __forceinline__ void wgmma_m64n256k16(float (&d)[2][64], const bf16* a, const bf16* b)
{
    #define D4(j) "+f"(d[0][j]), "+f"(d[0][j + 1]), "+f"(d[1][j]), "+f"(d[1][j + 1])
    #define D32(j) D4(j), D4(j + 2), D4(j + 4), D4(j + 6), D4(j + 8), D4(j + 10), D4(j + 12), D4(j + 14)
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.eq.u32 add, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, add, 1, 1, 0, 1;\n"
        "}"
        : D32(0), D32(16), D32(32), D32(48)
        : "l"(wgmma_descriptor(a, 16, 1024)), "l"(wgmma_descriptor(b, 8192, 1024)));
    #undef D4
    #undef D32
}

// The wgmma that this warp group issued since the last call are one group.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all wgmma of this warp group have read their operands and written d. The empty
// asm keeps the compiler from using it earlier.
__device__ __forceinline__ void wgmma_wait(float (&d)[2][64])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
    for (int j = 0; j < 64; ++j) asm volatile("" : "+f"(d[0][j]), "+f"(d[1][j]) :: "memory");
}

// The warp's first lane arrives: it releases what the barrier guards.
__device__ __forceinline__ void mbarrier_release(unsigned long long* barrier)
{
    asm volatile(
        "{\n"
        ".reg .pred first;\n"
        "setp.eq.u32 first, %1, 0;\n"
        "@first mbarrier.arrive.shared.b64 _, [%0];\n"
        "}" :: "r"(shared_address(barrier)), "r"(threadIdx.x % WARP) : "memory");
}

// Waits until the TMA stores of this thread have read their tiles, which may then be overwritten.
__device__ __forceinline__ void store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// The 128 threads of a warp group meet; each group has a barrier of its own.
__device__ __forceinline__ void group_sync(int barrier)
{
    asm volatile("bar.sync %0, 128;" :: "r"(barrier) : "memory");
}

// Puts what this thread did to shared memory before what the TMA engine does there: the engine reaches memory by
// a path of its own, and a barrier alone does not order the two.
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Issues the TMA store of one box: x counts along the matrix's contiguous dimension, y across it. What lies
// outside the matrix is left out.
__device__ __forceinline__ void tma_store(const TensorMap* map, int x, int y, const bf16* src)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(map), "r"(x), "r"(y), "r"(shared_address(src)) : "memory");
}

// The TMA stores that this thread issued since the last call are one group.
__device__ __forceinline__ void store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Each thread of this warp group keeps only as many as 40 registers from here on.
__device__ __forceinline__ void registers_keep40()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}

// Arrives, and adds bytes to those that the current phase expects.
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Issues the TMA copy of one box: x counts along the matrix's contiguous dimension, y across it. Elements
// outside the matrix arrive as zeros.
__device__ __forceinline__ void tma_load(bf16* dst, const TensorMap* map, int x, int y, unsigned long long* barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM; __grid_constant__: its address is that of the parameter itself, not of a copy
extern "C" __global__ void __launch_bounds__(THREADS)
wgmma_store(int M, int N, int K, float alpha, const bf16* A, size_t lda, const bf16* B, size_t ldb,
            float beta, bf16* C, size_t ldc, const __grid_constant__ TensorMap mapA,
            const __grid_constant__ TensorMap mapB, const __grid_constant__ TensorMap mapC)
{
    // 213040 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(1024) bf16 dynamicShared[];
    bf16 (*As)[BM][BK] = reinterpret_cast<bf16 (*)[BM][BK]>(dynamicShared);
    bf16 (*Bs)[BN / PANEL][BK][PANEL] =
        reinterpret_cast<bf16 (*)[BN / PANEL][BK][PANEL]>(dynamicShared + STAGES * BM * BK);
    bf16 (*Cs)[BM][PANEL_C] =
        reinterpret_cast<bf16 (*)[BM][PANEL_C]>(dynamicShared + STAGES * BM * BK
            + STAGES * (BN / PANEL) * BK * PANEL);
    unsigned long long* full =
        reinterpret_cast<unsigned long long*>(dynamicShared + STAGES * BM * BK
            + STAGES * (BN / PANEL) * BK * PANEL + (BN / PANEL_C) * BM * PANEL_C);
    unsigned long long* empty =
        reinterpret_cast<unsigned long long*>(dynamicShared + STAGES * BM * BK
            + STAGES * (BN / PANEL) * BK * PANEL + (BN / PANEL_C) * BM * PANEL_C + 4 * STAGES);

    // 1. Placement: what this thread computes
    const int groupRow = threadIdx.x / 128 * 64;  // first row of this warp group in the block's tile
    const int lane = threadIdx.x % 32;
    // first row of this thread's sums; the other is 8 further down
    const int row = threadIdx.x / 32 * 16 + lane / 4;
    const int col = lane % 4 * 2;            // its first two columns; every eighth from there on is its own
    const int tileRows = (M + BM - 1) / BM;  // tiles of C, down a column and along a row
    const int tileCols = (N + BN - 1) / BN;

    // 2. Pipeline: what all programs have in common
    const int tiles = (K + BK - 1) / BK;  // steps of BK along K
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], CONSUMERS / WARP);
        }
        mbarrier_fence();
    }
    __syncthreads();          // barriers: initialised above, used below
    if (threadIdx.x < 256) {  // consumers: warps 0 to 7
        registers_take232();

        // This block's tiles of C, one after another: as many apart as there are blocks.
        for (int tile = blockIdx.x; tile < tileRows * tileCols; tile += gridDim.x) {
            // 3. Which tile of C is next, and where it lies
            // Blocks go down GROUP_M rows of tiles before they go on to the next column of tiles: those that
            // run at one time then share rows of A and columns of B, and find more of them in L2.
            const int group = tile / (GROUP_M * tileCols);
            const int groupRows = min(GROUP_M, tileRows - group * GROUP_M);  // the last group may have fewer
            const int inGroup = tile % (GROUP_M * tileCols);            // tiles of the group before this one
            const int tileRow = group * GROUP_M + inGroup % groupRows;  // which tile of C this is
            const int tileCol = inGroup / groupRows;
            const int rowsLeft = M - tileRow * BM;  // rows of C from this tile's first to the last
            const int colsLeft = N - tileCol * BN;  // columns of C from this tile's first to the last
            bf16* blockC = C + tileRow * BM * ldc + tileCol * BN;  // the tile itself
            // steps along K before this tile of C, modulo two rounds of the stages, which run on, and so do
            // phases
            const int passed = tile / gridDim.x % (2 * STAGES) * (tiles % (2 * STAGES)) % (2 * STAGES);

            // 4. Main loop: each iteration multiplies one tile of A with one of B while later tiles are in
            // flight
            float acc[2][N_TILES * 2] = {};  // this thread's elements of C, in registers throughout
            int stage = passed % STAGES;
            int parity = passed / STAGES;  // the phase to wait for; flips each time the ring of stages wraps
            for (int t = 0; t < tiles; ++t) {
                mbarrier_wait(&full[stage], parity);  // As, Bs: written by the TMA engine, read below
                wgmma_fence();  // the sums: used by this thread before, added to by the products below
                // #pragma unroll: the iterations are written one after another, so that indices are constants
                // and small arrays are registers
                #pragma unroll
                for (int k = 0; k < BK; k += 16) {
                    wgmma_m64n256k16(acc, &As[stage][groupRow][k], &Bs[stage][0][k][0]);
                }
                wgmma_commit();   // As, Bs: all products of one tile are one group
                wgmma_wait(acc);  // As, Bs: read by the products above, which this waits for
                __syncwarp();     // all lanes are done: the first arrives for them
                // As, Bs: read by this warp above, overwritten once all warps are here
                mbarrier_release(&empty[stage]);
                if (++stage == STAGES) { stage = 0; parity ^= 1; }
            }

            // 5. Epilogue: C = alpha * A B + beta * C
            if (threadIdx.x % 128 == 0) {
                store_wait_read();  // Cs: read by the TMA engine's last stores, overwritten below
            }
            group_sync(threadIdx.x / 128 + 1);

            // this thread's part of C, where the engine reads it: pieces of 16 bytes are swizzled by the
            // row's number
            #pragma unroll
            for (int p = 0; p < 2; ++p) {
                #pragma unroll
                for (int q = 0; q < N_TILES; ++q) {
                    if (row + p * 8 < rowsLeft && col + q * 8 < colsLeft) {
                        float out[2];
                        #pragma unroll
                        for (int v = 0; v < 2; ++v) out[v] = alpha * acc[p][q * 2 + v];
                        if (beta != 0.0f) {
                            // alignas: the address is a multiple of this many bytes, as accesses of several
                            // elements need
                            alignas(4) bf16 old[2];
                            as_bf16x2(old) = as_bf16x2(&blockC[(row + p * 8) * ldc + col + q * 8]);
                            #pragma unroll
                            for (int v = 0; v < 2; ++v) out[v] += beta * bf16_to_float(old[v]);
                        }
                        alignas(4) bf16 rounded[2];
                        #pragma unroll
                        for (int v = 0; v < 2; ++v) rounded[v] = float_to_bf16(out[v]);
                        as_bf16x2(&Cs[q / 8][row + p * 8][((q % 8) ^ (lane / 4)) * 8 + col]) = as_bf16x2(rounded);
                    }
                }
            }
            fence_async();  // Cs: written by this warp group above, read by the TMA engine below
            group_sync(threadIdx.x / 128 + 1);

            // one thread of each warp group issues the TMA stores of its rows
            if (threadIdx.x % 128 == 0) {
                #pragma unroll
                for (int panel = 0; panel < 4; ++panel) {
                    tma_store(&mapC,
                        tileCol * BN + panel * PANEL_C,
                        tileRow * BM + groupRow,
                        &Cs[panel][groupRow][0]);
                }
            }
            if (threadIdx.x % 128 == 0) {
                store_commit();  // Cs: all stores of one tile are one group
            }
        }
        if (threadIdx.x % 128 == 0) {
            store_wait_read();  // Cs: read by the TMA engine's last stores, gone when the block ends
        }
    } else {  // producer: warps 8 to 11
        registers_keep40();

        // one thread issues the TMA copies
        if (threadIdx.x == CONSUMERS) {
            // This block's tiles of C, one after another: as many apart as there are blocks.
            for (int tile = blockIdx.x; tile < tileRows * tileCols; tile += gridDim.x) {
                // 6. Which tile of C is next, and where it lies
                // Blocks go down GROUP_M rows of tiles before they go on to the next column of tiles: those
                // that run at one time then share rows of A and columns of B, and find more of them in L2.
                const int group = tile / (GROUP_M * tileCols);
                // the last group may have fewer
                const int groupRows = min(GROUP_M, tileRows - group * GROUP_M);
                const int inGroup = tile % (GROUP_M * tileCols);  // tiles of the group before this one
                const int tileRow = group * GROUP_M + inGroup % groupRows;  // which tile of C this is
                const int tileCol = inGroup / groupRows;
                // steps along K before this tile of C, modulo two rounds of the stages, which run on, and so
                // do phases
                const int passed = tile / gridDim.x % (2 * STAGES) * (tiles % (2 * STAGES)) % (2 * STAGES);
                int stage = passed % STAGES;
                // the phase to wait for; flips each time the ring of stages wraps
                int parity = passed / STAGES;
                for (int t = 0; t < tiles; ++t) {
                    const int lastPhase = parity ^ 1;  // a new barrier counts as if this phase had completed
                    // As, Bs: read by all warps before, overwritten below
                    mbarrier_wait(&empty[stage], lastPhase);
                    const int k0 = t * BK;
                    // As, Bs: read when this many bytes have arrived
                    mbarrier_expect(&full[stage], TILE_BYTES);
                    tma_load(&As[stage][0][0], &mapA, k0, tileRow * BM, &full[stage]);
                    #pragma unroll
                    for (int p = 0; p < 4; ++p) {
                        tma_load(&Bs[stage][p][0][0], &mapB, tileCol * BN + p * PANEL, k0, &full[stage]);
                    }
                    if (++stage == STAGES) { stage = 0; parity ^= 1; }
                }
            }
        }
    }
}
