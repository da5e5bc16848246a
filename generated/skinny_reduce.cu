// skinny_reduce, the second kernel of skinny: for any M and N, and rows of C and W whose start and length are
// multiples of 16 bytes.
//
// Launch: grid (M, (N + 1023) / 1024, 1), 256 threads per block, no dynamic shared memory.
//
//     kernel skinny
//     tile   block  16x64x32
//     tile   warp   16x32
//     tile   thread 4x4
//     use    coalescing, smem, transposeA, float4, warptile, cpasync, prefetch
//     stages 3
//     pad_a  4
//     split_k 8
//
// Adds up what the blocks that share a tile of C left in W.
// Made by: gemmgen compile specs/skinny.gemm

constexpr int SPLIT_K = 8;    // slices to add up
constexpr int THREADS = 256;  // threads in a block

// --- Helpers: accesses and instructions by name ------------------------------------------------------------

// 16 bytes in one access: p must be aligned to 16 bytes.
__device__ __forceinline__ float4& as_float4(float* p) { return *reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4& as_float4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// --- The kernel --------------------------------------------------------------------------------------------

// M: rows of C; N: columns of C; W: the slices, one after another; ldw: elements from one row of a slice to
// the next, as C lies
// __launch_bounds__: threads per block; the compiler keeps registers per thread so few that a block fits on
// an SM
extern "C" __global__ void __launch_bounds__(THREADS)
skinny_reduce(int M, int N, float alpha, const float* W, size_t ldw, float beta, float* C, size_t ldc)
{
    // 1. Placement: a block works on one line of C
    const int at = (blockIdx.y * THREADS + threadIdx.x) * 4;  // first element of this thread

    // 2. Add up the slices in their order, and store
    if (at < N) {
        // alignas: the address is a multiple of this many bytes, as accesses of several elements need
        alignas(16) float total[4] = {};
        // #pragma unroll: the iterations are written one after another, so that indices are constants and
        // small arrays are registers
        #pragma unroll
        for (int z = 0; z < SPLIT_K; ++z) {
            alignas(16) float part[4];
            as_float4(part) = as_float4(&W[z * ldw * M + blockIdx.x * ldw + at]);
            #pragma unroll
            for (int v = 0; v < 4; ++v) total[v] += part[v];
        }
        #pragma unroll
        for (int v = 0; v < 4; ++v) total[v] = alpha * total[v];
        if (beta != 0.0f) {
            alignas(16) float old[4];
            as_float4(old) = as_float4(&C[blockIdx.x * ldc + at]);
            #pragma unroll
            for (int v = 0; v < 4; ++v) total[v] += beta * old[v];
        }
        as_float4(&C[blockIdx.x * ldc + at]) = as_float4(total);
    }
}
