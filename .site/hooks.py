"""Pages that the site makes from the project: the README, the lesson, rungs, exercises, and the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import gemmgen
from gemmgen.ir.variant import EXACT
from gemmgen.lesson.checking import start_of
from gemmgen.lesson.exercises import EXERCISES
from gemmgen.report.ladder import RUNGS
from gemmgen.report.page.standalone import drawn
from gemmgen.report.page.words import spec_delta
from gemmgen.spec.ladder import ladder_path
from gemmgen.tile import build, print_tile

ROOT = Path(__file__).resolve().parent.parent
SIZE = (4096, 4096, 4096)
PAGES = {"README.md": "index.md", "examples/lesson.md": "lesson.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    config.nav = [
        {"Home": "index.md"},
        {"Learn": ["lesson.md", "exercises.md", {"Rungs": [f"rungs/{rung.spec}.md" for rung in RUNGS]}]},
        {"Language": ["language.md", "glossary.md"]},
        {"Use": ["commands.md", "tuning.md", "measured.md", "reference.md"]},
        {"How it works": "code.md"},
    ]
    named = {name for part in _flat(config.nav) for name in [part]}
    others = sorted(p.name for p in (ROOT / "docs").glob("*.md") if p.name not in named)
    if others:
        config.nav.append({"More": others})
    return config


def _flat(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from _flat(part)
    else:
        for part in nav:
            yield from _flat(part)


def on_files(files: Files, config: Any) -> Files:
    made = {target: (ROOT / source).read_text(encoding="utf-8") for source, target in PAGES.items()}
    made["exercises.md"] = exercises()
    made["reference.md"] = reference()
    before: dict[str, Any] = {}
    for rung in RUNGS:
        spec = gemmgen.load(ladder_path(rung.spec))
        earlier = before.get(rung.after) if rung.after else (list(before.values())[-1] if before else None)
        made[f"rungs/{rung.spec}.md"] = rung_page(rung, spec, earlier)
        for name, svg in drawn(build(spec, EXACT), gemmgen.lower(spec), ("block", "warp", "timeline")):
            files.append(File.generated(config, f"rungs/{name}", content=svg))
        if not rung.after:
            before[rung.spec] = spec
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files that are no pages become plain text."""
    here = Path(page.file.src_uri).parent

    def linked(m: re.Match[str]) -> str:
        mark, text, target, anchor = m[1], m[2], m[3], m[4] or ""
        path = _normal(here / target)
        source = "README.md" if page.file.src_uri == "index.md" else f"docs/{page.file.src_uri}"
        if page.file.src_uri == "lesson.md":
            source = "examples/lesson.md"
        whole = _normal(Path(source).parent / target)
        found = PAGES.get(whole) or (whole.removeprefix("docs/") if whole.startswith("docs/") else path)
        if match := re.fullmatch(r"specs/(\w+)\.gemm", whole):
            found = f"rungs/{match[1]}.md"
        if files.get_file_from_path(found) is None:
            return text
        up = "../" * (len(here.parts))
        return f"{mark}[{text}]({up}{found}{anchor})"

    return LINK.sub(linked, markdown)


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            if parts:
                parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def rung_page(rung: Any, spec: Any, earlier: Any) -> str:
    e = gemmgen.explain(spec, *rung.size(SIZE), compiled=False)
    told = [f"# {rung.spec}", "", spec.comment.replace("\n", " "), ""]
    if rung.fixes:
        told += [f"**Bottleneck fixed**: {rung.fixes}.", ""]
    told += [f"**Limited by**: {rung.leaves}.", ""]
    if earlier is not None:
        changes = ", ".join(f"`{change}`" for change in spec_delta(earlier, spec))
        told += [f"Changes of the spec since [{earlier.name}]({earlier.name}.md): {changes}.", ""]
    told += _fence("gemm", spec.to_text(comment=False))
    for kind in ("block", "warp"):
        told += [f"![{kind} tile of {rung.spec}]({rung.spec}-{kind}.svg)", ""]
    if spec.stages > 1:
        told += ["## Timeline of the stages", "", f"![stages of {rung.spec}]({rung.spec}-timeline.svg)", ""]
    told += ["## Tile program", "", *_fence("text", print_tile(build(spec, EXACT)))]
    told += ["## CUDA", "", *_fence("cuda", gemmgen.emit(spec))]
    counts = str(e).partition("main loop:")[0]
    return "\n".join([*told, "## Counts and limits (without a compiler)", "", *_fence("text", counts)])


def _fence(language: str, text: str) -> list[str]:
    return [f"```{language}", *text.rstrip().splitlines(), "```", ""]


def exercises() -> str:
    told = ["# Exercises", "", "Each is checked by `gemmgen lesson check N FILE`, without a GPU.", ""]
    for number, exercise in enumerate(EXERCISES, 1):
        told += [f"## {number}. {exercise.title}", "", exercise.text, "", *_fence("gemm", start_of(exercise))]
        for hint in exercise.hints:
            told += ['??? note "Hint"', f"    {hint}", ""]
    return "\n".join(told)


def reference() -> str:
    told = ["# Python reference", "", "Names of `gemmgen`, each with its docstring.", ""]
    for module, names in gemmgen._HOME.items():
        for name in names:
            told += [f"::: {_defined(module, name)}", ""]
    return "\n".join(told)


def _defined(module: str, name: str) -> str:
    """The dotted name of where a public name is defined."""
    value = getattr(gemmgen, name)
    return f"{getattr(value, '__module__', module)}.{name}"
