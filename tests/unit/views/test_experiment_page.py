"""An experiment is drawn pair by pair, a rating run by run, a profile pressure by pressure."""

from __future__ import annotations

from typing import Any

from meshmark.store.record import Record
from meshmark.views.charts.experiments import pairs, ratings, slowdowns
from support.made_profile import KINDS, recorded
from support.made_rating import rated
from support.made_run import experiment as ratio


def rows(*records: Record) -> list[dict[str, Any]]:
    chart = pairs(records)
    assert chart is not None
    return [row for dataset in chart.data.values() for row in dataset]


def test_every_pair_is_a_point_in_its_order() -> None:
    chart_rows = rows(ratio(1.1, 1.2, 0.9, run_low=0.95, run_high=1.15))
    points = [(row["x"], row["value"]) for row in chart_rows if "text" in row]
    assert points == [(1, 1.1), (2, 1.2), (3, 0.9)]
    assert {row["series"] for row in chart_rows if "series" in row} == {"N=2 over N=1"}
    assert [(row["x"], row["low"], row["high"]) for row in chart_rows if "low" in row] == [
        (1, 0.95, 1.15),
        (3, 0.95, 1.15),
    ]


def test_ratios_that_are_none_are_not_drawn() -> None:
    assert pairs([ratio(0.0)]) is None and pairs([]) is None
    assert [row["x"] for row in rows(ratio(0.0, 1.0, 1.0)) if "text" in row] == [2, 3]


def test_every_run_of_a_rating_is_a_point_of_its_group() -> None:
    chart = ratings([rated("slow", "B", 50.0, 51.0, 49.0), rated("fast", "A", 100.0, 101.0, 99.0)])
    assert chart is not None
    drawn = [row for dataset in chart.data.values() for row in dataset]
    assert [(row["setting"], row["group"]) for row in drawn[:3]] == [("fast", "A")] * 3
    assert sorted(row["value"] for row in drawn) == [49, 50, 50, 51, 99, 100, 100, 101]
    assert ratings([]) is None and ratings([ratio(1.0, 1.1)]) is None


def test_slowdowns_of_programs_are_drawn_by_pressure_in_their_order() -> None:
    chart = slowdowns(recorded("stream", "solver"))
    assert chart is not None
    drawn = [row for dataset in chart.data.values() for row in dataset if "low" in row]
    assert [row["pressure"] for row in drawn] == [*KINDS, *KINDS]
    assert [row["series"] for row in drawn] == ["stream"] * 4 + ["solver"] * 4
    assert drawn[3]["low"] < drawn[3]["value"] < drawn[3]["high"]
    assert slowdowns([]) is None and slowdowns([ratio(1.0, 1.1)]) is None
