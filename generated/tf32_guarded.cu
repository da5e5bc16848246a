// tf32, guarded variant: for any M, N, K, and rows of A and B whose start and length are multiples of 16
// bytes, rows of C whose start and length are multiples of 8 bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, 131072 bytes of dynamic shared
// memory, sm_80 or newer.
//
//     kernel tf32
//     tile   block  128x128x32
//     tile   warp   64x64
//     use    coalescing, smem, float4, warptile, cpasync, prefetch, ldmatrix, smemSwizzle
//     operands A tf32 row, B tf32 col, C f32 row, accumulate f32
//     math   mma 16x8x8
//     stages 4
//     cta_swizzle 8
//
// An example of tf32: float32 in memory, of which tensor cores read the upper 19 bits, summed in float32.
// ldmatrix moves elements of 4 bytes where they lie along k, as in A by rows and B by columns.
// Made by: gemmgen compile specs/tf32.gemm

constexpr int BM = 128;              // rows of C that a block computes
constexpr int BN = 128;              // columns of C that a block computes
constexpr int BK = 32;               // step along K: the depth of the tiles in shared memory
constexpr int WM = 64;               // rows of the block's tile that a warp computes
constexpr int WN = 64;               // columns of the block's tile that a warp computes
constexpr int WARP = 32;             // lanes per warp
constexpr int MMA_M = 16;            // rows of C that one mma computes
constexpr int MMA_N = 8;             // its columns of C
constexpr int MMA_K = 8;             // and its steps along K
constexpr int M_TILES = WM / MMA_M;  // tiles of that size in a warp's, along M
constexpr int N_TILES = WN / MMA_N;  // and along N
constexpr int THREADS = WARP * (BM / WM) * (BN / WN);  // threads in a block
constexpr int GROUP_M = 8;           // rows of tiles of C in a group, whose blocks go down its columns
constexpr int STAGES = 4;            // tiles of A and of B in shared memory
constexpr int STRIDE_A = THREADS / (BK / 4);  // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / (BK / 4);  // rows of B's tile that one pass of the block copies

static_assert(BM % WM == 0 && BN % WN == 0, "the block's tile is whole warp tiles");
static_assert(WM % MMA_M == 0 && WN % MMA_N == 0, "a warp's tile is whole tiles of mma");
static_assert(BK % MMA_K == 0, "a tile is whole steps of mma");
static_assert(BK % 4 == 0, "BK must be a multiple of 4: A is copied 16 bytes at a time");
static_assert(BK % 4 == 0, "BK must be a multiple of 4: B is copied 16 bytes at a time");
static_assert(THREADS % (BK / 4) == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % (BK / 4) == 0 && BN % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 8 bytes in one access: p must be aligned to 8 bytes.
__device__ __forceinline__ float2& as_float2(float* p) { return *reinterpret_cast<float2*>(p); }

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
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

// Waits until all groups but the last 2 have completed, of those that this thread committed.
__device__ __forceinline__ void cp_async_wait2()
{
    asm volatile("cp.async.wait_group 2;" ::: "memory");
}

// A warp loads 4 8x8 matrices with rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8;
// every lane gets 4 bytes of row l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(float* to, const float* row)
{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// A warp multiplies 16x8 of A by 8x8 of B and adds the product to 16x8 sums. Lane l has two neighbours each
// of the sums' rows l / 4 (upper) and l / 4 + 8 (lower). A register of a or b holds a value.
__device__ __forceinline__ void mma_16x8x8(float* upper, float* lower, const float* a, const float* b)
{
    const unsigned int* aRegs = reinterpret_cast<const unsigned int*>(a);
    const unsigned int* bRegs = reinterpret_cast<const unsigned int*>(b);
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                 : "r"(aRegs[0]), "r"(aRegs[1]), "r"(aRegs[2]), "r"(aRegs[3]), "r"(bRegs[0]), "r"(bRegs[1]));
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldc:
// elements from one row of A, C to the next; ldb: elements from one column of B to the next; beta: scale of C
// before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
tf32(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
     float* C, size_t ldc)
{
    // 131072 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(16) float dynamicShared[];
    float (*As)[BM][BK] = reinterpret_cast<float (*)[BM][BK]>(dynamicShared);
    float (*Bs)[BN][BK] = reinterpret_cast<float (*)[BN][BK]>(dynamicShared + STAGES * BM * BK);

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
    const int rowsLeft = M - tileRow * BM;   // rows of C from this block's first to the last
    const int colsLeft = N - tileCol * BN;   // columns of C from this block's first to the last
    const float* blockA = A + tileRow * BM * lda;  // this block's rows of A
    const float* blockB = B + tileCol * BN * ldb;  // its columns of B
    float* blockC = C + tileRow * BM * ldc + tileCol * BN;  // its tile of C
    const int innerRowA = threadIdx.x / (BK / 4);  // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % (BK / 4);  // and which 4 columns
    const int innerColB = threadIdx.x / (BK / 4);  // which column of B's tile this thread copies first
    const int innerRowB = threadIdx.x % (BK / 4);  // and which 4 rows

    // 2. Main loop: each iteration multiplies one tile of A with one of B while later tiles are in flight
    //     iteration t            0   1   2   3   4   5   6   7  ...
    //     multiplies stage       0   1   2   3   0   1   2   3  ...
    //     starts tile            3   4   5   6   7   8   9  10  ...
    //     in stage               3   0   1   2   3   0   1   2  ...
    const int tiles = (K + BK - 1) / BK;  // steps of BK along K
    // this lane's elements of C, in registers throughout
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    alignas(8) float acc[M_TILES * 2][N_TILES * 2] = {};
    // its part of the 16x8 tiles of A at one step, and of the one before
    alignas(16) float fragA[2][M_TILES][4] = {};
    // its part of the 8x8 tiles of B at one step, and of the one before
    alignas(16) float fragB[2][N_TILES][2] = {};

    // fill the pipeline
    for (int t = 0; t < STAGES - 1; ++t) {
        if (t < tiles) {
            const int k0 = t * BK;
            const float* tileA = blockA + k0;
            const float* tileB = blockB + k0;
            // #pragma unroll: the iterations are written one after another, so that indices are constants and
            // small arrays are registers
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                // past the last row, that row again: its products are not stored
                cp_async16_or_zero(&As[t][innerRowA + offset][(innerColA ^ (innerRowA % 8)) * 4],
                    &tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA * 4],
                    k0 + innerColA * 4 < K);
            }
            #pragma unroll
            for (int offset = 0; offset < BN; offset += STRIDE_B) {
                // past the last column, that column again: its products are not stored
                cp_async16_or_zero(&Bs[t][innerColB + offset][(innerRowB ^ (innerColB % 8)) * 4],
                    &tileB[min(innerColB + offset, colsLeft - 1) * ldb + innerRowB * 4],
                    k0 + innerRowB * 4 < K);
            }
        }
        // As, Bs: every thread commits one group per tile, empty after the last: the wait counts groups
        cp_async_commit();
    }
    for (int t = 0; t < tiles; ++t) {
        const int stage = t % STAGES;
        cp_async_wait2();  // As, Bs: copied asynchronously above, read below
        // As, Bs: a stage written by all is read below; one read by all is overwritten below
        __syncthreads();

        // read in the previous iteration, refilled in this one
        const int freeStage = (t + STAGES - 1) % STAGES;
        if (t + STAGES - 1 < tiles) {
            const int k0 = (t + STAGES - 1) * BK;
            const float* tileA = blockA + k0;
            const float* tileB = blockB + k0;
            #pragma unroll
            for (int offset = 0; offset < BM; offset += STRIDE_A) {
                // past the last row, that row again: its products are not stored
                cp_async16_or_zero(&As[freeStage][innerRowA + offset][(innerColA ^ (innerRowA % 8)) * 4],
                    &tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA * 4],
                    k0 + innerColA * 4 < K);
            }
            #pragma unroll
            for (int offset = 0; offset < BN; offset += STRIDE_B) {
                // past the last column, that column again: its products are not stored
                cp_async16_or_zero(&Bs[freeStage][innerColB + offset][(innerRowB ^ (innerColB % 8)) * 4],
                    &tileB[min(innerColB + offset, colsLeft - 1) * ldb + innerRowB * 4],
                    k0 + innerRowB * 4 < K);
            }
        }
        // As, Bs: every thread commits one group per tile, empty after the last: the wait counts groups
        cp_async_commit();
        #pragma unroll
        for (int k = 0; k < BK; k += MMA_K) {
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                ldmatrix_x4(fragA[k / MMA_K % 2][i],
                    &As[stage][warpRow + i * MMA_M + lane % 16][((k / 4 + lane / 16) ^ (lane % 8)) * 4]);
            }
            #pragma unroll
            for (int j = 0; j < N_TILES; j += 2) {
                ldmatrix_x4(fragB[k / MMA_K % 2][j],
                    &Bs[stage][warpCol + j * MMA_N + lane % 8
                        + lane / 16 * 8][((k / 4 + lane / 8 % 2) ^ (lane % 8)) * 4]);
            }

            // products of the previous step, whose fragments have arrived (zeros in the first step)
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                #pragma unroll
                for (int j = 0; j < N_TILES; ++j) {
                    mma_16x8x8(&acc[i * 2][j * 2],
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
            mma_16x8x8(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], fragA[1][i], fragB[1][j]);
        }
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int p = 0; p < M_TILES * 2; ++p) {
        #pragma unroll
        for (int q = 0; q < N_TILES; ++q) {
            if (row + p * (MMA_M / 2) < rowsLeft && col + q * MMA_N < colsLeft) {
                alignas(8) float out[2];
                #pragma unroll
                for (int v = 0; v < 2; ++v) out[v] = alpha * acc[p][q * 2 + v];
                if (beta != 0.0f) {
                    alignas(8) float old[2];
                    as_float2(old) = as_float2(&blockC[(row + p * (MMA_M / 2)) * ldc + col + q * MMA_N]);
                    #pragma unroll
                    for (int v = 0; v < 2; ++v) out[v] += beta * old[v];
                }
                as_float2(&blockC[(row + p * (MMA_M / 2)) * ldc + col + q * MMA_N]) = as_float2(out);
            }
        }
    }
}
