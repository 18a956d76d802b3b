"""The files that `make wheel bundle packages` builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.paths import ROOT

DIST = ROOT / "dist"
NATIVE = ("probe", "watch", "place", "load", "model", "node")


def built(pattern: str) -> Path:
    """Return the only file of `dist` with such a name."""
    paths = [*DIST.glob(pattern)]
    if len(paths) != 1:
        pytest.fail(f"found {len(paths)} files dist/{pattern}, one is required: make wheel bundle packages")
    return paths[0]
