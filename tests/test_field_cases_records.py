"""Records, the rename of a toggle, and the cache folder: cases 14 and 17, by their numbers."""

from __future__ import annotations

import pytest

import gemmgen

SWIZZLED = "kernel x\ntile block 64x64x8\ntile thread 4x4\nuse coalescing, smem, float4, alongK, {toggle}\n"


def test_smem_swizzle_is_a_spec_error_that_gives_the_new_name() -> None:
    assert gemmgen.parse(SWIZZLED.format(toggle="smemSwizzle")).has("smemSwizzle")
    texts = [
        SWIZZLED.format(toggle="smem_swizzle"),
        SWIZZLED.format(toggle="snake") + "smem_swizzle\n",
        SWIZZLED.format(toggle="snake") + "tune smem_swizzle in {on, off}\n",
    ]
    for text in texts:
        with pytest.raises(gemmgen.SpecError) as caught:
            gemmgen.parse(text)
        assert "smem_swizzle" in caught.value.message and "smemSwizzle'" in caught.value.hint
    spec = gemmgen.parse(SWIZZLED.format(toggle="snake"))
    for changes in ({"use": {*spec.use, "smem_swizzle"}}, {"smem_swizzle": True}, {"tune": {"smem_swizzle": (True,)}}):
        with pytest.raises(gemmgen.SpecError) as caught:
            spec.replace(**changes)
        assert "its name is now 'smemSwizzle'" in caught.value.hint
