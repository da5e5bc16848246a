// coalesced, exact variant: for M and N that are multiples of 32.
//
// Launch: grid ((N + 31) / 32, (M + 31) / 32, 1), 1024 threads per block, no dynamic shared memory.
//
//     kernel coalesced
//     tile   block  32x32
//     use    coalescing
//
// Rung 1. Consecutive lanes compute neighbours in a row of C, so that loads of B and stores of C are
// coalesced. The arithmetic is that of the naive kernel; only the mapping of lanes to elements has changed.
// Made by: gemmgen compile specs/coalesced.gemm

constexpr int BM = 32;            // rows of C that a block computes
constexpr int BN = 32;            // columns of C that a block computes
constexpr int THREADS = BM * BN;  // threads in a block, one for each element of C

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
coalesced(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb,
          float beta, float* C, size_t ldc)
{
    // 1. Placement: what this thread computes
    const int threadRow = threadIdx.x / BN;
    const int threadCol = threadIdx.x % BN;                       // consecutive threads walk along a row of C
    const float* blockA = A + blockIdx.y * BM * lda;              // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;                    // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C

    // 2. Main loop
    float acc = 0.0f;  // this thread's element of C
    for (int k = 0; k < K; ++k) acc += blockA[threadRow * lda + k] * blockB[k * ldb + threadCol];

    // 3. Epilogue: C = alpha * A B + beta * C
    float out = alpha * acc;
    if (beta != 0.0f) out += beta * blockC[threadRow * ldc + threadCol];
    blockC[threadRow * ldc + threadCol] = out;
}
