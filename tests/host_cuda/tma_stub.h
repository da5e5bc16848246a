// mbarriers and the TMA engine for a host compiler, beside cuda_stub.h.
//
// A box lands no earlier than some thread waits for the barrier that counts its bytes, and then only as many boxes as
// that wait needs. So a missing wait shows, and so does a wait for the wrong phase. A barrier that is used before it
// is set up, or by the engine before a fence, is reported; so is a wait that nothing can end, and a tile that is
// overwritten though some thread has set no fence behind its loads from it.

#pragma once

#include <algorithm>
#include <climits>
#include <map>

#define __grid_constant__

namespace host {

// What the harness puts into the opaque bytes of a tensor map. `along` is the contiguous dimension; `pitch` and `item`,
// the size of an element, are bytes.
struct Map {
    uint64_t base, along, across, pitch, item, box_along, box_across, swizzle;
    size_t bytes() const { return item * box_along * box_across; }
};

struct Box { char* dst; Map map; int x, y; };

struct Barrier {
    int pending;
    long long bytes;
    unsigned phase;
    bool fenced;
    std::deque<Box> arriving;
    int arrivals;
};

static std::map<const void*, Barrier> barriers;
static std::map<unsigned, int> fences;             // by each thread of the block
static std::map<const void*, int> fences_at_fill;  // by the thread that had the fewest, when a tile was last brought

inline int fewest_fences()
{
    int fewest = INT_MAX;
    for (size_t thread = 0; thread < fibers.size(); ++thread) fewest = std::min(fewest, fences[(unsigned)thread]);
    return fewest;
}
static const char *shared_first, *shared_last;

inline Barrier& barrier_at(const void* at, int line)
{
    auto found = barriers.find(at);
    if (found == barriers.end()) stop("barrier used before it is set up", line);
    return found->second;
}

inline void end_phase(Barrier& barrier)
{
    if (barrier.pending || barrier.bytes) return;
    ++barrier.phase;
    barrier.pending = barrier.arrivals;
}

// One box, with its rows' pieces of 16 bytes permuted by the bits of their address as the hardware does it.
inline void land(const Box& box)
{
    const Map& m = box.map;
    for (uint64_t row = 0; row < m.box_across; ++row)
        for (uint64_t column = 0; column < m.box_along; ++column) {
            uintptr_t at = (uintptr_t)(box.dst + m.item * (row * m.box_along + column));
            if (m.swizzle) at ^= ((at >> 7) & (m.swizzle / 16 - 1)) << 4;
            const int64_t x = box.x + (int64_t)column, y = box.y + (int64_t)row;
            const bool inside = x >= 0 && y >= 0 && x < (int64_t)m.along && y < (int64_t)m.across;
            if (inside) memcpy((void*)at, (const void*)(m.base + y * m.pitch + m.item * x), m.item);
            else memset((void*)at, 0, m.item);
        }
}

inline bool deliver(Barrier& barrier)
{
    if (barrier.arriving.empty()) return false;
    const Box box = barrier.arriving.front();
    barrier.arriving.pop_front();
    land(box);
    barrier.bytes -= (long long)box.map.bytes();
    end_phase(barrier);
    ++progress;
    return true;
}

}  // namespace host

inline void mbarrier_init(unsigned long long* at, int arrivals)
{
    host::barriers[at] = {arrivals, 0, 0, false, {}, arrivals};
    host::fences.clear();
    host::fences_at_fill.clear();
}

inline int __shfl_sync(unsigned int, int value, int) { return value; }  // of a value that the lanes agree on

inline bool elect_one() { return threadIdx.x % 32 == 0; }

inline void mbarrier_fence()
{
    for (auto& barrier : host::barriers) barrier.second.fenced = true;
}

inline void fence_async() { ++host::fences[threadIdx.x]; }

inline void mbarrier_expect(unsigned long long* at, int bytes, int line = __builtin_LINE())
{
    host::Barrier& barrier = host::barrier_at(at, line);
    barrier.pending -= 1;
    barrier.bytes += bytes;
    host::end_phase(barrier);
    ++host::progress;
}

// The first lane of the warp arrives, wherever the others are.
inline void mbarrier_release(unsigned long long* at, int line = __builtin_LINE())
{
    host::Barrier& barrier = host::barrier_at(at, line);
    if (threadIdx.x % 32) return;
    barrier.pending -= 1;
    host::end_phase(barrier);
    ++host::progress;
}

inline void mbarrier_wait(unsigned long long* at, int parity, int line = __builtin_LINE())
{
    host::Barrier& barrier = host::barrier_at(at, line);
    while ((int)(barrier.phase % 2) == parity)
        if (!host::deliver(barrier)) host::poll(line);
}

inline void tma_load(void* dst, const void* map, int x, int y, unsigned long long* at, int line = __builtin_LINE())
{
    host::Barrier& barrier = host::barrier_at(at, line);
    host::Map m;
    memcpy(&m, map, sizeof m);
    const size_t bytes = m.bytes();
    if (!barrier.fenced) host::stop("barrier used by the engine before a fence", line);
    if ((uintptr_t)dst % (m.swizzle ? 8 * m.swizzle : 128)) host::stop("misaligned box", line);
    if ((char*)dst < host::shared_first || (char*)dst + bytes > host::shared_last) host::stop("box out of bounds", line);
    if (m.base % 16 || m.pitch % 16) host::stop("matrix that the engine cannot address", line);
    const int fences = host::fewest_fences();
    const auto filled = host::fences_at_fill.find(dst);
    if (filled != host::fences_at_fill.end() && fences <= filled->second)
        host::stop("tile overwritten with no fence behind its loads", line);
    host::fences_at_fill[dst] = fences;
    barrier.arriving.push_back({(char*)dst, m, x, y});
}
