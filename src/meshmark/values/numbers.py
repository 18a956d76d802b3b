"""Parses plain numbers that users write, in ASCII digits.

Python's `int`, `float` and `str.isdigit` also accept other digits, such as `٣` and `１`, underscores, `nan` and `inf`.
"""

from __future__ import annotations

import math
import re
from typing import Final

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?")


def whole(text: str) -> int | None:
    """Return the integer that the text states; None if it is not an integer or has more than 18 digits.

    Blanks around it are allowed.
    """
    text = text.strip(" \t")
    return int(text) if _WHOLE.fullmatch(text) else None


def decimal(text: str) -> float | None:
    """Return the finite number that the text states; None if it is not one. Blanks around it are allowed."""
    text = text.strip(" \t")
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None
