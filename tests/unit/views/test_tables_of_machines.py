"""Results of several machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.views.terminal.tables import print_tables
from support.made_run import bandwidth


def test_each_machine_has_its_own_heading(capsys: pytest.CaptureFixture[str]) -> None:
    """The results of the second machine are not printed below the name of the first."""
    records = bandwidth()[:4]
    print_tables([replace(r, machine=name) for name in ("n042", "n043") for r in records])
    headings = [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines() if ": bandwidth" in line]
    assert headings == ["n042: bandwidth", "n043: bandwidth"]
