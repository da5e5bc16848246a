"""Names: which a kernel may have, and which known name a misspelt one is nearest to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from gemmgen.diagnostics import quoted
from gemmgen.spec.model import RENAMED

MAX_NAME = 100  # characters; the name is also a file's name


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CPP_KEYWORDS = _words("""
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
    this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile
    wchar_t while xor xor_eq restrict
""")

# Types, variables, macros and functions that CUDA C++ has with no header (found by compiling a kernel of each name
# with NVRTC), and C's own functions, with which an extern "C" kernel would clash.
CUDA_NAMES = _words("""
    main std cuda nv threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 cudaStream_t cudaError_t cudaEvent_t
    size_t ptrdiff_t intptr_t uintptr_t clock_t va_list va_start va_end va_arg va_copy libraryPropertyType
    MAJOR_VERSION MINOR_VERSION PATCH_LEVEL max_align_t nullptr_t int8_t int16_t int32_t int64_t uint8_t uint16_t
    uint32_t uint64_t uchar ushort uint ulong linux unix i386 NULL NDEBUG INFINITY NAN HUGE_VAL HUGE_VALF EOF
    errno assert printf vprintf fprintf puts putchar malloc free calloc realloc alloca memcpy memset memmove
    memcmp strlen strcpy strcmp clock clock64 time exit abort trap abs labs llabs fabs fabsf fabsl min max fmin
    fminf fmax fmaxf fma fmaf sqrt sqrtf rsqrt rsqrtf cbrt cbrtf rcbrt rcbrtf hypot hypotf rhypot rhypotf norm
    normf norm3d norm3df norm4d norm4df rnorm rnormf rnorm3d rnorm3df rnorm4d rnorm4df sin sinf cos cosf tan tanf
    sincos sincosf sinpi sinpif cospi cospif sincospi sincospif asin asinf acos acosf atan atanf atan2 atan2f sinh
    sinhf cosh coshf tanh tanhf asinh asinhf acosh acoshf atanh atanhf exp expf exp2 exp2f exp10 exp10f expm1
    expm1f log logf log2 log2f log10 log10f log1p log1pf logb logbf pow powf powi powif ceil ceilf floor floorf
    trunc truncf round roundf rint rintf nearbyint nearbyintf lrint lrintf llrint llrintf lround lroundf llround
    llroundf fmod fmodf remainder remainderf remquo remquof modf modff frexp frexpf ldexp ldexpf scalbn scalbnf
    scalbln scalblnf ilogb ilogbf copysign copysignf nextafter nextafterf nan nanf fdim fdimf fdivide fdividef erf
    erff erfc erfcf erfcx erfcxf erfinv erfinvf erfcinv erfcinvf normcdf normcdff normcdfinv normcdfinvf lgamma
    lgammaf tgamma tgammaf gamma gammaf j0 j0f j1 j1f jn jnf y0 y0f y1 y1f yn ynf cyl_bessel_i0 cyl_bessel_i0f
    cyl_bessel_i1 cyl_bessel_i1f signbit isinf isnan isfinite isnormal umin umax llmin llmax ullmin ullmax
    saturate mul24 umul24 mulhi umulhi mul64hi umul64hi int_as_float float_as_int uint_as_float float_as_uint
    float2int float2uint int2float uint2float index rindex select div ldiv lldiv atoi atof rand srand signal
    system remove rename tex1D tex2D tex3D tex1Dfetch surf1Dread surf2Dread atomicAdd atomicSub atomicExch
    atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd atomicOr atomicXor
""") | frozenset(
    f"{prefix}{kind}{n}"
    for kind in (
        "char",
        "uchar",
        "short",
        "ushort",
        "int",
        "uint",
        "long",
        "ulong",
        "longlong",
        "ulonglong",
        "float",
        "double",
    )
    for n in (1, 2, 3, 4)
    for prefix in ("", "make_")
)

# Names that the front end takes and the assembler behind it does not: with NVRTC 13.5 a kernel of the first crashes the
# whole process, the others are words of PTX.
ASSEMBLER_NAMES = _words("""
    A7 WARP_SZ function_name inlined_at
""")

# Identifiers that stand outside the kernel in the CUDA text that gemmgen writes, or have linkage. A name inside the
# kernel hides the kernel's own and clashes with nothing. A test holds that every one is here.
FILE_SCOPE_NAMES = _words("""
    BM BN BK TM TN WM WN M_ITER N_ITER SUB_M SUB_N THREADS WARP WARPS STRIDE_A STRIDE_B STRIDE_C STAGES PAD_A PAD_B
    PAD_C UNROLL LANES_K VECTOR STEP_K TILE_BYTES SPLIT_K PIECES SHARE GROUP_M TensorMap dynamicShared
    gelu gelu_tanh silu
    MMA_M MMA_N MMA_K M_TILES N_TILES PANEL PANEL_C CONSUMERS
    wgmma_descriptor wgmma_fence wgmma_commit wgmma_wait
    tma_store store_commit store_wait_read fence_async group_sync
    as_float2 as_float4 load_global_float load_global_float2 load_global_float4
    load_shared_float load_shared_float2 load_shared_float4 load_cluster_float load_cluster_float2 load_cluster_float4
    shared_address cp_async4 cp_async8 cp_async16 cp_async4_or_zero cp_async8_or_zero cp_async16_or_zero
    cp_async_commit mbarrier_init mbarrier_fence mbarrier_expect mbarrier_release mbarrier_wait tma_load
    warp_index elect_one add_finite PARTS SMALL_TILES own_register cluster_sync add_float2 add_float4
    add_lanes2 add_lanes4 add_lanes8 add_lanes16 add_lanes32
    share_lanes1 share_lanes2 share_lanes4 share_lanes8 share_lanes16
    allow_next_kernel wait_for_previous_kernel
""")

# A kernel of these would compile, and mislead: reports and the simulator name the arrays of a kernel.
ARRAY_NAMES = _words("""
    A B C As Bs Cs regM regN fragA fragB threadResults
""")

_TYPES = r"(bf16|f16|e4m3|e5m2)"
_FILE_SCOPE = re.compile(
    rf"cp_async_wait[0-9]+|mma_[0-9]+x[0-9]+x[0-9]+|wgmma_m[0-9]+n[0-9]+k[0-9]+|registers_(take|keep)[0-9]+|ldmatrix_x[124](_trans)?|(as_|load_(global|shared)_)?{_TYPES}(x[0-9]+)?"
    rf"|{_TYPES}_to_float|float_to_{_TYPES}"
)

RESERVED = CPP_KEYWORDS | CUDA_NAMES | ASSEMBLER_NAMES | FILE_SCOPE_NAMES | ARRAY_NAMES

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMPLEMENTATION = re.compile(r"__|_[A-Z]|cuda|CUDA|CU[A-Z_]|CUuuid|NV_")


def name_problem(name: str) -> tuple[str, str] | None:
    """Why ``name`` cannot be a kernel's, and what to do; None for a good name. Case matters, as in C++."""
    if not _IDENTIFIER.fullmatch(name):
        return (
            f"kernel name {quoted(name)} is not an identifier of C",
            "use letters a-z and A-Z, digits and _, and no digit first",
        )
    if len(name) > MAX_NAME:
        return f"a kernel name of {len(name)} characters is over the limit of {MAX_NAME}", "shorten it"
    taken = _taken(name)
    return (f"kernel name '{name}' {taken}", f"choose another, such as '{_another(name)}'") if taken else None


def _taken(name: str) -> str:
    """What an identifier already is, to follow the name in a sentence; empty for a free one."""
    if name in CPP_KEYWORDS:
        return "is a keyword of C++"
    if name in CUDA_NAMES:
        return "is a name that C or CUDA C++ already has"
    if name in ASSEMBLER_NAMES:
        return "is a name that NVIDIA's assembler does not take"
    if name in FILE_SCOPE_NAMES | ARRAY_NAMES or _FILE_SCOPE.fullmatch(name):
        return "is a name that the generated text uses"
    if _IMPLEMENTATION.match(name):
        return "starts like the compiler's own names"
    return ""


def _another(name: str) -> str:
    """A legal name like one that is not."""
    stem = name.strip("_")[: MAX_NAME - len("kernel_")]
    others = (f"{stem}_kernel", f"kernel_{stem}", "my_kernel")
    return next(other for other in others if _IDENTIFIER.fullmatch(other) and not _taken(other))


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that ``word`` was most likely meant to be, letter case aside."""
    names = list(known)
    by_lower = {n.lower(): n for n in names}
    found = difflib.get_close_matches(word.lower()[:MAX_NAME], by_lower, 1, 0.0)
    return by_lower[found[0]] if found else names[0]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown ``word``; one made of known names glued together is taken apart."""
    names = list(known)
    if RENAMED.get(word) in names:
        return f"its name is now '{RENAMED[word]}'"
    pieces = _pieces(word[:MAX_NAME], sorted(names, key=len, reverse=True))
    if len(pieces) > 1:
        return f"did you mean '{', '.join(pieces)}'?"
    if difflib.get_close_matches(word.lower()[:MAX_NAME], [n.lower() for n in names], 1, 0.5):
        return f"did you mean '{nearest(word, names)}'?"
    return f"there is {', '.join(names[:-1])} and {names[-1]}"


def _pieces(word: str, names: list[str]) -> list[str]:
    """``word`` cut into names, longest first; empty where it is not made of them."""
    found: list[str] = []
    while word:
        head = next((n for n in names if word.startswith(n)), None)
        if head is None:
            return []
        found.append(head)
        word = word[len(head) :]
    return found
