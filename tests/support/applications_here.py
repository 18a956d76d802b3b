"""Whether the applications of native/apps were built, which is optional."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PROBE: Final = Path(os.environ.get("MESHMARK_PROBE", ROOT / "build" / "release" / "bin" / "meshmark-probe"))
BUILT: Final = PROBE.with_name(f"{PROBE.name}-apps").exists()
NAMES: Final = frozenset(
    {"anatomy", "fft", "gyro", "lj", "mod2d", "mod2e", "npb", "pop", "pstswm", "swim", "swim_threads"}
)

needs_applications = pytest.mark.skipif(not BUILT, reason="the applications are not built: make setup APPS=yes")
