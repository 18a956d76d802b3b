"""Views of communication: the ranking of protocols in terminal and report, its winners and ratios, its charts."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from meshmark.machine.capture import open_machine
from meshmark.machine.sources import from_synthetic
from meshmark.measure.repetitions import pool
from meshmark.store.record import FLAGS, Record, median, median_interval
from meshmark.views.charts import charts, comm, drawing, swaps
from meshmark.views.content import contention
from meshmark.views.content.contention import Contention, contention_sections, contentions
from meshmark.views.content.ranking import (
    HALO,
    MESSAGE,
    bounds,
    comparison_sections,
    comparisons,
    half_percent,
    rankings,
    run_order_note,
    stretches,
    winner_lines,
)
from meshmark.views.pages.build import write_report
from meshmark.views.tables import legend, letters
from meshmark.views.terminal.records import print_records
from meshmark.views.terminal.screen import print_sections, table_console
from meshmark.views.terminal.tables import print_tables
from support import made_run
from support.paths import MACHINES


def exchange(protocol: str, words: int, samples: list[float], mpi: str = "openmpi", **more: Any) -> Record:
    template = made_run.halo([mpi])[0]
    conditions = {**template.conditions, "protocol": protocol, "words": words, **more}
    return dataclasses.replace(
        template,
        samples=tuple(samples),
        value=median(samples),
        interval=median_interval(samples),
        conditions=conditions,
    )


def level(value: float) -> list[float]:
    """Return samples whose interval extends 0.5 % to each side."""
    return [value * (1 + k / 400) for k in (-3, -2, -2, -1, 0, 1, 2, 2, 3)]


def test_a_ranking_is_in_the_order_of_how_near_each_is_to_the_best() -> None:
    (ranking,) = rankings(made_run.halo())
    assert (
        ranking.library == "Open MPI 4.1.4"
        and ranking.where == "2 ranks, grid 2x1"
        and ranking.transport == "shared memory"
    )
    assert ranking.sizes == tuple(2**k for k in range(0, 15, 2))
    means = [ranking.over_lowest(p) for p in ranking.protocols]
    assert means == sorted(means) and means[0] >= 1
    assert set(ranking.protocols) == set(made_run.HALOS) and ranking.protocols[-1] == "shmem_put"
    for size in ranking.sizes:
        times = {p: ranking.cells[p, size].value for p in ranking.protocols}
        best = ranking.best(size)
        assert best is not None and best.value == min(times.values())


def test_winners_are_told_by_stretches_and_ties_by_intervals() -> None:
    (ranking,) = rankings(made_run.halo())
    first, second = stretches(ranking)
    assert (first.first, first.last, first.winner, first.others) == (1, 64, "neighbour", ())
    assert (second.first, second.last) == (256, 2**14)
    assert {second.winner, *second.others} == {"irecv_isend", "persistent_irecv_isend"}
    assert winner_lines(ranking) == [
        "up to 64 words: neighbour",
        f"from 256 words: {second.winner}; equal: {second.others[0]}",
    ]


def test_noise_within_the_intervals_is_no_crossover() -> None:
    """Two protocols lead in alternation by less than their intervals: the result is one stretch that names both."""
    records = []
    for k, words in enumerate((1, 2, 4, 8)):
        records.append(exchange("a", words, level(1.000e-6 if k % 2 else 1.003e-6)))
        records.append(exchange("b", words, level(1.003e-6 if k % 2 else 1.000e-6)))
    (stretch,) = stretches(rankings(records)[0])
    assert {stretch.winner, *stretch.others} == {"a", "b"} and (stretch.first, stretch.last) == (1, 8)
    assert winner_lines(rankings(records)[0]) == [f"at every size: {stretch.winner}; equal: {stretch.others[0]}"]
    # If they lead by more than their intervals, there are as many stretches as changes of the lead.
    records = [
        exchange(p, w, level(1.1e-6 if (k + (p == "a")) % 2 else 1e-6))
        for k, w in enumerate((1, 2, 4, 8))
        for p in "ab"
    ]
    lines = winner_lines(rankings(records)[0])
    assert lines == ["at 1 word: b", "at 2 words: a", "at 4 words: b", "at 8 words: a"]


def test_what_is_flagged_or_wide_does_not_win(capsys: pytest.CaptureFixture[str]) -> None:
    flagged = dataclasses.replace(exchange("a", 1, level(1e-6)), flags=frozenset({"disturbed"}))
    wide = exchange("c", 1, [1e-6, 1e-6, 1e-6, 2e-6, 3e-6, 3e-6])
    records = [flagged, wide, exchange("b", 1, level(2e-6))]
    assert winner_lines(rankings(records)[0]) == [
        "at every size: inconclusive: a, c, b",
        "not judged: a (disturbed, at 1 of 1 sizes), c (too wide, at 1 of 1 sizes)",
    ]
    print_tables(records)
    text = capsys.readouterr().out
    assert "at every size: inconclusive: a, c, b" in text and "*2.00 ±0.5%" in text
    assert letters({"disturbed", "stopped"}) == "de" and legend({"disturbed"}) == ["d disturbed"]
    assert len({letters([f]) for f in FLAGS}) == len(FLAGS) and "?" not in letters(FLAGS)


def test_no_library_is_faster_where_the_best_of_the_other_was_not_judged() -> None:
    clean = [exchange("neighbour", 8, level(10e-6)), exchange("neighbour", 8, level(8e-6), "mpich")]
    (pair,) = comparisons(rankings(clean))
    assert pair.best[8].word != "inconclusive"
    q = dataclasses.replace(exchange("irecv_isend", 8, level(5e-6)), flags=frozenset({"disturbed"}))
    (pair,) = comparisons(rankings([*clean, q]))
    assert pair.best[8].word == "inconclusive" and pair.faster(pair.best) == ["inconclusive"]
    slow = dataclasses.replace(exchange("irecv_isend", 8, level(50e-6)), flags=frozenset({"disturbed"}))
    (pair,) = comparisons(rankings([*clean, slow]))
    assert pair.best[8].word != "inconclusive", "it cannot be the best"


def test_modes_are_named_below_a_ranking(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [[exchange("neighbour", 8, level(us * 1e-6))] for us in (10, 20, 10)]
    print_tables(pool(runs))
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert re.search(r"^modes: exchange_time: 10\.\d* or 20\.\d* .s, 2 and 1 of 3 runs$", text, re.MULTILINE), text


def test_too_few_samples_for_an_interval_decide_nothing() -> None:
    first, second = exchange("a", 1, [1e-6]), exchange("b", 1, level(5e-6))
    assert first.interval is None and bounds(first) == (0, math.inf) and half_percent(first) == "±?"
    assert winner_lines(rankings([first, second])[0])[0] == "at every size: inconclusive: a, b"
    assert half_percent(exchange("a", 1, [1e-6, 1e-6, 1e-6, 1.5e-6, 2e-6, 2e-6])) == "±40%"


def test_only_sizes_that_all_were_measured_at_are_ranked() -> None:
    records = [exchange(p, w, level(t * 1e-6)) for p, t in (("a", 1), ("b", 2)) for w in (1, 8, 64)]
    incomplete = [exchange("c", 8, level(3e-6)), exchange("c", 512, level(1e-9))]
    (ranking,) = rankings([*records, *incomplete])
    assert (
        ranking.common == (8,) and ranking.protocols == ("a", "b", "c") and ranking.over_lowest("c") == pytest.approx(3)
    )
    assert winner_lines(ranking) == [
        "at every size: a",
        "not ranked: 1 word and others, where not every protocol was measured",
    ]
    separate = [exchange("a", 1, level(1e-6)), exchange("b", 8, level(1e-6))]
    (ranking,) = rankings(separate)
    assert ranking.common == () and math.isnan(ranking.over_lowest("a"))
    assert winner_lines(ranking) == ["not ranked: 1 word and others, where not every protocol was measured"]
    assert "–" in comm.halo_details(separate)


def test_undecided_sizes_in_a_row_are_one_stretch() -> None:
    near = [1.0, 1.0, 1.0, 1.01, 1.03, 1.03]
    records = []
    for words, (a, b) in {
        1: (level(1), level(2)),
        8: (level(1), near),
        64: (near, level(1)),
        512: (level(2), level(1)),
    }.items():
        records += [exchange("a", words, [v * 1e-6 for v in a]), exchange("b", words, [v * 1e-6 for v in b])]
    (ranking,) = rankings(records)
    assert winner_lines(ranking) == [
        "at 1 word: a",
        "from 8 words to 64 words: inconclusive: a, b",
        "at 512 words: b",
    ]


def test_of_two_measurements_of_one_point_the_clearer_counts() -> None:
    flagged = dataclasses.replace(exchange("a", 1, level(1e-6)), flags=frozenset({"disturbed"}))
    clear = exchange("a", 1, level(2e-6))
    for records in ([flagged, clear], [clear, flagged]):
        assert rankings(records)[0].cells["a", 1] is clear


def test_two_libraries_are_compared_where_both_were_asked_the_same() -> None:
    ranked = rankings(made_run.halo(made_run.LIBRARIES))
    ((a, b, ratios),) = comparisons(ranked)
    assert (a.library, b.library) == ("Open MPI 4.1.4", "MPICH 4.0.2")
    assert {p for p, _ in ratios} == set(made_run.HALOS) - {"shmem_put"}
    for ratio in ratios.values():
        assert ratio.interval is not None and ratio.interval[0] < ratio.value < ratio.interval[1] and ratio.differs
        assert ratio.value == pytest.approx(1.5, rel=0.02)
    same = [exchange("a", 1, level(1e-6)), exchange("a", 1, level(1.001e-6), "mpich", library="MPICH 4.0.2")]
    ((_, _, equal),) = comparisons(rankings(same))
    assert equal["a", 1].word == "equal"
    four = [same[0], dataclasses.replace(same[1], conditions={**same[1].conditions, "ranks": 4, "grid": "2x2"})]
    assert comparisons(rankings(four)) == []


def test_the_terminal_has_a_table_that_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = made_run.halo(made_run.LIBRARIES)
    noisy_index = next(i for i, r in enumerate(records) if r.conditions["protocol"] == "caf_sync")
    records[noisy_index] = dataclasses.replace(records[noisy_index], flags=frozenset({"disturbed"}))
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("meshmark.views.terminal.tables.PIPE_COLUMNS", width)
        print_tables(records)
        text = capsys.readouterr().out
        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        table = [line for line in lines if line.startswith(("neighbour ", "irecv_isend "))]
        assert len({line.split()[0] for line in table}) == 2
        # The best protocol of every size is marked once, for both libraries.
        assert text.count("*") == 2 * 8 + 2  # the mark is also in each legend
        assert "up to 64 words: neighbour" in text and "d disturbed" in text
        assert "MPICH 4.0.2 relative to Open MPI 4.1.4" in text
        counts = "MPICH 4.0.2 is slower in 31 of 32, faster in 0; equal in 0, inconclusive in 1"
        assert counts in text.replace("\n", " ")


def test_a_flag_that_all_have_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(made_run.halo(flags=["oversubscribed"]))
    text = capsys.readouterr().out
    assert "shared memory; all oversubscribed" in text and text.count("oversubscribed") == 2
    assert "not judged: all protocols at every size (oversubscribed)" in text


@pytest.mark.parametrize("records", [made_run.pingpong(), made_run.swap(), made_run.collectives()])
def test_observed_conditions_are_no_columns(records: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    mixed = [
        dataclasses.replace(
            r,
            conditions={
                **r.conditions,
                "block_iterations": i,
                "fastest_rank": i * 1e-6,
                "rank_cpus": f"0,{i}",
                "blocks": i,
            },
        )
        for i, r in enumerate(records)
    ]
    print_records(mixed)
    text = capsys.readouterr().out
    assert not re.search("clock.offset|fastest.rank|slowest.rank|blocks|block.iterations|rank.cpus|host.names", text)
    assert "median" in text and " message " in text


def specs(page: str) -> dict[str, Any]:
    match = re.search(r'<script id="specs" type="application/json">(.*?)</script>', page, re.S)
    assert match
    parsed: dict[str, Any] = json.loads(match[1])
    return parsed


def rows_of(drawn: drawing.Drawing | None) -> list[dict[str, Any]]:
    assert drawn is not None
    return [r for rows in drawn.data.values() for r in rows]


def test_the_report_has_communication_only_where_it_was_asked_for(tmp_path: Path) -> None:
    page = write_report(made_run.latency(), [], made_run.run_info(), tmp_path).html.read_text()
    assert 'id="halo"' not in page and 'id="swap"' not in page and 'id="collectives"' not in page
    halo_page = write_report(made_run.halo(), [], made_run.run_info(), tmp_path / "1").html.read_text()
    assert "Ranking of 5 protocols" in halo_page and 'id="halo_libraries"' not in halo_page
    records = [*made_run.latency(), *made_run.communication()]
    page = write_report(records, [], made_run.run_info(), tmp_path / "2").html.read_text()
    names = {
        "halo",
        "halo_libraries",
        "pingpong",
        "pingpong_bandwidth",
        "pingpong_libraries",
        "swap",
        "swap_pairs",
        "collectives",
        "collectives_libraries",
    }
    assert names < set(specs(page))
    assert "up to 64 words: neighbour" in page and "MPICH 4.0.2 relative to Open MPI 4.1.4" in page
    assert re.search(r"put of 4096 words: 4\d{3} wrong, shifted by 8 bytes", page)
    table = page.partition('id="collectives"')[2].partition("</section>")[0]
    assert "barrier" in table and "bcast" in table


def test_two_ranks_have_one_line_and_nothing_to_contend_with(tmp_path: Path) -> None:
    host = {"topology": from_synthetic("pack:1 [numa] core:2 pu:1").to_dict()}
    page = write_report(made_run.swap(2), [], made_run.run_info(host), tmp_path).html.read_text()
    assert "swap" not in specs(page)
    part = page.partition('id="swap"')[2].partition("</section>")[0]
    assert "results as a table" in part and "only one pair at each distance, so there is no contention" in part
    spec = specs(page)["swap_pairs"]
    texts = {r["text"] for rows in spec["datasets"].values() for r in rows if "text" in r}
    assert texts > {"CPU 0", "CPU 1"} and any(t.endswith("ns") for t in texts) and any("GB/s" in t for t in texts)
    part = page.partition('id="swap_pairs"')[2].partition("</section>")[0]
    assert re.search('<td>8.B</td><td>same node</td><td class="n">1</td>', part)


def test_charts_hold_every_point_once() -> None:
    rows = rows_of(comm.halo(made_run.halo(made_run.LIBRARIES)))
    points = {(r["library"], r["protocol"], r["x"]) for r in rows}
    assert len(points) == 8 * (5 + 4)
    assert {r["paradigm"] for r in rows} == {"mpi", "shmem", "caf"}
    latency = rows_of(comm.pingpong(made_run.pingpong(made_run.LIBRARIES)))
    assert len({(r["series"], r["x"]) for r in latency}) == 2 * 2 * 20
    assert all(r["x"] > 0 for r in latency), "no logarithm of an empty message"
    matrices = [r for r in rows_of(swaps.pairs(made_run.swap(4), {})) if "figure" in r]
    assert len(matrices) == 2 * 4 * 3
    for r in matrices:
        assert next(x for x in matrices if (x["a"], x["b"], x["value"]) == (r["b"], r["a"], r["value"]))


def test_a_flagged_exchange_is_hollow() -> None:
    rows = rows_of(comm.halo(made_run.halo(flags=["disturbed"])))
    assert rows and all(r["flagged"] and r["flags"] == "disturbed" for r in rows)


def test_many_libraries_get_panels_and_few_share_one() -> None:
    few, many = comm.pingpong(made_run.pingpong(made_run.LIBRARIES)), comm.halo(made_run.halo(made_run.LIBRARIES))
    assert few is not None and "concat" not in drawing.themed(few)
    assert many is not None and len(drawing.themed(many)["concat"]) == 2
    alone = comm.halo(made_run.halo())
    assert alone is not None and "layer" in drawing.themed(alone)


NODES: dict[str, Any] = {
    **from_synthetic("pack:4 [numa] l3:1 core:4 pu:1").to_dict(),
    "distances": [[10 if i == j else 16 if i ^ j == 1 else 22 for j in range(4)] for i in range(4)],
}
SIZES = (8, 1024, 2**16, 2**20)


def swapped(
    distance: int, mode: str, size: int, samples: list[float], first: int = 0, ranks: int = 4, **more: Any
) -> Record:
    c = {"message_bytes": size, "distance": distance, "mode": mode, **made_run.ranks(count=ranks), **more}
    if mode == "alone":
        c |= {"from_rank": first, "to_rank": first + distance}
    template = made_run.record("swap", "exchange_time", 1.0, **c)
    return dataclasses.replace(
        template, samples=tuple(samples), value=median(samples), interval=median_interval(samples)
    )


def of_factors(*factors: list[float]) -> Contention:
    """Return the contention at distance 1 for pairs that take 1 us alone and these times together."""
    records = []
    for size, samples in zip(SIZES, factors, strict=False):
        records += [swapped(1, "alone", size, level(1e-6)), swapped(1, "together", size, [f * 1e-6 for f in samples])]
    (result,) = contentions(records)
    return result


def test_contention_starts_where_the_whole_interval_is_above() -> None:
    result = of_factors(level(1.0), level(1.105), level(1.5), level(1.02))
    assert result.start(1) == 2**16
    factor = result.cells[1, 2**16]
    assert factor.ratio.value == pytest.approx(1.5) and factor.ratio.interval == pytest.approx((1.485, 1.515), abs=1e-3)
    (line,) = contention.start_lines(result)
    assert re.fullmatch(r"distance 1: from 64.KiB, 1.50 \(1.49 – 1.52\); inconclusive at 1.MiB", line)


def test_contention_that_never_starts_is_told_apart_from_what_is_not_clear() -> None:
    (line,) = contention.start_lines(of_factors(level(1.0), level(1.05), level(1.08)))
    assert re.fullmatch("distance 1: none up to 64.KiB", line)
    (line,) = contention.start_lines(of_factors(level(1.0), [1.0, 1.0, 1.0, 1.5, 2.0, 2.0, 2.0]))
    assert re.fullmatch(r"distance 1: inconclusive up to 1.KiB; at most 1.50 \(1.00 – 2.01\) at 1.KiB", line)
    (line,) = contention.start_lines(of_factors([3.0]))  # one sample has no interval
    assert re.fullmatch(r"distance 1: inconclusive up to 8.B; at most 3.00 \(too few samples\) at 8.B", line)


def test_a_pair_that_is_slow_by_itself_is_no_contention() -> None:
    """At distance 1 of six ranks, 0-1, 2-3 and 4-5 run together; 1-2 does not, and its time does not count."""
    times = {0: 1e-6, 1: 9e-6, 2: 3e-6, 3: 8e-6, 4: 1e-6}
    records = [swapped(1, "alone", 8, level(t), first=i, ranks=6) for i, t in times.items()]
    (result,) = contentions([*records, swapped(1, "together", 8, level(3.03e-6), ranks=6)])
    assert result.cells[1, 8].alone.conditions["from_rank"] == 2
    assert result.cells[1, 8].ratio.value == pytest.approx(1.01)
    assert re.fullmatch("distance 1: none up to 8.B", contention.start_lines(result)[0])


def test_neighbouring_distances_that_say_the_same_share_a_line() -> None:
    (result,) = contentions(made_run.swap(16, SIZES, 4))
    lines = [line.replace("\u00a0", " ") for line in contention.start_lines(result)]
    assert lines == [
        "distances 1 to 2: none up to 1 MiB",
        "distances 3 to 14: from 64 KiB, 1.39 to 2.60",
        "distance 15: only one pair",
    ]


def test_the_terminal_has_contention_with_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    def print_contention(records: list[Record]) -> None:
        print_sections(table_console(80), contention_sections(records))

    print_contention(made_run.swap(16, SIZES, 4, flags=["disturbed"]))
    text = capsys.readouterr().out
    assert "all disturbed" in text.replace("\n", "")
    assert text.count("*") == 1 and text.count("disturbed") == 1, "the legend; a flag of all once, and none is judged"
    print_contention(made_run.swap(16, SIZES, 4))
    text = capsys.readouterr().out.replace("\u00a0", " ")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("*") == 12 + 1, "a start each, and the legend"
    assert re.search(r"^3 .* \*1.79 ±0.0\d ", text, re.M)
    print_contention(made_run.swap(2))
    assert "only one pair at each distance, so there is no contention" in capsys.readouterr().out.replace("\n", "")


def test_the_map_of_contention_says_what_lies_between(tmp_path: Path) -> None:
    rows = rows_of(swaps.contention(made_run.swap(16, SIZES, 4), NODES))
    assert len(rows) == 14 * len(SIZES)
    assert {r["distance"] for r in rows} >= {
        "1: same node",
        "3: same node to node distance 22",
        "4: node distance 16",
        "5: node distance 16 to 22",
        "8: node distance 22",
    }
    assert {r["message"].replace("\u00a0", " ") for r in rows if r["starts"]} == {"64 KiB", "1 MiB"}
    records = made_run.swap(16, SIZES, 4, flags=["disturbed"])
    assert all(r["flagged"] for r in rows_of(swaps.contention(records, {})))
    assert {r["distance"] for r in rows_of(swaps.contention(records, {}))} == {str(d) for d in range(1, 15)}
    records = made_run.swap(16, SIZES, 4)
    page = write_report(records, [], made_run.run_info({"topology": NODES}), tmp_path).html.read_text()
    part = page.partition('id="swap"')[2].partition("</section>")[0].replace("\u00a0", " ")
    assert "<li>distances 3 to 14: from 64 KiB, 1.39 to 2.60</li>" in part and part.count("<tr><td>4</td>") == 1


@pytest.mark.parametrize(
    ("topology", "cpus", "between"),
    [
        ("pack:1 [numa] l3:2 core:4 pu:2", (0, 1), "same core"),
        ("pack:1 [numa] l3:2 core:4 pu:2", (0, 2), "same cache"),
        ("pack:1 [numa] l3:2 core:4 pu:2", (0, 8), "same node"),
        ("pack:2 [numa] l3:1 core:4 pu:1", (0, 1), "same node"),
        ("pack:2 [numa] l3:1 core:4 pu:1", (0, 4), "other package"),
    ],
)
def test_what_lies_between_two_ranks(topology: str, cpus: tuple[int, int], between: str) -> None:
    records = made_run.swap(2)
    cpu_list = ",".join(map(str, cpus))
    records = [dataclasses.replace(r, conditions={**r.conditions, "rank_cpus": cpu_list}) for r in records]
    rows = [r for r in rows_of(swaps.pairs(records, from_synthetic(topology).to_dict())) if "pair" in r]
    assert {(r["between"], r["CPUs"]) for r in rows} == {(between, f"{cpus[0]} and {cpus[1]}")}


@pytest.mark.parametrize(
    ("name", "ranks", "between"),
    [
        ("snc-2x2.tar.xz", 8, {"same node", "node distance 12", "node distance 21"}),
        ("2x8-snc4.xml", 32, {"same core", "same node", "same package", "other package"}),
        ("torus-4x4-16.tar.xz", 16, {f"node distance {d}" for d in (16, 22, 28, 34)}),
    ],
)
def test_recorded_machines_tell_what_lies_between_ranks(name: str, ranks: int, between: set[str]) -> None:
    machine = open_machine(str(MACHINES / name)).topology.to_dict()
    records = made_run.swap(ranks, (2**20,), node=2)
    assert {r["between"] for r in rows_of(swaps.pairs(records, machine)) if "pair" in r} == between
    counts = re.findall(r'<td>([^<]*)</td><td class="n">(\d+)</td>', swaps.pair_details(records, machine))
    assert {words for words, _ in counts} == between and sum(int(n) for _, n in counts) == ranks * (ranks - 1) / 2


@pytest.mark.parametrize(
    "more", [{"rank_cpus": "0,0,1,1"}, {"hosts": 2}, {"rank_cpus": "0,1,2,77"}, {"rank_cpus": "?"}]
)
def test_without_a_cpu_of_their_own_on_this_machine_ranks_have_no_node(more: dict[str, Any]) -> None:
    four = from_synthetic("pack:2 [numa] core:2 pu:1").to_dict()
    records = made_run.swap(4)
    assert any("name" in r for r in rows_of(swaps.pairs(records, four)))
    records = [dataclasses.replace(r, conditions={**r.conditions, **more}) for r in records]
    rows = rows_of(swaps.pairs(records, four))
    assert rows and not any("name" in r for r in rows)
    assert "not bound to one CPU each" in swaps.pair_details(records, four)


def test_the_ring_has_every_rank_and_every_pair_once() -> None:
    rows = rows_of(swaps.pairs(made_run.swap(16, (2**20,), 4), NODES))
    dots = [r for r in rows if "rank" in r]
    assert {r["rank"] for r in dots} == {str(k) for k in range(16)} and len(dots) == 16
    places = [(round(r["x"], 6), round(r["y"], 6)) for r in dots]
    assert len(set(places)) == 16 and all(math.hypot(x, y) == pytest.approx(1) for x, y in places)
    lines = [r for r in rows if "x2" in r]
    assert len({(r["a"], r["b"]) for r in lines}) == len(lines) == 16 * 15 / 2
    assert [r["name"] for r in rows if "name" in r] == [f"node {n}" for n in range(4)]
    values = [r["value"] for r in lines]
    assert values == sorted(values), "the best lie on top"
    # Ranks are drawn at their CPU, also if they are not bound in the order of CPUs.
    reordered = [dataclasses.replace(r, conditions={**r.conditions, "rank_cpus": "0,2,1,3"}) for r in made_run.swap(4)]
    two = from_synthetic("pack:2 [numa] core:2 pu:1").to_dict()
    order = [r["rank"] for r in rows_of(swaps.pairs(reordered, two)) if "rank" in r]
    assert order == ["0", "2", "1", "3"] * 2


def test_short_messages_are_times_and_long_ones_bandwidths() -> None:
    rows = [r for r in rows_of(swaps.pairs(made_run.swap(4, SIZES), NODES)) if "figure" in r]
    assert len(rows) == 2 * 12, "the shortest and the longest"
    short, long = rows[:12], rows[12:]
    assert all(r["median"].endswith("ns") for r in short) and all(r["median"].endswith("GB/s") for r in long)


def test_libraries_that_cross_are_told_by_stretches_of_sizes() -> None:
    records = []
    for words, (first, second) in {
        1: (1.0, 1.5),
        8: (1.0, 1.2),
        64: (1.0, 1.001),
        512: (1.3, 1.0),
        4096: (2.0, 1.0),
    }.items():
        records.append(exchange("a", words, level(first * 1e-6)))
        records.append(exchange("a", words, level(second * 1e-6), "mpich"))
    (pair,) = comparisons(rankings(records))
    lines = ["up to 8 words: Open MPI 4.1.4", "at 64 words: equal", "from 512 words: MPICH 4.0.2"]
    assert pair.faster(pair.ratios_by_size("a")) == pair.faster(pair.best) == lines
    assert pair.best == pair.ratios_by_size("a")
    assert [r.word for r in pair.best.values()] == ["higher", "higher", "equal", "lower", "lower"]
    (section,) = comparison_sections(records, HALO)
    assert section.lines == [f"{name}: {'; '.join(lines)}" for name in ("best protocol of each library", "a")]
    assert section.notes[-1].startswith("measured one library after the other")
    rows = [r for r in rows_of(comm.halo_libraries(records)) if "series" in r]
    assert {r["series"] for r in rows} == {"best protocol of each library", "a"} and len(rows) == 10


def test_too_few_samples_of_one_library_are_no_difference() -> None:
    records = [exchange("a", 1, [1e-6]), exchange("a", 1, level(9e-6), "mpich")]
    (pair,) = comparisons(rankings(records))
    assert pair.ratios["a", 1].interval is None and pair.faster(pair.best) == ["inconclusive"]
    assert pair.best == {} and pair.faster(pair.ratios_by_size("a")) == ["inconclusive"]
    assert comm.halo_libraries(records) is None


def test_messages_and_collectives_are_compared_too(capsys: pytest.CaptureFixture[str]) -> None:
    records = made_run.pingpong(made_run.LIBRARIES)
    (pair,) = comparisons(rankings(records, MESSAGE))
    assert set(pair.ratios) == {(p, s) for p in ("send", "put") for s in (0, *(2**k for k in range(3, 23)))} - {
        ("put", 0)
    }
    rows = [r for r in rows_of(comm.pingpong_libraries(records)) if "series" in r]
    assert len(rows) == 2 * 20, "no logarithm of an empty message"
    print_sections(table_console(), comparison_sections(records, MESSAGE))
    assert "send: " in capsys.readouterr().out
    assert comparison_sections(made_run.pingpong(), MESSAGE) == []


def again(record: Record, factor: float) -> Record:
    samples = [s * factor for s in record.samples]
    return dataclasses.replace(record, samples=tuple(samples), value=median(samples), interval=median_interval(samples))


def test_what_runs_of_a_library_differ_by_is_no_difference_of_libraries() -> None:
    """The libraries differ by a factor of 1.2, but the runs of one library differ by a factor of 1.3."""
    first = [exchange("a", w, level(1e-6)) for w in (1, 8)]
    second = [exchange("a", w, level(1.2e-6), "mpich") for w in (1, 8)]
    (pair,) = comparisons(rankings([*first, *second]))
    assert all(r.differs for r in pair.ratios.values()) and not pair.alternated
    steady = pool([first, first]) + pool([second, second])
    (pair,) = comparisons(rankings(steady))
    assert all(r.differs for r in pair.ratios.values()) and pair.alternated == 2
    (pair,) = comparisons(rankings([*steady[:1], *first[1:], *steady[2:]]))
    assert pair.alternated == 1 and run_order_note(pair).endswith("; 1 of 2 compare a single run of a library")
    separate = pool([first, [again(first[0], 1.3), first[1]]]) + pool([second, second])
    (pair,) = comparisons(rankings(separate))
    assert [r.differs for _, r in sorted(pair.ratios.items())] == [False, True]
    low, high = bounds(separate[0])
    assert low == pytest.approx(0.55e-6, rel=0.01) and high == pytest.approx(1.75e-6, rel=0.01)
    assert separate[0].conditions["run_modes"] == 2 and half_percent(separate[0]).startswith("±53")
    assert "alternating runs" in comparison_sections(steady, HALO)[0].notes[-1]


def test_nine_lines_have_nine_colours() -> None:
    record = made_run.record("allreduce", "collective_time", 1e-6, algorithm="library", message_bytes=8)
    rows = [charts.row(record, series=f"way {n}", x=8.0, message="8 B") for n in range(9)]
    axis = charts.log_axis(rows, "time", comm.TIME)
    chart = charts.drawing(lambda: charts.layered(rows, comm.alt.X("x:Q"), axis, "series", ["message"]))()
    assert chart is not None
    colours = chart.chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]["range"]
    assert len(set(colours)) == 9
