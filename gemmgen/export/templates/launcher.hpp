// Made by gemmgen. Loads the embedded kernels of a spec and launches them, through the CUDA driver API alone.
//
// Entry points are looked up in the driver at run time: nothing links to libcuda or cudart, and a program without a GPU
// starts, and gets an error when it calls. Works in the context that is current, as the CUDA runtime makes it.
#pragma once

#include "plan.hpp"

#include <cuda.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#if CUDA_VERSION < 12000
#error "cuda.h is older than CUDA 12.0, which has no library handles: use newer headers"
#endif

namespace @PROJECT@ {
namespace rt {

// --- The driver ------------------------------------------------------------------------------------------------------

inline void* symbol_of_driver(const char* name)
{
#ifdef _WIN32
    static const HMODULE library = LoadLibraryA("nvcuda.dll");
    return library ? reinterpret_cast<void*>(GetProcAddress(library, name)) : nullptr;
#else
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : nullptr;
#endif
}

// The functions of the driver that a launch needs. `status` says why there are none.
struct Driver {
    Status status;
    decltype(&::cuCtxGetDevice) ctx_get_device = nullptr;
    decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
    decltype(&::cuGetErrorName) get_error_name = nullptr;
    decltype(&::cuGetErrorString) get_error_string = nullptr;
    decltype(&::cuKernelSetAttribute) kernel_set_attribute = nullptr;
    decltype(&::cuLaunchKernelEx) launch_kernel_ex = nullptr;
    decltype(&::cuLibraryGetKernel) library_get_kernel = nullptr;
    decltype(&::cuLibraryLoadData) library_load_data = nullptr;
    decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;

    static const Driver& get()
    {
        static const Driver driver;
        return driver;
    }

    // A function by its name, as of CUDA 12.0; null where the driver has none.
    template <class Function>
    static bool find(const char* name, Function& function)
    {
        using Lookup = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
        static const Lookup lookup = reinterpret_cast<Lookup>(symbol_of_driver("cuGetProcAddress_v2"));
        void* found = nullptr;
        if (!lookup || lookup(name, &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) != CUDA_SUCCESS) return false;
        function = reinterpret_cast<Function>(found);
        return function != nullptr;
    }

    Status failed(const std::string& what, CUresult code) const
    {
        const char *name = nullptr, *why = nullptr;
        if (get_error_name) get_error_name(code, &name);
        if (get_error_string) get_error_string(code, &why);
        return {code, what + " failed: " + (name ? name : std::to_string(code).c_str()) + (why ? " (" : "") +
                          (why ? why : "") + (why ? ")" : "")};
    }

private:
    Driver()
    {
        if (!symbol_of_driver("cuInit")) {
            status = {CUDA_ERROR_NOT_INITIALIZED, "the CUDA driver cannot be loaded; install the driver of an NVIDIA GPU"};
            return;
        }
        const bool found = find("cuCtxGetDevice", ctx_get_device) &&
                           find("cuDeviceGetAttribute", device_get_attribute) &&
                           find("cuGetErrorName", get_error_name) && find("cuGetErrorString", get_error_string) &&
                           find("cuKernelSetAttribute", kernel_set_attribute) &&
                           find("cuLaunchKernelEx", launch_kernel_ex) &&
                           find("cuLibraryGetKernel", library_get_kernel) &&
                           find("cuLibraryLoadData", library_load_data) &&
                           find("cuTensorMapEncodeTiled", tensor_map_encode_tiled);
        if (!found) {
            status = {CUDA_ERROR_NOT_SUPPORTED, "the CUDA driver is too old; this code needs one for CUDA 12.0 or newer"};
        }
    }
};

// --- The kernels of a spec in the driver -----------------------------------------------------------------------------

enum Form { CUBIN, PTX, FORMS };

// Kernels are loaded when a call first needs them, and stay. May be used from several threads.
class Loaded {
public:
    explicit Loaded(const Spec& spec) : spec_(spec), entries_(new Entry[spec.kernel_count]) {}

    // Kernel number `number` for the device of the current context.
    Status get(const Driver& driver, CUdevice device, int number, CUkernel& kernel)
    {
        const bool counted = device < DEVICES;
        const int known = counted ? forms_[device].load(std::memory_order_acquire) : 0;
        Form form = known > 0 ? Form(known - 1) : CUBIN;
        if (known == 0) {
            Status status = choose(driver, device, form);
            if (!status) return status;
            if (counted) forms_[device].store(form + 1, std::memory_order_release);
        }
        Entry& entry = entries_[number];
        kernel = entry.kernel[form].load(std::memory_order_acquire);
        if (kernel == nullptr) {
            Status status = load(driver, number, form, kernel);
            if (!status) return status;
        }
        const std::uint64_t bit = counted ? std::uint64_t(1) << device : 0;
        if (entry.allowed[form].load(std::memory_order_acquire) & bit) return {};
        const unsigned bytes = spec_.kernels[number].shared_bytes;
        if (bytes > 0) {
            const CUresult code = driver.kernel_set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                              int(bytes), kernel, device);
            if (code != CUDA_SUCCESS) {
                return driver.failed(std::string(spec_.kernels[number].name) + " needs " + std::to_string(bytes) +
                                         " bytes of shared memory per block; cuKernelSetAttribute", code);
            }
        }
        entry.allowed[form].fetch_or(bit, std::memory_order_release);
        return {};
    }

    // Loads every kernel for the device of the current context, so that no later call has to: a capture into a CUDA
    // graph must not.
    Status all()
    {
        const Driver& driver = Driver::get();
        if (!driver.status) return driver.status;
        CUdevice device;
        Status status = current(driver, device);
        for (int i = 0; status && i < spec_.kernel_count; ++i) {
            CUkernel kernel;
            status = get(driver, device, i, kernel);
        }
        return status;
    }

    static Status current(const Driver& driver, CUdevice& device)
    {
        const CUresult code = driver.ctx_get_device(&device);
        if (code == CUDA_SUCCESS) return {};
        return driver.failed("no CUDA context is current: call cudaSetDevice or cuCtxSetCurrent first; cuCtxGetDevice",
                             code);
    }

private:
    static constexpr int DEVICES = 64;  // whose facts are kept

    struct Entry {
        std::atomic<CUkernel> kernel[FORMS] = {};
        std::atomic<std::uint64_t> allowed[FORMS] = {};  // a bit per device: shared memory was asked for
    };

    Status choose(const Driver& driver, CUdevice device, Form& form) const
    {
        int major = 0, minor = 0;
        CUresult code = driver.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        if (code == CUDA_SUCCESS)
            code = driver.device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
        if (code != CUDA_SUCCESS) return driver.failed("cuDeviceGetAttribute", code);
        const int there = 10 * major + minor, arch = spec_.arch;
        const bool same_line = there / 10 == arch / 10 && !alone(there) && !alone(arch) && there >= arch;
        form = CUBIN;
        if (there == arch || (same_line && !spec_.only_this_arch)) return {};
        form = PTX;
        if (!spec_.only_this_arch && there > arch) return {};
        return {CUDA_ERROR_NO_BINARY_FOR_GPU,
                std::string(spec_.name) + " was compiled for sm_" + std::to_string(arch) +
                    (spec_.only_this_arch ? "a" : "") + ", and this GPU has compute capability " +
                    std::to_string(major) + "." + std::to_string(minor) + "; export it with --arch sm_" +
                    std::to_string(there)};
    }

    // Members of their major version whose cubins run nowhere else, nor others on them.
    static bool alone(int arch)
    {
        for (int one : {@ALONE@})
            if (arch == one) return true;
        return false;
    }

    Status load(const Driver& driver, int number, Form form, CUkernel& kernel)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Kernel& k = spec_.kernels[number];
        kernel = entries_[number].kernel[form].load(std::memory_order_acquire);
        if (kernel != nullptr) return {};
        CUlibrary library;
        const void* image = form == CUBIN ? k.cubin : k.ptx;
        CUresult code = driver.library_load_data(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
        if (code == CUDA_SUCCESS) code = driver.library_get_kernel(&kernel, library, k.name);
        if (code != CUDA_SUCCESS) {
            const char* what = form == CUBIN ? "the cubin of " : "the PTX of ";
            const char* hint = code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                   ? " (its PTX is newer than the driver: export with this GPU's --arch)" : "";
            return driver.failed("loading " + std::string(what) + k.name + hint, code);
        }
        entries_[number].kernel[form].store(kernel, std::memory_order_release);
        return {};
    }

    const Spec& spec_;
    std::unique_ptr<Entry[]> entries_;
    std::atomic<int> forms_[DEVICES] = {};  // 0: not known yet
    std::mutex mutex_;
};

// --- Launching -------------------------------------------------------------------------------------------------------

// A kernel's argument, as its parameter takes it.
union Value {
    const void* pointer;
    unsigned long long size;
    int integer;
    float real;
};

// A call with its memory: `workspace` must be aligned to 16 bytes.
struct Request {
    Call call;
    void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
    CUstream stream = nullptr;
};

constexpr int MOST_PARAMETERS = @MOST_PARAMETERS@, MOST_MAPS = @MOST_MAPS@;

inline CUtensorMapDataType map_type(const char* type)
{
    if (std::strcmp(type, "f16") == 0) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    if (std::strcmp(type, "bf16") == 0) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (std::strcmp(type, "f32") != 0 && std::strcmp(type, "tf32") != 0) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

inline CUtensorMapSwizzle map_swizzle(int bytes)
{
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                         : CU_TENSOR_MAP_SWIZZLE_NONE;
}

inline Status encode(const Driver& driver, const Spec& s, const TensorMap& m, const Launch& launch,
                     std::uintptr_t address, CUtensorMap* map)
{
    const Matrix& matrix = s.matrices[m.operand];
    Call size;
    size.M = launch.M;
    size.N = launch.N;
    size.K = launch.K;
    const cuuint64_t extents[2] = {cuuint64_t(extent_of(s, m.operand, size)), cuuint64_t(lines_of(s, m.operand, size))};
    std::memset(map, 0, sizeof *map);
    if (extents[0] == 0 || extents[1] == 0) return {};  // never read
    const cuuint64_t pitch[1] = {cuuint64_t(launch.leading[m.operand]) * matrix.item};
    const cuuint32_t box[2] = {m.box[0], m.box[1]}, steps[2] = {1, 1};
    const CUtensorMapL2promotion promotion =
        m.box[0] * matrix.item >= 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    const CUresult code = driver.tensor_map_encode_tiled(
        map, map_type(matrix.type), 2, reinterpret_cast<void*>(address), extents, pitch, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, map_swizzle(m.swizzle), promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return code == CUDA_SUCCESS ? Status() : driver.failed("cuTensorMapEncodeTiled", code);
}

inline Value value_of(const Spec& s, const Parameter& p, const Launch& l, const std::uintptr_t at[OPERANDS],
                      const Request& r, const Call& call)
{
    Value v{};
    const auto pointer = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
    switch (p.source) {
    case Source::M: v.integer = int(l.M); break;
    case Source::N: v.integer = int(l.N); break;
    case Source::K: v.integer = int(l.K); break;
    case Source::alpha: v.real = l.alpha; break;
    case Source::beta: v.real = l.beta; break;
    case Source::A: v.pointer = pointer(at[A]); break;
    case Source::B: v.pointer = pointer(at[B]); break;
    case Source::C: v.pointer = l.to_workspace ? r.workspace : pointer(at[C]); break;
    case Source::W: v.pointer = r.workspace; break;
    case Source::lda: v.size = l.leading[A]; break;
    case Source::ldb: v.size = l.leading[B]; break;
    case Source::ldc: v.size = l.leading[C]; break;
    case Source::ldw: v.size = l.ldw; break;
    case Source::leading: v.size = call.beside_leading[p.index]; break;
    case Source::beside:
        v.pointer = pointer(call.beside_address[p.index] + beside_offset(s, p.index, l, call) * s.beside[p.index].item);
        break;
    case Source::map: break;
    }
    return v;
}

inline Status start(const Driver& driver, CUdevice device, const Spec& s, Loaded& loaded, const Launch& launch,
                    const Request& r, const Call& call)
{
    const int number = launch.variant->kernels[launch.part];
    const Kernel& k = s.kernels[number];
    CUkernel kernel;
    Status status = loaded.get(driver, device, number, kernel);
    if (!status) return status;
    std::uintptr_t at[OPERANDS];
    for (Operand x : {A, B, C}) at[x] = call.address[x] + launch.offset[x] * s.matrices[x].item;

    CUtensorMap maps[MOST_MAPS];
    Value values[MOST_PARAMETERS];
    void* pointers[MOST_PARAMETERS];
    for (int i = 0; i < k.parameter_count; ++i) {
        const Parameter& p = k.parameters[i];
        if (p.kind == Kind::map) {
            const TensorMap& m = k.maps[p.index];
            status = encode(driver, s, m, launch, at[m.operand], &maps[p.index]);
            if (!status) return status;
            pointers[i] = &maps[p.index];
        } else {
            values[i] = value_of(s, p, launch, at, r, call);
            pointers[i] = &values[i];
        }
    }
    CUlaunchAttribute early;
    std::memset(&early, 0, sizeof early);
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config;
    std::memset(&config, 0, sizeof config);
    config.gridDimX = unsigned(launch.grid[0]);
    config.gridDimY = unsigned(launch.grid[1]);
    config.gridDimZ = unsigned(launch.grid[2]);
    config.blockDimX = unsigned(k.threads);
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = k.shared_bytes;
    config.hStream = r.stream;
    config.attrs = launch.dependent ? &early : nullptr;
    config.numAttrs = launch.dependent ? 1 : 0;
    const CUresult code = driver.launch_kernel_ex(&config, reinterpret_cast<CUfunction>(kernel), pointers, nullptr);
    return code == CUDA_SUCCESS ? Status() : driver.failed("the launch of " + std::string(k.name), code);
}

// Enqueues a call on its stream and returns without waiting. Nothing is launched where an error is found before.
inline Status run(const Spec& s, Loaded& loaded, const Request& r)
{
    Decided decided;
    Status status = decide(s, r.call, decided);
    if (!status || decided.variant == nullptr) return status;
    if (r.workspace_bytes < decided.workspace || (decided.workspace > 0 && r.workspace == nullptr)) {
        return refused(std::string(s.name) + " needs a workspace of " + std::to_string(decided.workspace) +
                       " bytes for this size, and " + std::to_string(r.workspace ? r.workspace_bytes : 0) +
                       " are given; workspace_bytes() says how many");
    }
    if (reinterpret_cast<std::uintptr_t>(r.workspace) % WIDEST != 0) {
        return refused("the workspace is not aligned to " + std::to_string(WIDEST) + " bytes");
    }
    const Driver& driver = Driver::get();
    if (!driver.status) return driver.status;
    CUdevice device;
    status = Loaded::current(driver, device);
    if (!status) return status;
    return launches(s, decided, [&](const Launch& launch) {
        return start(driver, device, s, loaded, launch, r, decided.call);
    });
}

// --- What a caller passes --------------------------------------------------------------------------------------------

// C = alpha * (A @ B) + beta * C for matrices in the GPU's memory. Leading dimensions in elements; 0: packed. With beta
// 0, C is not read. A 16-bit type is passed as void.
template <class TA, class TB, class TC>
struct Arguments {
    long long M = 0, N = 0, K = 0;
    float alpha = 1.0f;
    const TA* A = nullptr;
    long long lda = 0;
    const TB* B = nullptr;
    long long ldb = 0;
    float beta = 0.0f;
    TC* C = nullptr;
    long long ldc = 0;
    void* workspace = nullptr;        // as many bytes as workspace_bytes() says, aligned to 16
    std::size_t workspace_bytes = 0;  // how many there are
    CUstream stream = nullptr;        // a cudaStream_t is the same
};

template <class TA, class TB, class TC>
Request request(const Arguments<TA, TB, TC>& a)
{
    Request r;
    r.call.M = a.M;
    r.call.N = a.N;
    r.call.K = a.K;
    r.call.alpha = a.alpha;
    r.call.beta = a.beta;
    const void* addresses[OPERANDS] = {a.A, a.B, a.C};
    const long long leading[OPERANDS] = {a.lda, a.ldb, a.ldc};
    for (Operand x : {rt::A, rt::B, rt::C}) {
        r.call.address[x] = reinterpret_cast<std::uintptr_t>(addresses[x]);
        r.call.leading[x] = leading[x];
    }
    r.workspace = a.workspace;
    r.workspace_bytes = a.workspace_bytes;
    r.stream = a.stream;
    return r;
}

// The bytes of workspace that a call takes; 0 where it takes none.
inline Status workspace_of(const Spec& s, const Request& r, std::size_t& bytes)
{
    Decided decided;
    Status status = decide(s, r.call, decided);
    bytes = decided.workspace;
    return status;
}

}  // namespace rt
}  // namespace @PROJECT@
