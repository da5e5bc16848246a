// A driver for tests without a GPU: it has the functions that an exported launcher asks for, and prints each launch.
// FAKE_CUDA says what it is: "old" lacks tensor maps, "none" has no current context, else a compute capability as 90.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static int arch()
{
    const char* said = std::getenv("FAKE_CUDA");
    return said ? std::atoi(said) : 90;
}

static bool is(const char* what)
{
    const char* said = std::getenv("FAKE_CUDA");
    return said && std::strcmp(said, what) == 0;
}

static CUresult get_device(CUdevice* device)
{
    *device = 0;
    return is("none") ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult get_attribute(int* value, CUdevice_attribute which, CUdevice)
{
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? arch() / 10 : arch() % 10;
    return CUDA_SUCCESS;
}

static CUresult error_name(CUresult code, const char** text)
{
    *text = code == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

static CUresult error_string(CUresult, const char** text)
{
    *text = "as the fake says";
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction_attribute, int value, CUkernel, CUdevice)
{
    std::printf("shared %d\n", value);
    return CUDA_SUCCESS;
}

static CUresult load(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                     unsigned)
{
    std::printf("load %s\n", std::memcmp(image, "\x7f" "ELF", 4) == 0 ? "cubin" : "ptx");
    *library = reinterpret_cast<CUlibrary>(1);
    return CUDA_SUCCESS;
}

static CUresult get_kernel(CUkernel* kernel, CUlibrary, const char* name)
{
    *kernel = reinterpret_cast<CUkernel>(const_cast<char*>(name));
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig* c, CUfunction kernel, void** arguments, void**)
{
    std::printf("launch %s grid %u %u %u block %u shared %u attributes %u M %d N %d\n",
                reinterpret_cast<const char*>(kernel), c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
                c->sharedMemBytes, c->numAttrs, *static_cast<int*>(arguments[0]), *static_cast<int*>(arguments[1]));
    return CUDA_SUCCESS;
}

static CUresult encode(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t* extents,
                       const cuuint64_t* pitch, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                       CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    std::printf("map %llux%llu pitch %llu box %ux%u\n", (unsigned long long)extents[0], (unsigned long long)extents[1],
                (unsigned long long)pitch[0], box[0], box[1]);
    return CUDA_SUCCESS;
}

extern "C" CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

extern "C" CUresult cuGetProcAddress_v2(const char* name, void** found, int, cuuint64_t, CUdriverProcAddressQueryResult*)
{
    const struct {
        const char* name;
        void* function;
    } functions[] = {
        {"cuCtxGetDevice", reinterpret_cast<void*>(get_device)},
        {"cuDeviceGetAttribute", reinterpret_cast<void*>(get_attribute)},
        {"cuGetErrorName", reinterpret_cast<void*>(error_name)},
        {"cuGetErrorString", reinterpret_cast<void*>(error_string)},
        {"cuKernelSetAttribute", reinterpret_cast<void*>(set_attribute)},
        {"cuLaunchKernelEx", reinterpret_cast<void*>(launch)},
        {"cuLibraryGetKernel", reinterpret_cast<void*>(get_kernel)},
        {"cuLibraryLoadData", reinterpret_cast<void*>(load)},
        {"cuTensorMapEncodeTiled", is("old") ? nullptr : reinterpret_cast<void*>(encode)},
    };
    *found = nullptr;
    for (const auto& f : functions)
        if (std::strcmp(f.name, name) == 0) *found = f.function;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
