"""The history of a machine as a page and in the terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from meshmark.compare.history import History, over_time
from meshmark.store.series import RunValue, Series
from meshmark.views.content.history import groups, left_out, staleness, summary
from meshmark.views.pages.history import history_page
from meshmark.views.tables import TextCell
from meshmark.views.terminal.history import print_history
from support.made_run import record

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
DAY_S = 86400.0


@pytest.fixture
def found() -> History:
    """Return two directions (one becomes slower), a point with few runs, a flagged run, and a run without a start."""

    def of(direction: str, n: int, slower: float) -> Series:
        current = record("io", "bandwidth_net", 1e9, target="<b>", direction=direction)
        values = [1e9 * (1 + (7 * i % 5 - 2) / 500) * (slower if i >= n // 2 else 1) for i in range(n)]
        runs = [
            RunValue(
                run=f"r{i}",
                start=(FIRST + timedelta(days=i)).isoformat(),
                value=v,
                low=v,
                high=v,
                made_by={"build": "a" if i < 15 else "b"},
            )
            for i, v in enumerate(values)
        ]
        return Series(current, tuple(runs))

    read, write, few = of("read", 30, 0.9), of("write", 30, 1), of("trim", 3, 1)
    odd_runs = (replace(read.runs[0], run="f", flags=("stolen",)), replace(read.runs[0], run="s", start=""))
    return over_time("n042", [replace(read, runs=read.runs + odd_runs), write, few], (), NOW)


def test_changes_between_the_same_runs_are_one_group(found: History) -> None:
    (group,) = groups(found)
    assert (group.when, group.runs) == ("2026-01-15 00:00 – 2026-01-16 00:00 UTC", "r14 → r15")
    assert group.facts == "build of Meshmark a → b"
    ((_, point, _, _, _, _, ratio, _, word, runs),) = group.table.rows
    assert (point, word, runs) == ("direction read", TextCell("slower", "bad"), "15 | 15")
    assert str(ratio).startswith("0.9")


def test_what_does_not_take_part_is_counted(found: History) -> None:
    assert "3 points: 1 changed, 1 steady, 1 too few runs (fewer than 7)" in summary(found)
    assert left_out(found) == [
        "flagged results, which do not take part: 1 (stolen 1)",
        "results without a valid start, left out: 1",
    ]


@pytest.mark.parametrize(
    ("stale_s", "says"), [(30 * DAY_S, "io 2 days ago"), (DAY_S, "io 2 days ago (older than 1 day)")]
)
def test_old_results_are_marked(found: History, stale_s: float, says: str) -> None:
    assert staleness(found, NOW, stale_s) == f"newest results: {says}"


def test_the_terminal_shows_all_of_it(found: History, capsys: pytest.CaptureFixture[str]) -> None:
    print_history(found, NOW, DAY_S)
    output = capsys.readouterr().out
    assert (
        "runs r14 → r15" in output and "slower" in output and "\u00a0" not in output and "(older than 1 day)" in output
    )


def test_the_page_draws_each_changed_point_and_escapes(found: History) -> None:
    page = history_page(found, NOW, DAY_S)
    assert page.startswith("<!doctype html>") and page.count('id="chart-point-') == 1
    assert "build of Meshmark a → b" in page and "stale" in page and "<td><b>" not in page
