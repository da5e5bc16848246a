// regblock2d_64, guarded variant: for any M, N, K.
//
// Launch: grid ((N + 63) / 64, (M + 63) / 64, 1), 64 threads per block, no dynamic shared memory.
//
//     kernel regblock2d_64
//     tile   block  64x64x8
//     tile   thread 8x8
//     use    coalescing, smem
//
// Rung 4 with a quarter of the block tile: the same outer products, 64 threads per block. More and smaller
// blocks fill the GPU on small matrices, but load each element from global memory twice as often.
// Made by: gemmgen compile specs/regblock2d_64.gemm

constexpr int BM = 64;                          // rows of C that a block computes
constexpr int BN = 64;                          // columns of C that a block computes
constexpr int BK = 8;                           // step along K: the depth of the tiles in shared memory
constexpr int TM = 8;                           // rows of one piece of a thread
constexpr int TN = 8;                           // columns of one piece of a thread
constexpr int THREADS = (BM / TM) * (BN / TN);  // threads in a block, one for each TM x TN piece
constexpr int STRIDE_A = THREADS / BK;          // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / BN;          // rows of B's tile that one pass of the block copies

static_assert(BM % TM == 0 && BN % TN == 0, "BM must be a multiple of TM, and BN of TN");
static_assert(THREADS % BK == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % BN == 0 && BK % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
regblock2d_64(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb,
              float beta, float* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) float As[BM][BK];
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
    const int innerRowA = threadIdx.x / BK;           // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % BK;           // and which column
    const int innerColB = threadIdx.x;                // which column of a line of B's tile this thread copies

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    float threadResults[TM][TN] = {};  // this thread's elements of C, in registers throughout
    float regM[TM];                    // its rows of A at one k
    float regN[TN];                    // its columns of B at one k
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int offset = 0; offset < BM; offset += STRIDE_A) {
            // past the last row, that row again: its products are not stored
            As[innerRowA + offset][innerColA] = k0 + innerColA < K
                ? tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA]
                : 0.0f;
        }
        #pragma unroll
        for (int offset = 0; offset < BK; offset += STRIDE_B) {
            // past the last column, that column again: its products are not stored
            Bs[offset][innerColB] = k0 + offset < K
                ? tileB[offset * ldb + min(innerColB, colsLeft - 1)]
                : 0.0f;
        }
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) regM[i] = As[row + i][k];
            #pragma unroll
            for (int j = 0; j < TN; ++j) regN[j] = Bs[k][col + j];
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
        for (int j = 0; j < TN; ++j) {
            if (row + i < rowsLeft && col + j < colsLeft) {
                float out = alpha * threadResults[i][j];
                if (beta != 0.0f) out += beta * blockC[(row + i) * ldc + col + j];
                blockC[(row + i) * ldc + col + j] = out;
            }
        }
    }
}
