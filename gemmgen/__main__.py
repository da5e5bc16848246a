"""``python -m gemmgen`` is ``gemmgen``."""

from __future__ import annotations

from gemmgen.cli import main

if __name__ == "__main__":
    main()
