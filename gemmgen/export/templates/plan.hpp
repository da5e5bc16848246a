// Made by gemmgen. How a product is launched: which kernel of a spec, with which grid and arguments. Needs no CUDA.
//
// `plan` decides as gemmgen's own launch plan does, from sizes, leading dimensions and addresses alone. It reads the
// tables of a spec (see `Spec`), touches no memory and allocates none.
#pragma once

#include <algorithm>
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
enum class Source : unsigned char { M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, W, ldw, map, beside, leading };

// One parameter of a kernel: its C type, and where its value comes from. `index` is the number of a tensor map, or of an
// operand of the epilogue (`beside`, and `leading`, its leading dimension).
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

// An operand of an epilogue: it has elements along the rows of C, its columns, both or neither, and lies as C does.
struct Beside {
    const char* name;
    const char* type;
    bool rows, columns;
    int item;
    bool written;
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
    const Beside* beside;
    int beside_count;
};

constexpr int MOST_BESIDE = @MOST_BESIDE@;

// --- A call, and its launches ----------------------------------------------------------------------------------------

// C = alpha * (A @ B) + beta * C. Leading dimensions in elements; 0 stands for packed. Addresses in bytes.
struct Call {
    long long M = 0, N = 0, K = 0;
    float alpha = 1.0f, beta = 0.0f;
    std::uintptr_t address[OPERANDS] = {};
    long long leading[OPERANDS] = {};
    std::uintptr_t beside_address[MOST_BESIDE] = {};
    long long beside_leading[MOST_BESIDE] = {};  // of those with rows and columns
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
    long long row, column;  // of C where it starts
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

// The bytes of a matrix: `lines` runs of `length` bytes, `pitch` apart.
struct Span {
    std::uintptr_t address, pitch, length;
    long long lines;

    bool operator==(const Span& o) const
    {
        return address == o.address && pitch == o.pitch && length == o.length && lines == o.lines;
    }
};

// Whether two share memory: by extents, unless both lie in rows of one buffer side by side.
inline bool overlap(const Span& x, const Span& y)
{
    if (x.length == 0 || y.length == 0 || x.lines == 0 || y.lines == 0) return false;
    const std::uintptr_t end_x = x.address + (x.lines - 1) * x.pitch + x.length;
    const std::uintptr_t end_y = y.address + (y.lines - 1) * y.pitch + y.length;
    if (y.address >= end_x || x.address >= end_y) return false;
    if (x.pitch != y.pitch || x.lines == 1 || y.lines == 1) return true;
    const std::uintptr_t apart = (y.address - x.address) % x.pitch;  // where in a row of x one of y starts
    return apart < x.length || apart + y.length > x.pitch;
}

inline Span span_of(const Spec& s, Operand x, const Call& call)
{
    const std::uintptr_t item = s.matrices[x].item;
    return {call.address[x], call.leading[x] * item, extent_of(s, x, call) * item, lines_of(s, x, call)};
}

// The elements of a line of an epilogue's operand, and how many lines there are.
inline long long beside_extent(const Spec& s, const Beside& e, const Call& call)
{
    if (e.rows && e.columns) return s.matrices[C].row ? call.N : call.M;
    return e.rows ? call.M : e.columns ? call.N : 1;
}

inline long long beside_lines(const Spec& s, const Beside& e, const Call& call)
{
    return e.rows && e.columns ? (s.matrices[C].row ? call.M : call.N) : 1;
}

inline Span span_of(const Spec& s, int i, const Call& call)
{
    const Beside& e = s.beside[i];
    const std::uintptr_t item = e.item;
    return {call.beside_address[i], call.beside_leading[i] * item, beside_extent(s, e, call) * item,
            beside_lines(s, e, call)};
}

// The operands of the epilogue: their leading dimensions, and the alignment that they leave to accesses of C, which are
// as wide for all.
inline Status placed_beside(const Spec& s, Call& call, int& align)
{
    for (int i = 0; i < s.beside_count; ++i) {
        const Beside& e = s.beside[i];
        const std::string name = e.name;
        const long long extent = beside_extent(s, e, call), lines = beside_lines(s, e, call);
        long long& leading = call.beside_leading[i];
        if (lines == 1 || leading == 0) leading = extent;
        if (leading < extent) {
            return refused("ld" + name + " is " + std::to_string(leading) + ", and a line of " + name + " has " +
                           std::to_string(extent) + " elements; pass at least that, or 0 for a packed matrix");
        }
        const std::uintptr_t address = call.beside_address[i];
        if (address == 0) return refused(name + " is null; the epilogue of " + s.name + " takes it");
        if (address % e.item != 0) {
            return refused(name + " is not aligned to its elements of " + std::to_string(e.item) + " bytes");
        }
        const bool matrix = e.rows && e.columns;
        if (!(s.matrices[C].row ? e.columns : e.rows)) continue;  // one element at a time
        const int own = alignment(e.item, address, matrix ? leading : 0, matrix ? extent : 0), item = s.matrices[C].item;
        const int beside = own / e.item * item > item ? own / e.item * item : item;
        if (own < WIDEST && beside < align) align = beside;
    }
    return {};
}

inline Status shared(const std::string& out, const std::string& name, bool both)
{
    const std::string why = both ? ", and both are written" : "; it is written while " + name + " is read";
    return refused(out + " overlaps " + name + " in memory" + why + ": pass a copy of one");
}

// What is written shares no memory with what else there is. An operand that is read may be C itself, element by element.
inline Status refuse_overlap(const Spec& s, const Call& call)
{
    const Span c = span_of(s, C, call);
    for (Operand x : {A, B})
        if (overlap(span_of(s, x, call), c)) return shared("C", std::string(1, s.matrices[x].name), false);
    for (int i = 0; i < s.beside_count; ++i) {
        const Beside& e = s.beside[i];
        const Span own = span_of(s, i, call);
        const bool same = e.rows && e.columns && !e.written && own == c;
        if (!same && overlap(own, c)) return shared("C", e.name, e.written);
        for (Operand x : {A, B})
            if (e.written && overlap(own, span_of(s, x, call)))
                return shared(e.name, std::string(1, s.matrices[x].name), false);
        for (int j = 0; j < s.beside_count; ++j)
            if (j != i && e.written && overlap(own, span_of(s, j, call)))
                return shared(e.name, s.beside[j].name, s.beside[j].written);
    }
    return {};
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

// What keeps every variant from reading operands where they lie.
inline Status misaligned(const Spec& s, const int align[OPERANDS])
{
    for (Operand x : {A, B, C}) {
        int least = WIDEST;
        for (int i = 0; i < s.variant_count; ++i) least = std::min(least, s.variants[i].align[x]);
        least = std::min(least, s.matrices[x].need);
        if (align[x] >= least) continue;
        const std::string name(1, s.matrices[x].name);
        return refused(name + " is aligned to " + std::to_string(align[x]) +
                       " bytes (its address, its rows' length and the distance between them); the kernels of " +
                       s.name + " need " + std::to_string(least) + ": pad its rows");
    }
    return refused(std::string("no kernel of ") + s.name + " fits the operands");
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
        const Status status = placed(s, x, call, leading, align[x]);
        if (!status) return status;
        call.leading[x] = leading;
    }
    Status status = placed_beside(s, call, align[C]);
    if (status) status = refuse_overlap(s, call);
    if (!status) return status;
    out.variant = fitting(s, call, align);
    if (out.variant == nullptr) return misaligned(s, align);
    out.call = call;
    out.panels = panels_of(s, *out.variant, limits);
    if (s.workspace_parts) out.workspace = workspace_of(s, call, out.panels);
    return {};
}

inline long long offset_of(const Spec& s, Operand x, long long i, long long j, long long leading)
{
    return s.matrices[x].row ? i * leading + j : j * leading + i;
}

// Where in an operand of the epilogue a launch starts, in elements.
inline long long beside_offset(const Spec& s, int i, const Launch& l, const Call& call)
{
    const Beside& e = s.beside[i];
    if (e.rows && e.columns) return offset_of(s, C, l.row, l.column, call.beside_leading[i]);
    return e.rows ? l.row : e.columns ? l.column : 0;
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
            whole.row = i;
            whole.column = j;
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
