"""Results in a notebook: escaped, without assets or colours; and the notebook of the examples runs."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemmgen
from gemmgen.text import html
from gemmgen.verify.reference import Verification

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "ladder.ipynb"
HOSTILE = "kernel x\ntile block 16x16\n# <script>alert(1)</script> & more\n"


class Reader(HTMLParser):
    """Checks that elements are closed in order, and keeps their names and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(name == "style" for name, _ in attrs)
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def results() -> dict[str, Any]:
    spec = gemmgen.parse(HOSTILE)
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    return {
        "Spec": spec,
        "Kernel": gemmgen.compile(spec, device="sim"),
        "Explanation": gemmgen.explain(spec, 64, 64, 64, compiled=False),
        "TuneResult": gemmgen.tune(
            spec, 64, 64, 64, choices={"coalescing": (True, False)}, device="sim", records=False
        ),
        "Verification": gemmgen.verify(a @ b, a, b),
    }


RESULTS = results()


@pytest.mark.parametrize("name", RESULTS)
def test_html_is_escaped_and_needs_nothing(name: str) -> None:
    text = RESULTS[name]._repr_html_()
    read = Reader(text)
    assert not read.seen & {"script", "link", "img", "style", "iframe"}
    assert re.search(r"https?://|url\(|#[0-9a-fA-F]{3}\b", text) is None
    assert set(re.findall(r"(?:color|background):(\S+?)[;\"]", text)) <= {"inherit", "transparent", "currentColor"}


def test_a_spec_and_its_kernel_show_their_texts() -> None:
    assert HOSTILE.splitlines()[0] in Reader(RESULTS["Spec"]._repr_html_()).text
    kernel = Reader(RESULTS["Kernel"]._repr_html_()).text
    assert "x on the simulator" in kernel and "__global__" in kernel and "tile   block  16x16" in kernel


def test_an_explanation_shows_its_verdict_and_a_bar_for_each_resource() -> None:
    e = RESULTS["Explanation"]
    text = e._repr_html_()
    assert "limited by" in text and text.count("display:inline-block") == len(e.bound.resources) + 1
    assert str(e) in Reader(text).text


def test_a_tuning_result_lists_its_trials_and_the_winner() -> None:
    text = Reader(RESULTS["TuneResult"]._repr_html_()).text
    assert "modelled only" in text and RESULTS["TuneResult"].best.to_text(comment=False) in text


def test_a_verification_shows_verdict_element_and_numbers() -> None:
    text = Reader(RESULTS["Verification"]._repr_html_()).text
    assert text.startswith("PASS: largest error 0") and "C[0, 0]" in text and "3.0" in text
    wrong = Verification(False, 2.0, (1, 2), 4.0, 2.0, 1e-6, wrong=1)._repr_html_()
    assert "FAIL: 1 element beyond the tolerance" in wrong and "worst element" in wrong
    assert Reader(Verification(False, 0.0, reason="C is <none>")._repr_html_()).text == "FAIL: C is <none>"


def test_cells_are_escaped_and_html_stays() -> None:
    assert html.html("<b>") == "&lt;b&gt;" and html.html(html.Html("<b>")) == "<b>" and html.html(None) == ""
    assert "&lt;i&gt;" in html.table(("<i>",), [(html.bar(0.5, "<b>"), 12345)])
    assert "12,345" in html.table(("n",), [(12345,)])
    assert "width:14.0em" in html.bar(7.0, "") and "width:0.0em" in html.bar(-1.0, "")


# --- The notebook ----------------------------------------------------------------------------------------------------


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs_and_shows_html(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    shown = []
    for source in cells():
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))
    assert {type(value).__name__ for value in shown} == {"Spec", "Explanation", "Verification", "Kernel", "TuneResult"}
    assert all(value._repr_html_() for value in shown)
    assert "(8, 8) 8.00 flop per shared value" in capsys.readouterr().out


def test_the_notebook_is_stored_without_outputs() -> None:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert all(not c["outputs"] and c["execution_count"] is None for c in found["cells"] if c["cell_type"] == "code")


@pytest.mark.full
@pytest.mark.skipif(find_spec("nbclient") is None or find_spec("ipykernel") is None, reason="nbclient is missing")
def test_the_notebook_runs_in_jupyter() -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    data = [o["data"] for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "data" in o]
    assert sum("text/html" in d for d in data) == 5
