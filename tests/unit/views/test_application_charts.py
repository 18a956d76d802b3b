"""Charts of applications: over workers, or a line for each configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshmark.store.record import Metric, Record
from meshmark.views.charts.applications import composites, configurations, details, hottest

RATE = Metric("figure_of_merit", "B/s", "higher", "")
TIME = Metric("elapsed", "s", "lower", "")


def record(value: float, metric: Metric = RATE, **conditions: Any) -> Record:
    return Record.from_samples(
        metric,
        [value * (1 + 0.01 * i) for i in range(7)],
        source="host",
        machine="m",
        instrument="app",
        conditions={"program": "p", "command": "./p", "observed_cpus": "0", **conditions},
        provenance={},
    )


def drawn(records: list[Record]) -> tuple[dict[str, list[dict[str, Any]]], str]:
    drawing = configurations(records)
    assert drawing is not None
    return drawing.data, json.dumps(drawing.chart.to_dict(validate=True))


def test_several_numbers_of_threads_make_curves_with_lines_in_proportion() -> None:
    records = [record(v * n, threads=n, build=b) for n in (1, 2, 4) for b, v in (("O2", 1e9), ("O3", 2e9))]
    data, text = drawn(records)
    assert "threads" in text and "figure of merit (GB/s)" in text
    rows = [r for dataset in data.values() for r in dataset]
    assert {r["series"] for r in rows} == {"p build=O2", "p build=O3"}
    at_four = [r["value"] for r in rows if r["series"] == "p build=O2" and r["x"] == 4]
    assert at_four == pytest.approx([4.12] * len(at_four)) and len(at_four) == 2


def test_configurations_without_numbers_of_workers_are_listed() -> None:
    data, text = drawn([record(1.0, TIME, size=s) for s in ("10", "20")])
    assert "elapsed time (s)" in text
    assert [r["name"] for dataset in data.values() for r in dataset] == ["p size=10", "p size=20"]


@pytest.mark.parametrize("odd", [False, "many", -1, 0, 1 << 70, "²"])
def test_what_is_no_number_of_workers_has_no_place_on_a_curve(odd: object) -> None:
    data, _ = drawn([record(1e9, threads=1), record(2e9, threads=2), record(3e9, threads=odd)])
    assert {r["x"] for dataset in data.values() for r in dataset} == {1.0, 2.0}
    data, _ = drawn([record(1e9, threads=1), record(3e9, threads=odd)])
    assert len({r["name"] for dataset in data.values() for r in dataset}) == 2


def test_other_instruments_are_not_drawn() -> None:
    assert configurations([]) is None


def test_the_hottest_functions_are_listed_with_their_intervals() -> None:
    share = Metric("function_share", "1", "none", "")
    shares = [
        Record.from_samples(
            share,
            [value],
            source="host",
            machine="m",
            instrument="app",
            conditions={
                "program": "p",
                "command": "./p",
                "build": "O2",
                "function": name,
                "object": "p",
                "profile_event": "cpu-clock",
                "profile_samples": 1000,
                "share_low": value - 0.03,
                "share_high": value + 0.03,
            },
            provenance={},
        )
        for name, value in (("cool<int>", 0.2), ("hot", 0.75))
    ]
    text = hottest([record(1.0, TIME, build="O2"), *shares])
    assert text.index("hot</code>") < text.index("cool&lt;int&gt;") and text.count("p build=O2") == 1
    assert "72.0 – 78.0 %" in text and "75.0 %" in text and "cpu-clock" in text
    assert hottest([record(1.0)]) == ""


def test_ratios_of_a_composite_are_drawn_with_its_mean() -> None:
    data = {"composite": "c", "reference": "old"}
    ratio, composite = (Metric(name, "1", "higher", "") for name in ("ratio", "composite"))
    records = [record(v, ratio, member=m, **data) for m, v in (("x", 2.0), ("y", 8.0))]
    records += [record(3.0, ratio, member="z", composite="other", reference="old"), record(4.0, composite, program="c")]
    drawing = composites(records)
    assert drawing is not None and "ratio to old" in json.dumps(drawing.chart.to_dict(validate=True))
    rows = [r for data in drawing.data.values() for r in data]
    assert {r["name"]: r["value"] for r in rows if "name" in r} == pytest.approx({"x": 2.06, "y": 8.24})
    lines = [(r["at"], r["text"]) for r in rows if "at" in r]
    assert lines == [(1.0, ""), (pytest.approx(4.12), "geometric mean 4.12")]
    assert composites([record(1.0)]) is None


def test_the_page_says_how_a_program_scales_and_how_long_it_waited() -> None:
    records = [record(s, TIME, threads=n) for n, s in ((1, 4.0), (2, 2.0), (4, 2.0))]
    waiting = Metric("waiting_share", "1", "lower", "")
    records += [record(share, waiting, threads=n) for n, share in ((1, 0.01), (4, 0.5))]
    text = details(records)
    assert "p: scaling with threads" in text
    assert "2: speedup 2.00, efficiency 100 %" in text and "4: speedup 2.00, efficiency 50 %" in text
    assert "sub-linear" in text and "law: serial share" in text
    assert "with 1, 52" in text and "waited for a CPU" in text
    assert details([record(1.0, TIME, threads=1)]) == ""


def test_rounds_that_failed_do_not_pair() -> None:
    records = [record(1.0 / n, TIME, threads=n) for n in (1, 2)]
    records[1] = Record.from_samples(
        TIME,
        records[1].samples[:5],
        source="host",
        machine="m",
        instrument="app",
        conditions=records[1].conditions,
        provenance={"failed": 2},
    )
    assert "2: speedup 2.0" in details(records) and "(" not in details(records).partition("2: speedup")[2][:40]
