"""Compiling with NVRTC, with no GPU and no driver."""

from __future__ import annotations

import locale
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gemmgen.diagnostics import CompileError
from gemmgen.runtime import nvrtc, sass
from gemmgen.runtime.cache import Cache
from gemmgen.runtime.cubin import resources
from gemmgen.runtime.target import Target, choose_target

ROOT = Path(__file__).resolve().parent.parent

SOURCE = """
extern "C" __global__ void __launch_bounds__(128)
scale(int M, float alpha, const float* A, float* C)
{
    __shared__ float tile[16][32];
    tile[threadIdx.x % 16][threadIdx.x / 16] = A[threadIdx.x];
    __syncthreads();
    C[threadIdx.x] = alpha * tile[threadIdx.x % 8][M];
}
"""

# More values alive than 32 registers per thread can hold.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2)
spill(const float* A, float* C, int n)
{
    float r[64];
    #pragma unroll
    for (int i = 0; i < 64; ++i) r[i] = A[i * 1024 + threadIdx.x];
    for (int k = 0; k < n; ++k) {
        #pragma unroll
        for (int i = 0; i < 64; ++i) r[i] = r[i] * r[(i + 17) % 64] + A[k];
    }
    #pragma unroll
    for (int i = 0; i < 64; ++i) C[i * 1024 + threadIdx.x] = r[i];
}
"""


@pytest.fixture(scope="module", autouse=True)
def needs_nvrtc() -> None:
    try:
        nvrtc.version()
    except nvrtc.NvrtcMissing as e:
        pytest.skip(str(e))


def test_a_cubin_and_what_it_takes_without_a_gpu() -> None:
    compiled = nvrtc.compile_cubin(SOURCE, name="scale", cache=None)
    assert compiled.cubin.startswith(b"\x7fELF")
    found = compiled.resources
    assert (found.threads, found.shared_bytes, found.spill_bytes) == (128, 16 * 32 * 4, 0)
    assert 8 <= found.registers <= 32
    assert compiled.arch == "sm_90" and "--gpu-architecture=sm_90" in compiled.options


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_cubin_says_the_same_as_ptxas(arch: str) -> None:
    compiled = nvrtc.compile_cubin(SOURCE, arch, name="scale", cache=None)
    used = re.search(r"Used (\d+) registers.*?(\d+) bytes smem", compiled.log)
    assert used is not None
    assert (compiled.resources.registers, compiled.resources.shared_bytes) == (int(used[1]), int(used[2]))


def test_spills_are_counted() -> None:
    compiled = nvrtc.compile_cubin(SPILLING, name="spill", cache=None)
    spilled = re.search(r"(\d+) bytes spill stores", compiled.log)
    assert spilled is not None and compiled.resources.spill_bytes == int(spilled[1]) > 0
    assert compiled.resources.registers == 32 and compiled.resources.stack_bytes > 0


def test_resources_of_a_kernel_that_is_not_there() -> None:
    cubin = nvrtc.compile_cubin(SOURCE, name="scale", cache=None).cubin
    with pytest.raises(CompileError, match="no kernel named other"):
        resources(cubin, "other")


def test_ptx_needs_no_driver() -> None:
    text = nvrtc.compile_ptx(SOURCE, "sm_90", name="scale", cache=None)
    assert ".target sm_90" in text and ".entry scale" in text and "\0" not in text


def test_sass_is_the_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = nvrtc.compile_cubin(SOURCE, name="scale", cache=None).cubin
    assert "STG" in sass.disassemble(cubin)
    with pytest.raises(CompileError, match="nvdisasm failed"):
        sass.disassemble(b"not a cubin")
    monkeypatch.setattr(sass, "find_tool", lambda name: None)
    with pytest.raises(CompileError, match=r"pip install nvidia-cuda-nvdisasm"):
        sass.disassemble(cubin)


def test_g30_a_refusal_holds_options_and_a_log_with_lines() -> None:
    with pytest.raises(CompileError) as raised:
        nvrtc.compile_cubin(SOURCE.replace("tile[threadIdx.x % 8]", "tiles[0]"), name="scale", cache=None)
    text = str(raised.value)
    assert "--gpu-architecture=sm_90" in text and "scale.cu(8)" in text and '"tiles" is undefined' in text
    with pytest.raises(CompileError, match="--gpu-architecture=sm_1234"):
        nvrtc.compile_cubin(SOURCE, "sm_1234", name="scale", cache=None)


def test_g30_f_no_header_is_needed() -> None:
    assert "#include" not in SOURCE
    assert nvrtc.compile_cubin(SOURCE, name="scale", cache=None).cubin


def test_g30_f_the_ladder_includes_no_header() -> None:
    import gemmgen

    for path in sorted((ROOT / "specs").glob("*.gemm")):
        text = gemmgen.emit(gemmgen.load(path))
        assert "#include" not in text
    spec = gemmgen.load("warptile")
    assert nvrtc.compile_cubin(gemmgen.emit(spec), name=spec.name, cache=None).cubin


def test_too_much_static_shared_memory_is_refused_with_the_numbers() -> None:
    source = SOURCE.replace("tile[16][32]", "tile[640][32]")  # 81,920 bytes, which some versions of NVRTC accept
    with pytest.raises(CompileError, match=r"81920|0x14000"):
        nvrtc.compile_cubin(source, name="scale", cache=None)


# --- The target ------------------------------------------------------------------------------------------------------

SUPPORTED = (75, 80, 86, 87, 89, 90)


def test_g30_a_the_gpus_own_architecture() -> None:
    assert choose_target((9, 0), SUPPORTED) == Target("cubin", "sm_90")


def test_g30_b_a_lower_minor_version_is_binary_compatible() -> None:
    assert choose_target((8, 9), (75, 80, 86)) == Target("cubin", "sm_86")


def test_g30_c_ptx_where_nvrtc_is_a_generation_behind() -> None:
    assert choose_target((9, 0), (75, 80, 86)) == Target("ptx", "compute_86")


def test_g30_d_the_highest_minor_version_not_above_the_gpus() -> None:
    assert choose_target((8, 6), (60, 70, 75, 80)) == Target("cubin", "sm_80")


def test_g30_e_a_gpu_older_than_nvrtc() -> None:
    with pytest.raises(CompileError, match=r"6\.1.*7\.5"):
        choose_target((6, 1), SUPPORTED)


def test_g30_binaries_of_a_tegra_are_no_ones_else() -> None:
    assert choose_target((8, 9), (80, 86, 87)) == Target("cubin", "sm_86")
    assert choose_target((8, 7), (80, 86, 87)) == Target("cubin", "sm_87")
    assert choose_target((8, 7), (80, 86)) == Target("ptx", "compute_86")


def test_g30_nvrtcs_own_list() -> None:
    supported = nvrtc.supported_archs()
    assert 90 in supported and choose_target((9, 0), supported) == Target("cubin", "sm_90")


# --- What is missing, and what is left alone -------------------------------------------------------------------------


def test_nvrtc_missing_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import installed

    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(installed, "nvrtc_identity", lambda: None)
    with pytest.raises(nvrtc.NvrtcMissing, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.compile_cubin(SOURCE, name="scale")


def test_s5_the_locale_survives_compilers_that_change_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library that sets the locale to "C", from two threads that overlap: afterwards it is as before."""
    from gemmgen.runtime.locale_guard import keep_locale

    try:
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
    except locale.Error:
        pytest.skip("no C.UTF-8 locale here")
    before = locale.setlocale(locale.LC_ALL)
    both_inside = threading.Barrier(2)

    def compile_something() -> None:
        with keep_locale():
            both_inside.wait(10)
            locale.setlocale(locale.LC_ALL, "C")

    threads = [threading.Thread(target=compile_something) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert locale.setlocale(locale.LC_ALL) == before
    with pytest.raises(ZeroDivisionError), keep_locale():
        locale.setlocale(locale.LC_ALL, "C")
        raise ZeroDivisionError
    assert locale.setlocale(locale.LC_ALL) == before


def test_s5_a_spec_in_utf8_still_reads_after_a_compilation(tmp_path: Path) -> None:
    import gemmgen

    path = tmp_path / "greek.gemm"
    path.write_text("kernel greek  # \u03b1\u03b2\u03b3\ntile block 32x32x8\nuse smem\n", encoding="utf-8")
    before = gemmgen.load(path)
    encoding = locale.getpreferredencoding()
    nvrtc.compile_cubin(SOURCE, name="scale", cache=None)
    assert gemmgen.load(path) == before and locale.getpreferredencoding() == encoding


def test_a_warm_compilation_imports_neither_cuda_nor_numpy(tmp_path: Path) -> None:
    nvrtc.compile_cubin(SOURCE, name="scale", cache=Cache(tmp_path))
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gemmgen.runtime.cache import Cache\n"
        "from gemmgen.runtime.nvrtc import compile_cubin\n"
        "found = compile_cubin(sys.argv[1], name='scale', cache=Cache(Path(sys.argv[2])))\n"
        "print(found.cached, found.resources.shared_bytes)\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}))\n"
    )
    arguments = [sys.executable, "-c", code, SOURCE, str(tmp_path)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    first, modules = done.stdout.splitlines()
    assert first == "True 2048"
    assert {"cuda", "numpy", "elftools", "rich", "typer"}.isdisjoint(modules.split())


def test_compiling_side_by_side_in_threads() -> None:
    found: dict[int, bytes] = {}

    def work(i: int) -> None:
        found[i] = nvrtc.compile_cubin(SOURCE.replace("% 8", f"% {i + 1}"), name="scale", cache=None).cubin

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found.values())) == 4
