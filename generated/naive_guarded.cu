// naive, guarded variant: for any M, N, K.
//
// Launch: grid ((N + 31) / 32, (M + 31) / 32, 1), 1024 threads per block, no dynamic shared memory.
//
//     kernel naive
//     tile   block  32x32  # BM x BN: the block's tile of C
//
// Rung 0. One thread computes one element of C straight from global memory. Consecutive lanes compute
// neighbours in a column, so each access of a warp to A and C touches 32 rows: not coalesced.
// Made by: gemmgen compile specs/naive.gemm

constexpr int BM = 32;            // rows of C that a block computes
constexpr int BN = 32;            // columns of C that a block computes
constexpr int THREADS = BM * BN;  // threads in a block, one for each element of C

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
naive(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
      float* C, size_t ldc)
{
    // 1. Placement: what this thread computes
    const int threadRow = threadIdx.x % BM;  // consecutive threads walk down a column of C
    const int threadCol = threadIdx.x / BM;
    const int rowsLeft = M - blockIdx.y * BM;         // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;         // columns of C from this block's first to the last
    const float* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;        // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C

    // threads outside C have nothing to do
    if (threadRow < rowsLeft && threadCol < colsLeft) {
        // 2. Main loop
        float acc = 0.0f;  // this thread's element of C
        for (int k = 0; k < K; ++k) acc += blockA[threadRow * lda + k] * blockB[k * ldb + threadCol];

        // 3. Epilogue: C = alpha * A B + beta * C
        float out = alpha * acc;
        if (beta != 0.0f) out += beta * blockC[threadRow * ldc + threadCol];
        blockC[threadRow * ldc + threadCol] = out;
    }
}
