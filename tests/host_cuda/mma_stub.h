// Tensor cores for a host compiler, beside cuda_stub.h: mma and ldmatrix as functions of all lanes of a warp.
//
// Lanes wait for one another in turn; the last to come does it for all, through the addresses that each has left. A
// warp of which some lanes take another way hangs, and is reported as a poll that never ends.

#pragma once

namespace host {

template <class Work>
inline void by_warp(const Call& call, int line, Work work)
{
    const size_t number = current / 32;
    if (warps.size() <= number) warps.resize(number + 1);
    warps[number].lanes[current % 32] = call;
    const unsigned long long round = warps[number].rounds;
    if (++warps[number].here < 32) {
        while (warps[number].rounds == round) poll(line);
        return;
    }
    warps[number].here = 0;
    work(warps[number].lanes);
    ++warps[number].rounds;
    ++progress;
}

// The number in a small float of so many exponent and mantissa bits. No infinities: e4m3 alone has none.
inline float small_float(unsigned bits, int exponents, int mantissas, bool infinite)
{
    const int exponent = bits >> mantissas & ((1 << exponents) - 1), fraction = bits & ((1 << mantissas) - 1);
    const int bias = (1 << (exponents - 1)) - 1, top = (1 << exponents) - 1;
    const bool negative = bits >> (exponents + mantissas) & 1;
    float size = ldexpf(exponent ? fraction + (1 << mantissas) : fraction, (exponent ? exponent : 1) - bias - mantissas);
    if (exponent == top && (infinite || fraction == (1 << mantissas) - 1)) size = infinite && !fraction ? INFINITY : NAN;
    return negative ? -size : size;
}

struct of_bf16 { using type = unsigned short; static float value(type x) { return __uint_as_float((unsigned)x << 16); } };
struct of_f16 { using type = unsigned short; static float value(type x) { return f16_to_float(x); } };
struct of_e4m3 { using type = unsigned char; static float value(type x) { return small_float(x, 4, 3, false); } };
struct of_e5m2 { using type = unsigned char; static float value(type x) { return small_float(x, 5, 2, true); } };
struct of_tf32 {
    using type = float;
    static float value(type x)
    {
        unsigned bits;
        memcpy(&bits, &x, sizeof bits);
        return __uint_as_float(bits & 0xffffe000u);
    }
};

// PTX ISA, "Matrix fragments for mma.m16n8k16": of A rows l / 4 and l / 4 + 8, of B column l / 4, `per` elements along k
// in a register; of the sums two neighbours in each of the two rows.
template <class T>
inline void mma(float* upper, float* lower, const typename T::type* a, const typename T::type* b, int line)
{
    const Call call = {{upper, lower, (void*)a, (void*)b}};
    by_warp(call, line, [](const Call* lanes) {
        const int per = 4 / sizeof(typename T::type), k = 8 * per;
        static float left[16][32], right[32][8];
        for (int lane = 0; lane < 32; ++lane) {
            const typename T::type* x = (const typename T::type*)lanes[lane].p[2];
            const typename T::type* y = (const typename T::type*)lanes[lane].p[3];
            for (int r = 0; r < 4; ++r)
                for (int e = 0; e < per; ++e)
                    left[lane / 4 + r % 2 * 8][(lane % 4 + r / 2 * 4) * per + e] = T::value(x[r * per + e]);
            for (int r = 0; r < 2; ++r)
                for (int e = 0; e < per; ++e) right[(lane % 4 + r * 4) * per + e][lane / 4] = T::value(y[r * per + e]);
        }
        for (int lane = 0; lane < 32; ++lane)
            for (int half = 0; half < 2; ++half)
                for (int c = 0; c < 2; ++c) {
                    float sum = 0;
                    for (int i = 0; i < k; ++i) sum += left[lane / 4 + 8 * half][i] * right[i][lane % 4 * 2 + c];
                    ((float*)lanes[lane].p[half])[c] += sum;
                }
    });
}

// PTX ISA, "ldmatrix": lanes 8i .. 8i + 7 name the rows of 16 bytes of matrix i.
template <int count, bool trans, class T>
inline void ldmatrix(T* to, const T* row, int line)
{
    const Call call = {{to, (void*)row, nullptr, nullptr}};
    by_warp(call, line, [](const Call* lanes) {
        for (int i = 0; i < count; ++i)
            for (int at = 0; at < 8; ++at)
                if ((size_t)lanes[8 * i + at].p[1] % 16) stop("a row of ldmatrix is not aligned to 16 bytes", 0);
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < count; ++i) {
                char* word = (char*)lanes[lane].p[0] + 4 * i;
                if (!trans) memcpy(word, (const char*)lanes[8 * i + lane / 4].p[1] + lane % 4 * 4, 4);
                else
                    for (int e = 0; e < 2; ++e)
                        memcpy(word + 2 * e, (const char*)lanes[8 * i + lane % 4 * 2 + e].p[1] + lane / 4 * 2, 2);
            }
    });
}

}  // namespace host

#define MATRICES(name, count, trans)                            \
    template <class T>                                          \
    inline void name(T* to, const T* row)                       \
    {                                                           \
        host::ldmatrix<count, trans>(to, row, __LINE__);        \
    }
MATRICES(ldmatrix_x1, 1, false) MATRICES(ldmatrix_x2, 2, false) MATRICES(ldmatrix_x4, 4, false)
MATRICES(ldmatrix_x1_trans, 1, true) MATRICES(ldmatrix_x2_trans, 2, true) MATRICES(ldmatrix_x4_trans, 4, true)
