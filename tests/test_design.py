"""What stands in one place by design, counted where it stands elsewhere: ``ALLOWED`` only ever goes down.

    python tests/test_design.py [CHECKOUT]        what each rule of designrules.py finds there, and how often

Finds (and files) at commit ec052c2, before the redesign:

    four_bytes              133 (49)
    float32_by_name          44 (19)
    way_as_string            16 (10)
    warp_size_defined        13 (13)
    warp_size_literal        14 (10)
    needed_architecture       5 (3)
    spec_after_lowering      61 (16)
    makes_order              16 (6)    among them Engine.set_up's barrier, and the __syncwarp inside mbarrier_release
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from designrules import EXCEPTIONS, RULES, Module, found, modules

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "four_bytes": 0,
    "float32_by_name": 0,
    "way_as_string": 0,
    "warp_size_defined": 1,
    "warp_size_literal": 0,
    "needed_architecture": 0,
    "spec_after_lowering": 0,
}
ORDERED_BY_HAND = {
    # file: how many syncs and ordering instructions it makes. The lowering of order() alone may.
    "gemmgen/lower/syncs.py": 13,
}


@cache
def package() -> list[Module]:
    return modules(ROOT)


@pytest.mark.parametrize("rule", ALLOWED)
def test_what_stands_in_one_place_does_not_spread(rule: str) -> None:
    finds = found(rule, package())
    listed = "\n".join(str(f) for f in finds)
    assert len(finds) <= ALLOWED[rule], f"{rule}: {RULES[rule].__doc__}\n{listed}"


def test_only_the_lowering_of_order_makes_what_orders() -> None:
    finds = found("makes_order", package())
    for file in {f.file for f in finds}:
        here = [str(f) for f in finds if f.file == file]
        assert len(here) <= ORDERED_BY_HAND.get(file, 0), "\n".join(here)


SEEN = [
    ("four_bytes", "lower/x.py", "a = 4 * n\nb = n // 4\nc = n * ITEM\nITEM = 4\ntext = '4 * BM'\n", 5),
    ("four_bytes", "lower/x.py", "a = n % 4\nb = 4 * MB\nc = [None] * 4\nd = 4 // n\ne = '14 * BM'\n'''4 * BM'''\n", 0),
    ("four_bytes", "ir/types.py", "a = 4 * n\n", 0),
    ("float32_by_name", "sim/x.py", "x = np.zeros(3, np.float32)\ny = 'float32'\nz = 'a float32 matrix'\n", 2),
    ("way_as_string", "tile/x.py", "a = how == 'tma'\nmatch how:\n    case 'plain' | 'cpasync':\n        pass\n", 3),
    ("way_as_string", "tile/x.py", "a = 'tma' in spec.use\nb = a.space == 'tma'\nc = spec.has('tma')\n", 0),
    ("warp_size_defined", "sim/x.py", "LANES = 32\nWARP_SIZE: int = 32\nBANKS = 32\n", 2),
    (
        "warp_size_literal",
        "sim/x.py",
        "a = t % 32\nb = np.zeros((w, 32))\nc = lanes == 32\nd = 'threadIdx.x / 32'\n",
        4,
    ),
    (
        "needed_architecture",
        "spec/x.py",
        "CAPABILITIES = {'tma': 90}\na = arch >= 90\nI(arch=80)\nb = cc < (9, 0)\n",
        4,
    ),
    ("needed_architecture", "isa/x.py", "I(arch=80)\n", 0),
    ("spec_after_lowering", "report/x.py", "a = e.ir.spec.stages\nb = facts.spec\n", 1),
    ("spec_after_lowering", "cuda/x.py", "from gemmgen.spec.model import Spec\n", 1),
    ("spec_after_lowering", "launch/x.py", "a = spec.block\n", 1),
    (
        "makes_order",
        "lower/x.py",
        "from gemmgen.isa.a import WAIT, cp_async\nx = Sync(1)\ny = Call(WAIT)\nz = cp_async(4)",
        2,
    ),
    ("makes_order", "isa/x.py", "helper = 'void release()\\n{\\n    __syncwarp();\\n}'\n", 1),
]


@pytest.mark.parametrize(("rule", "file", "text", "count"), SEEN)
def test_a_rule_finds_what_it_says(rule: str, file: str, text: str, count: int) -> None:
    finds = found(rule, [Module.of(f"gemmgen/{file}", text)])
    assert len(finds) == count, [str(f) for f in finds]


def test_exceptions_have_reasons() -> None:
    assert all(reason for of_rule in EXCEPTIONS.values() for reason in of_rule.values())


def main(checkout: Path) -> None:
    """Print what every rule finds in a checkout."""
    of = modules(checkout)
    for rule in RULES:
        finds = found(rule, of)
        print(f"{rule}: {len(finds)} in {len({f.file for f in finds})} files")
        print("".join(f"  {f}\n" for f in finds), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
