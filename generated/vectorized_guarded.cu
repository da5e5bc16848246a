// vectorized, guarded variant: for any M, N, K, and rows of A, B and C whose start and length are multiples
// of 16 bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 256 threads per block, no dynamic shared memory.
//
//     kernel vectorized
//     tile   block  128x128x8
//     tile   thread 8x8
//     use    coalescing, smem, transposeA, float4
//
// Rung 5. Every access moves 16 bytes: a quarter of the loads from global memory. A's tile is stored
// transposed, so that a thread's rows of it are contiguous in shared memory too.
// Made by: gemmgen compile specs/vectorized.gemm

constexpr int BM = 128;                         // rows of C that a block computes
constexpr int BN = 128;                         // columns of C that a block computes
constexpr int BK = 8;                           // step along K: the depth of the tiles in shared memory
constexpr int TM = 8;                           // rows of one piece of a thread
constexpr int TN = 8;                           // columns of one piece of a thread
constexpr int THREADS = (BM / TM) * (BN / TN);  // threads in a block, one for each TM x TN piece

static_assert(BM % TM == 0 && BN % TN == 0, "BM must be a multiple of TM, and BN of TN");
static_assert(BK % 4 == 0, "BK must be a multiple of 4: A is copied 16 bytes at a time");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: B is copied 16 bytes at a time");
static_assert(BM * (BK / 4) == THREADS, "A's tile must be whole passes of the block's threads");
static_assert(BK * (BN / 4) == THREADS, "B's tile must be whole passes of the block's threads");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4& as_float4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
vectorized(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb,
           float beta, float* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) float As[BK][BM];
    __shared__ alignas(16) float Bs[BK][BN];

    // 1. Placement: what this thread computes
    const int threadRow = threadIdx.x / (BN / TN);
    const int threadCol = threadIdx.x % (BN / TN);    // consecutive threads walk along a row of C
    const int row = threadRow * TM;                   // first row of this thread in the block's tile
    const int col = threadCol * TN;                   // first column of this thread in the block's tile
    const int rowsLeft = M - blockIdx.y * BM;         // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;         // columns of C from this block's first to the last
    const float* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;        // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / (BK / 4);     // which row of A's tile this thread copies
    const int innerColA = threadIdx.x % (BK / 4);     // and which 4 columns
    const int innerRowB = threadIdx.x / (BN / 4);     // which row of B's tile this thread copies
    const int innerColB = threadIdx.x % (BN / 4);     // and which 4 columns

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    float threadResults[TM][TN] = {};  // this thread's elements of C, in registers throughout
    alignas(16) float regM[TM];        // its rows of A at one k
    alignas(16) float regN[TN];        // its columns of B at one k
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        alignas(16) float staged[4];
        // past the last row, that row again: its products are not stored
        as_float4(staged) = k0 + innerColA * 4 < K
            ? as_float4(&tileA[min(innerRowA, rowsLeft - 1) * lda + innerColA * 4])
            : float4{0.0f, 0.0f, 0.0f, 0.0f};
        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int v = 0; v < 4; ++v) As[innerColA * 4 + v][innerRowA] = staged[v];
        // past the last column, that column again: its products are not stored
        as_float4(&Bs[innerRowB][innerColB * 4]) = k0 + innerRowB < K
            ? as_float4(&tileB[innerRowB * ldb + min(innerColB * 4, colsLeft - 4)])
            : float4{0.0f, 0.0f, 0.0f, 0.0f};
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            #pragma unroll
            for (int i = 0; i < TM; i += 4) as_float4(&regM[i]) = as_float4(&As[k][row + i]);
            #pragma unroll
            for (int j = 0; j < TN; j += 4) as_float4(&regN[j]) = as_float4(&Bs[k][col + j]);
            #pragma unroll
            for (int m = 0; m < TM; ++m) {
                #pragma unroll
                for (int n = 0; n < TN; ++n) threadResults[m][n] += regM[m] * regN[n];
            }
        }
        __syncthreads();  // As, Bs: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            if (row + i < rowsLeft && col + j < colsLeft) {
                alignas(16) float out[4];
                #pragma unroll
                for (int v = 0; v < 4; ++v) out[v] = alpha * threadResults[i][j + v];
                if (beta != 0.0f) {
                    alignas(16) float old[4];
                    as_float4(old) = as_float4(&blockC[(row + i) * ldc + col + j]);
                    #pragma unroll
                    for (int v = 0; v < 4; ++v) out[v] += beta * old[v];
                }
                as_float4(&blockC[(row + i) * ldc + col + j]) = as_float4(out);
            }
        }
    }
}
