"""The docs site builds without a warning, and specs are highlighted by a lexer of their own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from pygments.token import Comment, Keyword, Name, Number

from gemmgen.report.ladder import RUNGS
from gemmgen.report.lexer import SpecLexer
from gemmgen.report.page.code import spec_html
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.spec.model import TOGGLES

ROOT = Path(__file__).resolve().parent.parent


def test_settings_toggles_sizes_and_comments_are_told_apart() -> None:
    text = "# why\nkernel k\ntile block 64x64x8  # BM\nuse smem, warptile(m_iter=2)\noperands A f32 row\n"
    tokens = [(kind, value) for kind, value in SpecLexer().get_tokens(text) if value.strip()]
    wanted = [
        (Comment.Single, "# why"), (Keyword, "kernel"), (Name.Function, "k"), (Keyword, "tile"), (Keyword, "block"),
        (Number.Integer, "64x64x8"), (Name.Builtin, "smem"), (Name.Builtin, "warptile"), (Keyword.Type, "m_iter"),
        (Keyword.Type, "f32"),
    ]  # fmt: skip
    assert [pair for pair in wanted if pair not in tokens] == []


@pytest.mark.parametrize("name", ladder_names())
def test_every_toggle_of_the_ladder_is_highlighted_and_the_text_is_kept(name: str) -> None:
    text = ladder_path(name).read_text(encoding="utf-8")
    tokens = list(SpecLexer(stripnl=False).get_tokens(text))
    assert "".join(value for _, value in tokens) == text
    assert {v for kind, v in tokens if kind is Name.Builtin} <= {t.name for t in TOGGLES}
    assert len(spec_html(text)) == len(text.splitlines())


def test_pygments_finds_the_lexer_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["pygments.lexers"]["gemm"].partition(":")
    assert getattr(import_module(module), name) is SpecLexer
    assert SpecLexer.aliases == ["gemm"] and SpecLexer.filenames == ["*.gemm"]


@pytest.mark.full
@pytest.mark.skipif(
    find_spec("material") is None or find_spec("mkdocstrings") is None,
    reason="mkdocs-material is missing: pip install 'gemmgen[docs]'",
)
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", ".site/mkdocs.yml", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index", "lesson", "exercises", "language", "code", "reference", *(f"rungs/{r.spec}" for r in RUNGS)):
        html = (tmp_path / f"{page}.html").read_text(encoding="utf-8")
        assert "<article" in html and "fonts.googleapis" not in html
    assert "Kernel" in (tmp_path / "reference.html").read_text(encoding="utf-8")
