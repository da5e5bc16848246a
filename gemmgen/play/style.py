"""The style sheet of the page: that of the report's pictures and code, and the layout."""

from __future__ import annotations

import re
from pathlib import Path

from gemmgen.report.page import render

TEMPLATES = Path(render.__file__).parent / "templates"
HEAD = (
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs><pattern id="hatch" width="5" '
    'height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" '
    'class="hatch-ground"/><rect width="1.6" height="5" class="hatch-line"/></pattern></defs></svg>'
)
LAYOUT = """
body { margin: 0; background: var(--bg); color: var(--ink); }
.nicegui-content { padding: 0; gap: 0; }
.play { width: 100vw; height: 100vh; }
.play .q-splitter__panel { display: flex; flex-direction: column; min-width: 0; }
.bar { align-items: center; gap: 0.6rem; padding: 0.3rem 0.8rem; min-height: 3rem; }
.bar { border-bottom: 1px solid var(--rule); }
.bar .q-field { min-width: 8rem; }
.title { font-weight: 700; } .status { color: var(--soft); font-size: 0.86rem; }
.editor { flex: 1 1 auto; min-height: 12rem; width: 100%; overflow: auto; } .editor .cm-editor { height: 100%; }
.words { gap: 0.2rem; padding: 0.2rem 0.6rem; min-height: 2.2rem; } .words .q-btn { font-family: monospace; }
.problems { padding: 0 0.8rem 0.6rem; font-size: 0.9rem; } .problem { color: var(--bad-text); margin: 0.2rem 0; }
.play-error { text-decoration: underline wavy var(--bad); } .play-fault { background: var(--del); }
.panes { flex: 1 1 auto; overflow: auto; background: transparent; } .wide { min-width: 20rem; }
.pane { width: 100%; } .pane pre { margin: 0; overflow-x: auto; font-size: 0.8rem; line-height: 1.45; }
.pane figure { margin: 0 0 1.4rem; max-width: 44rem; }
.pane h3 { font-size: 1rem; margin: 0.6rem 0 0.3rem; line-height: 1.3; }
.pane figcaption { color: var(--soft); font-size: 0.88rem; } .pane svg { max-width: 100%; height: auto; }
@media (max-width: 48rem) {
  .play > .q-splitter__separator { display: none; }
  .play { flex-direction: column; height: auto; } .play > .q-splitter__panel { width: 100% !important; }
}
"""


def _code_rules(css: str) -> str:
    """The rules of the report's style sheet for lines of code."""
    return "\n".join(x for x in css.splitlines() if re.match(r"(\.line|ins\.|del\.|\.code :is)", x))


STYLE = "\n".join(
    [
        (TEMPLATES / "picture.css").read_text(encoding="utf-8"),
        _code_rules((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        LAYOUT,
    ]
)
