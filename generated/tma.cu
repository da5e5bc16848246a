// tma, exact variant: for M and N that are multiples of 128 and K of 32, and rows of A, B and C whose start
// and length are multiples of 16 bytes.
//
// Launch: grid ((N + 127) / 128, (M + 127) / 128, 1), 128 threads per block, 65552 bytes of dynamic shared
// memory, sm_90 or newer.
// Tensor maps (cuTensorMapEncodeTiled): mapA of A, f32, box 32 x 128 elements, no swizzle, zeros out of
// bounds; mapB of B, f32, box 128 x 32 elements, no swizzle, zeros out of bounds.
//
//     kernel tma
//     tile   block  128x128x32  # rows of 32 floats (128 bytes), which TMA copies fastest
//     tile   warp   32x128
//     tile   thread 1x4
//     use    coalescing, smem, float4, warptile(m_iter=8, n_iter=4), tma, prefetch, alongK, snake, separators
//     stages 2
//     unroll 8
//
// Rung 10. One thread issues TMA copies of whole tiles; the other threads spend no instructions on copies.
// TMA cannot transpose, so one access reads four steps along k of a row of A. Separators keep loads in their
// step.
// Made by: gemmgen compile specs/tma.gemm

constexpr int BM = 128;                              // rows of C that a block computes
constexpr int BN = 128;                              // columns of C that a block computes
constexpr int BK = 32;                               // step along K: the depth of the tiles in shared memory
constexpr int WM = 32;                               // rows of the block's tile that a warp computes
constexpr int WN = 128;                              // columns of the block's tile that a warp computes
constexpr int WARP = 32;                             // lanes per warp
constexpr int TM = 1;                                // rows of one piece of a thread
constexpr int TN = 4;                                // columns of one piece of a thread
constexpr int M_ITER = 8;                            // pieces of a thread along M
constexpr int N_ITER = 4;                            // pieces of a thread along N
constexpr int SUB_M = WM / M_ITER;                   // rows from one piece to the next
constexpr int SUB_N = WN / N_ITER;                   // columns from one piece to the next
constexpr int THREADS = WARP * (BM / WM) * (BN / WN);  // threads in a block
constexpr int STAGES = 2;                            // tiles of A and of B in shared memory
constexpr int TILE_BYTES = 4 * (BM * BK + BK * BN);  // bytes of one tile of A and one of B
constexpr int UNROLL = 8;                            // unrolled steps along k

static_assert(BM % WM == 0 && BN % WN == 0, "BM must be a multiple of WM, and BN of WN");
static_assert(WM % M_ITER == 0 && WN % N_ITER == 0, "WM must be a multiple of M_ITER, and WN of N_ITER");
static_assert((SUB_M / TM) * (SUB_N / TN) == WARP, "(SUB_M / TM) * (SUB_N / TN) must be WARP");
static_assert(BK % 4 == 0, "BK must be a multiple of 4: A is copied 16 bytes at a time");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: B is copied 16 bytes at a time");
static_assert(BK % UNROLL == 0, "BK must be a multiple of UNROLL");
static_assert(UNROLL % 2 == 0, "UNROLL must be even: prefetch takes turns between two sets of registers");
static_assert(UNROLL % 4 == 0, "UNROLL must be a multiple of 4: A is loaded 4 steps at a time");

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }

// Loads 16 bytes of shared memory, at a byte offset in an array. Volatile, so that the compiler
// does not move it; "memory" keeps it between the stores and barriers around it.
__device__ __forceinline__ float4 load_shared_float4(const float* array, int bytes)
{
    float4 v;
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                  : "r"((unsigned int)__cvta_generic_to_shared(array) + bytes) : "memory");
    return v;
}

// The layout of a matrix in memory, for the TMA engine. Made at launch; instructions take its address, which
// must be a multiple of 64: alignas.
struct alignas(128) TensorMap { unsigned long long opaque[16]; };

// A shared-memory address as PTX instructions take it: 32 bits.
__device__ __forceinline__ unsigned int shared_address(const void* p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

// A barrier in shared memory: a phase completes when all have arrived and all expected bytes are written.
__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible: the first fence to the threads of the cluster, the second to the async
// proxy, which is how the TMA engine accesses shared memory.
__device__ __forceinline__ void mbarrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives, and adds bytes to those that the current phase expects.
__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Issues the TMA copy of one box: x counts along the matrix's contiguous dimension, y across it. Elements
// outside the matrix arrive as zeros.
__device__ __forceinline__ void tma_load(float* dst, const TensorMap* map, int x, int y, unsigned long long* barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}

// Waits until the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, int parity)
{
    asm volatile(
        "{\n"
        ".reg .pred ready;\n"
        "wait_%=: mbarrier.try_wait.parity.shared.b64 ready, [%0], %1;\n"
        "@!ready bra wait_%=;\n"
        "}" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// Puts what this thread did to shared memory before what the TMA engine does there: the engine reaches memory by
// a path of its own, and a barrier alone does not order the two.
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Copies a value to a register of its own: volatile text, so that the compiler keeps the copy and does not
// exchange the registers of the loop, whose banks suit the FMAs.
__device__ __forceinline__ void own_register(float& own, float value)
{
    asm volatile("mov.b32 %0, %1;" : "=f"(own) : "f"(value));
}

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of A and C; N: columns of B and C; K: columns of A, rows of B; alpha: scale of A*B; lda, ldb, ldc:
// elements from one row of A, B, C to the next; beta: scale of C before A*B is added; if 0, C is not read
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM; __grid_constant__: its address is that of the parameter itself, not of a copy
extern "C" __global__ void __launch_bounds__(THREADS)
tma(int M, int N, int K, float alpha, const float* A, size_t lda, const float* B, size_t ldb, float beta,
    float* C, size_t ldc, const __grid_constant__ TensorMap mapA, const __grid_constant__ TensorMap mapB)
{
    // 65552 bytes, more than the 49152 that a kernel may declare: given at launch.
    extern __shared__ __align__(128) float dynamicShared[];
    float (*As)[BM][BK] = reinterpret_cast<float (*)[BM][BK]>(dynamicShared);
    float (*Bs)[BK][BN] = reinterpret_cast<float (*)[BK][BN]>(dynamicShared + STAGES * BM * BK);
    unsigned long long* full =
        reinterpret_cast<unsigned long long*>(dynamicShared + STAGES * BM * BK + STAGES * BK * BN);

    // 1. Placement: what this thread computes
    const int warp = threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    const int threadRow = lane / (SUB_N / TN);
    const int threadCol = lane % (SUB_N / TN);  // consecutive threads walk along a row of C
    const int row = warp * WM + threadRow;      // first row of this thread in the block's tile
    const int col = threadCol * TN;             // first column of this thread in the block's tile
    float* blockC = C + blockIdx.y * BM * ldc + blockIdx.x * BN;  // its tile of C

    // 2. Main loop: each iteration multiplies one tile of A with one of B while later tiles are in flight
    //     iteration t            0   1   2   3   4  ...
    //     multiplies stage       0   1   0   1   0  ...
    //     waits for parity       0   0   1   1   0  ...
    //     refills it with tile   2   3   4   5   6  ...
    const int tiles = K / BK;  // steps of BK along K
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) mbarrier_init(&full[s], 1);
        mbarrier_fence();
    }
    __syncthreads();  // barriers: initialised above, used below

    float threadResults[M_ITER][N_ITER * TN] = {};  // this thread's elements of C, in registers throughout
    // alignas: the address is a multiple of this many bytes, as accesses of several elements need
    alignas(16) float regM[M_ITER][4] = {};         // its rows of A at 4 steps
    alignas(16) float regN[2][N_ITER * TN] = {};    // its columns of B at one k, and of the one before

    // fill the pipeline
    for (int t = 0; t < STAGES; ++t) {
        // one thread issues the TMA copies
        if (threadIdx.x == 0 && t < tiles) {
            const int k0 = t * BK;
            mbarrier_expect(&full[t], TILE_BYTES);  // As, Bs: read when this many bytes have arrived
            tma_load(&As[t][0][0], &mapA, k0, blockIdx.y * BM, &full[t]);
            tma_load(&Bs[t][0][0], &mapB, blockIdx.x * BN, k0, &full[t]);
        }
    }
    int stage = 0;
    int parity = 0;  // the phase to wait for; flips each time the ring of stages wraps
    for (int t = 0; t < tiles; ++t) {
        mbarrier_wait(&full[stage], parity);               // As, Bs: written by the TMA engine, read below
        int atA = stage * (4 * BK * BM) + row * (4 * BK);  // where in As this thread reads, in bytes
        int atB = stage * (4 * BN * BK) + col * 4;         // where in Bs this thread reads, in bytes
        // #pragma unroll 1: the compiler leaves the loop as it is
        #pragma unroll 1
        for (int kk = 0; kk < BK; kk += UNROLL, atA += 4 * UNROLL, atB += 4 * BN * UNROLL) {
            // #pragma unroll: the iterations are written one after another, so that indices are constants and
            // small arrays are registers
            #pragma unroll
            for (int step = 0; step < UNROLL; ++step) {
                // runs once: its opaque condition keeps the compiler from moving loads across steps (worth
                // 12% on an H200)
                #pragma unroll 1
                do {
                    #pragma unroll
                    for (int q = 0; q < N_ITER; ++q) {
                        as_float4(&regN[step % 2][q * TN]) =
                            load_shared_float4(&Bs[0][0][0], atB + step * (4 * BN) + q * SUB_N * 4);
                    }

                    // FMAs of the previous step, whose fragments have arrived (zeros in the first step)
                    #pragma unroll
                    for (int p = 0; p < M_ITER; ++p) {
                        #pragma unroll
                        for (int n = 0; n < N_ITER * TN; ++n) {
                            // snake order: a row starts with the column of the previous FMA and reuses it
                            // (worth 3% on an H200)
                            const int snakeAt = p % 2 == 0 ? n : N_ITER * TN - 1 - n;
                            // 1 swaps two neighbours: A and the sum are in different register banks where a
                            // row ends (worth 1.5% on an H200)
                            const int turned = (snakeAt / (TN * (N_ITER / 2)) + step + 3) % 2;
                            const int column = snakeAt ^ turned;
                            threadResults[p][column] =
                                fmaf(regM[p][(step + 3) % 4], regN[(step + 1) % 2][column],
                                    threadResults[p][column]);
                        }
                        if (step % 4 == 0) {
                            as_float4(&regM[p][0]) =
                                load_shared_float4(&As[0][0][0], atA + p * SUB_M * (4 * BK) + step * 4);
                        }
                    }
                } while (M == -1 - step);  // never: M is not negative
            }
        }
        // As, Bs: this thread's loads are over before the TMA engine overwrites what they read
        fence_async();
        __syncthreads();  // As, Bs: read by all threads above, overwritten below

        // one thread issues the TMA copies
        if (threadIdx.x == 0 && t + STAGES < tiles) {
            const int k0 = (t + STAGES) * BK;
            mbarrier_expect(&full[stage], TILE_BYTES);  // As, Bs: read when this many bytes have arrived
            tma_load(&As[stage][0][0], &mapA, k0, blockIdx.y * BM, &full[stage]);
            tma_load(&Bs[stage][0][0], &mapB, blockIdx.x * BN, k0, &full[stage]);
        }
        if (++stage == STAGES) { stage = 0; parity ^= 1; }
    }
    float lastN[N_ITER * TN];  // the columns of B at the last k, apart from the loop's registers
    #pragma unroll
    for (int n = 0; n < N_ITER * TN; ++n) own_register(lastN[n], regN[1][n]);

    // FMAs of the last step
    #pragma unroll
    for (int p = 0; p < M_ITER; ++p) {
        #pragma unroll
        for (int n = 0; n < N_ITER * TN; ++n) {
            // snake order: a row starts with the column of the previous FMA and reuses it (worth 3% on an
            // H200)
            const int snakeAt = p % 2 == 0 ? n : N_ITER * TN - 1 - n;
            // 1 swaps two neighbours: A and the sum are in different register banks where a row ends (worth
            // 1.5% on an H200)
            const int turned = (snakeAt / (TN * (N_ITER / 2)) + 3) % 2;
            const int column = snakeAt ^ turned;
            threadResults[p][column] = fmaf(regM[p][3], lastN[column], threadResults[p][column]);
        }
    }

    // 3. Epilogue: C = alpha * A B + beta * C
    #pragma unroll
    for (int p = 0; p < M_ITER; ++p) {
        #pragma unroll
        for (int q = 0; q < N_ITER; ++q) {
            alignas(16) float out[4];
            #pragma unroll
            for (int v = 0; v < 4; ++v) out[v] = alpha * threadResults[p][q * TN + v];
            if (beta != 0.0f) {
                alignas(16) float old[4];
                as_float4(old) = as_float4(&blockC[(row + p * SUB_M) * ldc + col + q * SUB_N]);
                #pragma unroll
                for (int v = 0; v < 4; ++v) out[v] += beta * old[v];
            }
            as_float4(&blockC[(row + p * SUB_M) * ldc + col + q * SUB_N]) = as_float4(out);
        }
    }
}
