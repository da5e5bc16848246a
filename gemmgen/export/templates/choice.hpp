
namespace @PROJECT@ {

using Arguments = @FIRST@::Arguments;

namespace rt {

// A shape that was asked for at the export, and the kernel that gemmgen has for it: `swapped` says that it is called
// with B^T, A^T and C^T, which lie as B, A and C do.
struct Winner {
    long long m, n, k;
    Status (*gemm)(const @PROJECT@::Arguments&);
    Status (*workspace_bytes)(const @PROJECT@::Arguments&, std::size_t&);
    Status (*prepare)();
    bool swapped;
};

constexpr Winner WINNERS[] = {
@WINNERS@
};

inline @PROJECT@::Arguments taken(const Winner& w, @PROJECT@::Arguments a)
{
    if (w.swapped) {
        std::swap(a.M, a.N);
        std::swap(a.A, a.B);
        std::swap(a.lda, a.ldb);
    }
    return a;
}

// Kinds of shapes: what suits one suits others of its kind.
inline int kind_of(long long m, long long n, long long k)
{
    const long long shorter = m < n ? m : n, longer = m < n ? n : m;
    if (m <= 64 && m <= n) return 0;
    if (n <= 64) return 1;
    if (k >= 16 * longer) return 2;
    return 16 * k <= shorter ? 3 : 4;
}

// The winner of this very shape, else of the nearest: of its kind, by the logarithms of the sizes.
inline const Winner& winner(long long m, long long n, long long k)
{
    const auto apart = [](long long x, long long y) {
        const double log = std::log2(double(x > 1 ? x : 1) / double(y > 1 ? y : 1));
        return log * log;
    };
    const Winner* best = nullptr;
    double least = 0;
    for (const Winner& w : WINNERS) {
        if (w.m == m && w.n == n && w.k == k) return w;
        const double other = kind_of(m, n, k) == kind_of(w.m, w.n, w.k) ? 0 : 1e6;
        const double far = other + apart(m, w.m) + apart(n, w.n) + apart(k, w.k);
        if (best == nullptr || far < least) {
            best = &w;
            least = far;
        }
    }
    return *best;
}

}  // namespace rt

// Loads all kernels now. Without it a call loads those that it needs.
inline rt::Status prepare()
{
    for (const rt::Winner& w : rt::WINNERS) {
        rt::Status status = w.prepare();
        if (!status) return status;
    }
    return {};
}

inline rt::Status workspace_bytes(const Arguments& a, std::size_t& bytes)
{
    const rt::Winner& w = rt::winner(a.M, a.N, a.K);
    return w.workspace_bytes(rt::taken(w, a), bytes);
}

// C = alpha * (A @ B) + beta * C by the kernel for the shape, enqueued on a.stream in the current context.
inline rt::Status gemm(const Arguments& a)
{
    const rt::Winner& w = rt::winner(a.M, a.N, a.K);
    return w.gemm(rt::taken(w, a));
}

}  // namespace @PROJECT@
