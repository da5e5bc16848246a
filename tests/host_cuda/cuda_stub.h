// What CUDA builds in, for a host compiler: enough to build the text of a kernel as C++ and run it.
//
// The threads of a block are fibers of one OS thread, run in turn from barrier to barrier. So a missing barrier shows
// (a thread runs ahead of those that it should have waited for), a barrier that some threads do not reach is
// reported rather than hung on, and shared memory starts as NaN in every block (cluster_stub.h has what blocks of a
// cluster do to one another). Misaligned accesses and indices past
// a declared array call the handlers below, through -fsanitize=alignment,bounds.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Memory of the block: one section a kernel, so that it can be found and filled. What is given at launch is declared
// beside the kernel by the harness.
#define __shared__ static __attribute__((section(HOST_SECTION)))
// The keyword may not stand between `static` and a type; the attribute may.
#define alignas(bytes) __attribute__((aligned(bytes)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __cvta_generic_to_shared(pointer) ((size_t)(pointer))
#define __syncthreads() host::barrier(__LINE__)
#define __cluster_dims__(...)

struct __attribute__((aligned(8))) float2 { float x, y; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct uint3 { unsigned int x, y, z; };

static uint3 threadIdx, blockIdx, blockDim, gridDim;

inline void own_register(float& own, float value) { own = value; }

inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }
inline unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
inline unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
inline size_t min(size_t a, size_t b) { return a < b ? a : b; }

inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned long long)a * b >> 32; }

namespace host {

constexpr size_t STACK = 64 * 1024;
enum class State { ready, polling, waiting, meeting, done };  // meeting: at a barrier of the cluster

// A copy that has been started: it lands when its group is waited for, and not before. No source: zeros.
struct Copy { void* dst; const void* src; size_t bytes; };

struct Fiber {
    ucontext_t context;
    State state;
    int line;  // of the barrier it waits at, or polls
    std::vector<Copy> started;
    std::deque<std::vector<Copy>> groups;
    unsigned int shuffles;  // that it has begun
    float offered[2];       // what it gives in its last two
    unsigned int meetings;  // of its warp, that it has come to
};

// What the lanes of a warp have come with to what they do together, and how many are there (mma_stub.h).
struct Call { void* p[4]; };
struct Warp { Call lanes[32]; int here; unsigned long long rounds; };
static std::vector<Warp> warps;

static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static int current;
static void (*entry)(void** arguments);
static void** arguments;
static char fault[256];
static size_t guard;  // bytes at the end of shared memory that are none of the kernel's
static bool meets;  // the block has not ended, but come to a barrier of its cluster
static unsigned long long progress;  // grows with everything that a poll could wait for

// Gives up the kernel with a message. Does not return.
[[noreturn]] inline void stop(const char* what, int line)
{
    snprintf(fault, sizeof fault, "line %d: %s (block %u, %u, thread %d)", line, what, blockIdx.x, blockIdx.y, current);
    setcontext(&scheduler);
    __builtin_unreachable();
}

inline void leave(State state, int line)
{
    fibers[current].state = state;
    fibers[current].line = line;
    swapcontext(&fibers[current].context, &scheduler);
}

inline void barrier(int line)
{
    ++progress;
    leave(State::waiting, line);
}

inline void cluster_barrier(int line)
{
    ++progress;
    leave(State::meeting, line);
}

// Lets other threads run, to look again later at what is waited for.
inline void poll(int line) { leave(State::polling, line); }

inline void fiber_main()
{
    entry(arguments);
    ++progress;
    fibers[current].state = State::done;
    setcontext(&scheduler);
}

inline void start(int thread)
{
    Fiber& fiber = fibers[thread];
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = &stacks[thread * STACK];
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    fiber.state = State::ready;
    fiber.started.clear();
    fiber.groups.clear();
    fiber.shuffles = fiber.meetings = 0;
    makecontext(&fiber.context, fiber_main, 0);
}

inline void start_copy(void* dst, const void* src, size_t bytes)
{
    if ((uintptr_t)dst % bytes || (uintptr_t)src % bytes) stop("misaligned asynchronous copy", 0);
    fibers[current].started.push_back({dst, src, bytes});
}

inline void commit_copies()
{
    Fiber& fiber = fibers[current];
    fiber.groups.push_back(std::move(fiber.started));
    fiber.started.clear();
}

inline void wait_for_copies(size_t pending)
{
    for (auto& groups = fibers[current].groups; groups.size() > pending; groups.pop_front())
        for (const Copy& copy : groups.front()) {
            if (copy.src) memcpy(copy.dst, copy.src, copy.bytes);
            else memset(copy.dst, 0, copy.bytes);
        }
}

// The threads from first to last up to where each has to wait. False after a fault.
inline bool turn(int first, int last, bool reverse)
{
    for (int at = first; at < last; ++at) {
        current = reverse ? first + last - 1 - at : at;
        if (fibers[current].state != State::ready) continue;
        threadIdx = {(unsigned int)current, 0, 0};
        swapcontext(&scheduler, &fibers[current].context);
        if (fault[0]) return false;
    }
    return true;
}

// Every warp, one after another, as far as it comes without the others. False after a fault.
inline bool turn(int threads, bool reverse)
{
    const int warps = (threads + 31) / 32;
    for (int at = 0; at < warps; ++at) {
        const int first = 32 * (reverse ? warps - 1 - at : at), last = first + 32 < threads ? first + 32 : threads;
        for (unsigned long long before = ~progress; before != progress;) {
            before = progress;
            if (!turn(first, last, reverse)) return false;
            if (progress == before) break;
            for (int t = first; t < last; ++t)
                if (fibers[t].state == State::polling) fibers[t].state = State::ready;
        }
    }
    return true;
}

// Whether the block has finished, or waits for others; a fault where some threads wait and others never will.
inline bool finished(int threads)
{
    int waiting = 0, other = -1;  // `other`: a thread that is not where thread 0 is
    for (const Fiber& fiber : fibers) waiting += fiber.state == State::waiting || fiber.state == State::meeting;
    for (int t = 0; t < threads; ++t)
        if (fibers[t].state != fibers[0].state || (waiting && fibers[t].line != fibers[0].line)) other = t;
    if (other >= 0) {
        const Fiber& shown = fibers[fibers[0].state != State::done ? 0 : other];
        int here = 0;
        for (const Fiber& fiber : fibers) here += fiber.state != State::done && fiber.line == shown.line;
        snprintf(fault, sizeof fault, "line %d: barrier not reached by all: %d of %d threads wait (block %u, %u)",
                 shown.line, here, threads, blockIdx.x, blockIdx.y);
        return true;
    }
    meets = fibers[0].state == State::meeting;
    for (Fiber& fiber : fibers) fiber.state = State::ready;
    return waiting == 0 || meets;
}

// Whether some threads polled; they are to look again. A fault where nothing has happened since they last did.
inline bool polled(unsigned long long before)
{
    bool some = false;
    for (Fiber& fiber : fibers) {
        if (fiber.state != State::polling) continue;
        if (!some && progress == before) snprintf(fault, sizeof fault, "line %d: nothing ends this wait", fiber.line);
        some = true;
        fiber.state = State::ready;
    }
    return some;
}

inline void start_block(int threads)
{
    fibers.resize(threads);
    stacks.resize(threads * STACK);
    warps.clear();
    for (int t = 0; t < threads; ++t) start(t);
}

inline void run_block(int threads, bool reverse)
{
    for (unsigned long long before = progress; turn(threads, reverse); before = progress) {
        if (polled(before) ? fault[0] != 0 : finished(threads)) return;
    }
}

// Of a block that begins: its shared memory.
inline void enter_memory(char* begin, char* end);
inline void run_cluster(unsigned int size, int threads, bool reverse, char* begin, char* end);

// Runs a whole grid, of which `cluster` neighbours along z run together. 0, or 1 with the fault in `message`.
inline int launch(void (*kernel)(void**), const unsigned int* grid, unsigned int cluster, int threads, void** given,
                  bool reverse, char* shared_begin, char* shared_end, size_t behind, char* message, size_t capacity)
{
    guard = behind;
    entry = kernel;
    arguments = given;
    fault[0] = 0;
    blockDim = {(unsigned int)threads, 1, 1};
    gridDim = {grid[0], grid[1], grid[2]};
    for (unsigned int z = 0; z < grid[2]; z += cluster)
        for (unsigned int y = 0; y < grid[1]; ++y)
            for (unsigned int x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                run_cluster(cluster, threads, reverse, shared_begin, shared_end);
                if (fault[0]) {
                    snprintf(message, capacity, "%s", fault);
                    return 1;
                }
            }
    return 0;
}

// Calls a kernel with its arguments taken from an array of pointers to them.
template <class... P, size_t... I>
inline void call(void (*kernel)(P...), void** values, std::index_sequence<I...>)
{
    kernel(*static_cast<std::remove_reference_t<P>*>(values[I])...);
}

template <class... P>
inline void call(void (*kernel)(P...), void** values)
{
    call(kernel, values, std::index_sequence_for<P...>{});
}

}  // namespace host

#include "types_stub.h"
#include "tma_stub.h"
#include "cluster_stub.h"
#include "dependent_stub.h"
#include "mma_stub.h"

inline void host::enter_memory(char* begin, char* end)
{
    barriers.clear();
    shared_first = begin;
    shared_last = end - guard;
    if (begin) memset(begin, 0xff, end - begin);  // every element a NaN, of whatever type
}

// What a call is turned into that a test leaves out.
template <class... P>
inline void left_out(const P&...)
{
}

// Helpers that are PTX in the text.
inline float load_shared_float(const float* array, int bytes) { return array[bytes / 4]; }
inline float2 load_shared_float2(const float* array, int bytes)
{
    return *reinterpret_cast<const float2*>(array + bytes / 4);
}
inline float4 load_shared_float4(const float* array, int bytes)
{
    return *reinterpret_cast<const float4*>(array + bytes / 4);
}
inline float load_global_float(const float* p) { return *p; }
inline float2 load_global_float2(const float* p) { return *reinterpret_cast<const float2*>(p); }
inline float4 load_global_float4(const float* p) { return *reinterpret_cast<const float4*>(p); }

// All lanes of the warp take part in a shuffle; a lane that does not come is waited for in vain.
inline float __shfl_xor_sync(unsigned int, float value, int apart)
{
    const int me = host::current, first = me / 32 * 32;
    const unsigned int mine = ++host::fibers[me].shuffles;
    host::fibers[me].offered[mine % 2] = value;
    ++host::progress;
    for (int lane = first; lane < first + 32; ++lane)
        while (host::fibers[lane].shuffles < mine) host::poll(__LINE__);
    return host::fibers[me ^ apart].offered[mine % 2];
}

// The lanes of a warp meet, those that the block has: the last warp may be a part of one.
inline void __syncwarp(int line = __builtin_LINE())
{
    const int me = host::current, first = me / 32 * 32, all = blockDim.x * blockDim.y;
    const unsigned int mine = ++host::fibers[me].meetings;
    ++host::progress;
    for (int lane = first; lane < first + 32 && lane < all; ++lane)
        while (host::fibers[lane].meetings < mine) host::poll(line);
}

// The threads of a grid take turns here, and none is interrupted.
inline float atomicAdd(float* p, float x)
{
    const float old = *p;
    *p += x;
    return old;
}
inline void add_float2(float* p, float x, float y)
{
    float2& at = *reinterpret_cast<float2*>(p);
    at = {at.x + x, at.y + y};
}
inline void add_float4(float* p, float x, float y, float z, float w)
{
    float4& at = *reinterpret_cast<float4*>(p);
    at = {at.x + x, at.y + y, at.z + z, at.w + w};
}

inline void cp_async4(void* dst, const void* src) { host::start_copy(dst, src, 4); }
inline void cp_async8(void* dst, const void* src) { host::start_copy(dst, src, 8); }
inline void cp_async16(void* dst, const void* src) { host::start_copy(dst, src, 16); }
inline void cp_async4_or_zero(void* dst, const void* src, bool some) { cp_async4(dst, some ? src : nullptr); }
inline void cp_async8_or_zero(void* dst, const void* src, bool some) { cp_async8(dst, some ? src : nullptr); }
inline void cp_async16_or_zero(void* dst, const void* src, bool some) { cp_async16(dst, some ? src : nullptr); }
inline void cp_async_commit() { host::commit_copies(); }
#define CP_ASYNC_WAIT(pending) inline void cp_async_wait##pending() { host::wait_for_copies(pending); }
CP_ASYNC_WAIT(0) CP_ASYNC_WAIT(1) CP_ASYNC_WAIT(2) CP_ASYNC_WAIT(3)
CP_ASYNC_WAIT(4) CP_ASYNC_WAIT(5) CP_ASYNC_WAIT(6) CP_ASYNC_WAIT(7)

// The run-time part of the checks that the compiler inserts: report and give up the kernel, not the process.
struct SourceLocation { const char* file; uint32_t line, column; };

extern "C" {
__attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(SourceLocation* at, void*)
{
    host::stop("misaligned access", (int)at->line);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(SourceLocation* at, void*)
{
    host::stop("index out of bounds", (int)at->line);
}
}
