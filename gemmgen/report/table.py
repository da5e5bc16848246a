"""Tables of plain text, as the parts below this one print them too: :mod:`gemmgen.text.table` decides the layout from
the width of the terminal."""

from gemmgen.text.numbers import duration
from gemmgen.text.table import MISSING, cell, format_table

__all__ = ["MISSING", "cell", "duration", "format_table"]
