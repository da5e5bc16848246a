"""The cache of compiled kernels: right keys, whole files, any number of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmgen.runtime import nvrtc
from gemmgen.runtime.cache import Cache, Entry, default_cache, default_directory, key_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = 'extern "C" __global__ void k(float* C) { C[threadIdx.x] = 1.0f; }\n'


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def compiled(
    cache: Cache, source: str = SOURCE, arch: str = "sm_90", name: str = "k", options: tuple[str, ...] = ()
) -> nvrtc.Compiled:
    try:
        return nvrtc.compile_cubin(source, arch, name=name, options=options, cache=cache)
    except nvrtc.NvrtcMissing as e:
        pytest.skip(str(e))


def test_s3_the_same_compilation_hits(cache: Cache) -> None:
    first, second = compiled(cache), compiled(cache)
    assert (first.cached, second.cached) == (False, True)
    assert (second.cubin, second.resources, second.log) == (first.cubin, first.resources, first.log)


def test_s3_what_differs_shares_no_entry(cache: Cache) -> None:
    """One kernel name throughout: other text, architecture or options are other entries."""
    compiled(cache)
    assert not compiled(cache, SOURCE.replace("1.0f", "2.0f")).cached
    assert not compiled(cache, arch="sm_80").cached
    assert not compiled(cache, options=("--use_fast_math",)).cached
    assert len(list(cache.directory.iterdir())) == 4
    assert compiled(cache, arch="sm_80").cached


def test_s3_another_nvrtc_shares_no_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.runtime import installed

    compiled(cache)
    monkeypatch.setattr(installed, "nvrtc_identity", lambda: "another version")
    assert not compiled(cache).cached


def test_s3_specs_of_one_name_and_other_tiles_share_no_entry(cache: Cache) -> None:
    import gemmgen

    texts = [
        gemmgen.emit(gemmgen.parse(f"kernel same\ntile block {block}\ntile thread 4x4\nuse smem\n"))
        for block in ("32x32x8", "64x64x8", "64x64x16")
    ]
    assert [compiled(cache, text, name="same").cached for text in texts] == [False, False, False]
    assert [compiled(cache, text, name="same").cached for text in texts] == [True, True, True]


def test_s3_ptx_and_cubin_share_no_entry(cache: Cache) -> None:
    compiled(cache)
    assert nvrtc.compile_ptx(SOURCE, name="k", cache=cache).startswith("//")
    assert nvrtc.compile_ptx(SOURCE, name="k", cache=cache).startswith("//")
    assert len(list(cache.directory.iterdir())) == 2


def test_parts_of_a_key_do_not_run_together() -> None:
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", ""), key_of(b"ab", "c", "")}) == 5
    assert key_of("ab", "c") == key_of(b"ab", b"c")


def test_an_empty_cache_is_used(cache: Cache) -> None:
    assert cache.get("nothing") is None
    assert cache.put("key", Entry({"a": 1}, b"code"))
    assert cache.get("key") == Entry({"a": 1}, b"code")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:40],
        lambda data: data + b"x",
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: b"something else entirely",
    ],
)
def test_a_damaged_entry_is_written_anew(cache: Cache, damage: object) -> None:
    assert callable(damage)
    good = compiled(cache)
    (path,) = cache.directory.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    again = compiled(cache)
    assert not again.cached and again.resources == good.resources
    assert compiled(cache).cached


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    cache = Cache(blocker / "kernels")
    assert not cache.put("key", Entry({}, b"code"))
    assert not compiled(cache).cached and not compiled(cache).cached


def test_no_half_written_file_is_left(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fail)
    assert not cache.put("key", Entry({}, b"code"))
    assert list(cache.directory.iterdir()) == []


def test_the_size_is_bounded_and_the_least_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=3500)
    for i in range(3):
        cache.put(f"k{i}", Entry({}, bytes(1000)))
        os.utime(cache.path(f"k{i}"), (1000 + i, 1000 + i))
    assert cache.get("k0") is not None  # used now: k1 is the oldest
    cache.put("k3", Entry({}, bytes(1000)))
    assert [cache.get(f"k{i}") is not None for i in range(4)] == [True, False, True, True]
    cache.put("large", Entry({}, bytes(10_000)))
    assert cache.get("large") is not None and len(list(tmp_path.iterdir())) == 1


def test_files_of_processes_that_died_are_removed(cache: Cache) -> None:
    cache.put("a", Entry({}, b"1"))
    old, new = cache.directory / "b.1.2.tmp", cache.directory / "c.1.2.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    cache.put("d", Entry({}, b"1"))
    assert not old.exists() and new.exists()


def test_several_processes_write_one_entry_at_once(cache: Cache) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from gemmgen.runtime.cache import Cache, Entry\n"
        "cache = Cache(Path(sys.argv[1]))\n"
        "for i in range(200):\n"
        "    assert cache.put('key', Entry({'n': 1}, b'x' * 50_000))\n"
        "    found = cache.get('key')\n"
        "    assert found is not None and found.code == b'x' * 50_000, i\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(cache.directory)], cwd=ROOT) for _ in range(3)]
    assert [p.wait(60) for p in running] == [0, 0, 0]
    assert [p.name for p in cache.directory.iterdir()] == [cache.path("key").name]


def test_the_folder_is_the_users_or_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    assert default_cache().directory == tmp_path
    monkeypatch.delenv("GEMMGEN_CACHE_DIR")
    assert "gemmgen" in default_directory().parts
