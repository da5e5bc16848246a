// 16-bit element types for a host compiler, beside cuda_stub.h: conversions in whole numbers, and loads that are PTX
// in the text. In the text the types are other names of unsigned short.

#pragma once

struct __attribute__((aligned(8))) uint2 { unsigned int x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned int x, y, z, w; };

inline unsigned int __float_as_uint(float x)
{
    unsigned int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned int bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// cvt.rn.bf16.f32: to the nearest, ties to even; every NaN becomes the same one.
inline unsigned short float_to_bf16(float x)
{
    if (x != x) return 0x7fff;
    unsigned int bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// cvt.f32.f16: exact.
inline float f16_to_float(unsigned short x)
{
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : ldexpf(exponent ? fraction + 1024 : fraction, (exponent ? exponent : 1) - 25);
    return x >> 15 ? -size : size;
}

// cvt.rn.f16.f32: to the nearest, ties to even, subnormal numbers kept; infinity from 65520 on.
inline unsigned short float_to_f16(float x)
{
    if (x != x) return 0x7fff;
    const unsigned short sign = std::signbit(x) ? 0x8000 : 0;
    const double size = std::fabs((double)x);
    if (size >= 65520) return sign | 0x7c00;
    const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
    const int units = (int)std::nearbyint(std::ldexp(size, 10 - exponent));  // exact but for the rounding
    return sign | (units + ((exponent + 14) << 10));
}

inline void own_register(unsigned short& own, unsigned short value) { own = value; }

// Helpers that are PTX in the text, for both types.
template <class V>
inline V load_narrow(const unsigned short* p)
{
    return *reinterpret_cast<const V*>(p);
}
#define NARROW_LOADS(name, type)                                               \
    inline type load_shared_##name(const unsigned short* array, int bytes)     \
    {                                                                          \
        return load_narrow<type>(array + bytes / 2);                           \
    }                                                                          \
    inline type load_global_##name(const unsigned short* p) { return load_narrow<type>(p); }
NARROW_LOADS(bf16, unsigned short) NARROW_LOADS(bf16x2, unsigned int) NARROW_LOADS(bf16x4, uint2)
NARROW_LOADS(bf16x8, uint4) NARROW_LOADS(f16, unsigned short) NARROW_LOADS(f16x2, unsigned int)
NARROW_LOADS(f16x4, uint2) NARROW_LOADS(f16x8, uint4)
