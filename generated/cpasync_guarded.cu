// cpasync, guarded variant: for any M, N, K, and rows of B and C whose start and length are multiples of 16
// bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, 49920 bytes of dynamic shared
// memory, sm_80 or newer.
//
//     kernel cpasync
//     tile   block  128x128x16
//     tile   warp   64x64
//     tile   thread 8x4
//     use    coalescing, smem, transposeA, float4, warptile, cpasync, prefetch
//     stages 3  # one tile is multiplied, two are in flight
//     unroll 8
//     pad_a  4  # avoids bank conflicts in the transposed stores of A
//
// Rung 8. cp.async copies tiles to shared memory two iterations early and bypasses registers. A moves 4 bytes
// per copy, which transposes it. Fragments are loaded one step before their products.
// Made by: gemmgen compile specs/cpasync.gemm

constexpr int BM = 128;                       // rows of C that a block computes
constexpr int BN = 128;                       // columns of C that a block computes
constexpr int BK = 16;                        // step along K: the depth of the tiles in shared memory
constexpr int WM = 64;                        // rows of the block's tile that a warp computes
constexpr int WN = 64;                        // columns of the block's tile that a warp computes
constexpr int WARP = 32;                      // lanes per warp
constexpr int TM = 8;                         // rows of one piece of a thread
constexpr int TN = 4;                         // columns of one piece of a thread
constexpr int M_ITER = 1;                     // pieces of a thread along M
constexpr int N_ITER = 4;                     // pieces of a thread along N
constexpr int SUB_M = WM / M_ITER;            // rows from one piece to the next
constexpr int SUB_N = WN / N_ITER;            // columns from one piece to the next
constexpr int THREADS = WARP * (BM / WM) * (BN / WN);  // threads in a block
constexpr int STAGES = 3;                     // tiles of A and of B in shared memory
constexpr int PAD_A = 4;                      // padding elements after each row of As
constexpr int STRIDE_A = THREADS / BK;        // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / (BN / 4);  // rows of B's tile that one pass of the block copies
constexpr int UNROLL = 8;                     // unrolled steps along k

static_assert(BM % WM == 0 && BN % WN == 0, "BM must be a multiple of WM, and BN of WN");
static_assert(WM % M_ITER == 0 && WN % N_ITER == 0, "WM must be a multiple of M_ITER, and WN of N_ITER");
static_assert((SUB_M / TM) * (SUB_N / TN) == WARP, "(SUB_M / TM) * (SUB_N / TN) must be WARP");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: B is copied 16 bytes at a time");
static_assert(BK % UNROLL == 0, "BK must be a multiple of UNROLL");
static_assert(THREADS % BK == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % (BN / 4) == 0 && BK % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");
static_assert(UNROLL % 2 == 0, "UNROLL must be even: prefetch takes turns between two sets of registers");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

// Starts a copy of 4 bytes, or writes zeros if the condition is false. .ca: through L1 and L2.
__device__ __forceinline__ void cp_async4_or_zero(float* dst, const float* src, bool some)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(some ? 4 : 0) : "memory");
}

// Starts a copy of 16 bytes, or writes zeros if the condition is false. .cg: L2 only.
__device__ __forceinline__ void cp_async16_or_zero(float* dst, const float* src, bool some)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(some ? 16 : 0) : "memory");
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

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
cpasync(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
        float* C, size_t ldc)
{
    // 49920 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(16) float dynamicShared[];
    float (*As)[BK][BM + PAD_A] = reinterpret_cast<float (*)[BK][BM + PAD_A]>(dynamicShared);
    float (*Bs)[BK][BN] = reinterpret_cast<float (*)[BK][BN]>(dynamicShared + STAGES * BK * (BM + PAD_A));

    // 1. Placement: what this thread computes
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int warpRow = warp / (BN / WN);
    const int warpCol = warp % (BN / WN);
    const int threadRow = lane / (SUB_N / TN);
    const int threadCol = lane % (SUB_N / TN);        // consecutive threads walk along a row of C
    const int row = warpRow * WM + threadRow * TM;    // first row of this thread in the block's tile
    const int col = warpCol * WN + threadCol * TN;    // first column of this thread in the block's tile
    const int rowsLeft = M - blockIdx.y * BM;         // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;         // columns of C from this block's first to the last
    const float* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;        // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / BK;           // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % BK;           // and which column
    const int innerRowB = threadIdx.x / (BN / 4);     // which row of B's tile this thread copies first
    const int innerColB = threadIdx.x % (BN / 4);     // and which 4 columns

    // 2. Main loop: each iteration multiplies one tile of A with one of B while later tiles are in flight
    //     iteration t            0   1   2   3   4   5   6  ...
    //     multiplies stage       0   1   2   0   1   2   0  ...
    //     starts tile            2   3   4   5   6   7   8  ...
    //     in stage               2   0   1   2   0   1   2  ...
    const int tiles = (K + BK - 1) / BK;          // steps of BK along K
    float threadResults[TM][N_ITER * TN] = {};    // this thread's elements of C, in registers throughout
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    alignas(16) float regM[2][TM] = {};           // its rows of A at one k, and of the one before
    alignas(16) float regN[2][N_ITER * TN] = {};  // its columns of B at one k, and of the one before

    // fill the pipeline
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < tiles) {
            const int k0 = t * BK;
            const float* tileA = blockA + k0;
            const float* tileB = blockB + k0 * ldb;
            // #pragma unroll: the iterations are written one after another, so that indices are constants and
            // small arrays are registers
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                // past the last row, that row again: its products are not stored
                cp_async4_or_zero(&As[t][innerColA][innerRowA + offset],
                    &tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA],
                    k0 + innerColA < K);
            }
            #pragma unroll
            for (int offset = 0; offset < BK; offset += STRIDE_B) {
                // past the last column, that column again: its products are not stored
                cp_async16_or_zero(&Bs[t][innerRowB + offset][innerColB * 4],
                    &tileB[(innerRowB + offset) * ldb + min(innerColB * 4, colsLeft - 4)],
                    k0 + innerRowB + offset < K);
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
            const float* tileA = blockA + k0;
            const float* tileB = blockB + k0 * ldb;
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                // past the last row, that row again: its products are not stored
                cp_async4_or_zero(&As[freeStage][innerColA][innerRowA + offset],
                    &tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA],
                    k0 + innerColA < K);
            }
            #pragma unroll
            for (int offset = 0; offset < BK; offset += STRIDE_B) {
                // past the last column, that column again: its products are not stored
                cp_async16_or_zero(&Bs[freeStage][innerRowB + offset][innerColB * 4],
                    &tileB[(innerRowB + offset) * ldb + min(innerColB * 4, colsLeft - 4)],
                    k0 + innerRowB + offset < K);
            }
        }
        // As, Bs: every thread commits one group per tile, empty after the last: the wait counts groups
        cp_async_commit();
        // #pragma unroll 1: the compiler leaves the loop as it is
        #pragma unroll 1
        for (int kk = 0; kk < BK; kk += UNROLL) {
            #pragma unroll
            for (int step = 0; step < UNROLL; ++step) {
                #pragma unroll
                for (int i = 0; i < TM; i += 4) {
                    as_float4(&regM[step % 2][i]) = as_float4(&As[stage][kk + step][row + i]);
                }
                #pragma unroll
                for (int q = 0; q < N_ITER; ++q) {
                    as_float4(&regN[step % 2][q * TN]) = as_float4(&Bs[stage][kk + step][col + q * SUB_N]);
                }

                // FMAs of the previous step, whose fragments have arrived (zeros in the first step)
                #pragma unroll
                for (int m = 0; m < TM; ++m) {
                    #pragma unroll
                    for (int n = 0; n < N_ITER * TN; ++n) {
                        threadResults[m][n] += regM[(step + 1) % 2][m] * regN[(step + 1) % 2][n];
                    }
                }
            }
        }
    }

    // FMAs of the last step
    #pragma unroll
    for (int m = 0; m < TM; ++m) {
        #pragma unroll
        for (int n = 0; n < N_ITER * TN; ++n) threadResults[m][n] += regM[1][m] * regN[1][n];
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int q = 0; q < N_ITER; ++q) {
            if (row + i < rowsLeft && col + q * SUB_N < colsLeft) {
                alignas(16) float out[4];
                #pragma unroll
                for (int v = 0; v < 4; ++v) out[v] = alpha * threadResults[i][q * TN + v];
                if (beta != 0.0f) {
                    alignas(16) float old[4];
                    as_float4(old) = as_float4(&blockC[(row + i) * ldc + col + q * SUB_N]);
                    #pragma unroll
                    for (int v = 0; v < 4; ++v) out[v] += beta * old[v];
                }
                as_float4(&blockC[(row + i) * ldc + col + q * SUB_N]) = as_float4(out);
            }
        }
    }
}
