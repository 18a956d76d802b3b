"""bench/peers.py: pairs stay pairs, what is not there is absent, and the table says both."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from types import ModuleType

import pytest

from support.paths import ROOT


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers", ROOT / "bench" / "peers.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["peers"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_ours_and_peer_take_turns(peers: ModuleType) -> None:
    order: list[str] = []

    def measure(name: str, value: float):  # type: ignore[no-untyped-def]
        def once():  # type: ignore[no-untyped-def]
            order.append(name)
            return peers.Figure(value)

        return once

    row = peers.Row("row", "ns", 1e-9, measure("ours", 2.0), {"peer": measure("peer", 1.0)}, low=1.0)
    (result,) = peers.compare(row, 3)
    assert order == ["ours", "peer"] * 3
    assert result.ratios == [2.0] * 3
    assert result.verdict == "yes"


# A machine that slows down by half between rounds must not show in the ratio: that is what pairs are for.
def test_the_ratio_is_that_of_pairs_not_of_medians(peers: ModuleType) -> None:
    speeds = [100.0, 50.0, 25.0, 12.5]
    mine, theirs = iter(speeds), iter(s / 1.1 for s in speeds)
    row = peers.Row(
        "row",
        "GB/s",
        1.0,
        lambda: peers.Figure(next(mine)),
        {"peer": lambda: peers.Figure(next(theirs))},
        low=1.0,
    )
    (result,) = peers.compare(row, 4)
    assert result.ratios == pytest.approx([1.1] * 4)


def test_an_absent_peer_is_said_and_costs_nothing_else(peers: ModuleType) -> None:
    def missing():  # type: ignore[no-untyped-def]
        raise peers.Absent("no such binary")

    row = peers.Row(
        "row",
        "ns",
        1e-9,
        lambda: peers.Figure(1e-9),
        {"gone": missing, "there": lambda: peers.Figure(1e-9)},
        low=0.9,
        high=1.1,
    )
    gone, there = peers.compare(row, 2)
    assert (gone.verdict, gone.absent) == ("absent", "no such binary")
    assert there.verdict == "yes"
    about = dict.fromkeys(("date", "machine", "build", "command", "rounds", "load"), "x")
    table = peers.markdown([gone, there], {"row": 1e-9}, about)
    assert "| absent | no such binary |" in table
    assert "1 [1–1]" in table


def test_a_failure_in_one_round_costs_one_pair(peers: ModuleType) -> None:
    count = itertools.count()

    def flaky():  # type: ignore[no-untyped-def]
        if next(count) == 1:
            raise peers.Absent("did not end")
        return peers.Figure(1.0)

    row = peers.Row("row", "1", 1.0, lambda: peers.Figure(1.0), {"peer": flaky})
    (result,) = peers.compare(row, 3)
    assert len(result.ours) == len(result.theirs) == 2
    assert not result.absent


def test_a_bound_on_both_sides_can_be_missed_on_both(peers: ModuleType) -> None:
    for value, verdict in ((0.9, "no"), (1.0, "yes"), (1.1, "no")):
        result = peers.Result("row", "ns", "peer", ours=[value], theirs=[1.0], low=0.97, high=1.03)
        assert result.verdict == verdict


def test_every_row_has_a_peer_and_a_unit(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py"])
    for cpus in ([0], [0, 1], [4, 5, 6, 7]):
        rows = peers.rows(peers.arguments(), cpus)
        assert all(row.peers and row.unit and row.scale > 0 for row in rows)
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)
        assert any("core to core" in name for name in names) == (len(cpus) > 1)
