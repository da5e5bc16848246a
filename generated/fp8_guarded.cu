// fp8, guarded variant: for any M, N, K, and rows of A and B whose start and length are multiples of 16
// bytes, rows of C whose start and length are multiples of 4 bytes.
//
// Launch: grid (min(132, (M + 127) / 128 * ((N + 127) / 128)), 1, 1), 384 threads per block, 131136 bytes of
// dynamic shared memory, sm_90a.
// Tensor maps (cuTensorMapEncodeTiled): mapA of A, e4m3, box 128 x 128 elements, 128-byte swizzle, zeros out
// of bounds; mapB of B, e4m3, box 128 x 128 elements, 128-byte swizzle, zeros out of bounds.
//
//     kernel fp8
//     tile   block  128x128x128
//     tile   warp   16x128  # each of the four warps of a group has 16 of its 64 rows
//     use    coalescing, smem, float4, warptile, tma, release, smemSwizzle
//     operands A e4m3 row, B e4m3 col, C bf16 row, accumulate f32
//     math   wgmma 64x128x32
//     roles  producer 1, consumers 2
//     stages 4
//     cta_swizzle 16
//     persistent 132
//
// An example of float8 on Hopper. The tensor cores add up products of float8 in fewer bits than float32 has,
// so each thread takes over their sums after every tile of 128 along K and adds them up in float32:
// promotion. "accumulate fast" on the line of operands does without. Float8 is read along k alone: A by rows,
// B by columns.
// Launched with a block along x for each tile of C, but with no more than 132: then a block goes on to the
// tile that is as many behind its last.
// Made by: gemmgen compile specs/fp8.gemm

constexpr int BM = 128;                     // rows of C that a block computes
constexpr int BN = 128;                     // columns of C that a block computes
constexpr int BK = 128;                     // step along K: the depth of the tiles in shared memory
constexpr int WARP = 32;                    // lanes per warp
constexpr int N_TILES = BN / 8;             // pieces of two columns of a thread's sums, in each of two rows
constexpr int CONSUMERS = 128 * (BM / 64);  // threads that multiply: a warp group of four warps for 64 rows
constexpr int THREADS = CONSUMERS + 128;    // threads in a block: one more group brings tiles
constexpr int GROUP_M = 16;                 // rows of tiles of C in a group, whose blocks go down its columns
constexpr int STAGES = 4;                   // tiles of A and of B in shared memory
constexpr int TILE_BYTES = 1 * (BM * BK + BK * BN);  // bytes of one tile of A and one of B

static_assert(BM % 64 == 0 && BN == 128,
              "each warp group computes 64 rows and all columns of the block's tile");
static_assert(BK % 32 == 0, "a tile is whole steps of wgmma");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

using bf16 = unsigned short;  // the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits

using e4m3 = unsigned char;  // 1 sign, 4 exponent and 3 mantissa bits, no infinity

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

// Where add is 0, d = A B, and else:
// Starts d += A B: 64 x 128 sums, 32 steps along k, by the four warps of a warp group. A and B are
// read from shared memory until a wait for the group returns. Each thread has 64 sums: of row lane / 4 of its
// warp's 16 rows, and of the row 8 further down.
__device__ __forceinline__ void wgmma_m64n128k32(float (&d)[2][32], const e4m3* a, const e4m3* b, int add)
{
    #define D4(j) "+f"(d[0][j]), "+f"(d[0][j + 1]), "+f"(d[1][j]), "+f"(d[1][j + 1])
    #define D32(j) D4(j), D4(j + 2), D4(j + 4), D4(j + 6), D4(j + 8), D4(j + 10), D4(j + 12), D4(j + 14)
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.u32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, add, 1, 1;\n"
        "}"
        : D32(0), D32(16)
        : "l"(wgmma_descriptor(a, 16, 1024)), "l"(wgmma_descriptor(b, 16, 1024)), "r"(add));
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
__device__ __forceinline__ void wgmma_wait(float (&d)[2][32])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
    for (int j = 0; j < 32; ++j) asm volatile("" : "+f"(d[0][j]), "+f"(d[1][j]) :: "memory");
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
__device__ __forceinline__ void tma_load(e4m3* dst, const TensorMap* map, int x, int y, unsigned long long* barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldc:
// elements from one row of A, C to the next; ldb: elements from one column of B to the next; beta: scale of C
// before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM; __grid_constant__: its address is that of the parameter itself, not of a copy
extern "C" __global__ void __launch_bounds__(THREADS)
fp8(int M, int N, int K, float alpha, const e4m3* A, size_t lda, const e4m3* B, size_t ldb, float beta,
    bf16* C, size_t ldc, const __grid_constant__ TensorMap mapA, const __grid_constant__ TensorMap mapB)
{
    // 131136 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(1024) e4m3 dynamicShared[];
    e4m3 (*As)[BM][BK] = reinterpret_cast<e4m3 (*)[BM][BK]>(dynamicShared);
    e4m3 (*Bs)[BN][BK] = reinterpret_cast<e4m3 (*)[BN][BK]>(dynamicShared + STAGES * BM * BK);
    unsigned long long* full =
        reinterpret_cast<unsigned long long*>(dynamicShared + STAGES * BM * BK + STAGES * BN * BK);
    unsigned long long* empty =
        reinterpret_cast<unsigned long long*>(dynamicShared + STAGES * BM * BK + STAGES * BN * BK
            + 8 * STAGES);

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
            // what the tensor cores add up of one tile, in fewer bits than float32 has
            float part[2][N_TILES * 2] = {};
            int stage = passed % STAGES;
            int parity = passed / STAGES;  // the phase to wait for; flips each time the ring of stages wraps
            for (int t = 0; t < tiles; ++t) {
                mbarrier_wait(&full[stage], parity);  // As, Bs: written by the TMA engine, read below
                wgmma_fence();  // the sums: used by this thread before, added to by the products below
                // #pragma unroll: the iterations are written one after another, so that indices are constants
                // and small arrays are registers
                #pragma unroll
                for (int k = 0; k < BK; k += 32) {
                    wgmma_m64n128k32(part, &As[stage][groupRow][k], &Bs[stage][0][k], k);
                }
                wgmma_commit();    // As, Bs: all products of one tile are one group
                wgmma_wait(part);  // As, Bs: read by the products above, which this waits for
                __syncwarp();      // all lanes are done: the first arrives for them
                // As, Bs: read by this warp above, overwritten once all warps are here
                mbarrier_release(&empty[stage]);

                // promotion: rounded to nearest in float32, which the tensor cores' own sums are not
                #pragma unroll
                for (int p = 0; p < 2; ++p) {
                    #pragma unroll
                    for (int j = 0; j < N_TILES * 2; ++j) acc[p][j] += part[p][j];
                }
                if (++stage == STAGES) { stage = 0; parity ^= 1; }
            }

            // 5. Epilogue: C = alpha * A B + beta * C
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
                        as_bf16x2(&blockC[(row + p * 8) * ldc + col + q * 8]) = as_bf16x2(rounded);
                    }
                }
            }
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
                    tma_load(&Bs[stage][0][0], &mapB, k0, tileCol * BN, &full[stage]);
                    if (++stage == STAGES) { stage = 0; parity ^= 1; }
                }
            }
        }
    }
}
