// mma_pipelined, exact variant: for M that is a multiple of 128 and N of 256 and K of 64, and rows of A and B
// whose start and length are multiples of 16 bytes, rows of C whose start and length are multiples of 8
// bytes.
//
// Launch: grid ((N + 255) / 256, (M + 127) / 128, 1), 256 threads per block, 147456 bytes of dynamic shared
// memory, sm_80 or newer.
//
//     kernel mma_pipelined
//     tile   block  128x256x64
//     tile   warp   64x64
//     use    coalescing, smem, float4, warptile, cpasync, prefetch, ldmatrix, smemSwizzle, stageC
//     operands A bf16 row, B bf16 row, C bf16 row, accumulate f32
//     math   mma 16x8x16
//     stages 3
//     cta_swizzle 8  # rows of tiles of C that blocks go down first
//
// Rung 4 of bfloat16. Copies go to shared memory past the registers, two tiles ahead, and fragments are
// loaded a step ahead. Blocks that run at one time compute a compact part of C, so that L2 serves most of
// what they read.
// Made by: gemmgen compile specs/mma_pipelined.gemm

constexpr int BM = 128;              // rows of C that a block computes
constexpr int BN = 256;              // columns of C that a block computes
constexpr int BK = 64;               // step along K: the depth of the tiles in shared memory
constexpr int WM = 64;               // rows of the block's tile that a warp computes
constexpr int WN = 64;               // columns of the block's tile that a warp computes
constexpr int WARP = 32;             // lanes per warp
constexpr int MMA_M = 16;            // rows of C that one mma computes
constexpr int MMA_N = 8;             // its columns of C
constexpr int MMA_K = 16;            // and its steps along K
constexpr int M_TILES = WM / MMA_M;  // tiles of that size in a warp's, along M
constexpr int N_TILES = WN / MMA_N;  // and along N
constexpr int THREADS = WARP * (BM / WM) * (BN / WN);  // threads in a block
constexpr int GROUP_M = 8;           // rows of tiles of C in a group, whose blocks go down its columns
constexpr int STAGES = 3;            // tiles of A and of B in shared memory
constexpr int STRIDE_A = THREADS / (BK / 8);  // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / (BN / 8);  // rows of B's tile that one pass of the block copies
constexpr int PAD_C = 8;             // padding elements after each row of Cs
constexpr int STRIDE_C = THREADS / (BN / 4);  // rows of C's tile that one pass of the block stores

static_assert(BM % WM == 0 && BN % WN == 0, "the block's tile is whole warp tiles");
static_assert(WM % MMA_M == 0 && WN % MMA_N == 0, "a warp's tile is whole tiles of mma");
static_assert(BK % MMA_K == 0, "a tile is whole steps of mma");
static_assert(BK % 8 == 0, "BK must be a multiple of 8: A is copied 16 bytes at a time");
static_assert(BN % 8 == 0, "BN must be a multiple of 8: B is copied 16 bytes at a time");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: C is stored 8 bytes at a time");
static_assert(THREADS % (BK / 8) == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % (BN / 8) == 0 && BK % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");

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

// 8 bytes in one access: p must be aligned to 8 bytes.
__device__ __forceinline__ uint2& as_bf16x4(bf16* p) { return *reinterpret_cast<uint2*>(p); }

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }

// 8 bytes in one access: p must be aligned to 8 bytes.
__device__ __forceinline__ float2& as_float2(float* p) { return *reinterpret_cast<float2*>(p); }

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

// Starts a copy of 16 bytes from global to shared memory, bypassing registers. .cg: L2 only.
__device__ __forceinline__ void cp_async16(bf16* dst, const bf16* src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(shared_address(dst)), "l"(src) : "memory");
}

// Closes a group: all copies that this thread started since the last call.
__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until all groups but the last have completed, of those that this thread committed.
__device__ __forceinline__ void cp_async_wait1()
{
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

// A warp loads 4 8x8 matrices with rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8;
// every lane gets 4 bytes of row l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(bf16* to, const bf16* row)
{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// A warp loads 4 8x8 matrices with rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8;
// every lane gets two elements of column l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4_trans(bf16* to, const bf16* row)
{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// A warp multiplies 16x16 of A by 16x8 of B and adds the product to 16x8 sums. Lane l has two neighbours each
// of the sums' rows l / 4 (upper) and l / 4 + 8 (lower). A register of a or b holds 2 neighbours along k.
__device__ __forceinline__ void mma_16x8x16(float* upper, float* lower, const bf16* a, const bf16* b)
{
    const unsigned int* aRegs = reinterpret_cast<const unsigned int*>(a);
    const unsigned int* bRegs = reinterpret_cast<const unsigned int*>(b);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                 : "r"(aRegs[0]), "r"(aRegs[1]), "r"(aRegs[2]), "r"(aRegs[3]), "r"(bRegs[0]), "r"(bRegs[1]));
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
mma_pipelined(int M, int N, int K, float alpha, const bf16* A, size_t lda, const bf16* B, size_t ldb,
              float beta, bf16* C, size_t ldc)
{
    // 147456 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(16) bf16 dynamicShared[];
    bf16 (*As)[BM][BK] = reinterpret_cast<bf16 (*)[BM][BK]>(dynamicShared);
    bf16 (*Bs)[BK][BN] = reinterpret_cast<bf16 (*)[BK][BN]>(dynamicShared + STAGES * BM * BK);
    // takes the place of As and Bs, once all is multiplied
    float (*Cs)[BN + PAD_C] = reinterpret_cast<float (*)[BN + PAD_C]>(dynamicShared);

    // 1. Placement: what this thread computes
    // Blocks go down GROUP_M rows of tiles before they go on to the next column of tiles: those that run at
    // one time then share rows of A and columns of B, and find more of them in L2.
    const int group = blockIdx.y / GROUP_M;
    const int groupRows = min(GROUP_M, gridDim.y - group * GROUP_M);    // the last group may have fewer
    const int inGroup = blockIdx.y % GROUP_M * gridDim.x + blockIdx.x;  // blocks of the group before this one
    const int tileRow = group * GROUP_M + inGroup % groupRows;          // this block's tile of C
    const int tileCol = inGroup / groupRows;
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int warpRow = warp / (BN / WN) * WM;  // first row of this warp's tile in the block's
    const int warpCol = warp % (BN / WN) * WN;  // and its first column
    const int row = warpRow + lane / 4;      // this lane's first row of sums, and every eighth from there on
    const int col = warpCol + lane % 4 * 2;  // and its first two columns
    const bf16* blockA = A + tileRow * BM * lda;  // this block's rows of A
    const bf16* blockB = B + tileCol * BN;   // its columns of B
    bf16* blockC = C + tileRow * BM * ldc + tileCol * BN;  // its tile of C
    const int innerRowA = threadIdx.x / (BK / 8);  // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % (BK / 8);  // and which 8 columns
    const int innerRowB = threadIdx.x / (BN / 8);  // which row of B's tile this thread copies first
    const int innerColB = threadIdx.x % (BN / 8);  // and which 8 columns

    // 2. Main loop: each iteration multiplies one tile of A with one of B while later tiles are in flight
    //     iteration t            0   1   2   3   4   5   6  ...
    //     multiplies stage       0   1   2   0   1   2   0  ...
    //     starts tile            2   3   4   5   6   7   8  ...
    //     in stage               2   0   1   2   0   1   2  ...
    const int tiles = K / BK;  // steps of BK along K
    // this lane's elements of C, in registers throughout
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    alignas(8) float acc[M_TILES * 2][N_TILES * 2] = {};
    // its part of the 16x16 tiles of A at one step, and of the one before
    alignas(16) bf16 fragA[2][M_TILES][8] = {};
    // its part of the 16x8 tiles of B at one step, and of the one before
    alignas(16) bf16 fragB[2][N_TILES][4] = {};

    // fill the pipeline
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < tiles) {
            const int k0 = t * BK;
            const bf16* tileA = blockA + k0;
            const bf16* tileB = blockB + k0 * ldb;
            // #pragma unroll: the iterations are written one after another, so that indices are constants and
            // small arrays are registers
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                cp_async16(&As[t][innerRowA + offset][(innerColA ^ (innerRowA % 8)) * 8],
                    &tileA[(innerRowA + offset) * lda + innerColA * 8]);
            }
            #pragma unroll
            for (int offset = 0; offset < BK; offset += STRIDE_B) {
                cp_async16(&Bs[t][innerRowB + offset][(innerColB ^ innerRowB) * 8],
                    &tileB[(innerRowB + offset) * ldb + innerColB * 8]);
            }
        }
        // As, Bs: every thread commits one group per tile, empty after the last: the wait counts groups
        cp_async_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        const int stage = t % STAGES;
        cp_async_wait1();  // As, Bs: copied asynchronously above, read below
        // As, Bs: a stage written by all is read below; one read by all is overwritten below
        __syncthreads();

        // read in the previous iteration, refilled in this one
        const int freeStage = (t + STAGES - 1) % STAGES;
        if (t + STAGES - 1 < tiles) {
            const int k0 = (t + STAGES - 1) * BK;
            const bf16* tileA = blockA + k0;
            const bf16* tileB = blockB + k0 * ldb;
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                cp_async16(&As[freeStage][innerRowA + offset][(innerColA ^ (innerRowA % 8)) * 8],
                    &tileA[(innerRowA + offset) * lda + innerColA * 8]);
            }
            #pragma unroll
            for (int offset = 0; offset < BK; offset += STRIDE_B) {
                cp_async16(&Bs[freeStage][innerRowB + offset][(innerColB ^ innerRowB) * 8],
                    &tileB[(innerRowB + offset) * ldb + innerColB * 8]);
            }
        }
        // As, Bs: every thread commits one group per tile, empty after the last: the wait counts groups
        cp_async_commit();
        #pragma unroll
        for (int k = 0; k < BK; k += MMA_K) {
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                ldmatrix_x4(fragA[k / MMA_K % 2][i],
                    &As[stage][warpRow + i * MMA_M + lane % 16][((k / 8 + lane / 16) ^ (lane % 8)) * 8]);
            }
            #pragma unroll
            for (int j = 0; j < N_TILES; j += 2) {
                ldmatrix_x4_trans(fragB[k / MMA_K % 2][j],
                    &Bs[stage][k + lane % 16][((warpCol / 8 + j + lane / 16) ^ (lane % 8)) * 8]);
            }

            // products of the previous step, whose fragments have arrived (zeros in the first step)
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                #pragma unroll
                for (int j = 0; j < N_TILES; ++j) {
                    mma_16x8x16(&acc[i * 2][j * 2],
                        &acc[i * 2 + 1][j * 2],
                        fragA[(k / MMA_K + 1) % 2][i],
                        fragB[(k / MMA_K + 1) % 2][j]);
                }
            }
        }
    }

    // products of the last step
    #pragma unroll
    for (int i = 0; i < M_TILES; ++i) {
        #pragma unroll
        for (int j = 0; j < N_TILES; ++j) {
            mma_16x8x16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], fragA[1][i], fragB[1][j]);
        }
    }

    // 3. Epilogue: C = alpha * A B + beta * C, through shared memory: rows are padded: no bank conflicts,
    // neither where sums are stored nor where rows are loaded
    __syncthreads();  // As, Bs: read by all threads above, overwritten below

    // this thread's sums, where they lie in C's tile; no copy that could overwrite them is in flight
    #pragma unroll
    for (int p = 0; p < M_TILES * 2; ++p) {
        #pragma unroll
        for (int q = 0; q < N_TILES; ++q) {
            as_float2(&Cs[row + p * (MMA_M / 2)][col + q * MMA_N]) = as_float2(&acc[p][q * 2]);
        }
    }
    __syncthreads();  // Cs: written by all threads above, read by all below

    const int innerRowC = threadIdx.x / (BN / 4);  // which row of C's tile this thread stores first
    const int innerColC = threadIdx.x % (BN / 4);  // and which 4 columns

    // consecutive threads store neighbours of a row of C
    #pragma unroll
    for (int offset = 0; offset < BM; offset += STRIDE_C) {
        alignas(16) float staged[4];
        as_float4(staged) = as_float4(&Cs[innerRowC + offset][innerColC * 4]);
        float out[4];
        #pragma unroll
        for (int v = 0; v < 4; ++v) out[v] = alpha * staged[v];
        if (beta != 0.0f) {
            alignas(8) bf16 old[4];
            as_bf16x4(old) = as_bf16x4(&blockC[(innerRowC + offset) * ldc + innerColC * 4]);
            #pragma unroll
            for (int v = 0; v < 4; ++v) out[v] += beta * bf16_to_float(old[v]);
        }
        alignas(8) bf16 rounded[4];
        #pragma unroll
        for (int v = 0; v < 4; ++v) rounded[v] = float_to_bf16(out[v]);
        as_bf16x4(&blockC[(innerRowC + offset) * ldc + innerColC * 4]) = as_bf16x4(rounded);
    }
}
