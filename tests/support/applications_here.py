"""The names of the applications of native/apps, and whether they were built, which is optional."""

from __future__ import annotations

import json
from typing import Final

import pytest

from meshmark.describe import APPLICATIONS, is_built

NAMES: Final = frozenset(d["name"] for d in json.loads(APPLICATIONS.read_bytes()))
BUILT: Final = all(map(is_built, NAMES))

needs_applications = pytest.mark.skipif(not BUILT, reason="the applications are not built: make setup APPS=yes")
