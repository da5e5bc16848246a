// warptile, exact variant: for M and N that are multiples of 128 and K of 16, and rows of A, B and C whose
// start and length are multiples of 16 bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, no dynamic shared memory.
//
//     kernel warptile
//     tile   block  128x128x16  # BM x BN x BK  [ThreadblockShape]
//     tile   warp   64x64       # WM x WN       [WarpShape]
//     tile   thread 8x4         # TM x TN
//     use    coalescing, smem, transposeA, float4, warptile
//     unroll 8                  # unroll half of the steps: few enough registers
//     min_blocks 3              # for three blocks per SM
//
// Rung 6. Each warp owns a contiguous tile of the block's tile, and its lanes compute it in smaller pieces. A
// warp then reads fewer distinct values from shared memory, close to one another.
// Made by: gemmgen compile specs/warptile.gemm

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
constexpr int STRIDE_A = THREADS / (BK / 4);  // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / (BN / 4);  // rows of B's tile that one pass of the block copies
constexpr int UNROLL = 8;                     // unrolled steps along k

static_assert(BM % WM == 0 && BN % WN == 0, "BM must be a multiple of WM, and BN of WN");
static_assert(WM % M_ITER == 0 && WN % N_ITER == 0, "WM must be a multiple of M_ITER, and WN of N_ITER");
static_assert((SUB_M / TM) * (SUB_N / TN) == WARP, "(SUB_M / TM) * (SUB_N / TN) must be WARP");
static_assert(BK % 4 == 0, "BK must be a multiple of 4: A is copied 16 bytes at a time");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: B is copied 16 bytes at a time");
static_assert(BK % UNROLL == 0, "BK must be a multiple of UNROLL");
static_assert(THREADS % (BK / 4) == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % (BN / 4) == 0 && BK % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4& as_float4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that 3 blocks fit on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS, 3)
warptile(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
         float* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) float As[BK][BM];
    __shared__ alignas(16) float Bs[BK][BN];

    // 1. Placement: what this thread computes
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int warpRow = warp / (BN / WN);
    const int warpCol = warp % (BN / WN);
    const int threadRow = lane / (SUB_N / TN);
    const int threadCol = lane % (SUB_N / TN);        // consecutive threads walk along a row of C
    const int row = warpRow * WM + threadRow * TM;    // first row of this thread in the block's tile
    const int col = warpCol * WN + threadCol * TN;    // first column of this thread in the block's tile
    const float* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;        // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / (BK / 4);     // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % (BK / 4);     // and which 4 columns
    const int innerRowB = threadIdx.x / (BN / 4);     // which row of B's tile this thread copies first
    const int innerColB = threadIdx.x % (BN / 4);     // and which 4 columns

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    float threadResults[TM][N_ITER * TN] = {};  // this thread's elements of C, in registers throughout
    alignas(16) float regM[TM];                 // its rows of A at one k
    alignas(16) float regN[N_ITER * TN];        // its columns of B at one k
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int offset = 0; offset < BM; offset += STRIDE_A) {
            alignas(16) float staged[4];
            as_float4(staged) = as_float4(&tileA[(innerRowA + offset) * lda + innerColA * 4]);
            #pragma unroll
            for (int v = 0; v < 4; ++v) As[innerColA * 4 + v][innerRowA + offset] = staged[v];
        }
        #pragma unroll
        for (int offset = 0; offset < BK; offset += STRIDE_B) {
            as_float4(&Bs[innerRowB + offset][innerColB * 4]) =
                as_float4(&tileB[(innerRowB + offset) * ldb + innerColB * 4]);
        }
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        // #pragma unroll 1: the compiler leaves the loop as it is
        #pragma unroll 1
        for (int kk = 0; kk < BK; kk += UNROLL) {
            #pragma unroll
            for (int step = 0; step < UNROLL; ++step) {
                #pragma unroll
                for (int i = 0; i < TM; i += 4) as_float4(&regM[i]) = as_float4(&As[kk + step][row + i]);
                #pragma unroll
                for (int q = 0; q < N_ITER; ++q) {
                    as_float4(&regN[q * TN]) = as_float4(&Bs[kk + step][col + q * SUB_N]);
                }
                #pragma unroll
                for (int m = 0; m < TM; ++m) {
                    #pragma unroll
                    for (int n = 0; n < N_ITER * TN; ++n) threadResults[m][n] += regM[m] * regN[n];
                }
            }
        }
        __syncthreads();  // As, Bs: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int q = 0; q < N_ITER; ++q) {
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
