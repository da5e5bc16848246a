"""The main loop read from machine code: stored texts of nvdisasm, and loops small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen.analysis.compiled import as_compiled, as_written
from gemmgen.analysis.counts import Counts, count
from gemmgen.analysis.sass import Instruction, MainLoop, kept, loops, main_loop, of_kept, parse, port_cycles
from gemmgen.api import explaining
from gemmgen.ir.variant import EXACT
from gemmgen.lower import lower
from gemmgen.runtime import installed, sass
from gemmgen.runtime.cache import Cache, Entry
from gemmgen.spec.parse import load

ROOT = Path(__file__).parent
STORED = ROOT / "data" / "sass"


def stored(name: str) -> str:
    return (STORED / f"{name}.sass").read_text(encoding="utf-8")


def loop_of(text: str) -> MainLoop:
    found = main_loop(text)
    assert found is not None
    return found


def listing(*lines: str) -> str:
    """Lines of SASS as nvdisasm prints them; a line that ends in a colon is a label."""
    at = iter(range(0, 16 * len(lines), 16))
    return "\n".join(x if x.endswith(":") else f"        /*{next(at):04x}*/                   {x} ;" for x in lines)


def test_stored_smem_loop() -> None:
    loop = loop_of(stored("smem"))
    assert (loop.ffma, loop.instructions, loop.barriers, loop.spills) == (32, 87, 2, 0)
    assert loop.accesses == {("LDG", 32): 2, ("LDS", 32): 32, ("LDS", 128): 8, ("STS", 32): 2}
    assert loop.share == 32 / 87
    assert (loop.first, loop.last) == (0x2E0, 0x840)


def test_stored_regblock1d_loop() -> None:
    loop = loop_of(stored("regblock1d"))
    assert loop.accesses == {("LDG", 32): 2, ("LDS", 32): 8, ("LDS", 128): 16, ("STS", 32): 2}
    assert loop.to_dict()["accesses"]["LDS.128"] == 16
    assert 1.0 < loop.to_dict()["register_port_cycles_per_ffma"] < 1.5


def test_predicates_modifiers_and_labels() -> None:
    code, labels = parse(listing("MOV R1, R2", ".L_x_3:", "@!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", "EXIT"))
    assert labels == {".L_x_3": 1}
    assert code[1] == Instruction(0x10, "@!P0", "LDG.E.128.CONSTANT", "R4, desc[UR4][R2.64]")
    assert (code[1].name, code[1].bits, code[0].bits) == ("LDG", 128, 32)
    assert code[2].operands == ""


FFMA = "FFMA R0, R1, R2, R0"


def test_the_loop_with_most_ffma_is_found() -> None:
    text = listing(
        ".L_x_0:", FFMA, "@P0 BRA `(.L_x_0)",
        ".L_x_1:", FFMA, FFMA, "LDS.64 R4, [R5]", "@P0 BRA `(.L_x_1)",
        ".L_x_2:", "BRA `(.L_x_2)",
    )  # fmt: skip
    assert len(loops(text)) == 3
    assert (loop_of(text).ffma, loop_of(text).accesses) == (2, {("LDS", 64): 1})


def test_of_nested_loops_the_inner_one_where_it_has_half() -> None:
    inner = [".L_x_1:", FFMA, FFMA, "@P0 BRA `(.L_x_1)"]
    assert loop_of(listing(".L_x_0:", "LDG.E R7, desc[UR4][R2.64]", *inner, "@P1 BRA `(.L_x_0)")).accesses == {}
    # Blocks that only close a step are no loops of their own.
    steps = [line for i in range(1, 5) for line in (f".L_x_{i}:", FFMA, f"@P0 BRA `(.L_x_{i})")]
    assert loop_of(listing(".L_x_0:", *steps, "@P1 BRA `(.L_x_0)")).ffma == 4


@pytest.mark.parametrize("name", ["regblock1d", "smem"])
def test_a_main_loop_comes_back_from_the_cache(name: str, tmp_path: Path) -> None:
    loop = loop_of(stored(name))
    cache = Cache(tmp_path)
    assert cache.put("a", Entry(kept(loop), b"")) and cache.put("b", Entry(kept(None), b""))
    hits = cache.get("a"), cache.get("b")
    assert [of_kept(hit.facts) for hit in hits if hit is not None] == [loop, None]


def test_a_cubin_is_disassembled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setenv("GEMMGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(installed, "tool_identity", lambda name: f"{name} 1")
    monkeypatch.setattr(sass, "disassemble", lambda cubin: asked.append(cubin) or stored("smem"))
    loops_of = [explaining._loop(cubin) for cubin in (b"one", b"one", b"two")]
    assert loops_of == [loop_of(stored("smem"))] * 3 and asked == [b"one", b"two"]
    monkeypatch.setattr(installed, "tool_identity", lambda name: None)
    assert explaining._loop(b"one") is None, "a verdict says what is known without nvdisasm, whatever was kept"


def test_no_loop() -> None:
    assert main_loop("") is None
    assert main_loop(listing(FFMA, "EXIT", ".L_x_0:", "BRA `(.L_x_0)")) is None


def test_spills_and_instructions_that_never_run() -> None:
    text = listing("STL [R1], R4", ".L_x_0:", FFMA, "@!PT LDS RZ, [RZ]", "LDL R4, [R1]", "@P0 BRA `(.L_x_0)")
    loop = loop_of(text)
    assert loop.spills == 2
    assert loop.accesses == {("LDL", 32): 1}
    assert loop.instructions == 4


def clocks(*ffmas: str, times: int = 50) -> float:
    """Clocks a FFMA in the long run."""
    code, _ = parse(listing(*[f"FFMA {f}" for f in ffmas] * times))
    return port_cycles(code) / len(code)


@pytest.mark.parametrize(
    ("ffmas", "expected"),
    [
        # Two reads from different banks, the third operand reused.
        (["R11, R3.reuse, R4, R11", "R12, R3.reuse, R5, R12"], 1.0),
        # Three reads: two of one bank and one of the other, in turn.
        (["R0, R2, R5, R0", "R7, R3, R4, R7"], 1.5),
        # All in one bank: two with reuse, three without.
        (["R0, R2.reuse, R4, R0"], 2.0),
        (["R0, R2, R4, R0", "R6, R8, R10, R6"], 3.0),
        # A register read twice is read once, and the zero register not at all.
        (["R0, R0, R0, R0"], 1.0),
        (["R0, R2, R4, RZ"], 2.0),
    ],
)
def test_register_ports(ffmas: list[str], expected: float) -> None:
    assert clocks(*ffmas) == pytest.approx(expected, abs=0.05)


def test_an_operand_is_kept_for_the_next_instruction_and_its_place_only() -> None:
    kept = clocks("R1, R2.reuse, R4, R1", "R3, R2, R6, R3")
    moved = clocks("R1, R2.reuse, R4, R1", "R3, R6, R2, R3")
    assert kept < moved


# --- Shared loads as compiled -----------------------------------------------------------------------------------------


def counts_of(name: str, n: int = 64) -> Counts:
    ir = lower(load(ROOT.parent / "specs" / f"{name}.gemm"), EXACT)
    return count(ir, {"M": n, "N": n, "K": n, "lda": n, "ldb": n, "ldc": n, "beta": 0.0})


@pytest.mark.parametrize("name", ["smem", "regblock1d"])
def test_joined_loads_are_seen_in_the_machine_code(name: str) -> None:
    counts = counts_of(name)
    written, compiled = as_written(counts), as_compiled(counts, main_loop(stored(name)))
    assert compiled.seen
    assert compiled.requests < written.requests and compiled.wavefronts < written.wavefronts
    loop = loop_of(stored(name))
    loads = sum(n for (kind, _), n in loop.accesses.items() if kind == "LDS")
    assert compiled.requests / (counts.fma / 32) == loads / loop.ffma


def test_loads_that_were_not_joined_are_seen_too() -> None:
    counts = counts_of("smem")
    apart = listing(".L_x_0:", *["LDS R4, [R5]", "LDS R6, [R7]", FFMA] * 8, "@P0 BRA `(.L_x_0)")
    found = as_compiled(counts, main_loop(apart))
    assert found.seen
    assert (found.requests, found.wavefronts) == (as_written(counts).requests, as_written(counts).wavefronts)


def test_where_nothing_agrees_it_says_so() -> None:
    counts = counts_of("smem")
    other = listing(".L_x_0:", "LDS.64 R4, [R5]", FFMA, "@P0 BRA `(.L_x_0)")
    assert not as_compiled(counts, main_loop(other)).seen
    assert not as_compiled(counts, None).seen
    assert as_compiled(counts, None).wavefronts == as_compiled(counts, main_loop(stored("smem"))).wavefronts
