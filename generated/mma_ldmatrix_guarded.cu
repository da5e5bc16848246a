// mma_ldmatrix, guarded variant: for any M, N, K, and rows of A and B whose start and length are multiples of
// 16 bytes, rows of C whose start and length are multiples of 4 bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, no dynamic shared memory, sm_80
// or newer.
//
//     kernel mma_ldmatrix
//     tile   block  128x128x32
//     tile   warp   64x64
//     use    coalescing, smem, float4, warptile, ldmatrix
//     operands A bf16 row, B bf16 row, C bf16 row, accumulate f32
//     math   mma 16x8x16
//
// Rung 2 of bfloat16. One ldmatrix loads what four ordinary loads of a fragment did, and transposes where a
// tile lies so.
// Made by: gemmgen compile specs/mma_ldmatrix.gemm

constexpr int BM = 128;                       // rows of C that a block computes
constexpr int BN = 128;                       // columns of C that a block computes
constexpr int BK = 32;                        // step along K: the depth of the tiles in shared memory
constexpr int WM = 64;                        // rows of the block's tile that a warp computes
constexpr int WN = 64;                        // columns of the block's tile that a warp computes
constexpr int WARP = 32;                      // lanes per warp
constexpr int MMA_M = 16;                     // rows of C that one mma computes
constexpr int MMA_N = 8;                      // its columns of C
constexpr int MMA_K = 16;                     // and its steps along K
constexpr int M_TILES = WM / MMA_M;           // tiles of that size in a warp's, along M
constexpr int N_TILES = WN / MMA_N;           // and along N
constexpr int THREADS = WARP * (BM / WM) * (BN / WN);  // threads in a block
constexpr int STRIDE_A = THREADS / (BK / 8);  // rows of A's tile that one pass of the block copies
constexpr int STRIDE_B = THREADS / (BN / 8);  // rows of B's tile that one pass of the block copies

static_assert(BM % WM == 0 && BN % WN == 0, "the block's tile is whole warp tiles");
static_assert(WM % MMA_M == 0 && WN % MMA_N == 0, "a warp's tile is whole tiles of mma");
static_assert(BK % MMA_K == 0, "a tile is whole steps of mma");
static_assert(BK % 8 == 0, "BK must be a multiple of 8: A is copied 16 bytes at a time");
static_assert(BN % 8 == 0, "BN must be a multiple of 8: B is copied 16 bytes at a time");
static_assert(THREADS % (BK / 8) == 0 && BM % STRIDE_A == 0,
              "A's tile must be whole passes of the block's threads");
static_assert(THREADS % (BN / 8) == 0 && BK % STRIDE_B == 0,
              "B's tile must be whole passes of the block's threads");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

using bf16 = unsigned short;  // the upper half of a float: 1 sign, 8 exponent and 7 mantissa bits

__device__ __forceinline__ float bf16_to_float(bf16 x) { return __uint_as_float((unsigned int)x << 16); }

// Rounds to the nearest bf16, ties to even.
__device__ __forceinline__ bf16 float_to_bf16(float x)
{
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
}

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ uint4& as_bf16x8(bf16* p) { return *reinterpret_cast<uint4*>(p); }
__device__ __forceinline__ const uint4& as_bf16x8(const bf16* p) { return *reinterpret_cast<const uint4*>(p); }

// 4 bytes in one access: p must be aligned to 4 bytes.
__device__ __forceinline__ unsigned int& as_bf16x2(bf16* p) { return *reinterpret_cast<unsigned int*>(p); }

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

// A warp loads 4 8x8 matrices with rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8;
// every lane gets 4 bytes of row l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(bf16* to, const bf16* row)
{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// A warp loads 4 8x8 matrices with rows of 16 bytes. Lane l gives the address of row l % 8 of matrix l / 8;
// every lane gets two elements of column l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4_trans(bf16* to, const bf16* row)
{
    unsigned int* r = reinterpret_cast<unsigned int*>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// A warp multiplies 16x16 of A by 16x8 of B and adds the product to 16x8 sums. Lane l has two neighbours each
// of the sums' rows l / 4 (upper) and l / 4 + 8 (lower). A register of a or b holds 2 neighbours along k.
__device__ __forceinline__ void mma_16x8x16(float* upper, float* lower, const bf16* a, const bf16* b)
{
    const unsigned int* aRegs = reinterpret_cast<const unsigned int*>(a);
    const unsigned int* bRegs = reinterpret_cast<const unsigned int*>(b);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                 : "r"(aRegs[0]), "r"(aRegs[1]), "r"(aRegs[2]), "r"(aRegs[3]), "r"(bRegs[0]), "r"(bRegs[1]));
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
mma_ldmatrix(int M, int N, int K, float alpha, const bf16* A, size_t lda, const bf16* B, size_t ldb,
             float beta, bf16* C, size_t ldc)
{
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    __shared__ alignas(16) bf16 As[BM][BK];
    __shared__ alignas(16) bf16 Bs[BK][BN];

    // 1. Placement: what this thread computes
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int warpRow = warp / (BN / WN) * WM;  // first row of this warp's tile in the block's
    const int warpCol = warp % (BN / WN) * WN;  // and its first column
    const int row = warpRow + lane / 4;      // this lane's first row of sums, and every eighth from there on
    const int col = warpCol + lane % 4 * 2;  // and its first two columns
    const int rowsLeft = M - blockIdx.y * BM;  // rows of C from this block's first to the last
    const int colsLeft = N - blockIdx.x * BN;  // columns of C from this block's first to the last
    const bf16* blockA = A + blockIdx.y * BM * lda;  // this block's rows of A
    const bf16* blockB = B + blockIdx.x * BN;  // its columns of B
    bf16* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C
    const int innerRowA = threadIdx.x / (BK / 8);  // which row of A's tile this thread copies first
    const int innerColA = threadIdx.x % (BK / 8);  // and which 8 columns
    const int innerRowB = threadIdx.x / (BN / 8);  // which row of B's tile this thread copies first
    const int innerColB = threadIdx.x % (BN / 8);  // and which 8 columns

    // 2. Main loop: each iteration copies one tile of A and one of B to shared memory, then multiplies them
    // this lane's elements of C, in registers throughout
    alignas(8) float acc[M_TILES * 2][N_TILES * 2] = {};
    alignas(16) bf16 fragA[M_TILES][8];  // its part of the 16x16 tiles of A at one step
    alignas(16) bf16 fragB[N_TILES][4];  // its part of the 16x8 tiles of B at one step
    for (int k0 = 0; k0 < K; k0 += BK) {
        const bf16* tileA = blockA + k0;
        const bf16* tileB = blockB + k0 * ldb;
        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int offset = 0; offset < BM; offset += STRIDE_A) {
            // past the last row, that row again: its products are not stored
            as_bf16x8(&As[innerRowA + offset][innerColA * 8]) = k0 + innerColA * 8 < K
                ? as_bf16x8(&tileA[min(innerRowA + offset, rowsLeft - 1) * lda + innerColA * 8])
                : uint4{0, 0, 0, 0};
        }
        #pragma unroll
        for (int offset = 0; offset < BK; offset += STRIDE_B) {
            // past the last column, that column again: its products are not stored
            as_bf16x8(&Bs[innerRowB + offset][innerColB * 8]) = k0 + innerRowB + offset < K
                ? as_bf16x8(&tileB[(innerRowB + offset) * ldb + min(innerColB * 8, colsLeft - 8)])
                : uint4{0, 0, 0, 0};
        }
        __syncthreads();  // As, Bs: written by all threads above, read by all below

        #pragma unroll
        for (int k = 0; k < BK; k += MMA_K) {
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                ldmatrix_x4(fragA[i], &As[warpRow + i * MMA_M + lane % 16][k + lane / 16 * 8]);
            }
            #pragma unroll
            for (int j = 0; j < N_TILES; j += 2) {
                ldmatrix_x4_trans(fragB[j], &Bs[k + lane % 16][warpCol + j * MMA_N + lane / 16 * 8]);
            }
            #pragma unroll
            for (int i = 0; i < M_TILES; ++i) {
                #pragma unroll
                for (int j = 0; j < N_TILES; ++j) {
                    mma_16x8x16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], fragA[i], fragB[j]);
                }
            }
        }
        __syncthreads();  // As, Bs: read by all threads above, overwritten by the next step
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int p = 0; p < M_TILES * 2; ++p) {
        #pragma unroll
        for (int q = 0; q < N_TILES; ++q) {
            if (row + p * (MMA_M / 2) < rowsLeft && col + q * MMA_N < colsLeft) {
                float out[2];
                #pragma unroll
                for (int v = 0; v < 2; ++v) out[v] = alpha * acc[p][q * 2 + v];
                if (beta != 0.0f) {
                    alignas(4) bf16 old[2];
                    as_bf16x2(old) = as_bf16x2(&blockC[(row + p * (MMA_M / 2)) * ldc + col + q * MMA_N]);
                    #pragma unroll
                    for (int v = 0; v < 2; ++v) out[v] += beta * bf16_to_float(old[v]);
                }
                alignas(4) bf16 rounded[2];
                #pragma unroll
                for (int v = 0; v < 2; ++v) rounded[v] = float_to_bf16(out[v]);
                as_bf16x2(&blockC[(row + p * (MMA_M / 2)) * ldc + col + q * MMA_N]) = as_bf16x2(rounded);
            }
        }
    }
}
