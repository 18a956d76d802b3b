"""Tables on the terminal: columns are what was set and differs, not what was found meanwhile."""

from __future__ import annotations

import pytest

from meshmark.store.record import OBSERVED, Record
from meshmark.terminal.records import print_records
from support import made_run


def columns(records: list[Record], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_records(records)
    return capsys.readouterr().out.splitlines()[1].split()


def test_what_programs_found_is_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    records = [r for seed in (1, 2) for r in made_run.programs(seed=seed)]
    for instrument in ("npb", "pop", "gyro", "swim", "anatomy"):
        mine = [r for r in records if r.instrument == instrument]
        assert any(k in OBSERVED for r in mine for k in r.conditions)
        assert not OBSERVED & {*columns(mine, capsys)}
    assert "kernel" in columns([r for r in records if r.instrument == "npb"], capsys)


def test_states_of_a_line_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"state", "from_cpu"} <= {*columns(made_run.lines(2), capsys)}
