"""Comparisons of more than two sides, and comparisons as Markdown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.cli.results.compare import ideal_ratio
from meshmark.compare.join import ResultComparison, compare
from meshmark.compare.sides import ResultSide, Sides
from meshmark.errors import UsageError
from meshmark.store.record import Record, median, median_interval
from meshmark.store.store import Store
from meshmark.views.content.compared_rows import blocks
from meshmark.views.pages.comparison import charts, comparison_page
from meshmark.views.pages.comparison_markdown import markdown
from meshmark.views.terminal.comparison import print_comparison
from support.made_hosts import one_socket
from support.made_run import record


def side(name: str, records: list[Record]) -> ResultSide:
    own_records = [replace(r, machine=name) for r in records]
    return ResultSide(name=name, what="made", machine=name, start="2026-11-28T10:00:00Z", records=own_records)


def scaled(r: Record, factor: float) -> Record:
    samples = tuple(s * factor for s in r.samples)
    return replace(r, samples=samples, value=median(samples), interval=median_interval(samples))


@pytest.fixture
def three() -> list[ResultComparison]:
    """Return comparisons of A with B, whose times are 20 % longer, and with C, which has only latencies, equal to A."""
    a = one_socket()
    b = [scaled(r, 1.2 if r.unit == "s" else 1.0) for r in a]
    sides = [side("new", b), side("x|y", [r for r in a if r.instrument == "latency"])]
    return [compare(side("old", a), other) for other in sides]


def test_each_result_of_a_is_a_line_with_a_cell_for_each_side(three: list[ResultComparison]) -> None:
    blocks_by_metric = {b.metric: b for b in blocks(three)}
    assert [len(line.cells) for line in blocks_by_metric["load_latency"].lines] == [2] * len(
        blocks_by_metric["load_latency"].lines
    )
    latency = next(b for b in blocks(three) if b.instrument == "latency")
    words = [[cell.word for cell in line.cells if cell] for line in latency.lines]
    assert words == [["slower", "equal"]] * 4
    assert all(line.cells[1] is None for line in blocks_by_metric["bandwidth_net"].lines)


def test_the_terminal_has_a_column_for_each_side(
    three: list[ResultComparison], capsys: pytest.CaptureFixture[str]
) -> None:
    print_comparison(three, every=True)
    output = capsys.readouterr().out
    assert "A: old" in output and "B: new" in output and "C: x|y" in output
    memory = next(line for line in output.splitlines() if line.startswith("footprint 1 GiB"))
    assert "1.20 slower" in memory and "1.000 equal" in memory


def test_one_chart_has_the_curves_of_all_sides(three: list[ResultComparison]) -> None:
    drawings = charts(three)
    assert {"means", "latency", "loaded"} <= drawings.keys()
    series = {r["series"] for data in drawings["latency"].data.values() for r in data if "series" in r}
    assert {text[:1] for text in series} == {"A", "B", "C"}
    page = comparison_page(three)
    assert "old, new and x|y" in page and "C" in re.findall("<th[^>]*>(.*?)</th>", page)


def lines_of(comparisons: list[ResultComparison], ideal: float | None) -> dict[tuple[str, str], float]:
    """Return the positions of the lines in the chart of ratios, by metric and name."""
    rows = [r for data in charts(comparisons, ideal)["means"].data.values() for r in data]
    return {(r["name"], r["line"]): r["at"] for r in rows if "line" in r}


def test_the_chart_of_ratios_has_each_side_beside_1_and_beside_what_is_ideal(three: list[ResultComparison]) -> None:
    drawing = charts(three, 1.25)["means"]
    rows = [r for data in drawing.data.values() for r in data if "side" in r]
    latency = {r["side"]: r for r in rows if r["name"] == "latency load latency"}
    assert latency["B: new"]["value"] == pytest.approx(1.2) and latency["C: x|y"]["value"] == pytest.approx(1.0)
    assert all(r["low"] <= r["value"] <= r["high"] for r in rows)
    lines = lines_of(three, 1.25)
    # With a clock that is 25 % higher, the ideal rate is 1.25 times and the ideal time 0.8 times the old one.
    assert lines["bandwidth net", "ideal 1.25"] == 1.25 and lines["latency load latency", "ideal 1.25"] == 0.8
    assert {x for (_, line), x in lines.items() if line == "equal to A"} == {1.0}
    assert {line for _, line in lines_of(three, None)} == {"equal to A"}
    low, high = drawing.chart.to_dict()["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert low < 0.8 and high > 1.25, "the lines are within the axis"
    page = comparison_page(three, 1.25)
    assert (
        "1.25 times the rate, or 0.800 times the time, of A" in page
        and "what would be ideal" not in comparison_page(three)
    )


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e-320", "fast", "1,25", "1.25x"])
def test_an_ideal_is_a_number_above_0(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--ideal: found '{text}', a number above 0 is required, such as 1.25"):
        ideal_ratio(text, tmp_path / "page.html")


def test_an_ideal_needs_a_page() -> None:
    assert ideal_ratio("", None) is None and ideal_ratio(" 1.25", Path("page.html")) == 1.25
    with pytest.raises(UsageError, match="--ideal: found without --html; allowed with --html"):
        ideal_ratio("1.25", None)


def memory(name: str, factor: float, threads: int, **more: str | int) -> ResultSide:
    """Return memory results whose rates grow with the factor; with all threads, each has half of its rate alone."""
    shared_conditions = {
        "memory_level": "memory",
        "memory_place": "local",
        "cpus_within": "machine",
        "pages": "thp",
        **more,
    }
    memory_records: list[Record] = []
    for kernel, rate in (("read", 12e9), ("triad", 10e9), ("copy", 9e9)):
        for count, thread_rate in ((1, rate), (threads, rate / 2)):
            conditions = {"kernel": kernel, "threads": count, "cpus_fill": "machine" if count > 1 else "core"}
            value = factor * thread_rate * count
            memory_records.append(
                record("bandwidth", "bandwidth_net", value, footprint_bytes=2**30, **conditions, **shared_conditions)
            )
    of_latency = {"pattern": "random", "processes": 1, "cpu": 0, "memory_node": 0, "locality_bytes": 0}
    memory_records += [
        record("latency", "load_latency", seconds / factor, footprint_bytes=size, **of_latency, **shared_conditions)
        for size, seconds in ((2**29, 95e-9), (2**30, 100e-9))
    ]
    return side(name, [replace(r, conditions={**r.conditions, "runs": 2}) for r in memory_records])


def trend(comparisons: list[ResultComparison], chart: str) -> dict[str, list[tuple[str, float]]]:
    """Return the machines and values of each line, in the order of the machines."""
    rows = [r for data in charts(comparisons)[chart].data.values() for r in data]
    lines: dict[str, list[tuple[str, float]]] = {}
    for r in sorted(rows, key=lambda r: r["order"]):
        lines.setdefault(r["series"], []).append((r["machine"], r["value"]))
    return lines


def test_a_trend_over_machines_is_in_their_order_and_per_thread() -> None:
    sides = [memory("zeta", 1.0, 8), memory("beta", 0.5, 16), memory("alpha", 2.0, 64)]
    comparisons = [compare(sides[0], other, per="thread") for other in sides[1:]]
    lines = trend(comparisons, "bandwidth-over-machines")
    assert list(lines) == ["read, one thread", "read, 8 to 64 threads", "triad, one thread", "triad, 8 to 64 threads"]
    names, values = zip(*lines["triad, 8 to 64 threads"], strict=True)
    assert names == ("A: zeta", "B: beta", "C: alpha") and values == pytest.approx((5e9, 2.5e9, 10e9), rel=0.02)
    lines_of_machines = trend([compare(sides[0], other) for other in sides[1:]], "bandwidth-over-machines")
    assert [v for _, v in lines_of_machines["triad, 8 to 64 threads"]] == pytest.approx([40e9, 40e9, 640e9], rel=0.02)
    latency = trend(comparisons, "latency-over-machines")
    assert list(latency) == ["memory latency, one process"]
    assert [v for _, v in latency["memory latency, one process"]] == pytest.approx([1e-7, 2e-7, 5e-8], rel=0.02)
    rows = [r for data in charts(comparisons)["latency-over-machines"].data.values() for r in data]
    assert all(r["low"] < r["value"] < r["high"] for r in rows), "each point has its interval"


def test_a_machine_without_a_result_has_no_point_and_one_machine_has_no_trend() -> None:
    side_a, side_b, side_c = memory("a", 1.0, 8), memory("b", 0.5, 16), memory("c", 2.0, 64)
    without_triad = replace(side_b, records=[r for r in side_b.records if r.conditions.get("kernel") != "triad"])
    lines = trend([compare(side_a, without_triad), compare(side_a, side_c)], "bandwidth-over-machines")
    assert [name for name, _ in lines["triad, one thread"]] == ["A: a", "C: c"]
    assert [name for name, _ in lines["read, one thread"]] == ["A: a", "B: b", "C: c"]
    later = replace(side_a, name="later")
    assert not {name for name in charts([compare(side_a, later)]) if "machines" in name}


def test_copy_stands_for_kernels_that_publications_lack(tmp_path: Path) -> None:
    find = Sides(Store(tmp_path / "store"), tmp_path / "runs", "here")
    older, newer = find.find_all(["paper:xeon5400", "paper:xeon5500"])
    lines = trend([compare(older, newer, per="thread")], "bandwidth-over-machines")
    assert list(lines) == ["copy, one thread", "copy, 8 threads"]
    assert [round(v / 1e9, 2) for _, v in lines["copy, 8 threads"]] == [1.38, 4.08]
    page = comparison_page([compare(older, newer, per="thread")])
    assert 'id="bandwidth-over-machines"' in page and "net bandwidth per thread" in page


def test_markdown_begins_with_the_verdict_and_escapes_names(three: list[ResultComparison]) -> None:
    text = markdown(three)
    first, *_ = text.splitlines()
    assert first.startswith("### B is slower in 1") and "C does not differ in 4 of 4 results" in first
    assert "C: x\\|y" in text and "**slower**" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    cells = {len(line.replace("\\|", "").split("|")) for line in tables}
    assert len(cells) == 1, "all rows have the same number of cells"
    assert text.count("<details>") == text.count("</details>") == 2


def test_markdown_says_that_nothing_was_judged() -> None:
    flagged = [replace(r, flags=frozenset({"stolen"})) for r in one_socket()]
    assert markdown([compare(side("a", flagged), side("b", flagged[:5]))]).startswith(
        "### inconclusive: none of 5 results"
    )
