"""New results compared with earlier results of the same host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.measure.history import departures, in_store, lines
from meshmark.measure.repetitions import pool
from meshmark.store.machines import add_machine
from meshmark.store.record import Record
from meshmark.store.store import Store
from support import made_run

Row = tuple[str, str, Record]


def triad(value: float, flags: tuple[str, ...] = (), threads: int = 2, start: str = "", **more: Any) -> Record:
    c = {
        **made_run.bandwidth()[0].conditions,
        "kernel": "triad",
        "footprint_bytes": 1 << 29,
        "threads": threads,
        "seed": int(value),
        **more,
    }
    new_record = made_run.record(
        "bandwidth", "bandwidth_net", value, flags, **{k: v for k, v in c.items() if k != "seed"}
    )
    return replace(new_record, provenance={**new_record.provenance, "start": start})


def history(*values: float, threads: int = 2) -> list[Row]:
    """Return runs at these levels, one per day."""
    return [
        (f"run-{i}", "bandwidth", triad(v, threads=threads, start=f"2026-11-{i + 1:02d}")) for i, v in enumerate(values)
    ]


def test_a_departure_is_told_with_what_the_host_gave_before() -> None:
    current = triad(54e9)
    (departure,) = departures([current], history(90e9, 92e9, 88e9, 91e9, 93e9), "now")
    assert departure.ratio == pytest.approx(0.59, abs=0.01) and len(departure.earlier) == 5
    (line,) = lines([departure], [current])
    assert line.startswith("departs from this host's history: bandwidth_net: 53.")
    assert line.endswith("GB/s") and ", 0.59 of the last 5 runs: 87." in line and " to 92." in line


def test_within_a_tenth_of_what_there_was_is_no_departure() -> None:
    rows = history(90e9, 100e9)
    assert departures([triad(84e9)], rows, "now") == [] and departures([triad(108e9)], rows, "now") == []
    assert len(departures([triad(80e9)], rows, "now")) == 1 and len(departures([triad(113e9)], rows, "now")) == 1


def test_only_the_last_five_runs_of_the_same_point_count() -> None:
    rows = history(50e9, 50e9, 90e9, 90e9, 90e9, 90e9, 90e9)
    assert len(departures([triad(50e9)], rows, "now")) == 1
    assert departures([triad(50e9)], rows[:6], "now") == [], "one of the last five was like it"
    assert departures([triad(50e9)], history(90e9, 90e9, threads=1), "now") == []
    other = [(run, step, replace(r, source="model")) for run, step, r in history(90e9, 90e9)]
    assert departures([triad(50e9)], other, "now") == []


def test_too_little_history_decides_nothing() -> None:
    assert departures([triad(50e9)], history(90e9), "now") == []
    assert departures([triad(50e9)], [], "now") == []
    assert departures([triad(50e9)], [*history(90e9), *history(90e9)], "now") == [], "twice the same run"
    assert departures([triad(50e9)], history(90e9, 90e9), "run-1") == [], "its own results are no history"
    zero = [(f"run-{i}", "b", replace(triad(1.0), samples=(0.0,) * 9, value=0.0, interval=(0.0, 0.0))) for i in (0, 1)]
    assert departures([triad(50e9)], zero, "now") == []


def test_flagged_and_few_samples_are_not_judged() -> None:
    rows = history(90e9, 92e9)
    assert departures([triad(50e9, ("disturbed",))], rows, "now") == []
    few = replace(triad(50e9), samples=(50e9,), value=50e9, interval=None)
    assert departures([few], rows, "now") == []


def test_flagged_results_are_no_history() -> None:
    clean_rows = history(90e9, 92e9)
    flagged_rows = [(f"bad-{i}", "bandwidth", triad(54e9, ("disturbed",), start=f"2026-12-0{i}")) for i in (1, 2)]
    assert len(departures([triad(54e9)], clean_rows + flagged_rows, "now")) == 1, "they do not make it usual"
    assert departures([triad(90e9)], flagged_rows, "now") == [], "nor anything unusual"


def test_a_value_of_zero_departs_most() -> None:
    zero = replace(triad(1.0), samples=(0.0,) * 9, value=0.0, interval=(0.0, 0.0))
    rows = history(90e9, 91e9) + history(90e9, 91e9, threads=1)
    changes = departures([triad(50e9, threads=1), zero], rows, "now")
    assert [d.ratio > 0 for d in changes] == [False, True] and len(lines(changes, [zero])) == 2


def test_runs_of_which_one_is_as_before_do_not_depart() -> None:
    rows = history(90e9, 92e9)
    pooled = pool([[triad(50e9)], [triad(91e9)], [triad(50e9)]])
    assert departures(pooled, rows, "now") == []
    similar = pool([[triad(50e9)], [triad(51e9)], [triad(50e9)]])
    assert len(departures(similar, rows, "now")) == 1


def test_the_largest_come_first_and_what_varies_is_named() -> None:
    rows = [row for t in range(1, 6) for row in history(90e9, 91e9, threads=t)]
    current = [triad(10e9 * t, threads=t) for t in range(1, 6)]
    changes = departures(current, rows, "now")
    assert [d.record.conditions["threads"] for d in changes] == [1, 2, 3, 4, 5]
    messages = lines(changes, current)
    assert len(messages) == 4 and "bandwidth_net (threads 1): 10." in messages[0]
    assert messages[3] == "and 2 more results depart from this host's history"


def test_what_changed_on_the_machine_is_told_with_a_departure(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = history(90e9, 92e9, 88e9)
    for run, step, record in rows:
        store.add(run, step, [record])
    current = triad(54e9)
    add_machine(store, current.machine, {"kernel": "6.1", "boot": "x"}, "2026-10-31")
    assert [line.partition(":")[0] for line in in_store([current], store, "now")] == [
        "departs from this host's history"
    ]
    add_machine(store, current.machine, {"kernel": "6.12", "boot": "y"}, "2026-11-05")
    *_, last = in_store([current], store, "now")
    assert last == f"changed on {current.machine} since the first of those runs: kernel 6.1 → 6.12"
    assert in_store([triad(91e9)], store, "now") == []


def test_levels_of_other_runs_are_found_by_their_footprints() -> None:
    def level(value: float, number: int, low: int, high: int) -> Record:
        conditions = {
            "pages": "thp",
            "memory_node": 0,
            "cpu": 0,
            "stride_bytes": 64,
            "pattern": "random",
            "kind": "cache",
        }
        new_record = made_run.record(
            "latency", "level_latency", value, **conditions, level=number, from_bytes=low, to_bytes=high
        )
        return replace(new_record, provenance={**new_record.provenance, "start": f"2026-11-{high.bit_length():02d}"})

    rows = [(f"run-{high}", "latency", level(20e-9, 3, 2**20, high)) for high in (2**22, 2**23, 2**24, 2**25, 2**26)]
    (current,) = pool([[level(40e-9, 4, 2**21, 2**23)], [level(40.1e-9, 3, 2**21, 2**24)]])
    (departure,) = departures([current], rows, "now")
    assert departure.ratio == pytest.approx(2, abs=0.1) and len(departure.earlier) == 5
    assert departures([level(40e-9, 3, 2**27, 2**28)], rows, "now") == [], "another plateau"
