"""Tests published claims: on this host, on models, and by computation from printed numbers.

Only the command line imports this package; the models and the comparison of results do not need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).with_name("templates")
