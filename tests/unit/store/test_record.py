"""Tests of the record and its summary."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.store.record import Better, Metric, Record, RecordError, median, median_interval, median_rank
from support.result_line import LINE


def test_ranks_agree_with_the_binomial_table() -> None:
    assert [median_rank(n) for n in (5, 6, 8, 9, 20, 50, 100)] == [0, 1, 1, 2, 6, 18, 40]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_median_is_the_median(samples: list[float]) -> None:
    assert median(samples) == statistics.median(samples)


def test_the_interval_covers_a_skewed_median_as_often_as_it_says() -> None:
    rng = random.Random(3)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([rng.lognormvariate(0, 1) for _ in range(12)]) or (math.nan, math.nan)
        hits += low <= 1 <= high
    assert 0.95 <= hits / 2000 <= 0.99


def test_a_record_survives_the_way_there_and_back() -> None:
    record = Record.from_json(LINE)
    assert Record.from_json({"type": "result", **record.to_json()}) == record
    assert record.spread == 5.0


@pytest.mark.parametrize(
    ("better", "best", "ends"), [("lower", 1.0, (1.0, 6.0)), ("higher", 6.0, (6.0, 1.0)), ("none", None, (1.0, 6.0))]
)
def test_only_the_metric_says_which_sample_is_the_best(
    better: str, best: float | None, ends: tuple[float, float]
) -> None:
    """A residual and a parallelism both have the unit 1, so guessing by the unit took the worst sample for the best."""
    for unit in ("s", "1", "B/s"):
        record = Record.from_json({**LINE, "unit": unit, "better": better})
        assert (record.best, record.ends) == (best, ends)


def test_a_record_of_a_metric_is_in_its_unit_and_direction_with_the_summary_of_all_samples() -> None:
    common: Any = {"machine": "m", "instrument": "loaded", "conditions": {"cpu": 1}, "provenance": {"command": "x"}}
    metric = Metric("bandwidth", "B/s", "higher", "how much is moved")
    record = Record.from_samples(metric, [5, 1, 2, 3, 4, 6], source="model", flags=frozenset({"disturbed"}), **common)
    assert record == Record.from_json(
        {
            **common,
            "source": "model",
            "metric": "bandwidth",
            "unit": "B/s",
            "better": "higher",
            "value": 3.5,
            "interval": [1, 6],
            "samples": [5, 1, 2, 3, 4, 6],
            "flags": ["disturbed"],
        }
    )
    assert Record.from_samples(metric, [7], source="paper", **common).interval is None
    assert Record.from_samples(metric, [7], source="paper", **common).flags == frozenset()


@pytest.mark.parametrize(
    ("samples", "asked", "half", "converged"),
    [
        ([98, 99, 100, 100, 101, 102], 0.02, 0.02, True),
        ([98, 99, 100, 100, 101, 102], 0.019, 0.02, False),
        ([98, 99, 100, 100, 101, 102], None, 0.02, True),
        ([100, 100], 0.5, None, False),  # the record has no interval
        ([0, 0, 0, 0, 0, 0], 0.02, None, True),
        ([-102, -101, -100, -100, -99, -98], 0.02, 0.02, True),
    ],
)
def test_a_record_knows_whether_its_interval_is_as_narrow_as_requested(
    samples: list[float], asked: float | None, half: float | None, converged: bool
) -> None:
    common: Any = {"machine": "m", "instrument": "loaded", "provenance": {}, "source": "host"}
    conditions = {} if asked is None else {"interval_asked": asked}
    record = Record.from_samples(Metric("a", "1", "none", "a"), samples, conditions=conditions, **common)
    assert (record.half_width, record.requested_half_width, record.converged) == (half, asked, converged)


def test_the_spread_is_relative_to_the_least_sample() -> None:
    def spread(*samples: float) -> float:
        value = statistics.median(samples)
        return Record.from_json({**LINE, "samples": list(samples), "value": value, "interval": None}).spread

    assert spread(2, 3) == 0.5
    assert spread(0, 0) == 0
    assert math.isnan(spread(0, 3))
    assert spread(4) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value", 2.0),
        ("value", "fast"),
        ("value", math.inf),
        ("interval", [1.0, 5.0]),
        ("interval", None),
        ("samples", []),
        ("samples", [1, "2"]),
        ("samples", [math.nan] * 6),
        ("source", "rumour"),
        ("flags", ["perfect"]),
        ("flags", "disturbed"),
        ("flags", ""),
        ("flags", 5),
        ("flags", None),
        ("value", True),
        ("value", None),
        ("interval", [1.0, 6.0, 7.0]),
        ("interval", [1.0]),
        ("samples", [True] * 6),
        ("samples", None),
        ("machine", ""),
        ("machine", "\ud800"),
        ("instrument", None),
        ("unit", None),
        ("conditions", {"a": "\ud800"}),
        ("conditions", []),
        ("provenance", {"\ud800": 1}),
        ("unit", ""),
        ("metric", 7),
        ("better", "fast"),
        ("better", 1),
        ("better", ""),
        ("conditions", {"a": [1]}),
        ("provenance", None),
    ],
)
def test_a_broken_record_names_its_field(field: str, value: object) -> None:
    with pytest.raises(RecordError, match=f"^{field}: found"):
        Record.from_json({**LINE, field: value})


def of(unit: str, better: Better, *samples: float) -> Record:
    metric = Metric("m", unit, better, "")
    return Record.from_samples(
        metric, samples, source="tool", machine="n1", instrument="tool", conditions={}, provenance={"start": "2026"}
    )


@pytest.mark.parametrize(
    ("unit", "better", "sample"),
    [
        ("s", "lower", -1e-9),
        ("B/s", "higher", -1.0),
        ("op/s", "higher", -1.0),
        ("Hz", "none", -1.0),
        ("B", "none", -1.0),
        ("frames/s", "none", -1.0),
        ("W", "lower", -1.0),
        ("1", "none", math.nan),
        ("1", "none", math.inf),
        ("s", "none", -math.inf),
    ],
)
def test_nobody_can_make_a_record_of_an_impossible_value(unit: str, better: Better, sample: float) -> None:
    with pytest.raises(RecordError, match=r"found .*required"):
        of(unit, better, sample)
    good = of(unit, better, 1.0)
    with pytest.raises(RecordError):
        dataclasses.replace(good, samples=(sample,), value=sample)
    with pytest.raises(RecordError):
        Record.from_json({**good.to_json(), "samples": [sample], "value": sample})


def test_differences_and_ratios_may_be_negative() -> None:
    assert of("s", "none", -1.0).value == -1.0  # the part of a time that other parts do not explain
    assert of("1", "lower", -0.5).value == -0.5  # a relative change
    assert of("s", "lower", 0.0).value == 0.0
