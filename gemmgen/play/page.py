"""The user interface, by NiceGUI: the spec on the left, tabs with what becomes of it on the right.

A visitor has one question at a time on its way; edits meanwhile are one more question, for the newest text.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from html import escape
from typing import Any

from nicegui import app, run, ui

from gemmgen.play import share
from gemmgen.play.complete import completed, completions, edited
from gemmgen.play.door import Door, hosts
from gemmgen.play.pool import Pool
from gemmgen.play.style import HEAD, STYLE
from gemmgen.spec.ladder import ladder_names, ladder_path
from gemmgen.target import GPUS

TABS = ("CUDA", "Tile program", "Pictures", "Counts", "Compiler", "Difference", "Simulator")
KIND = {"Pictures": "pictures", "Compiler": "compiled", "Difference": "difference", "Simulator": "simulated"}
"""The question of a tab that the texts do not answer."""
SIZES = ("4096x4096x4096", "2048x2048x2048", "1024x1024x1024", "512x512x512", "16x4096x4096")


def serve(text: str, host: str, port: int, show: bool) -> None:
    """Serve the page until it is interrupted."""
    pool = Pool()
    app.on_startup(lambda: threading.Thread(target=pool.warm, daemon=True).start())
    app.on_shutdown(pool.close)
    app.add_middleware(Door, known=hosts(host, port))
    ui.run(
        lambda: Page(pool, text).build(),
        host=host,
        port=port,
        title="gemmgen play",
        show=show,
        reload=False,
        tailwind=False,
        dark=None,
        show_welcome_message=False,
    )


class Page:
    """One visitor's page."""

    def __init__(self, pool: Pool, text: str) -> None:
        self.pool = pool
        self.text = text
        self.pinned = ""
        self.size = (4096, 4096, 4096)
        self.gpu = "h200"
        self.without: int | None = None
        self.opened = False
        self.busy = False
        self.wanted = True
        self.shown: dict[str, Any] = {}

    # --- Layout ------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        ui.add_head_html(HEAD)
        ui.add_css(STYLE)
        with ui.splitter(value=36).classes("play") as splitter:
            with splitter.before:
                self._left()
            with splitter.after:
                self._right()
        ui.timer(0.05, self._opened, once=True)

    def _left(self) -> None:
        with ui.row().classes("bar"):
            ui.label("gemmgen play").classes("title")
            rungs = ui.select(["", *ladder_names()], value="", label="Start from", on_change=self._load)
            rungs.props("dense options-dense").mark("rungs")
            ui.button("Pin", on_click=self._pin).props("dense flat no-caps").mark("pin")
            ui.button("Copy link", on_click=self._link).props("dense flat no-caps").mark("link")
        self.editor = ui.codemirror(
            self.text, on_change=self._edited, line_wrapping=False, keymap={"Ctrl-Space": self._first}
        ).classes("editor")
        self.words = ui.row().classes("words")
        self.problems = ui.html("", sanitize=False).classes("problems").props('role="status" aria-live="polite"')

    def _right(self) -> None:
        with ui.row().classes("bar"):
            ui.select(list(SIZES), value=SIZES[0], label="Size", on_change=self._resized).props("dense options-dense")
            gpus = {name: row.title for name, row in GPUS.items()}
            ui.select(gpus, value=self.gpu, label="GPU (modelled)", on_change=self._moved).props("dense options-dense")
            self.title = ui.label("").classes("status")
        with ui.tabs(on_change=self._again).props("dense no-caps inline-label align=left") as self.tabs:
            for name in TABS:
                ui.tab(name)
        self.panes: dict[str, ui.html] = {}
        with ui.tab_panels(self.tabs, value=TABS[0], animated=False).classes("panes"):
            for name in TABS:
                with ui.tab_panel(name):
                    if name == "Simulator":
                        self.barriers = ui.select({-1: "the whole kernel"}, value=-1, label="Run", on_change=self._cut)
                        self.barriers.props("dense options-dense").classes("wide")
                    self.panes[name] = ui.html("", sanitize=False).classes("pane").props('tabindex="0"')

    # --- Events ------------------------------------------------------------------------------------------------------

    async def _opened(self) -> None:
        """A link may hold the spec: it is read before any answer writes the address anew."""
        fragment = await ui.run_javascript("location.hash.slice(1)", timeout=30.0)
        found = share.unpacked(fragment) if isinstance(fragment, str) and fragment else None
        self.opened = True
        if found is not None:
            self.editor.value = found
        await self._again()

    async def _edited(self, event: Any) -> None:
        before, self.text = self.text, event.value or ""
        self._offer(edited(before, self.text))
        await self._again()

    def _load(self, event: Any) -> None:
        if event.value in ladder_names():
            self.editor.value = ladder_path(event.value).read_text(encoding="utf-8")

    async def _pin(self) -> None:
        self.pinned = self.text
        ui.notify("Pinned: changes are marked against this text")
        await self._again()

    def _link(self) -> None:
        self._address()
        ui.run_javascript("navigator.clipboard && navigator.clipboard.writeText(location.href)")
        ui.notify("The address of this page now holds the spec")

    def _address(self) -> None:
        ui.run_javascript(f"history.replaceState(null, '', '#{share.packed(self.text)}')")

    async def _resized(self, event: Any) -> None:
        m, n, k = (int(part) for part in event.value.split("x"))
        self.size = m, n, k
        await self._again()

    async def _moved(self, event: Any) -> None:
        self.gpu = event.value
        await self._again()

    async def _cut(self, event: Any) -> None:
        self.without = None if event.value is None or event.value < 0 else event.value
        await self._again()

    # --- Completion --------------------------------------------------------------------------------------------------

    def _offer(self, at: int) -> None:
        self.at = at
        self.offered = completions(self.text, at)
        self.words.clear()
        with self.words:
            for word in self.offered:
                button = ui.button(word, on_click=lambda _, word=word: self._take(word))
                button.props("dense flat no-caps").classes("word")

    def _take(self, word: str) -> None:
        self.editor.value = completed(self.text, self.at, word)

    def _first(self) -> None:
        if getattr(self, "offered", None):
            self._take(self.offered[0])

    # --- Questions and answers ---------------------------------------------------------------------------------------

    async def _again(self) -> None:
        """Ask for what is shown, unless a question is on its way: then it is asked again after its answer."""
        self.wanted = True
        if self.busy or not self.opened:
            return
        self.busy = True
        try:
            while self.wanted:
                self.wanted = False
                await self._ask()
        finally:
            self.busy = False

    async def _ask(self) -> None:
        text, tab = self.text, str(self.tabs.value or TABS[0])
        question = {"text": text, "pinned": self.pinned, "size": self.size, "gpu": self.gpu, "without": self.without}
        found = await run.io_bound(self.pool.ask, {**question, "kind": "texts"})
        if found is None:
            return
        self._errors(text, found.get("errors", []))
        if "errors" in found:
            return
        self._texts(found)
        self._address()
        kind = KIND.get(tab)
        if kind is None and tab == "Counts" and not self.wanted:
            kind = "advised"
        key = (kind, *question.values())
        if kind is None or self.wanted or self.shown.get(tab) == key:
            return
        answer = await run.io_bound(self.pool.ask, {**question, "kind": kind})
        if answer is not None and text == self.text:
            self.shown[tab] = key
            self._answered(tab, answer)

    def _errors(self, text: str, errors: list[Mapping[str, Any]]) -> None:
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        marks = []
        for e in errors:
            if 1 <= e["line"] < len(starts):
                at = starts[e["line"] - 1] + max(0, e["column"] - 1)
                end = min(at + max(1, e["length"]), len(text))
                if at < end:
                    marks.append({"kind": "mark", "from": at, "to": end, "class": "play-error"})
        self._marked(marks)
        self.editor.run_method("setLineTooltips", {e["line"]: e["message"] for e in errors if e["line"]})
        self.problems.content = "".join(_problem(e) for e in errors)

    def _texts(self, found: Mapping[str, Any]) -> None:
        self.title.text = found["title"]
        self.panes["CUDA"].content = f'<pre class="code">{found["cuda"]}</pre>'
        self.panes["Tile program"].content = f'<pre class="code">{found["tile"]}</pre>'
        self.panes["Counts"].content = f"<pre>{escape(found['counts'])}</pre>"
        if found["notes"]:
            self.problems.content = "".join(f"<p>note: {escape(note)}</p>" for note in found["notes"])

    def _answered(self, tab: str, answer: Mapping[str, Any]) -> None:
        pane = self.panes[tab]
        if "errors" in answer:
            pane.content = "".join(_problem(e) for e in answer["errors"])
        elif tab == "Counts":
            pane.content = f"<p><strong>to change:</strong> {escape(answer['advice'])}</p>{pane.content}"
        elif tab == "Pictures":
            pane.content = "".join(_figure(p) for p in answer["pictures"])
        elif tab == "Compiler":
            parts = (("", answer["resources"]), ("SASS by line of CUDA", answer["sass"]), ("", answer["explained"]))
            pane.content = "".join(f"<h3>{title}</h3><pre>{escape(text)}</pre>" for title, text in parts)
        elif tab == "Difference":
            pane.content = f"<pre>{escape(answer['difference'])}</pre>"
        else:
            self._simulated(answer)

    def _simulated(self, answer: Mapping[str, Any]) -> None:
        choices = {-1: "the whole kernel"}
        choices |= {i: f"without barrier {i + 1} ({hazard})" for i, hazard in enumerate(answer["barriers"])}
        if self.barriers.options != choices:
            self.barriers.set_options(choices, value=self.barriers.value if self.barriers.value in choices else -1)
        verdict = "PASS" if answer["right"] and not answer["faults"] else "FAIL"
        faults = "".join(f"<li>{escape(fault)}</li>" for fault in answer["faults"])
        self.panes["Simulator"].content = f"<p><strong>{verdict}</strong> at {answer['size']}</p><ul>{faults}</ul>"
        marks = [{"kind": "line", "line": line, "class": "play-fault"} for line in answer["lines"]]
        self._marked(marks)

    def _marked(self, marks: list[dict[str, Any]]) -> None:
        """Mark places of the text. Not by the element's ``decorations``: its updates carry the text that the server
        last saw, and would take back what was typed since."""
        self.editor.run_method("setDecorations", marks)


def _problem(e: Mapping[str, Any]) -> str:
    at = f"line {e['line']}, column {e['column']}: " if e["line"] else ""
    hint = f"; {escape(e['hint'])}" if e["hint"] else ""
    return f'<p class="problem"><strong>{at}</strong>{escape(e["message"])}{hint}</p>'


def _figure(p: Mapping[str, str]) -> str:
    return f"<figure><h3>{escape(p['title'])}</h3>{p['svg']}<figcaption>{escape(p['caption'])}</figcaption></figure>"
