"""A spec in the fragment of a URL: compressed, and never sent to a server by a browser."""

from __future__ import annotations

import base64
import binascii
import zlib

from gemmgen.play.answers import LARGEST


def packed(text: str) -> str:
    """The text as letters that a URL takes."""
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode("ascii").rstrip("=")


def unpacked(fragment: str) -> str | None:
    """The text of a fragment; None where it is none, or too large."""
    try:
        data = base64.urlsafe_b64decode(fragment + "=" * (-len(fragment) % 4))
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST << 2)
        if reader.unconsumed_tail or not reader.eof:
            return None
        found = text.decode("utf-8")
    except (ValueError, binascii.Error, zlib.error):
        return None
    return found if len(found) <= LARGEST else None
