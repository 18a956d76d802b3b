"""Promises of the tests themselves: no hidden skips, an own home."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from support.paths import ROOT


def test_no_test_is_skipped_where_something_is_not_built() -> None:
    """What the system lacks is skipped; what `make setup` builds is there or fails."""
    skips = re.compile(r"(skip|skipif|importorskip)\(.*(built|no build|this build|make setup)")
    lines = [(p.name, line) for p in (ROOT / "tests").rglob("test_*.py") for line in p.read_text().splitlines()]
    assert [found for found in lines if skips.search(found[1])] == []


def test_tests_have_an_own_home_and_miss_only_what_nobody_can_make() -> None:
    """Some programs make /nonexistent; in /proc nobody makes a file."""
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert all(Path(os.environ[f"XDG_{name}_HOME"]).is_relative_to(Path.home()) for name in ("DATA", "CONFIG", "CACHE"))
    missing = re.compile(r"""["'](/nonexistent|/nowhere|/no/such)""")
    files = [p for p in (ROOT / "tests").rglob("test_*.py") if missing.search(p.read_text())]
    assert [p.name for p in files if p != Path(__file__)] == []
