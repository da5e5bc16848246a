// Made by gemmgen. How a product is launched: which kernel of a spec, with which grid and arguments. Needs no CUDA.
//
// `plan` decides as gemmgen's own launch plan does, from sizes, leading dimensions and addresses alone. It reads the
// tables of a spec (see `Spec`), touches no memory and allocates none.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace @PROJECT@ {
namespace rt {

// --- Results ---------------------------------------------------------------------------------------------------------

// What a call returns. `code` is a CUresult (0: success), `message` says what is wrong and what to do about it.
struct [[nodiscard]] Status {
    int code = 0;
    std::string message;

    bool ok() const { return code == 0; }
    explicit operator bool() const { return ok(); }
};

constexpr int INVALID_VALUE = 1;  // CUDA_ERROR_INVALID_VALUE

inline Status refused(std::string why) { return {INVALID_VALUE, std::move(why)}; }

// --- Tables of a spec, written by gemmgen ----------------------------------------------------------------------------

enum Operand { A, B, C, OPERANDS };
enum Part { FIRST, MAIN, THEN, PARTS };  // the kernels of a product, in the order in which they are launched
enum class Kind : unsigned char { pointer, size, integer, real, map };
enum class Source : unsigned char { M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, W, ldw, map, extra };

// One parameter of a kernel: its C type, and where its value comes from. `index` is the number of a tensor map or of an
// extra operand.
struct Parameter {
    Kind kind;
    Source source;
    int index;
};

// A tensor map: the box of one TMA copy, the contiguous dimension first, and the swizzle of its rows in bytes.
struct TensorMap {
    Operand operand;
    unsigned box[2];
    int swizzle;
};

struct Kernel {
    const char* name;
    int threads;
    unsigned shared_bytes;  // dynamic shared memory
    const Parameter* parameters;
    int parameter_count;
    const TensorMap* maps;
    int map_count;
    const unsigned char* cubin;
    std::size_t cubin_bytes;
    const unsigned char* ptx;  // null where there is none
    std::size_t ptx_bytes;
};

// A variant of a spec's kernels: `exact` for whole tiles alone, `align` the bytes to which rows must be aligned, and
// the numbers of its kernels in the spec's table (-1: none).
struct Variant {
    const char* label;
    bool exact;
    int align[OPERANDS];
    int line_elements;  // elements of a line of C that a block of the kernels beside the main one works on
    int kernels[PARTS];
};

struct Matrix {
    char name;
    const char* type;  // f32, tf32, f16, bf16, e4m3, e5m2
    int item;          // bytes of an element
    bool row;          // stored by rows; else by columns
    int need;          // bytes to which rows must be aligned for the exact kernel
};

enum class Skipped : unsigned char { never, beta_is_1, k_is_0 };

struct Step {
    Part part;
    bool lines;  // goes over C line by line; else over its tiles
    int parts;   // blocks along z
    Skipped skipped;
    bool early;  // may start while the step before it runs
};

struct Spec {
    const char* name;
    int arch;             // 90 as in sm_90
    bool only_this_arch;  // sm_90a: no other architecture can run it
    Matrix matrices[OPERANDS];
    long long tile[3];
    long long looks_ahead;
    long long persistent;
    long long group;
    int workspace_parts;  // 0: no workspace
    const Step* steps;
    int step_count;
    const Variant* variants;  // the fastest first
    int variant_count;
    const Kernel* kernels;
    int kernel_count;
    int extra_count;
};

// --- A call, and its launches ----------------------------------------------------------------------------------------

// C = alpha * (A @ B) + beta * C. Leading dimensions in elements; 0 stands for packed. Addresses in bytes.
struct Call {
    long long M = 0, N = 0, K = 0;
    float alpha = 1.0f, beta = 0.0f;
    std::uintptr_t address[OPERANDS] = {};
    long long leading[OPERANDS] = {};
};

// One launch. `offset` is where it starts in each operand, in elements.
struct Launch {
    const Variant* variant;
    Part part;
    long long grid[3];
    long long M, N, K;
    float alpha, beta;
    long long offset[OPERANDS];
    long long leading[OPERANDS];
    long long ldw;
    bool to_workspace;  // the argument C points to the workspace
    bool dependent;     // may start before the launch right before it has ended
};

struct Limits {
    long long grid_y = 65535;
    long long span = 1ll << 30;
};

constexpr long long LARGEST = (1ll << 31) - 1;
constexpr int WIDEST = 16;     // bytes of the widest access
constexpr int SUM_BYTES = 4;   // partial sums are float
constexpr int SUMS_A_LINE = WIDEST / SUM_BYTES;

inline long long up(long long x, long long step) { return (x + step - 1) / step; }

inline long long extent_of(const Spec& s, Operand x, const Call& call)
{
    const long long rows_and_columns[OPERANDS][2] = {{call.M, call.K}, {call.K, call.N}, {call.M, call.N}};
    return rows_and_columns[x][s.matrices[x].row ? 1 : 0];
}

inline long long lines_of(const Spec& s, Operand x, const Call& call)
{
    const long long rows_and_columns[OPERANDS][2] = {{call.M, call.K}, {call.K, call.N}, {call.M, call.N}};
    return rows_and_columns[x][s.matrices[x].row ? 0 : 1];
}

inline int alignment(int item, std::uintptr_t address, long long leading, long long extent)
{
    for (int width : {16, 8, 4, 2, 1}) {
        const bool whole = address % width == 0 && leading * item % width == 0 && extent * item % width == 0;
        if (width >= item && whole) return width;
    }
    return item;
}

// The leading dimension of an operand and the alignment of its rows, or why it cannot be read where it lies.
inline Status placed(const Spec& s, Operand x, const Call& call, long long& leading, int& align)
{
    const Matrix& m = s.matrices[x];
    const long long extent = extent_of(s, x, call), lines = lines_of(s, x, call);
    leading = extent > 0 ? extent : 1;
    align = WIDEST;
    if (extent == 0 || lines == 0) return {};
    const std::string name(1, m.name);
    if (lines > 1 && call.leading[x] != 0) leading = call.leading[x];
    if (leading < extent) {
        const std::string line = m.row ? "row" : "column", ld = "ld" + std::string(1, char(m.name - 'A' + 'a'));
        return refused(ld + " is " + std::to_string(leading) + ", and a " + line + " of " + name + " has " +
                       std::to_string(extent) + " elements; pass at least that, or 0 for a packed matrix");
    }
    if (call.address[x] == 0) return refused(name + " is null; pass an address in the GPU's memory");
    if (call.address[x] % m.item != 0) {
        return refused(name + " is not aligned to its elements of " + std::to_string(m.item) + " bytes");
    }
    align = alignment(m.item, call.address[x], leading, extent);
    return {};
}

// Whether C shares memory with an input: by extents, unless both lie in rows of one buffer side by side.
inline bool overlaps(const Spec& s, Operand x, const Call& call, long long ldx, long long ldc)
{
    const std::uintptr_t line_x = ldx * s.matrices[x].item, line_c = ldc * s.matrices[C].item;
    const std::uintptr_t row_x = extent_of(s, x, call) * s.matrices[x].item;
    const std::uintptr_t row_c = extent_of(s, C, call) * s.matrices[C].item;
    const long long lines_x = lines_of(s, x, call), lines_c = lines_of(s, C, call);
    if (row_x == 0 || row_c == 0 || lines_x == 0 || lines_c == 0) return false;
    const std::uintptr_t end_x = call.address[x] + (lines_x - 1) * line_x + row_x;
    const std::uintptr_t end_c = call.address[C] + (lines_c - 1) * line_c + row_c;
    if (call.address[C] >= end_x || call.address[x] >= end_c) return false;
    if (line_x != line_c) return true;
    const std::uintptr_t apart = (call.address[C] - call.address[x]) % line_x;  // where in a row of x one of C starts
    return apart < row_x || apart + row_c > line_x;
}

inline const Variant* fitting(const Spec& s, const Call& call, const int align[OPERANDS])
{
    const bool whole = call.M % s.tile[0] == 0 && call.N % s.tile[1] == 0 && call.K % s.tile[2] == 0;
    for (int i = 0; i < s.variant_count; ++i) {
        const Variant& v = s.variants[i];
        bool fits = !v.exact || whole;
        for (int x = A; x < OPERANDS; ++x) {
            const int need = v.align[x] < s.matrices[x].need ? v.align[x] : s.matrices[x].need;
            fits = fits && align[x] >= need;
        }
        if (fits) return &v;
    }
    return nullptr;
}

// Rows of a panel of at most that many blocks: a multiple of four tiles, so that alignment survives the offset.
inline long long panel(long long tile, long long blocks)
{
    const long long most = blocks >= 4 ? blocks / 4 * 4 : blocks;
    return tile * (most > 1 ? most : 1);
}

struct Panels {
    long long rows, columns;
};

inline Panels panels_of(const Spec& s, const Variant& v, const Limits& limits)
{
    const long long bm = s.tile[0], bn = s.tile[1];
    const long long numbered = s.persistent ? limits.grid_y + 1 : s.group;
    long long along_m = limits.grid_y < limits.span / bm ? limits.grid_y : limits.span / bm;
    long long along_n = limits.span / (bn > numbered ? bn : numbered);
    if (s.step_count > 1) {  // the kernel beside it has its blocks along y where the main one may have them along x
        const long long most = limits.grid_y * v.line_elements;
        const long long most_m = most / bm > 1 ? most / bm : 1, most_n = most / bn > 1 ? most / bn : 1;
        along_m = along_m < most_m ? along_m : most_m;
        along_n = along_n < most_n ? along_n : most_n;
    }
    return {panel(bm, along_m), panel(bn, along_n)};
}

// What of a call does not depend on the panel: the variant and the operands' places, or why there are none.
struct Decided {
    const Variant* variant = nullptr;  // null: there is nothing to compute
    Call call;
    Panels panels{};
    std::size_t workspace = 0;
};

inline long long lines_in(const Spec& s, long long m, long long n) { return s.matrices[C].row ? m : n; }

inline long long ldw_of(const Spec& s, long long m, long long n)
{
    return up(m + n - lines_in(s, m, n), SUMS_A_LINE) * SUMS_A_LINE;
}

inline std::size_t workspace_of(const Spec& s, const Call& call, const Panels& p)
{
    std::size_t most = 0;  // whole panels, and those that are left at the right, below, and at the corner
    for (long long m : {call.M < p.rows ? call.M : p.rows, call.M % p.rows})
        for (long long n : {call.N < p.columns ? call.N : p.columns, call.N % p.columns}) {
            const std::size_t bytes = std::size_t(s.workspace_parts) * lines_in(s, m, n) * ldw_of(s, m, n) * SUM_BYTES;
            if (m > 0 && n > 0 && bytes > most) most = bytes;
        }
    return most;
}

inline Status decide(const Spec& s, const Call& given, Decided& out, const Limits& limits = Limits())
{
    out = Decided();
    Call call = given;
    const std::pair<char, long long> sizes[] = {{'M', call.M}, {'N', call.N}, {'K', call.K}};
    for (const auto& size : sizes) {
        if (size.second < 0 || size.second > LARGEST) {
            return refused(std::string(1, size.first) + " is " + std::to_string(size.second) +
                           "; a size is from 0 to " + std::to_string(LARGEST));
        }
    }
    if (call.M == 0 || call.N == 0) return {};
    if (call.alpha == 0.0f || call.K == 0) {  // A and B are not read
        call.alpha = 0.0f;
        call.K = 0;
    }
    if (call.K > LARGEST - s.looks_ahead) {
        return refused("K is " + std::to_string(call.K) + "; the largest K of one launch is " +
                       std::to_string(LARGEST - s.looks_ahead));
    }
    int align[OPERANDS];
    for (Operand x : {A, B, C}) {
        long long leading;
        Status status = placed(s, x, call, leading, align[x]);
        if (!status) return status;
        call.leading[x] = leading;
    }
    for (Operand x : {A, B}) {
        if (overlaps(s, x, call, call.leading[x], call.leading[C])) {
            const std::string name(1, s.matrices[x].name);
            return refused("C overlaps " + name + " in memory; it is written while " + name +
                           " is read: pass a copy of one");
        }
    }
    out.variant = fitting(s, call, align);
    if (out.variant == nullptr) return refused("no kernel of this export fits the operands' alignment");
    out.call = call;
    out.panels = panels_of(s, *out.variant, limits);
    if (s.workspace_parts) out.workspace = workspace_of(s, call, out.panels);
    return {};
}

inline long long offset_of(const Spec& s, Operand x, long long i, long long j, long long leading)
{
    return s.matrices[x].row ? i * leading + j : j * leading + i;
}

inline bool skipped(const Step& step, const Launch& launch)
{
    return (step.skipped == Skipped::beta_is_1 && launch.beta == 1.0f) ||
           (step.skipped == Skipped::k_is_0 && launch.K == 0);
}

// The launches of one panel of C, in order: calls `each(launch)` until one returns a Status that is an error.
template <class Each>
Status launches_of_panel(const Spec& s, const Launch& whole, Each&& each)
{
    const long long lines = lines_in(s, whole.M, whole.N);
    const long long along = up(whole.M + whole.N - lines, whole.variant->line_elements);
    const long long ldw = ldw_of(s, whole.M, whole.N);
    bool before = false;
    for (int i = 0; i < s.step_count; ++i) {
        const Step& step = s.steps[i];
        if (skipped(step, whole)) continue;
        Launch launch = whole;
        launch.part = step.part;
        launch.dependent = before && step.early;
        launch.grid[2] = step.parts;
        if (step.lines) {
            launch.grid[0] = lines;
            launch.grid[1] = along;
            launch.grid[2] = 1;
        }
        if (s.workspace_parts && step.part == MAIN) {
            launch.alpha = 1.0f;
            launch.beta = 0.0f;
            launch.offset[C] = 0;
            launch.leading[C] = ldw;
            launch.to_workspace = true;
        } else if (s.workspace_parts) {
            launch.ldw = ldw;
        }
        Status status = each(launch);
        if (!status) return status;
        before = true;
    }
    return {};
}

// All launches of a call that was decided, in order.
template <class Each>
Status launches(const Spec& s, const Decided& d, Each&& each)
{
    if (d.variant == nullptr) return {};
    const Call& call = d.call;
    const long long bm = s.tile[0], bn = s.tile[1];
    for (long long i = 0; i < call.M; i += d.panels.rows) {
        for (long long j = 0; j < call.N; j += d.panels.columns) {
            Launch whole{};
            whole.variant = d.variant;
            whole.part = MAIN;
            whole.M = call.M - i < d.panels.rows ? call.M - i : d.panels.rows;
            whole.N = call.N - j < d.panels.columns ? call.N - j : d.panels.columns;
            whole.K = call.K;
            whole.alpha = call.alpha;
            whole.beta = call.beta;
            const long long columns = up(whole.N, bn), rows = up(whole.M, bm);
            const bool fewer = s.persistent && s.persistent < columns * rows;
            whole.grid[0] = s.persistent ? (fewer ? s.persistent : columns * rows) : columns;
            whole.grid[1] = s.persistent ? 1 : rows;
            for (Operand x : {A, B, C}) whole.leading[x] = call.leading[x];
            whole.offset[A] = offset_of(s, A, i, 0, call.leading[A]);
            whole.offset[B] = offset_of(s, B, 0, j, call.leading[B]);
            whole.offset[C] = offset_of(s, C, i, j, call.leading[C]);
            Status status = launches_of_panel(s, whole, each);
            if (!status) return status;
        }
    }
    return {};
}

}  // namespace rt
}  // namespace @PROJECT@
