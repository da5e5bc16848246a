"""The language: what a spec says, what is refused, and where the errors point."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen.diagnostics import ArgumentError, SpecError
from gemmgen.spec.ladder import EXAMPLES, LADDER_BF16, ladder_names, ladder_path
from gemmgen.spec.model import SETTINGS, TOGGLES, Spec
from gemmgen.spec.names import RESERVED
from gemmgen.spec.parse import load, parse

ROOT = Path(__file__).parents[1]
WARPTILE = load(ladder_path("warptile"))
LADDER = {  # block, warp, thread, threads per block, toggles
    "naive": ((32, 32, 1), None, (1, 1), 1024, ""),
    "coalesced": ((32, 32, 1), None, (1, 1), 1024, "coalescing"),
    "smem": ((32, 32, 32), None, (1, 1), 1024, "coalescing smem"),
    "regblock1d": ((64, 64, 8), None, (8, 1), 512, "coalescing smem"),
    "regblock2d": ((128, 128, 8), None, (8, 8), 256, "coalescing smem"),
    "regblock2d_64": ((64, 64, 8), None, (8, 8), 64, "coalescing smem"),
    "vectorized": ((128, 128, 8), None, (8, 8), 256, "coalescing smem transposeA float4"),
    "warptile": ((128, 128, 16), (64, 64), (8, 4), 128, "coalescing smem transposeA float4 warptile"),
    "doublebuffer": ((128, 128, 16), (64, 64), (8, 4), 128, "coalescing smem transposeA float4 warptile"),
    "cpasync": (
        *((128, 128, 16), (64, 64), (8, 4), 128),
        "coalescing smem transposeA float4 warptile cpasync prefetch",
    ),
    "registerbanks": (
        *((128, 128, 16), (32, 128), (4, 4), 128),
        "coalescing smem transposeA float4 warptile prefetch snake",
    ),
    "tma": (
        *((128, 128, 32), (32, 128), (1, 4), 128),
        "coalescing smem float4 warptile tma alongK prefetch snake separators",
    ),
    "pipelined": (
        *((128, 128, 32), (32, 128), (1, 4), 128),
        "coalescing smem float4 warptile tma release alongK prefetch snake separators",
    ),
    "splitk": ((64, 64, 16), None, (8, 4), 128, "coalescing smem transposeA float4"),
    "skinny": (
        (16, 64, 32),
        (16, 32),
        (4, 4),
        64,
        "coalescing smem transposeA float4 warptile cpasync prefetch",
    ),
}


def refusal(text: str, filename: str = "<string>") -> SpecError:
    with pytest.raises(SpecError) as info:
        parse(text, filename)
    return info.value


def spec_with(*lines: str) -> str:
    return "\n".join(("kernel k1", *lines, ""))


# --- The ladder -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LADDER)
def test_ladder_is_the_lessons_and_what_goes_on_from_there(name: str) -> None:
    spec = load(ladder_path(name))
    block, warp, thread, threads, use = LADDER[name]
    assert (spec.name, spec.block, spec.warp, spec.thread, spec.threads) == (name, block, warp, thread, threads)
    assert spec.use == frozenset(use.split())
    assert parse(spec.to_text()) == spec


@pytest.mark.parametrize("name", LADDER)
def test_ladder_spec_is_short_and_says_what_the_rung_does(name: str) -> None:
    text = ladder_path(name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 12
    comment = load(ladder_path(name)).comment
    assert comment.startswith("Rung ")
    assert comment.replace("\n", " ").count(". ") <= 4  # "Rung 6.", and up to four short sentences
    assert comment.endswith(".")


def test_ladder_names_are_the_files_in_specs() -> None:
    assert set(ladder_names()) == {p.stem for p in (ROOT / "specs").glob("*.gemm")}
    assert set(ladder_names()) == {*LADDER, *LADDER_BF16, *EXAMPLES}


@pytest.mark.parametrize("name", LADDER_BF16)
def test_each_rung_of_the_second_ladder_says_what_it_adds(name: str) -> None:
    spec = load(ladder_path(name))
    assert spec.comment.startswith(f"Rung {LADDER_BF16.index(name) + 1} of bfloat16. ")
    assert spec.math in ("mma 16x8x16", "wgmma 64x256x16") and {x.dtype.name for x in spec.matrices} == {"bf16"}
    below = load(ladder_path(LADDER_BF16[max(0, LADDER_BF16.index(name) - 1)]))
    assert parse(spec.to_text()) == spec
    assert below.use <= spec.use or below.math != spec.math


def test_unknown_rung_names_the_nearest() -> None:
    with pytest.raises(ArgumentError, match="did you mean 'warptile'"):
        ladder_path("warptle")


def test_warptile_default_is_the_smallest_m_iter() -> None:
    assert WARPTILE.warp_iterations == (1, 4)
    assert (WARPTILE.m_iter, WARPTILE.n_iter) == (None, None)
    assert WARPTILE.replace(m_iter=4).warp_iterations == (4, 1)
    assert WARPTILE.replace(n_iter=2).warp_iterations == (2, 2)


# --- Field cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "numbers"),
    [
        ("# one\nkernel k1\ntile block 0x64x8\n", 3, 12, ["BM must be positive"]),
        ("# one\nkernel k1\ntile block 100x64x8\ntile thread 8x8\nuse smem\n", 3, 12, ["100", "8"]),
    ],
)
def test_g08_mistakes_are_spec_errors_with_a_place(text: str, line: int, column: int, numbers: list[str]) -> None:
    error = refusal(text, "mine.gemm")
    assert type(error) is SpecError
    assert "lark" not in (type(error).__module__ + str(error) + repr(error)).lower()
    assert (error.filename, error.line, error.column) == ("mine.gemm", line, column)
    assert all(n in error.message for n in numbers)
    assert error.__cause__ is None and error.__context__ is None


@pytest.mark.parametrize("name", ["smem_k", "float4_test", "x", "kernel_a"])
def test_g10_names_that_hold_keywords_are_kept(name: str) -> None:
    text = f"kernel {name}\ntile block 32x32x8\ntile thread 4x4\nuse coalescing, smem, transposeA, float4\n"
    spec = parse(text)
    assert spec.name == name
    assert spec.use == {"coalescing", "smem", "transposeA", "float4"}


@pytest.mark.parametrize(
    ("line", "column", "word"),
    [("use smemfloat4", 5, "smemfloat4"), ("use smem, float4x", 11, "float4x"), ("usesmem", 1, "usesmem")],
)
def test_g10_glued_words_point_at_their_start(line: str, column: int, word: str) -> None:
    error = refusal(spec_with("tile block 32x32x8", line))
    assert (error.line, error.column) == (3, column)
    assert f"'{word}'" in error.message


def test_g10_kernel_glued_to_its_name() -> None:
    error = refusal("kernelk\ntile block 32x32\n")
    assert (error.line, error.column) == (1, 1)
    assert "kernel k" in error.hint


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("0x128x8", "BM must be positive"),
        ("128x0x8", "BN must be positive"),
        ("128x128x0", "BK must be positive"),
        ("128x128x8x2", "not 4"),
        ("128X128X8", "small x"),
        ("128×128×8", "letter x"),
        ("128*128*8", "letter x"),
        ("١٢٨x١٢٨x٨", "digits 0 to 9"),
        ("128x128x٨", "digits 0 to 9"),
        ("128x128x", "is not a size"),
        ("x128x8", "is not a size"),
        ("12.5x128x8", "is not a size"),
        ("0x", "is not a size"),
        ("1e2x128x8", "is not a size"),
    ],
)
def test_g10_sizes_that_are_none(size: str, said: str) -> None:
    error = refusal(spec_with(f"tile block {size}", "tile thread 8x8"))
    assert error.line == 2
    assert error.column == 12 + {"BN": 4, "BK": 8}.get(said[:2], 0)
    assert said in f"{error.message}; {error.hint}"


@pytest.mark.parametrize(
    "name",
    [
        *("float", "int", "main", "template", "threadIdx", "As", "BM", "min", "float4", "printf", "__x", "_X"),
        *("cudaMalloc", "NULL", "sinf", "linux", "threadResults", "WARP_SZ", "9lives", "a-b", "naïve", "a" * 101),
    ],
)
def test_g10_names_that_cuda_would_not_take(name: str) -> None:
    error = refusal(f"kernel {name}\ntile block 32x32\n")
    assert (error.line, error.column) == (1, 8)
    assert name in error.message or "101 characters" in error.message


def test_names_are_case_sensitive_and_the_rungs_are_free() -> None:
    assert not RESERVED & {*ladder_names(), "x", "smem_k", "float4_test", "kernel_a", "Float", "MAIN", "as", "gemm"}


@pytest.mark.parametrize(
    ("block", "rest", "numbers", "legal"),
    [
        ("64x104x8", "tile warp 32x32\ntile thread 4x8\nuse smem, warptile", ["104", "32"], ["96", "128"]),
        ("96x64x8", "tile warp 64x32\ntile thread 8x8\nuse smem, warptile", ["96", "64"], ["64", "128"]),
        ("64x64x8", "tile thread 8x8\nuse smem, warptile", ["64x64", "8x8"], ["tile warp 64x64"]),
        ("100x64x8", "tile thread 8x8\nuse smem", ["100", "8"], ["96", "104"]),
    ],
    ids="abcd",
)
def test_g12_tiles_that_do_not_fit(block: str, rest: str, numbers: list[str], legal: list[str]) -> None:
    error = refusal(spec_with(f"tile block {block}", rest))
    assert len(error.errors) == 1
    assert all(n in error.message for n in numbers)
    assert all(n in error.hint for n in legal)


def test_g12_the_neighbours_are_legal() -> None:
    for block in ("64x96x8", "64x128x8"):
        parse(spec_with(f"tile block {block}", "tile warp 32x32", "tile thread 4x8", "use smem, warptile"))
    for warp in ("64x64", "32x64"):
        parse(spec_with("tile block 64x64x8", f"tile warp {warp}", "tile thread 8x8", "use smem, warptile"))
    for block in ("96x64x8", "104x64x8"):
        parse(spec_with(f"tile block {block}", "tile thread 8x8", "use smem"))


def test_g22a_too_many_threads() -> None:
    error = refusal(spec_with("tile block 128x128x8", "tile thread 2x2", "use smem"))
    assert "4096 > 1024" in error.message
    assert (error.line, error.column) == (3, 13)
    for thread in ("2x8", "4x4"):
        assert f"thread {thread}" in error.hint
        assert parse(spec_with("tile block 128x128x8", f"tile thread {thread}", "use smem")).threads <= 1024


def test_g22b_1024_threads_are_legal() -> None:
    assert parse(spec_with("tile block 256x256x8", "tile thread 8x8", "use smem")).threads == 1024


SIX = [
    "# Ο πίνακας",
    "kernel k1   # το όνομα",
    "tile block 64x64x8",
    "tile thread 8x8  # TM x TN",
    "use coalescing, smem",
    "stages 1",
]
FORMS = {
    "lf": "\n".join(SIX) + "\n",
    "bom": "\ufeff" + "\n".join(SIX) + "\n",
    "crlf": "\r\n".join(SIX) + "\r\n",
    "crlf_bom": "\ufeff" + "\r\n".join(SIX) + "\r\n",
    "cr": "\r".join(SIX) + "\r",
    "mixed": "\r\n".join(SIX[:3]) + "\n" + "\n".join(SIX[3:]),
    "no_newline": "\n".join(SIX),
    "comment_last": "\n".join([*SIX, "# end"]),
    "trailing_blanks": " \t\n".join(SIX) + "\t ",
    "blank_lines": "\n\n".join(SIX) + "\n\n\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_g29_line_ends_and_marks_do_not_matter(form: str, tmp_path: Path) -> None:
    path = tmp_path / "k1.gemm"
    path.write_bytes(FORMS[form].encode("utf-8"))
    spec = load(path)
    assert spec == parse(FORMS["lf"])
    assert spec.to_text() == parse(FORMS["lf"]).to_text()


@pytest.mark.parametrize("form", ["lf", "bom", "crlf", "crlf_bom", "cr"])
def test_g29_an_error_has_the_same_place_in_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / "k1.gemm"
    path.write_bytes(FORMS[form].replace("64x64x8", "64x60x8").encode("utf-8"))
    with pytest.raises(SpecError) as info:
        load(path)
    assert (info.value.filename, info.value.line, info.value.column) == (str(path), 3, 15)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_g29_latin_1_names_the_byte(mark: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k1.gemm"
    before = mark + b"kernel k1\r\n# caf"
    path.write_bytes(before + b"\xe9\r\ntile block 32x32\r\n")
    with pytest.raises(SpecError) as info:
        load(path)
    assert f"byte {len(before)} (0xE9)" in info.value.message
    assert (info.value.filename, info.value.line, info.value.column) == (str(path), 2, 6)


def test_g29_utf_16_says_so(tmp_path: Path) -> None:
    path = tmp_path / "k1.gemm"
    path.write_bytes("kernel k1\n".encode("utf-16"))
    with pytest.raises(SpecError, match="UTF-16"):
        load(path)


def test_g29_and_s5_no_locale_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "k1.gemm"
    path.write_bytes(FORMS["bom"].encode("utf-8"))
    code = f"from gemmgen.spec.parse import load; print(ascii(load({str(path)!r}).comment))"
    run = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", code],
        env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == ascii("Ο πίνακας")


def test_s1_comments_are_kept_as_written() -> None:
    spec = parse("# tile A\\\n# a */ b\n\n#no space\nkernel k1\n# not this\ntile block 16x16\n")
    assert spec.comment == "tile A\\\na */ b\nno space"
    assert parse(spec.to_text()).comment == spec.comment


def test_s6_the_same_setting_twice_names_both_lines() -> None:
    error = refusal(spec_with("tile block 64x64x8", "use smem", "tile block 128x64x8"))
    assert "lines 2 and 4" in error.message
    assert (error.line, error.column) == (4, 1)
    again = refusal(spec_with("tile block 64x64x8", "tile block 64x64x8"))
    assert "lines 2 and 3" in again.message


# --- All errors at once ---------------------------------------------------------------------------------------------


def test_all_errors_are_reported_in_order() -> None:
    error = refusal(
        "kernel float\ntile block 100x104x8\ntile thread 8x0\nuse smem, flaot4\nstages 9\nfoo bar\nuse , ,\n", "a.gemm"
    )
    assert [(e.line, e.column) for e in error.errors] == [(1, 8), (2, 12), (3, 15), (4, 11), (5, 8), (6, 1), (7, 7)]
    assert (error.line, error.message) == (error.errors[0].line, error.errors[0].message)
    assert all(e.filename == "a.gemm" and len(e.errors) == 1 for e in error.errors)


def test_a_long_list_is_cut_when_printed() -> None:
    error = refusal(spec_with("tile block 8x8", *["foo"] * 50))
    assert len(error.errors) == 50
    assert str(error).count("error:") == 20
    assert "and 30 more errors" in str(error)


def test_a_misspelt_toggle_hides_nothing_and_invents_nothing() -> None:
    error = refusal(spec_with("tile block 128x128x8", "use smme, float4"))
    assert [e.message for e in error.errors] == ["unknown toggle 'smme'"]


def test_an_error_survives_pickling() -> None:
    error = refusal(spec_with("tile block 0x0"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert [e.column for e in again.errors] == [12, 14]


def test_text_must_be_text() -> None:
    with pytest.raises(ArgumentError, match="bytes"):
        parse(b"kernel k1")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["missing.gemm", ".", "a\0b"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(SpecError) as info:
        load(path)
    assert info.value.filename == path
    assert "cannot read the spec" in info.value.message
    assert len(str(info.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["foo bar\n" * 10_000, "# " + "x" * 70_000, "use " + "smem," * 20_000])
def test_a_text_far_too_long_is_refused_at_once(text: str, tmp_path: Path) -> None:
    path = tmp_path / "long.gemm"
    path.write_text(text, encoding="utf-8")
    for refused in (lambda: parse(text, str(path)), lambda: load(path)):
        with pytest.raises(SpecError, match="longer than 65536 bytes") as info:
            refused()
        assert info.value.filename == str(path)


def test_spans_say_where_each_setting_is() -> None:
    spec = parse(spec_with("tile block 64x64x8", "tile thread 4x8", "use smem, float4"))
    places = {key: (span.line, span.column) for key, span in spec.spans.items()}
    assert places["kernel"] == (1, 8)
    assert places["tile block"] == places["BM"] == (2, 12)
    assert (places["BN"], places["BK"], places["TN"]) == ((2, 15), (2, 18), (3, 15))
    assert places["use float4"] == (4, 11)


def test_a_warp_tile_without_warptile_is_noted() -> None:
    spec = parse(spec_with("tile block 64x64x8", "tile warp 48x7", "use smem", "tile thread 4x4"))
    assert spec.warp == (48, 7)
    assert "48x7" in spec.notes[0]
    assert spec.replace(warp=None).notes == ()
    assert WARPTILE.notes == ()


# --- The table ------------------------------------------------------------------------------------------------------


def test_every_setting_is_documented_and_reads_back() -> None:
    assert [row.name for row in SETTINGS][:5] == ["kernel", "tile block", "tile warp", "tile thread", "use"]
    assert all(row.doc for row in SETTINGS) and all(t.doc for t in TOGGLES)
    assert {f for row in SETTINGS for f in row.fields} <= set(Spec.__dataclass_fields__)


def test_the_grammar_reads_a_whole_file_as_it_reads_its_lines() -> None:
    from lark import Lark, Tree

    grammar = (ROOT / "grammar" / "gemm.lark").read_text(encoding="utf-8")
    whole, line = (Lark(grammar, parser="lalr", start=s, maybe_placeholders=False) for s in ("start", "line"))
    for name in ladder_names():
        text = ladder_path(name).read_text(encoding="utf-8")
        tree = whole.parse(text)
        assert tree == Tree("start", [line.parse(one) for one in text.split("\n")])
    assert not any(t.name in grammar.split("start:")[1] for t in TOGGLES)
