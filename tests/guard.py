"""The guard: the code emitted for float32 does not change.

Comments, white space, messages of static_assert and the names in ``NAMES`` are no code: ``tests/same_code.py`` shows
that a compiler makes the same of two texts that differ in them.

    python tests/guard.py --check                  every text against its hash; what differs is printed, exit status 1
    python tests/guard.py --check --old CHECKOUT   also the first lines that differ, from the older checkout's text
    python tests/guard.py --check --only NAME      the specs whose name contains NAME
    python tests/guard.py --accept CASE --why TEXT record what differs now as meant by CASE
    python tests/guard.py --make                   write the specs and hashes anew, from the gemmgen that Python imports
    python tests/guard.py --rehash                 write the hashes of the same specs anew

The hashes of ``data/guard.json.gz`` were made at the commit that it names. It holds the text of every spec, so that a
check depends neither on today's spec files nor on a generator: the ladder, the valid fixtures, the shipped winners, and
random legal specs. ``data/guard_accepted.json`` lists the texts that were changed on purpose since, and why.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "guard.json.gz"
ACCEPTED = HERE / "data" / "guard_accepted.json"
VARIANTS = ("exact", "guarded", "guarded_unaligned")
RENAMED = {"smem_swizzle": "smemSwizzle"}  # toggles, from their names when the hashes were made
NAMES = {"tileReady": "full", "tileFree": "empty", "WARP": "32"}  # in the text, from older names to newer or to values
RANDOM_SPECS, SEED = 2000, 20260101
REFUSED = "refused"


@dataclass(frozen=True)
class Guarded:
    """A spec, with a hash of its normalised text for each variant."""

    name: str
    text: str
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A text that is not what it was. ``now`` is its hash, or REFUSED where the spec is no longer legal."""

    spec: Guarded
    variant: str
    now: str

    def __str__(self) -> str:
        return f"{self.spec.name} {self.variant}"


# --- Text ---------------------------------------------------------------------------------------------------------


def parsed(text: str) -> Any:
    """The spec; where a toggle has been renamed since its text was written, with the new name."""
    import gemmgen

    try:
        return gemmgen.parse(text)
    except gemmgen.SpecError:
        renamed = text
        for old, new in RENAMED.items():
            renamed = re.sub(rf"\b{old}\b", new, renamed)
        if renamed == text:
            raise
        return gemmgen.parse(renamed)


def emitted(text: str, variant: str) -> str:
    """The normalised CUDA of a spec: its kernel, and those that are launched before and after it."""
    import gemmgen
    from gemmgen.cuda.emit import emit_cuda

    return "".join(normalised(emit_cuda(ir)) for ir in gemmgen.lower(parsed(text), variant).kernels)


def normalised(cuda: str) -> str:
    """Without comments, blank lines, white space at the ends of lines and messages of assertions; ``NAMES`` applied."""
    code = _without_later_checks(cuda)
    code = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda m: m.group(1) or "", code, flags=re.DOTALL)
    code = re.sub(r'(static_assert\([^"]*),\s*"(?:[^"\\\n]|\\.)*"\);', r"\1);", code)
    code = re.sub(r"constexpr int WARP\s*=\s*32;", "", code)
    code = re.sub(rf"\b({'|'.join(NAMES)})\b", lambda m: NAMES[m[1]], code)
    # The lanes of a warp met inside the helper when the hashes were made; now they meet before it is called.
    code = re.sub(r"__syncwarp\(\);\s*(?=mbarrier_release\()", "", code)
    code = re.sub(r"(void mbarrier_release\([^)]*\)\s*\{)", r"\1\n    __syncwarp();", code)
    # Nothing stood between a thread's loads and the TMA engine that overwrites what they read: a fault, now mended.
    code = re.sub(r"__device__ __forceinline__ void fence_async\(\)\s*\{[^}]*\}", "", code)
    code = code.replace("fence_async();", "")
    return "".join(f"{line.rstrip()}\n" for line in code.splitlines() if line.strip())


LATER = ("must be whole passes of the block's threads", "takes turns between two sets of registers", "steps at a time")
"""Messages of the assertions that came after the hashes were made."""


def _without_later_checks(cuda: str) -> str:
    """Without assertions that came later, the constants that only those refer to, and the clobber of loads that came
    with them: ``tests/same_code.py`` shows that a compiler makes the same of the text."""
    later = "|".join(map(re.escape, LATER))
    code = re.sub(rf'static_assert\([^"]*"[^"]*(?:{later})[^"]*"\);', "", cuda)
    code = re.sub(r'(\+ bytes\)) : "memory"\);', r"\1);", code)
    while True:
        words = Counter(re.findall(r"\w+", re.sub(r"//[^\n]*", "", code)))
        alone = [name for name in re.findall(r"constexpr int (\w+)", code) if words[name] == 1]
        if not alone:
            return code
        code = re.sub(rf"constexpr int ({'|'.join(alone)})\b[^\n]*\n", "", code)


def hash_of(text: str, variant: str) -> str:
    """The hash of what is emitted, or REFUSED."""
    from gemmgen import SpecError

    try:
        # Lines break where they are long, which the length of a name decides.
        return hashlib.sha256(" ".join(emitted(text, variant).split()).encode()).hexdigest()[:12]
    except SpecError:
        return REFUSED


# --- Checking -----------------------------------------------------------------------------------------------------


def read() -> tuple[str, list[Guarded]]:
    """The commit at which the hashes were made, and the specs."""
    held = json.loads(gzip.decompress(DATA.read_bytes()))
    return held["commit"], [Guarded(name, text, tuple(hashes)) for name, text, hashes in held["specs"]]


def accepted() -> dict[tuple[str, str], str]:
    """Of each text that was changed on purpose its new hash, by (spec, variant)."""
    cases = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    return {(name, v): new for case in cases for name, found in case["specs"].items() for v, new in found.items()}


def sample(specs: Sequence[Guarded], count: int) -> list[Guarded]:
    """``count`` of the specs, evenly spread over the list."""
    return [specs[i * len(specs) // count] for i in range(min(count, len(specs)))]


def differences(
    specs: Sequence[Guarded], variants: Sequence[str] = VARIANTS, jobs: int = 1, known: bool = True
) -> Iterator[Difference]:
    """What is emitted otherwise than it was; ``known``: but for what was accepted."""
    allowed = accepted() if known else {}
    todo = [(spec, variant) for spec in specs for variant in variants]
    for (spec, variant), now in zip(todo, _hashes([(s.text, v) for s, v in todo], jobs), strict=True):
        then = spec.hashes[VARIANTS.index(variant)]
        if now != allowed.get((spec.name, variant), then):
            yield Difference(spec, variant, now)


def _hashes(todo: list[tuple[str, str]], jobs: int) -> Iterator[str]:
    if jobs == 1:
        yield from (hash_of(*one) for one in todo)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(hash_of, *zip(*todo, strict=True), chunksize=30)


def diff(old_checkout: Path, found: Sequence[Difference], most: int) -> Iterator[str]:
    """The first lines that differ between an older checkout's text and today's."""
    asked = json.dumps([(d.spec.text, d.variant) for d in found])
    command = [sys.executable, str(HERE / "guard.py"), "--print"]
    env = {**os.environ, "PYTHONPATH": str(old_checkout.resolve())}
    old = json.loads(subprocess.run(command, input=asked, env=env, check=True, capture_output=True, text=True).stdout)
    for difference, before in zip(found, old, strict=True):
        if difference.now == REFUSED:
            yield f"--- {difference}: {_refusal(difference.spec.text)}"
            continue
        after = emitted(difference.spec.text, difference.variant)
        yield f"--- {difference}"
        yield from list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[2 : 2 + most]


def _refusal(text: str) -> str:
    from gemmgen import SpecError

    try:
        parsed(text)
    except SpecError as error:
        return str(error)
    return "refused when lowered"


# --- Making -------------------------------------------------------------------------------------------------------


def make(jobs: int, same_specs: bool) -> None:
    """Write the hashes of the gemmgen that is imported, with the commit of its checkout, of new specs or the same."""
    import gemmgen

    root = Path(gemmgen.__file__).resolve().parents[1]
    named = [(spec.name, spec.text) for spec in read()[1]] if same_specs else list(_specs_of(root))
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    todo = [(text, variant) for _, text in named for variant in VARIANTS]
    hashes = list(_hashes(todo, jobs))
    width = len(VARIANTS)
    specs = [(name, text, hashes[i * width : (i + 1) * width]) for i, (name, text) in enumerate(named)]
    data = json.dumps({"commit": commit.stdout.strip(), "specs": specs}, separators=(",", ":"))
    DATA.write_bytes(gzip.compress(data.encode(), 9, mtime=0))
    ACCEPTED.write_text("[]\n", encoding="utf-8")
    print(f"{len(specs)} specs, {len(todo)} texts: {DATA.stat().st_size} bytes", file=sys.stderr)


def _specs_of(root: Path) -> Iterator[tuple[str, str]]:
    from guardspecs import random_specs

    for folder in ("specs", "tests/fixtures/valid"):
        for path in sorted((root / folder).glob("*.gemm")):
            yield f"{folder}/{path.stem}", path.read_text(encoding="utf-8")
    for path in sorted((root / "gemmgen" / "records").glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            yield f"{path.stem}/{row['m']}x{row['n']}x{row['k']}", row["spec"]
    for i, text in enumerate(random_specs(SEED, RANDOM_SPECS, _legal)):
        yield f"random/{i}", text


def _legal(text: str) -> bool:
    import gemmgen

    try:
        gemmgen.parse(text)
    except gemmgen.SpecError:
        return False
    return True


def accept(found: Sequence[Difference], case: str, why: str) -> None:
    """Add today's texts of what differs to the list of changes that are meant."""
    cases = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    specs: dict[str, dict[str, str]] = {}
    for difference in found:
        specs.setdefault(difference.spec.name, {})[difference.variant] = difference.now
    cases.append({"case": case, "why": why, "specs": specs})
    ACCEPTED.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


# --- Command line -------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    doing = parser.add_mutually_exclusive_group(required=True)
    doing.add_argument("--check", action="store_true", help="compare every text with its hash")
    doing.add_argument("--accept", metavar="CASE", help="record what differs now as meant by CASE")
    doing.add_argument("--make", action="store_true", help="write the hashes of the gemmgen that is imported")
    doing.add_argument("--rehash", action="store_true", help="the same, for the specs that are there")
    doing.add_argument("--print", action="store_true", help="JSON of (spec text, variant) on stdin to texts on stdout")
    parser.add_argument("--why", default="", help="with --accept: the reason")
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="show lines that differ from this checkout's text")
    parser.add_argument("--only", default="", metavar="NAME", help="the specs whose name contains NAME")
    parser.add_argument("--sample", type=int, metavar="N", help="N specs, evenly spread")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="lines and texts shown with --old")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    asked = parser.parse_args()
    if asked.make or asked.rehash:
        make(asked.jobs, same_specs=asked.rehash)
        return 0
    if asked.print:
        json.dump([emitted(text, variant) for text, variant in json.load(sys.stdin)], sys.stdout)
        return 0
    commit, specs = read()
    specs = [spec for spec in specs if asked.only in spec.name]
    specs = sample(specs, asked.sample) if asked.sample else specs
    found = list(differences(specs, jobs=asked.jobs))
    if asked.accept:
        accept(found, asked.accept, asked.why)
        print(f"{len(found)} texts recorded as changed by {asked.accept}")
        return 0
    for difference in found:
        print(f"{difference} {'is refused' if difference.now == REFUSED else 'differs'}")
    if asked.old:
        print("\n".join(diff(asked.old, found[: asked.most], asked.most)))
    print(f"{len(found)} of {len(specs) * len(VARIANTS)} texts differ from commit {commit[:12]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
