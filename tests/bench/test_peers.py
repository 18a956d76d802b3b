"""bench/peers.py keeps pairs together, reports missing peers as absent, and its table shows both."""

from __future__ import annotations

import itertools
import sys

import peers
import pytest
from peer_tools import Absent, Figure
from results import result_row, rows_table


def test_ours_and_peer_take_turns() -> None:
    order: list[str] = []

    def measure(name: str, value: float):  # type: ignore[no-untyped-def]
        def once():  # type: ignore[no-untyped-def]
            order.append(name)
            return Figure(value)

        return once

    row = peers.Row("row", "ns", 1e-9, measure("ours", 2.0), {"peer": measure("peer", 1.0)}, low=1.0)
    (result,) = peers.compare(row, 3)
    summary = result.summary()
    assert order == ["ours", "peer"] * 3
    assert (summary.ratio, summary.rounds, summary.reached) == ([2.0, 2.0, 2.0], 3, True)
    assert summary.ours == [2e9, 2e9, 2e9]


# A machine that slows down by half between rounds must not change the ratio; pairs exist for that.
def test_the_ratio_is_that_of_pairs_not_of_medians() -> None:
    speeds = [100.0, 50.0, 25.0, 12.5]
    own_speeds, peer_speeds = iter(speeds), iter(s / 1.1 for s in speeds)
    row = peers.Row(
        "row",
        "GB/s",
        1.0,
        lambda: Figure(next(own_speeds)),
        {"peer": lambda: Figure(next(peer_speeds))},
        low=1.0,
    )
    (result,) = peers.compare(row, 4)
    assert result.summary().ratio == [1.1, 1.1, 1.1]


def test_an_absent_peer_is_said_and_costs_nothing_else() -> None:
    def missing():  # type: ignore[no-untyped-def]
        raise Absent("no such binary")

    row = peers.Row(
        "row",
        "ns",
        1e-9,
        lambda: Figure(1e-9),
        {"gone": missing, "there": lambda: Figure(1e-9)},
        low=0.9,
        high=1.1,
    )
    absence, present = (result.summary() for result in peers.compare(row, 2))
    assert (absence.absent, absence.ours, absence.reached) == ("no such binary", None, None)
    assert present.reached is True
    table = rows_table([absence, present])
    assert "| absent | no such binary |" in table
    assert "1.0 [1.0, 1.0] ns" in table


def test_a_failure_in_one_round_costs_one_pair() -> None:
    count = itertools.count()

    def flaky():  # type: ignore[no-untyped-def]
        if next(count) == 1:
            raise Absent("did not end")
        return Figure(1.0)

    row = peers.Row("row", "1", 1.0, lambda: Figure(1.0), {"peer": flaky})
    (result,) = peers.compare(row, 3)
    assert len(result.ours) == len(result.theirs) == 2
    assert not result.absent


def test_a_bound_on_both_sides_can_be_missed_on_both() -> None:
    for value, reached in ((0.9, False), (1.0, True), (1.1, False)):
        row = result_row("row", "ns", [value], peer="peer", theirs=[1.0], limits=(0.97, 1.03))
        assert (row.reached, row.aim) == (reached, "0.97 to 1.03")


def test_every_row_has_a_peer_and_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py"])
    for cpus in ([0], [0, 1], [4, 5, 6, 7]):
        rows = peers.rows(peers.arguments(), cpus)
        assert all(row.peers and row.unit and row.scale > 0 for row in rows)
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)
        assert any("core to core" in name for name in names) == (len(cpus) > 1)
