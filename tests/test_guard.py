"""The emitted text is what it was when the guard's hashes were made, comments aside: see guard.py."""

from __future__ import annotations

import guard
import pytest

_, SPECS = guard.read()


def message(found: list[guard.Difference]) -> str:
    names = "\n".join(str(d) for d in found[:20])
    return f"{len(found)} texts differ; python tests/guard.py --check --old CHECKOUT shows how:\n{names}"


@pytest.mark.parametrize("variant", guard.VARIANTS)
def test_a_sample_of_texts_is_unchanged(variant: str) -> None:
    at = guard.VARIANTS.index(variant)
    found = list(guard.differences(guard.sample(SPECS[at:], 60), [variant]))
    assert not found, message(found)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(8))
def test_all_texts_are_unchanged(part: int) -> None:
    found = list(guard.differences(SPECS[part::8]))
    assert not found, message(found)


def test_the_guard_sees_code_and_no_comment() -> None:
    text = 'int a = 4; // four\n\n  /* b\n */ int c;  \nf("see // this");\nstatic_assert(a == 4,\n  "a // b");\n'
    assert guard.normalised(text) == 'int a = 4;\n   int c;\nf("see // this");\nstatic_assert(a == 4);\n'
    assert guard.normalised("tileReady[threadIdx.x / WARP];\n") == guard.normalised("full[threadIdx.x / 32];\n")
    assert guard.normalised("constexpr int WARP = 32;  // lanes\nint x;\n") == "int x;\n"
    spec = SPECS[0]
    changed = guard.Guarded(spec.name, spec.text, ("0" * 12, *spec.hashes[1:]))
    assert [str(d) for d in guard.differences([changed], known=False)] == [f"{spec.name} exact"]


def test_random_specs_cover_the_language() -> None:
    texts = [spec.text for spec in SPECS if spec.name.startswith("random/")]
    assert len(texts) == guard.RANDOM_SPECS
    words = [word.partition("(")[0] for text in texts for word in text.replace(",", " ").split()]
    used = {guard.RENAMED.get(word, word) for word in words} | set(words)
    first = {"float4", "transposeA", "warptile", "cpasync", "tma", "spread", "raggedFirst", "release", "prefetch"}
    assert first | {"alongK", "smemSwizzle", "directB", "snake", "stageC", "clusterReduce", "atomics"} <= used
    for setting in ("stages", "unroll", "pad_a", "pad_b", "split_k", "min_blocks", "cta_swizzle", "persistent"):
        assert sum(f"\n{setting} " in text for text in texts) >= 50, setting
