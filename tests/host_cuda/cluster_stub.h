// Thread-block clusters for a host compiler, beside cuda_stub.h.
//
// The blocks of a cluster take turns from one barrier of the cluster to the next: each has the shared memory, its mbarriers
// and its fibers while it runs, and keeps them aside while others do. What a block has not written yet is NaN to the
// others, and so is the memory of a block that has ended. So a missing barrier of the cluster shows.

#pragma once

namespace host {

// What a block keeps while another runs.
struct Aside {
    std::vector<char> memory;
    std::map<const void*, Barrier> barriers;
    std::vector<Fiber> fibers;
    std::vector<char> stacks;
    unsigned int z;
    bool ended;
    int line;  // of the barrier of the cluster that it waits at
};

static std::vector<Aside> blocks;
static unsigned int rank;  // of the block that runs

// The block of this rank takes the place of the one that ran, or gives it up again.
inline void change(unsigned int which)
{
    Aside& block = blocks[which];
    std::swap(barriers, block.barriers);
    std::swap(fibers, block.fibers);
    std::swap(stacks, block.stacks);
    rank = which;
    blockIdx.z = block.z;
}

// Whether all bytes are as they were at the start.
inline bool untouched(const char* at, size_t bytes)
{
    return !bytes || ((unsigned char)at[0] == 0xff && !memcmp(at, at + 1, bytes - 1));
}

inline void run_turn(unsigned int which, int threads, bool reverse, char* begin)
{
    Aside& block = blocks[which];
    const size_t bytes = block.memory.size();
    change(which);
    if (bytes) memcpy(begin, block.memory.data(), bytes);
    run_block(threads, reverse);
    if (!fault[0] && !untouched(begin + bytes - guard, guard))
        snprintf(fault, sizeof fault, "a write behind the end of shared memory (block %u, %u)", blockIdx.x, blockIdx.y);
    block.ended = !meets;
    block.line = meets ? fibers[0].line : 0;
    if (bytes) memcpy(block.memory.data(), begin, bytes);
    if (block.ended) std::fill(block.memory.begin(), block.memory.end(), (char)0xff);
    change(which);
}

inline void run_cluster(unsigned int size, int threads, bool reverse, char* begin, char* end)
{
    const unsigned int first = blockIdx.z;
    blocks.resize(size);
    for (unsigned int r = 0; r < size; ++r) {
        enter_memory(begin, end);
        blocks[r].z = first + r;
        blocks[r].memory.assign(begin, end);
        blocks[r].ended = false;
        change(r);
        barriers.clear();
        start_block(threads);
        change(r);
    }
    for (bool going = true; going;) {
        for (unsigned int at = 0; at < size; ++at) {
            run_turn(reverse ? size - 1 - at : at, threads, reverse, begin);
            if (fault[0]) return;
        }
        going = !blocks[0].ended;
        for (const Aside& block : blocks)
            if (block.line != blocks[0].line) {
                snprintf(fault, sizeof fault, "line %d: barrier not reached by all blocks of the cluster",
                         block.line ? block.line : blocks[0].line);
                return;
            }
    }
}

// What another block of the cluster has where this one has `at`.
inline const float* in_block(const float* at, int which)
{
    if ((unsigned int)which >= blocks.size()) stop("no such block in the cluster", 0);
    if ((unsigned int)which == rank) return at;
    return (const float*)(blocks[which].memory.data() + ((const char*)at - shared_first));
}

}  // namespace host

#define cluster_sync() host::cluster_barrier(__LINE__)

inline float load_cluster_float(const float* array, int bytes, int rank)
{
    return *host::in_block(array + bytes / 4, rank);
}
inline float2 load_cluster_float2(const float* array, int bytes, int rank)
{
    float2 found;
    memcpy(&found, host::in_block(array + bytes / 4, rank), sizeof found);
    return found;
}
inline float4 load_cluster_float4(const float* array, int bytes, int rank)
{
    float4 found;
    memcpy(&found, host::in_block(array + bytes / 4, rank), sizeof found);
    return found;
}
