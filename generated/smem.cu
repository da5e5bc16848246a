// smem, exact variant: for M, N and K that are multiples of 32.
//
// Launch: grid ((N + 31) / 32, (M + 31) / 32, 1), 1024 threads per block, no dynamic shared memory.
//
//     kernel smem
//     tile   block  32x32x32  # BM x BN x BK: BK is the step along K
//     use    coalescing, smem
//
// Rung 2. A block copies a tile of A and one of B to shared memory, and its threads read them from there.
// Each element loaded from global memory is used by a whole row or column of threads.
// Made by: gemmgen compile specs/smem.gemm

constexpr int BM = 32;            // rows of C that a block computes
constexpr int BN = 32;            // columns of C that a block computes
constexpr int BK = 32;            // step along K: the depth of the tiles in shared memory
constexpr int THREADS = BM * BN;  // threads in a block, one for each element of C

static_assert(BM * BK == THREADS, "A's tile must be whole passes of the block's threads");
static_assert(BK * BN == THREADS, "B's tile must be whole passes of the block's threads");

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
smem(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
     float* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) float As[BM][BK];
    __shared__ alignas(16) float Bs[BK][BN];

    // 1. Placement: what this thread computes
    const int threadRow = threadIdx.x / BN;
    const int threadCol = threadIdx.x % BN;                       // consecutive threads walk along a row of C
    const float* blockA = A + blockIdx.y * BM * lda;              // this block's rows of A
    const float* blockB = B + blockIdx.x * BN;                    // its columns of B
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / BK;                       // which row of A's tile this thread copies
    const int innerColA = threadIdx.x % BK;                       // and which column
    const int innerRowB = threadIdx.x / BN;                       // which row of B's tile this thread copies
    const int innerColB = threadIdx.x % BN;                       // and which column

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    float acc = 0.0f;  // this thread's element of C
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        As[innerRowA][innerColA] = tileA[innerRowA * lda + innerColA];
        Bs[innerRowB][innerColB] = tileB[innerRowB * ldb + innerColB];
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int k = 0; k < BK; ++k) acc += As[threadRow][k] * Bs[k][threadCol];
        __syncthreads();  // As, Bs: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    float out = alpha * acc;
    if (beta != 0.0f) out += beta * blockC[threadRow * ldc + threadCol];
    blockC[threadRow * ldc + threadCol] = out;
}
