"""Paths of the project and of the data of its tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACHINES = ROOT / "tests" / "machines"  # recorded and described machines
BIN = ROOT / "build" / "release" / "bin"  # native programs
FAKE_PROBE = Path(__file__).with_name("fake_probe.py")
