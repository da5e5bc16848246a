"""Files that a person named: regular files are replaced whole or not at all, all else is written through.

A symbolic link is followed. A FIFO, a device (``/dev/null``) or an open descriptor (``/dev/stdout``, ``/dev/fd/3``) is
written to and never replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gemmgen.cli.exits import UsageError

PREFIX = ".gemmgen-"
"""How the temporary file beside a file that is written is called."""
MAX_LINKS = 40
"""Symbolic links that are followed, as by Linux."""


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` to where ``path`` leads, and make its directory where there is none.

    Raises OSError that names ``path``; a regular file is then as it was, and no temporary file is left.
    """
    with _named(path):
        number = _descriptor(path)
        if number is not None:
            _write_all(os.dup(number), data)
        elif _is_special(path):
            _write_all(os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0)), data)
        else:
            target = _target(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, data)


def named(option: str, name: str) -> Path:
    """The path that an option gives. Raises UsageError for an empty one, which would be the current directory."""
    if not name:
        raise UsageError(f"{option} is empty; name a file or a directory")
    return Path(name)


def check_writable(path: Path) -> None:
    """Raise OSError that names ``path`` where ``write_file`` could not write it. Nothing is left, or read by others."""
    with _named(path):
        if _descriptor(path) is not None:
            return
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        folder = _target(path).parent
        while not os.path.lexists(folder) and folder != folder.parent:
            folder = folder.parent
        handle, temporary = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        os.close(handle)
        os.unlink(temporary)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the system name the file that the person named, not the one behind it."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot be written: {why[:1].lower()}{why[1:]}", str(path)) from error


def _is_special(path: Path) -> bool:
    """Whether a path leads to something that is there and no regular file. Raises OSError for a directory."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return not stat.S_ISREG(mode)


def _target(path: Path) -> Path:
    """The file that is to be replaced: where links lead."""
    return Path(os.path.realpath(path))


def _descriptor(path: Path) -> int | None:
    """The open descriptor of this process that a path names, by links or by itself; None where it names none."""
    folders = {os.path.realpath("/proc/self/fd"), "/dev/fd"}
    for _ in range(MAX_LINKS):
        if path.name.isdecimal() and str(path.parent) != "." and os.path.realpath(path.parent) in folders:
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None


def _write_all(handle: int, data: bytes) -> None:
    """Write through an open descriptor, behind what was printed so far, and close it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(path: Path) -> int:
    """Permissions for a file to be written: those of the one it replaces, else what the umask leaves of 666."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
