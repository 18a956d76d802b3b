"""The record and its summary."""

from __future__ import annotations

import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.measure.journal import read_journal
from meshmark.store.record import Record, RecordError, median, median_interval, median_rank

LINE = {
    "type": "result", "schema": 1, "source": "host", "machine": "n042", "instrument": "latency",
    "metric": "load_latency", "unit": "s", "value": 3.0, "interval": [1.0, 6.0],
    "samples": [1.0, 2.0, 3.0, 3.0, 4.0, 6.0], "flags": ["noisy"], "conditions": {"cpu": 0, "pages": "thp"},
    "provenance": {"command": "latency"},
}  # fmt: skip


def test_ranks_agree_with_the_binomial_table() -> None:
    assert [median_rank(n) for n in (5, 6, 8, 9, 20, 50, 100)] == [0, 1, 1, 2, 6, 18, 40]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_median_is_the_median(samples: list[float]) -> None:
    assert median(samples) == statistics.median(samples)


def test_the_interval_covers_a_skewed_median_as_often_as_it_says() -> None:
    dice = random.Random(3)
    covered = 0
    for _ in range(2000):
        low, high = median_interval([dice.lognormvariate(0, 1) for _ in range(12)]) or (math.nan, math.nan)
        covered += low <= 1 <= high
    assert 0.95 <= covered / 2000 <= 0.99


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
    """A residual and a parallelism both have the unit 1; what guessed by the unit took the worst for the best."""
    for unit in ("s", "1", "B/s"):
        record = Record.from_json({**LINE, "unit": unit, "better": better})
        assert (record.best, record.ends) == (best, ends)


def test_results_of_before_have_a_direction_where_their_unit_leaves_no_doubt() -> None:
    found = {u: Record.from_json({**LINE, "unit": u}).better for u in ("s", "B/s", "op/s", "flop/s", "Hz", "1", "B")}
    assert found == {"s": "lower", "B/s": "higher", "op/s": "higher", "flop/s": "higher", "Hz": "higher",
                     "1": "none", "B": "none"}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("value", 2.0), ("value", "fast"), ("value", math.inf), ("interval", [1.0, 5.0]), ("interval", None),
        ("samples", []), ("samples", [1, "2"]), ("samples", [math.nan] * 6), ("source", "rumour"),
        ("flags", ["perfect"]), ("flags", "noisy"), ("unit", ""), ("metric", 7), ("better", "fast"), ("better", 1),
        ("better", ""), ("conditions", {"a": [1]}),
        ("provenance", None),
    ],
)  # fmt: skip
def test_a_broken_record_names_its_field(field: str, value: object) -> None:
    with pytest.raises(RecordError, match=f"^{field}: found"):
        Record.from_json({**LINE, field: value})


@given(st.binary(max_size=300))
def test_a_journal_of_nonsense_is_read_without_an_error(noise: bytes) -> None:
    good = json.dumps(LINE).encode()
    reading = read_journal([noise, good, good[:-7], noise + good], "s")
    assert any(r.metric == "load_latency" for r in reading.records)


def test_a_value_derived_anew_takes_the_place_of_the_old_one() -> None:
    """A run that goes on derives once more, and by then others stand beside it among the conditions observed."""

    def derived(grid: str, uncertainty: float) -> bytes:
        conditions = {"grid": grid, "derived_from": "iteration_time", "clock_offset_uncertainty": uncertainty}
        return json.dumps({**LINE, "metric": "best_time", "conditions": conditions}).encode()

    lines = [derived("2x1", 1e-7), derived("1x2", 1e-7), derived("2x1", 2e-7)]
    records = read_journal(lines, "s").records
    assert sorted(str(r.conditions["grid"]) for r in records) == ["1x2", "2x1"]
    assert {r.conditions["clock_offset_uncertainty"] for r in records} == {1e-7, 2e-7}


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(list(LINE)), x, max_size=5),
)
KINDS = st.sampled_from(["header", "result", "absent", "end", "error", "point"])


@given(ANY_VALUE, st.sampled_from(list(LINE)), KINDS)
def test_a_journal_of_wrong_types_is_read_without_an_error(value: object, key: str, kind: str) -> None:
    line = json.dumps({**LINE, key: value, "type": kind}, default=str).encode()
    read_journal([line], "s")
