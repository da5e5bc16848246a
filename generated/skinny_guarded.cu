// skinny, guarded variant: for any M, N, K, and rows of A, B and C whose start and length are multiples of 16
// bytes.
//
//     kernel skinny
//     tile   block  16x512x64
//     tile   thread 16x4
//     use    coalescing, smem, transposeA, float4, directB
//     unroll 16
//     split_k 16
//
// Rung 5 for few rows of C: a block has all of them, and a thread fetches its own columns of B from global
// memory, once. B is nearly all of the traffic, and sixteen blocks along K have enough of it on its way.
// Launched with C pointing to a workspace: a matrix of M rows for each blockIdx.z, ldc elements from one row
// to the next, with alpha 1 and beta 0. skinny_reduce makes C of them.
// Made by: gemmgen compile specs/skinny.gemm

constexpr int BM = 16;                          // rows of C that a block computes
constexpr int BN = 512;                         // columns of C that a block computes
constexpr int BK = 64;                          // step along K: the depth of the tiles in shared memory
constexpr int TM = 16;                          // rows of one piece of a thread
constexpr int TN = 4;                           // columns of one piece of a thread
constexpr int THREADS = (BM / TM) * (BN / TN);  // threads in a block, one for each TM x TN piece
constexpr int SPLIT_K = 16;                     // blocks that share the sum over K of one tile of C
constexpr int STRIDE_A = THREADS / (BK / 4);    // lines of the tile of A that one pass of the block copies
constexpr int UNROLL = 16;                      // steps along k in the text of the main loop

static_assert(BM % TM == 0 && BN % TN == 0, "the block's tile is whole pieces of a thread");
static_assert(BK % 4 == 0, "a line of the tile of A is whole accesses of 16 bytes");
static_assert(BK % UNROLL == 0, "a tile is whole runs of unrolled steps");

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4& as_float4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// M: rows of A and C
// N: columns of B and C
// K: columns of A, rows of B
// lda: elements from one row of A to the next
extern "C" __global__ void __launch_bounds__(THREADS)
skinny(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
       float* C, size_t ldc)
{
    __shared__ alignas(16) float As[BK][BM];

    // 1. Placement: what this thread computes
    const int threadCol = threadIdx.x;         // consecutive threads walk along a row of C
    const int col = threadCol * TN;            // first column of this thread in the block's tile
    const int rowsLeft = M - blockIdx.y * BM;  // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;  // columns likewise
    // how much of K each of the SPLIT_K blocks sums, at most
    const int sliceK = (K + BK * SPLIT_K - 1) / (BK * SPLIT_K) * BK;
    const int firstK = (size_t)blockIdx.z * sliceK;            // where this block's part of K begins
    const int depth = min(sliceK, K - firstK);                 // and how long it is, where anything is left
    const float* blockA = A + blockIdx.y * BM * lda + firstK;  // this block's rows of A
    const float* blockB = B + firstK * ldb + blockIdx.x * BN;  // its columns of B
    // its tile of C
    float* blockC = C + (size_t)blockIdx.z * M * ldc + blockIdx.y * BM * ldc + blockIdx.x * BN;
    const int innerRowA = threadIdx.x / (BK / 4);  // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % (BK / 4);  // and which 4 columns

    // 2. Walk along K: each turn multiplies one tile of A with B as it comes from global memory
    float threadResults[TM][TN] = {};  // this thread's elements of C, in registers throughout
    alignas(16) float regM[TM];        // its rows of A at one k
    alignas(16) float regN[TN];        // its columns of B at one k
    for (int k0 = 0; k0 < depth; k0 += BK) {
        const float* tileA = blockA + k0;
        const float* tileB = blockB + k0 * ldb;
        #pragma unroll
        for (int offset = 0; offset < BM; offset += STRIDE_A) {
            alignas(16) float staged[4];
            // past the last row, that row again: its products are not stored
            as_float4(staged) = k0 + innerColA * 4 < depth
                ? as_float4(&tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA * 4])
                : float4{0.0f, 0.0f, 0.0f, 0.0f};
            #pragma unroll
            for (int v = 0; v < 4; ++v) As[innerColA * 4 + v][innerRowA + offset] = staged[v];
        }
        __syncthreads();  // As: written by all threads above, read by all below

        #pragma unroll 1
        for (int kk = 0; kk < BK; kk += UNROLL) {
            #pragma unroll
            for (int step = 0; step < UNROLL; ++step) {
                #pragma unroll
                for (int i = 0; i < TM; i += 4) as_float4(&regM[i]) = as_float4(&As[kk + step][i]);
                as_float4(regN) = k0 + kk + step < depth
                    ? as_float4(&tileB[(kk + step) * ldb + min(col, colsLeft - 4)])
                    : float4{0.0f, 0.0f, 0.0f, 0.0f};
                #pragma unroll
                for (int m = 0; m < TM; ++m) {
                    #pragma unroll
                    for (int n = 0; n < TN; ++n) threadResults[m][n] += regM[m] * regN[n];
                }
            }
        }
        __syncthreads();  // As: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (i < rowsLeft && col < colsLeft) {
            alignas(16) float out[4];
            #pragma unroll
            for (int v = 0; v < 4; ++v) out[v] = alpha * threadResults[i][v];
            if (beta != 0.0f) {
                alignas(16) float old[4];
                as_float4(old) = as_float4(&blockC[i * ldc + col]);
                #pragma unroll
                for (int v = 0; v < 4; ++v) out[v] += beta * old[v];
            }
            as_float4(&blockC[i * ldc + col]) = as_float4(out);
        }
    }
}
