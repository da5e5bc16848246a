"""``gemmgen play``: a local page where a spec is edited and its kernel follows.

``answers`` works a spec out, as plain data; ``worker`` does so in a child process with limits, ``pool`` keeps such
processes; ``complete`` and ``share`` serve the editor; ``page`` is the user interface, ``door`` what it lets in.
"""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.diagnostics import GemmgenError


def require() -> None:
    """Raises GemmgenError with what to install where a package is missing."""
    needed = {"nicegui": "NiceGUI", "jinja2": "Jinja2", "pygments": "Pygments"}
    missing = [title for module, title in needed.items() if find_spec(module) is None]
    if missing:
        raise GemmgenError(f"gemmgen play needs {' and '.join(missing)}: pip install 'gemmgen[play]'")
