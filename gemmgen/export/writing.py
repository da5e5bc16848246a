"""A folder of files, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

PREFIX = ".gemmgen-"


def check_folder(folder: Path) -> Path:
    """Where a folder is to be written, links followed. Raises OSError that names it where it cannot be; nothing is
    left."""
    target = Path(os.path.realpath(folder))
    if os.path.lexists(target) and not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    there = target
    while not there.is_dir() and there != there.parent:
        there = there.parent
    try:
        os.rmdir(tempfile.mkdtemp(prefix=PREFIX, dir=there))
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot be written: {why[:1].lower()}{why[1:]}", str(folder)) from error
    return target


def write_folder(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files by their paths inside ``folder``, and return where they are.

    All are first written beside their places, so that a full disk leaves nothing changed. A new folder appears with
    all of its files; in one that exists each file is replaced at once, and what else is there stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder if folder.is_dir() else folder.parent))
    try:
        for name, data in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if not folder.exists():
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o777 & ~umask)
            os.rename(beside, folder)
        else:
            _move(beside, folder, files)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(beside)
    return [folder / name for name in files]


def _move(beside: Path, folder: Path, files: Mapping[str, bytes]) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(folder / name))
    for name in files:
        os.replace(beside / name, folder / name)
