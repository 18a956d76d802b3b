"""Views of communication: the ranking of protocols in terminal and report, its winners and ratios, its charts."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import made_run
import pytest

from meshmark.report import charts, comm
from meshmark.report.build import write_report
from meshmark.report.ranking import (
    bounds,
    comparisons,
    half_percent,
    legend,
    letters,
    print_rankings,
    rankings,
    stretches,
    told,
)
from meshmark.store.record import FLAGS, Record, median, median_interval
from meshmark.terminal import print_records


def exchange(protocol: str, words: int, samples: list[float], mpi: str = "openmpi", **more: Any) -> Record:
    made = made_run.halo([mpi])[0]
    conditions = {**made.conditions, "protocol": protocol, "words": words, **more}
    return dataclasses.replace(
        made, samples=tuple(samples), value=median(samples), interval=median_interval(samples), conditions=conditions
    )


def level(value: float) -> list[float]:
    """Samples whose interval is half a per cent to each side."""
    return [value * (1 + k / 400) for k in (-3, -2, -2, -1, 0, 1, 2, 2, 3)]


def test_a_ranking_is_in_the_order_of_how_near_each_is_to_the_best() -> None:
    (one,) = rankings(made_run.halo())
    assert one.library == "Open MPI 4.1.4" and one.where == "2 ranks, grid 2x1" and one.transport == "shared memory"
    assert one.sizes == tuple(2**k for k in range(0, 15, 2))
    means = [one.over_best(p) for p in one.protocols]
    assert means == sorted(means) and means[0] >= 1
    assert set(one.protocols) == set(made_run.HALOS) and one.protocols[-1] == "shmem_put"
    for size in one.sizes:
        times = {p: one.cells[p, size].value for p in one.protocols}
        assert one.best(size).value == min(times.values())


def test_winners_are_told_by_stretches_and_ties_by_intervals() -> None:
    (one,) = rankings(made_run.halo())
    first, second = stretches(one)
    assert (first.first, first.last, first.winner, first.tied) == (1, 64, "neighbour", ())
    assert (second.first, second.last) == (256, 2**14)
    assert {second.winner, *second.tied} == {"irecv_isend", "persistent_irecv_isend"}
    assert told([first, second]) == [
        "up to 64 words neighbour",
        f"from 256 words {second.winner}; tied: {second.tied[0]}",
    ]


def test_noise_within_the_intervals_is_no_crossover() -> None:
    """Two protocols that lead by turns, by less than their intervals: one stretch, both named."""
    records = []
    for k, words in enumerate((1, 2, 4, 8)):
        records.append(exchange("a", words, level(1.000e-6 if k % 2 else 1.003e-6)))
        records.append(exchange("b", words, level(1.003e-6 if k % 2 else 1.000e-6)))
    (found,) = stretches(rankings(records)[0])
    assert {found.winner, *found.tied} == {"a", "b"} and (found.first, found.last) == (1, 8)
    assert told([found]) == [f"at every size {found.winner}; tied: {found.tied[0]}"]
    # … and by more than their intervals: as many stretches as turns.
    records = [exchange(p, w, level(1.1e-6 if (k + (p == "a")) % 2 else 1e-6)) for k, w in enumerate((1, 2, 4, 8))
               for p in "ab"]  # fmt: skip
    lines = told(stretches(rankings(records)[0]))
    assert lines == ["at 1 word b", "at 2 words a", "at 4 words b", "at 8 words a"]


def test_a_winner_carries_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    records = [dataclasses.replace(exchange("a", 1, level(1e-6)), flags=frozenset({"noisy"})),
               exchange("b", 1, level(2e-6))]  # fmt: skip
    assert told(stretches(rankings(records)[0])) == ["at every size a  [noisy]"]
    print_rankings(records)
    assert "at every size a  [noisy]" in capsys.readouterr().out
    assert letters({"noisy", "truncated"}) == "nt" and legend(records) == "n noisy"
    assert len({letters([f]) for f in FLAGS}) == len(FLAGS) and "?" not in letters(FLAGS)


def test_too_few_samples_for_an_interval_are_told_apart_from_nothing() -> None:
    one, other = exchange("a", 1, [1e-6]), exchange("b", 1, level(5e-6))
    assert one.interval is None and bounds(one) == (0, math.inf) and half_percent(one) == "±?"
    (found,) = stretches(rankings([one, other])[0])
    assert (found.winner, found.tied) == ("a", ("b",))
    assert half_percent(exchange("a", 1, [1e-6, 1e-6, 1e-6, 1.5e-6, 2e-6, 2e-6])) == "±40%"


def test_of_two_measurements_of_one_point_the_clearer_counts() -> None:
    flagged = dataclasses.replace(exchange("a", 1, level(1e-6)), flags=frozenset({"noisy"}))
    clear = exchange("a", 1, level(2e-6))
    for records in ([flagged, clear], [clear, flagged]):
        assert rankings(records)[0].cells["a", 1] is clear


def test_two_libraries_are_compared_where_both_were_asked_the_same() -> None:
    found = rankings(made_run.halo(made_run.LIBRARIES))
    ((a, b, ratios),) = comparisons(found)
    assert (a.library, b.library) == ("Open MPI 4.1.4", "MPICH 4.0.2")
    assert {p for p, _ in ratios} == set(made_run.HALOS) - {"shmem_put"}
    for ratio in ratios.values():
        assert ratio.low < ratio.value < ratio.high and ratio.clear
        assert ratio.value == pytest.approx(1.5, rel=0.02)
    same = [exchange("a", 1, level(1e-6)), exchange("a", 1, level(1.001e-6), "mpich", library="MPICH 4.0.2")]
    ((_, _, equal),) = comparisons(rankings(same))
    assert not equal["a", 1].clear
    four = [same[0], dataclasses.replace(same[1], conditions={**same[1].conditions, "ranks": 4, "grid": "2x2"})]
    assert comparisons(rankings(four)) == []


def test_the_terminal_has_a_table_that_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = made_run.halo(made_run.LIBRARIES)
    noisy = next(i for i, r in enumerate(records) if r.conditions["protocol"] == "caf_sync")
    records[noisy] = dataclasses.replace(records[noisy], flags=frozenset({"noisy"}))
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("meshmark.report.ranking._WIDE", width)
        print_rankings(records)
        text = capsys.readouterr().out
        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        table = [line for line in lines if line.startswith(("neighbour ", "irecv_isend "))]
        assert len({line.split()[0] for line in table}) == 2
        # Every size of both libraries, and of their ratio, has its best marked in one lot of columns.
        assert text.count("*") == 2 * 8 + 2  # … and once in each legend
        assert "up to 64 words neighbour" in text and "n noisy" in text
        assert "MPICH 4.0.2 over Open MPI 4.1.4" in text
        assert "MPICH 4.0.2 takes longer in 32 of 32, less in 0; 0 are not told apart" in text


def test_a_flag_that_all_have_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_rankings(made_run.halo(flags=["oversubscribed"]))
    text = capsys.readouterr().out
    assert "shared memory; all oversubscribed" in text and text.count("oversubscribed") == 1


@pytest.mark.parametrize("records", [made_run.pingpong(), made_run.swap(), made_run.collectives()])
def test_observed_conditions_are_no_columns(records: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    mixed = [
        dataclasses.replace(r, conditions={**r.conditions, "block_iterations": i, "fastest_rank": i * 1e-6,
                                           "rank_cpus": f"0,{i}", "blocks": i})
        for i, r in enumerate(records)
    ]  # fmt: skip
    print_records(mixed)
    text = capsys.readouterr().out
    assert not re.search("clock_offset|fastest_rank|slowest_rank|blocks|block_iterations|rank_cpus|host_names", text)
    assert "median" in text and "message_bytes" in text


def specs(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="specs" type="application/json">(.*?)</script>', page, re.S)
    assert found
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


def rows_of(drawn: charts.Drawn | None) -> list[dict[str, Any]]:
    assert drawn is not None
    return [r for rows in drawn.data.values() for r in rows]


def test_the_report_has_communication_only_where_it_was_asked_for(tmp_path: Path) -> None:
    page = write_report(made_run.latency(), [], made_run.run_info(), tmp_path).html.read_text()
    assert 'id="halo"' in page and 'id="swap"' not in page and 'id="collectives"' not in page
    records = [*made_run.latency(), *made_run.communication()]
    page = write_report(records, [], made_run.run_info(), tmp_path / "2").html.read_text()
    names = {"halo", "pingpong", "pingpong_bandwidth", "swap", "swap_pairs", "collectives"}
    assert names < set(specs(page))
    assert "up to 64 words neighbour" in page and "MPICH 4.0.2 over Open MPI 4.1.4" in page
    assert re.search(r"put of 4096 words: 4\d{3} wrong, found 8 bytes beside their place", page)
    table = page.partition('id="collectives"')[2].partition("</section>")[0]
    assert "barrier" in table and "bcast" in table


def test_two_ranks_have_a_table_of_swaps_and_no_map(tmp_path: Path) -> None:
    page = write_report(made_run.swap(2), [], made_run.run_info(), tmp_path).html.read_text()
    assert "swap" not in specs(page) and "swap_pairs" not in specs(page)
    assert "results as a table" in page.partition('id="swap"')[2].partition("</section>")[0]


def test_charts_hold_every_point_once() -> None:
    rows = rows_of(comm.halo(made_run.halo(made_run.LIBRARIES)))
    points = {(r["library"], r["protocol"], r["x"]) for r in rows}
    assert len(points) == 8 * (5 + 4)
    assert {r["paradigm"] for r in rows} == {"mpi", "shmem", "caf"}
    latency = rows_of(comm.pingpong(made_run.pingpong(made_run.LIBRARIES)))
    assert len({(r["series"], r["x"]) for r in latency}) == 2 * 2 * 20
    assert all(r["x"] > 0 for r in latency), "no logarithm of an empty message"
    maps = rows_of(comm.swap_pairs(made_run.swap(4)))
    assert len(maps) == 2 * 4 * 3
    for r in maps:
        assert next(x for x in maps if (x["a"], x["b"], x["value"]) == (r["b"], r["a"], r["value"]))


def test_a_flagged_exchange_is_hollow() -> None:
    rows = rows_of(comm.halo(made_run.halo(flags=["noisy"])))
    assert rows and all(r["flagged"] and r["flags"] == "noisy" for r in rows)


def test_many_libraries_get_panels_and_few_share_one() -> None:
    few, many = comm.pingpong(made_run.pingpong(made_run.LIBRARIES)), comm.halo(made_run.halo(made_run.LIBRARIES))
    assert few is not None and "concat" not in charts.themed(few)
    assert many is not None and len(charts.themed(many)["concat"]) == 2
    alone = comm.halo(made_run.halo())
    assert alone is not None and "layer" in charts.themed(alone)
