// regblock1d, guarded variant: for any M, N, K.
//
// Launch: grid ((N + 63) / 64, (M + 63) / 64, 1), 512 threads per block, no dynamic shared memory.
//
//     kernel regblock1d
//     tile   block  64x64x8
//     tile   thread 8x1  # TM x TN: one thread's tile of C
//     use    coalescing, smem
//
// Rung 3. A thread computes a column of TM elements, and reuses one value of B in a register for all of them.
// There are about half as many shared loads per FMA.
// Made by: gemmgen compile specs/regblock1d.gemm

constexpr int BM = 64;                          // rows of C that a block computes
constexpr int BN = 64;                          // columns of C that a block computes
constexpr int BK = 8;                           // step along K: the depth of the tiles in shared memory
constexpr int TM = 8;                           // rows of one piece of a thread
constexpr int TN = 1;                           // columns of one piece of a thread
constexpr int THREADS = (BM / TM) * (BN / TN);  // threads in a block, one for each TM x TN piece

static_assert(BM % TM == 0 && BN % TN == 0, "BM must be a multiple of TM, and BN of TN");
static_assert(BM * BK == THREADS, "A's tile must be whole passes of the block's threads");
static_assert(BK * BN == THREADS, "B's tile must be whole passes of the block's threads");

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
regblock1d(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb,
           float beta, float* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) float As[BM][BK];
    __shared__ alignas(16) float Bs[BK][BN];

    // 1. Placement: what this thread computes
    const int threadRow = threadIdx.x / BN;
    const int threadCol = threadIdx.x % BN;           // consecutive threads walk along a row of C
    const int row = threadRow * TM;                   // first row of this thread in the block's tile
    const int rowsLeft = M - blockIdx.y * BM;         // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;         // columns of C from this block's first to the last
    const float* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;        // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / BK;           // which row of A's tile this thread copies
    const int innerColA = threadIdx.x % BK;           // and which column
    const int innerRowB = threadIdx.x / BN;           // which row of B's tile this thread copies
    const int innerColB = threadIdx.x % BN;           // and which column

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    float threadResults[TM] = {};  // this thread's elements of C, in registers throughout
    float regM[TM];                // its rows of A at one k
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        // past the last row, that row again: its products are not stored
        As[innerRowA][innerColA] = k0 + innerColA < K
            ? tileA[min(innerRowA, rowsLeft - 1) * lda + innerColA]
            : 0.0f;
        // past the last column, that column again: its products are not stored
        Bs[innerRowB][innerColB] = k0 + innerRowB < K
            ? tileB[innerRowB * ldb + min(innerColB, colsLeft - 1)]
            : 0.0f;
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) regM[i] = As[row + i][k];
            const float regN = Bs[k][threadCol];
            #pragma unroll
            for (int m = 0; m < TM; ++m) threadResults[m] += regM[m] * regN;
        }
        __syncthreads();  // As, Bs: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < rowsLeft && threadCol < colsLeft) {
            float out = alpha * threadResults[i];
            if (beta != 0.0f) out += beta * blockC[(row + i) * ldc + threadCol];
            blockC[(row + i) * ldc + threadCol] = out;
        }
    }
}
