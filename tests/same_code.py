"""A compiler makes the same of two folders of CUDA: texts may differ in comments, names and messages, not in SASS.

    python tests/same_code.py OLD NEW              each NAME.cu of OLD against NEW; exit status 1 if one differs
    python tests/same_code.py --commit COMMIT      generated/ as it was at COMMIT against generated/ as it is

``tests/guard.py`` compares texts, and leaves out what this shows to be no code. The instructions of each kernel are
compared with NVRTC's own disassembler, without names and line numbers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCH = "sm_90"


def instructions(cuda: str, arch: str = ARCH) -> str:
    """The SASS of a text: instructions and their operands, one a line."""
    from gemmgen.runtime.nvrtc import compile_cubin
    from gemmgen.runtime.sass import disassemble

    [name] = re.findall(r'extern "C" __global__ .*\n(\w+)\(', cuda)
    text = disassemble(compile_cubin(cuda, arch, name=name, filename=f"{name}.cu").cubin)
    return "\n".join(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)", text))


def differing(old: Path, new: Path, arch: str = ARCH) -> list[str]:
    """The names of texts whose code differs, or that only one folder has."""
    names = sorted({path.name for folder in (old, new) for path in folder.glob("*.cu")})
    found = []
    for name in names:
        texts = [(folder / name) for folder in (old, new)]
        if not all(path.is_file() for path in texts):
            found.append(f"{name} (missing)")
            continue
        before, after = (path.read_text(encoding="utf-8") for path in texts)
        if before != after and instructions(before, arch) != instructions(after, arch):
            found.append(name)
    return found


def at_commit(commit: str, folder: Path) -> Path:
    """``generated/`` of a commit, in a folder."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "generated"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "generated"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="the older folder, and the newer")
    parser.add_argument("--commit", help="generated/ at this commit is the older folder")
    parser.add_argument("--arch", default=ARCH)
    asked = parser.parse_args(arguments)
    if (asked.commit is None) == (len(asked.folders) != 2):
        parser.error("name two folders, or --commit")
    with tempfile.TemporaryDirectory() as scratch:
        if asked.commit is not None:
            pair = (at_commit(asked.commit, Path(scratch)), ROOT / "generated")
        else:
            pair = (asked.folders[0], asked.folders[1])
        found = differing(*pair, asked.arch)
        count = len(list(pair[1].glob("*.cu")))
    for name in found:
        print(f"{name}: the code differs")
    print(f"{len(found)} of {count} texts have other code")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
