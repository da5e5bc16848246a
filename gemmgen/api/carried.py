"""Kernels that a wheel carries: compiled before it was built, so that a first call needs no compiler.

An archive for each architecture, ``records/ready/sm_90.zip``. An entry is named by a hash of gemmgen's own files, the
architecture, the spec and the variant: the kernels of another gemmgen are not found, and are compiled as without it.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from gemmgen.runtime.cache import key_of

if TYPE_CHECKING:
    from gemmgen.ir.variant import Variant
    from gemmgen.spec.model import Spec

PACKAGE = Path(__file__).resolve().parent.parent
FOLDER = PACKAGE / "records" / "ready"


def variant_text(variant: Variant) -> str:
    """All that tells two variants apart."""
    return repr((sorted(variant.guard), variant.align, sorted(variant.padded)))


def name_of(spec: Spec, variant: Variant, arch: str) -> str:
    """The name of a variant's entry."""
    return key_of("carried", contents(), arch, spec.to_text(comment=False), variant_text(variant))


@cache
def contents() -> str:
    """A hash of what gemmgen's files hold, wherever they are installed."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def entry(arch: str, name: str) -> bytes | None:
    """What the archive of an architecture has by a name; None where it has nothing, or there is none."""
    archive = _archive(FOLDER / f"{arch}.zip")
    if archive is None:
        return None
    with suppress(KeyError, OSError, zipfile.BadZipFile, zlib.error):
        return archive.read(name)
    return None


@cache
def _archive(file: Path) -> zipfile.ZipFile | None:
    with suppress(OSError, zipfile.BadZipFile):
        return zipfile.ZipFile(file)
    return None


def write(file: Path, entries: Iterable[tuple[str, bytes]]) -> int:
    """Write an archive, whole or not at all. Its bytes. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as beside:
        try:
            with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                for name, data in entries:
                    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            beside.close()
            os.chmod(beside.name, 0o644)
            os.replace(beside.name, file)
        except BaseException:
            beside.close()
            os.unlink(beside.name)
            raise
    return file.stat().st_size
