// Made by gemmgen. Checks every exported kernel against a plain loop at whole, ragged and empty sizes.
//
//     @PROJECT@_check                     exit status 0 where every element is right, 1 else
//     @PROJECT@_check --time 4096x4096x4096   also times the kernels at that size
#include <@PROJECT@/@PROJECT@.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace @PROJECT@;

// --- The driver's memory, stream and events --------------------------------------------------------------------------

struct Memory {
    decltype(&::cuInit) init = nullptr;
    decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&::cuCtxSetCurrent) set_current = nullptr;
    decltype(&::cuCtxSynchronize) synchronize = nullptr;
    decltype(&::cuMemAlloc) alloc = nullptr;
    decltype(&::cuMemFree) free = nullptr;
    decltype(&::cuMemcpyHtoD) upload = nullptr;
    decltype(&::cuMemcpyDtoH) download = nullptr;
    decltype(&::cuEventCreate) event_create = nullptr;
    decltype(&::cuEventRecord) event_record = nullptr;
    decltype(&::cuEventSynchronize) event_synchronize = nullptr;
    CUresult (*event_elapsed)(float*, CUevent, CUevent) = nullptr;

    bool find()
    {
        using rt::Driver;
        return Driver::find("cuInit", init) && Driver::find("cuDevicePrimaryCtxRetain", retain) &&
               Driver::find("cuCtxSetCurrent", set_current) && Driver::find("cuCtxSynchronize", synchronize) &&
               Driver::find("cuMemAlloc", alloc) && Driver::find("cuMemFree", free) &&
               Driver::find("cuMemcpyHtoD", upload) && Driver::find("cuMemcpyDtoH", download) &&
               Driver::find("cuEventCreate", event_create) && Driver::find("cuEventRecord", event_record) &&
               Driver::find("cuEventSynchronize", event_synchronize) &&
               Driver::find("cuEventElapsedTime", event_elapsed);
    }
};

Memory gpu;

void require(CUresult code, const char* what)
{
    if (code == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s failed with %d\n", what, int(code));
    std::exit(1);
}

struct Buffer {
    CUdeviceptr address = 0;
    explicit Buffer(std::size_t bytes) { require(gpu.alloc(&address, bytes ? bytes : 16), "cuMemAlloc"); }
    ~Buffer() { gpu.free(address); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
};

// --- Elements of every type ------------------------------------------------------------------------------------------

float from_bits(std::uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// A half-precision number: ten bits of fraction, five of exponent.
float from_half(std::uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float size = exponent == 0    ? std::ldexp(float(fraction), -24)
                       : exponent == 31 ? (fraction ? NAN : INFINITY)
                                        : std::ldexp(float(fraction + 1024), exponent - 25);
    return h >> 15 ? -size : size;
}

// Eight bits, of which the last `mantissa` are a fraction, with the exponent between that and the sign.
float from_eight_bits(int x, int mantissa)
{
    const int bias = mantissa == 3 ? 7 : 15, exponent = (x & 127) >> mantissa, whole = 1 << mantissa;
    const int fraction = x & (whole - 1);
    const float size = exponent == 0 ? std::ldexp(float(fraction), 1 - bias - mantissa)
                                     : std::ldexp(float(fraction + whole), exponent - bias - mantissa);
    return x >> 7 ? -size : size;
}

bool is(const rt::Matrix& m, const char* type) { return std::strcmp(m.type, type) == 0; }

float load(const std::vector<unsigned char>& bytes, std::size_t i, const rt::Matrix& m)
{
    if (m.item == 4) {
        float x;
        std::memcpy(&x, &bytes[4 * i], 4);
        return x;
    }
    if (m.item == 1) return from_eight_bits(bytes[i], is(m, "e4m3") ? 3 : 2);
    std::uint16_t x;
    std::memcpy(&x, &bytes[2 * i], 2);
    return is(m, "bf16") ? from_bits(std::uint32_t(x) << 16) : from_half(x);
}

// Eighths from -4 to 4, which types of 16 bits and more hold: their products are exact. Of 8 bits, values up to 4.
void store(std::vector<unsigned char>& bytes, std::size_t i, const rt::Matrix& m, int eighths)
{
    if (m.item == 1) {
        const int mantissa = is(m, "e4m3") ? 3 : 2, bias = mantissa == 3 ? 7 : 15, size = std::abs(eighths);
        const int exponent = bias - 2 + size % 4, fraction = size / 4 % (1 << mantissa);
        bytes[i] = (unsigned char)((eighths < 0 ? 128 : 0) | exponent << mantissa | fraction);
        return;
    }
    const float x = float(eighths) / 8;
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (m.item == 4) {
        std::memcpy(&bytes[4 * i], &bits, 4);
        return;
    }
    std::uint16_t y = std::uint16_t(bits >> 16);  // of bf16, exact
    if (is(m, "f16")) {
        const int exponent = int(bits >> 23 & 255) - 112;
        y = std::uint16_t((bits >> 16 & 0x8000) | (x == 0 ? 0 : exponent << 10 | int(bits >> 13 & 1023)));
    }
    std::memcpy(&bytes[2 * i], &y, 2);
}

double unit_of(const rt::Matrix& m)
{
    if (m.item == 1) return std::ldexp(1.0, is(m, "e4m3") ? -4 : -3);
    return std::ldexp(1.0, is(m, "bf16") ? -8 : m.item == 4 ? -24 : -11);
}

// --- Epilogues: a value, and how far rounding may take a kernel's float from it -----------------------------------------

const double U = std::ldexp(1.0, -24);

struct Bounded {
    double x, error;

    static Bounded rounded(double x, double error) { return {x, error + U * std::fabs(x)}; }
    Bounded add(double y) const { return rounded(x + y, error); }
    Bounded scale(double y) const { return rounded(x * y, error * std::fabs(y)); }
    Bounded relu() const { return {x > 0 ? x : 0, error}; }
    Bounded clamp(double lo, double hi) const { return {x < lo ? lo : x > hi ? hi : x, error}; }
    Bounded cast(int bits) const { return {x, error + std::ldexp(2 * (std::fabs(x) + error), -bits)}; }
    Bounded keep(Bounded& aux) const { return aux = *this; }

    // An activation whose slope is at most 1.13: its own rounding is a few units of its argument.
    Bounded activation(double result) const { return {result, 1.13 * error + 12 * U * (std::fabs(x) + 1)}; }
    Bounded gelu() const { return activation(0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))); }
    Bounded silu() const { return activation(x / (1 + std::exp(-x))); }
    Bounded gelu_tanh() const
    {
        return activation(0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))));
    }
};

@CHAINS@
// --- One product -----------------------------------------------------------------------------------------------------

struct Entry {
    const rt::Spec* spec;
    rt::Loaded& (*loaded)();
    Bounded (*chain)(Bounded, Bounded*);  // null for an epilogue that this check does not know
};

const Entry ENTRIES[] = {
@ENTRIES@
};

struct Case {
    long long m, n, k, pad;
    float alpha, beta;
};

rt::Matrix as_matrix(const rt::Beside& e) { return {' ', e.type, e.item, true, e.item}; }

struct Problem {
    std::vector<unsigned char> host[rt::OPERANDS];
    std::vector<std::vector<unsigned char>> beside;
    rt::Request request;

    Problem(const rt::Spec& s, const Case& c)
    {
        request.call.M = c.m;
        request.call.N = c.n;
        request.call.K = c.k;
        request.call.alpha = c.alpha;
        request.call.beta = c.beta;
        std::mt19937 random(7);
        std::uniform_int_distribution<int> eighths(-32, 32);
        for (rt::Operand x : {rt::A, rt::B, rt::C}) {
            const rt::Matrix& m = s.matrices[x];
            const long long leading = rt::extent_of(s, x, request.call) + c.pad;
            const std::size_t elements = std::size_t(leading) * rt::lines_of(s, x, request.call);
            request.call.leading[x] = leading;
            host[x].resize(elements * m.item);
            for (std::size_t i = 0; i < elements; ++i) store(host[x], i, m, eighths(random));
        }
        for (int e = 0; e < s.beside_count; ++e) {
            const rt::Beside& b = s.beside[e];
            const long long pitch = rt::beside_extent(s, b, request.call) + c.pad;
            const std::size_t elements = std::size_t(pitch) * rt::beside_lines(s, b, request.call);
            request.call.beside_leading[e] = pitch;
            beside.emplace_back(elements * b.item);
            for (std::size_t i = 0; i < elements; ++i) store(beside[e], i, as_matrix(b), eighths(random));
        }
    }

    // Where in an operand of the epilogue the element beside C[i, j] is.
    std::size_t beside_at(const rt::Spec& s, int e, long long i, long long j) const
    {
        rt::Launch launch{};
        launch.row = i;
        launch.column = j;
        return rt::beside_offset(s, e, launch, request.call);
    }

    double at(const rt::Spec& s, rt::Operand x, long long i, long long j) const
    {
        const std::size_t element = rt::offset_of(s, x, i, j, request.call.leading[x]);
        return load(host[x], element, s.matrices[x]);
    }
};

bool near(double got, Bounded want, const rt::Matrix& m)
{
    return std::fabs(got - want.x) <= want.error + unit_of(m) * std::fabs(want.x);
}

// The number of elements that are further from the plain loop's than rounding allows.
long long wrong_elements(const Entry& entry, const Problem& p, const std::vector<unsigned char>& result,
                         const std::vector<std::vector<unsigned char>>& beside)
{
    const rt::Spec& s = *entry.spec;
    const rt::Call& call = p.request.call;
    const bool coarse = is(s.matrices[rt::A], "tf32") || s.matrices[rt::A].item == 1;  // tensor cores drop bits
    const double product = 2 * (call.K + 1) * U + (coarse ? std::ldexp(1.0, -9) : 0);
    long long wrong = 0;
    for (long long i = 0; i < call.M; ++i)
        for (long long j = 0; j < call.N; ++j) {
            double sum = 0, size = 0;
            for (long long k = 0; k < call.K; ++k) {
                const double term = p.at(s, rt::A, i, k) * p.at(s, rt::B, k, j);
                sum += term;
                size += std::fabs(term);
            }
            const double old = call.beta == 0 ? 0 : p.at(s, rt::C, i, j);
            Bounded want = {call.alpha * sum + call.beta * old,
                            product * std::fabs(call.alpha) * size + 2 * U * std::fabs(call.beta * old)};
            Bounded operands[rt::MOST_BESIDE] = {};
            for (int e = 0; e < s.beside_count; ++e)
                operands[e].x = load(p.beside[e], p.beside_at(s, e, i, j), as_matrix(s.beside[e]));
            want = entry.chain(want, operands);
            const std::size_t element = rt::offset_of(s, rt::C, i, j, call.leading[rt::C]);
            bool right = near(load(result, element, s.matrices[rt::C]), want, s.matrices[rt::C]);
            for (int e = 0; e < s.beside_count; ++e) {
                const rt::Matrix m = as_matrix(s.beside[e]);
                if (s.beside[e].written) right = right && near(load(beside[e], p.beside_at(s, e, i, j), m), operands[e], m);
            }
            wrong += !right;
        }
    return wrong;
}

// The memory of a problem on the GPU, operands copied there, with the workspace that it takes.
struct Uploaded {
    std::vector<std::unique_ptr<Buffer>> buffers;
    rt::Decided decided;
    rt::Status status;

    Uploaded(const rt::Spec& s, Problem& p)
    {
        rt::Request& r = p.request;
        for (rt::Operand x : {rt::A, rt::B, rt::C}) r.call.address[x] = upload(p.host[x]);
        for (int e = 0; e < s.beside_count; ++e) r.call.beside_address[e] = upload(p.beside[e]);
        status = rt::decide(s, r.call, decided);
        buffers.push_back(std::make_unique<Buffer>(decided.workspace));
        r.workspace = reinterpret_cast<void*>(buffers.back()->address);
        r.workspace_bytes = decided.workspace;
    }

    CUdeviceptr upload(const std::vector<unsigned char>& values)
    {
        buffers.push_back(std::make_unique<Buffer>(values.size()));
        if (!values.empty()) require(gpu.upload(buffers.back()->address, values.data(), values.size()), "cuMemcpyHtoD");
        return buffers.back()->address;
    }

    std::vector<unsigned char> download(int buffer, std::size_t bytes) const
    {
        std::vector<unsigned char> values(bytes);
        if (bytes) require(gpu.download(values.data(), buffers[buffer]->address, bytes), "cuMemcpyDtoH");
        return values;
    }
};

bool check(const Entry& entry, const Case& c)
{
    const rt::Spec& s = *entry.spec;
    Problem p(s, c);
    Uploaded up(s, p);
    const rt::Decided& decided = up.decided;
    rt::Status status = up.status;
    if (status) status = rt::run(s, entry.loaded(), p.request);
    if (status) require(gpu.synchronize(), "the kernel");
    const std::vector<unsigned char> result = up.download(rt::C, p.host[rt::C].size());
    std::vector<std::vector<unsigned char>> beside;
    for (int e = 0; e < s.beside_count; ++e) beside.push_back(up.download(rt::OPERANDS + e, p.beside[e].size()));
    const long long wrong = status ? wrong_elements(entry, p, result, beside) : 0;
    const bool right = status.ok() && wrong == 0;
    std::printf("%s %s, %s variant, %lldx%lldx%lld, alpha %g, beta %g", right ? "PASS" : "FAIL", s.name,
                decided.variant ? decided.variant->label : "no", c.m, c.n, c.k, c.alpha, c.beta);
    if (wrong) std::printf(": %lld elements are wrong", wrong);
    std::printf(status ? "\n" : ": %s\n", status.message.c_str());
    return right;
}

bool check_all(const Entry& entry)
{
    const rt::Spec& s = *entry.spec;
    if (entry.chain == nullptr) {
        std::printf("SKIP %s: its epilogue has an entry that this check does not know\n", s.name);
        return true;
    }
    const long long m = s.tile[0], n = s.tile[1], k = s.tile[2];
    // Kernels that read no narrow rows are given rows of whole accesses.
    const rt::Variant& last = s.variants[s.variant_count - 1];
    const bool any = last.align[rt::A] < rt::WIDEST || s.matrices[rt::A].need < rt::WIDEST;
    const long long whole = any ? 1 : rt::WIDEST / s.matrices[rt::A].item;
    const auto up = [whole](long long x) { return rt::up(x, whole) * whole; };
    const Case cases[] = {
        {2 * m, n, 4 * k, 0, 1, 0},
        {m, 2 * n, k, 0, 2, -0.5f},
        {up(m + 4), up(n + 4), up(2 * k + 4), 4 * whole, 1, 0},
        {up(m + 1), up(n + 3), up(3 * k + 5), 0, 1, 0},
        {up(m + 8), up(n + 1), up(k + 8), 0, 0.5f, 1},
        {up(97), up(131), up(259), whole, -1, 2},
        {up(1), up(1), up(1), 0, 1, 0},
        {up(3), up(200), 0, 0, 1, 0.5f},
    };
    bool right = true;
    for (const Case& c : cases) right = check(entry, c) && right;
    return right;
}

// --- Times -----------------------------------------------------------------------------------------------------------

bool time_at(const Entry& entry, const Case& c)
{
    const rt::Spec& s = *entry.spec;
    Problem p(s, c);
    Uploaded up(s, p);
    const rt::Request& r = p.request;
    rt::Status status = up.status;
    CUevent start, end;
    require(gpu.event_create(&start, CU_EVENT_DEFAULT), "cuEventCreate");
    require(gpu.event_create(&end, CU_EVENT_DEFAULT), "cuEventCreate");
    for (int i = 0; status && i < 5; ++i) status = rt::run(s, entry.loaded(), r);
    require(gpu.synchronize(), "the kernel");
    const int calls = 100;
    require(gpu.event_record(start, nullptr), "cuEventRecord");
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; status && i < calls; ++i) status = rt::run(s, entry.loaded(), r);
    const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - before;
    require(gpu.event_record(end, nullptr), "cuEventRecord");
    require(gpu.event_synchronize(end), "the kernel");
    float ms = 0;
    require(gpu.event_elapsed(&ms, start, end), "cuEventElapsedTime");
    if (!status) {
        std::printf("FAIL %s: %s\n", s.name, status.message.c_str());
        return false;
    }
    std::printf("TIME %s %lldx%lldx%lld: %.3f us on the GPU, %.2f us of the host per call\n", s.name, c.m, c.n, c.k,
                1000.0 * ms / calls, host.count() / calls);
    return true;
}

}  // namespace

int main(int argc, char** argv)
{
    const rt::Driver& driver = rt::Driver::get();
    if (!driver.status) {
        std::fprintf(stderr, "%s\n", driver.status.message.c_str());
        return 1;
    }
    CUcontext context;
    if (!gpu.find() || gpu.init(0) != CUDA_SUCCESS || gpu.retain(&context, 0) != CUDA_SUCCESS) {
        std::fprintf(stderr, "there is no GPU that the CUDA driver can use\n");
        return 1;
    }
    require(gpu.set_current(context), "cuCtxSetCurrent");
    Case timed = {0, 0, 0, 0, 1, 0};
    const bool times = argc == 3 && std::strcmp(argv[1], "--time") == 0;
    const int read = times ? std::sscanf(argv[2], "%lldx%lldx%lld", &timed.m, &timed.n, &timed.k) : 0;
    if (argc > 1 && (read != 3 || timed.m < 1 || timed.n < 1 || timed.k < 1)) {
        std::fprintf(stderr, "usage: %s [--time MxNxK]\n", argv[0]);
        return 2;
    }
    bool right = true;
    for (const Entry& entry : ENTRIES) {
        right = check_all(entry) && right;
        if (times) right = time_at(entry, timed) && right;
    }
    std::printf(right ? "all right\n" : "something is wrong\n");
    return right ? 0 : 1;
}
