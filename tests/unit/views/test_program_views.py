"""Views of programs on several ranks: steps and their parts, the best grid, predictions, and kernels with checks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from meshmark.store.record import Record
from meshmark.views.apps import program_charts
from meshmark.views.apps.programs import (
    ANATOMY,
    GYRO,
    POP,
    SWIM,
    grids,
    model_sections,
    prediction,
    prediction_lines,
    programming_models,
    shown,
    steps,
)
from meshmark.views.charts import drawing
from meshmark.views.pages.build import write_report
from meshmark.views.terminal.tables import print_tables
from support import made_run


def flat(text: str) -> str:
    return text.replace("\u00a0", " ")


def rows_of(drawn: drawing.Drawing | None) -> list[dict[str, Any]]:
    assert drawn is not None
    return [r for rows in drawn.data.values() for r in rows]


def later(records: list[Record], factor: float, start: str, flags: tuple[str, ...] = ()) -> list[Record]:
    """Return the records as another run of the same command would produce them."""
    return [
        dataclasses.replace(
            r,
            value=factor * r.value,
            samples=tuple(factor * s for s in r.samples),
            interval=None if r.interval is None else (factor * r.interval[0], factor * r.interval[1]),
            flags=frozenset(flags),
            provenance={**r.provenance, "start": start},
        )
        for r in records
    ]


def test_steps_are_ranked_within_what_can_be_compared() -> None:
    tables = steps(made_run.pop(made_run.LIBRARIES, 16), POP)
    assert len(tables) == 2 * 5, "a table a library and grid"
    for table in tables:
        values = [s.total.value for s in table.splits]
        assert values == sorted(values) and len(values) == 6
        for s in table.splits:
            assert sum(s.share(p) for p in s.parts) == pytest.approx(1)
            assert sum(r.value for r in s.parts.values()) < s.total.value, "means beside the slowest rank's"
    assert {s.name for s in tables[0].splits} >= {"neighbour, 1 reduction", "neighbour, 2 reductions"}
    (gyro,) = steps(made_run.gyro(), GYRO)
    assert [s.name for s in gyro.splits] == ["16 modes", "64 modes"], "other work is not ranked"


def test_the_best_grid_is_told_with_how_it_was_found() -> None:
    records = made_run.pop(count=16)
    (same,) = grids(records)
    assert [g.within[0] for g in same] == ["1x16", "2x8", "4x4", "8x2", "16x1"]
    (best,) = shown(records, POP)
    assert best.where == "16 ranks, grid 4x4, the best of 5 grids" and best.splits[0].name == "neighbour, 1 reduction"
    alone = [r for r in records if r.conditions["grid"] == "4x4"]
    assert shown(alone, POP)[0].where == "16 ranks, grid 4x4"
    c = {k: v for k, v in alone[0].conditions.items() if k in {"ranks", "hosts", "library", "mpi"}}
    quick_search = made_run.record("pop", "best_time", 1e-5, grids_tried="best", **c)
    assert shown([*alone, quick_search], POP)[0].where.endswith(", the best in a quick search")
    marks = [r for r in rows_of(program_charts.pop_grids(records)) if r["grid"] == "4x4" and r["series"] == "neighbour"]
    assert len(marks) == 2 and program_charts.pop_grids(alone) is None, "a line's point and the mark; one grid is none"


def test_parts_are_of_the_run_of_their_step() -> None:
    """The run without flags, of two runs of one command, is shown with its own parts, in any order of the records."""
    noisy = later(made_run.swim(), 3.0, "2026-11-21T07:00:00Z", ("disturbed",))
    clear = later(made_run.swim(), 1.0, "2026-11-21T08:00:00Z")
    for records in ([*noisy, *clear], [*clear, *noisy]):
        (table,) = steps(records, SWIM)
        for s in table.splits:
            assert not s.flags and {r.provenance["start"] for r in s.parts.values()} == {"2026-11-21T08:00:00Z"}


def test_programming_models_stand_side_by_side_on_the_same_grid() -> None:
    ranks = [r for n in (2, 4) for r in made_run.swim(made_run.LIBRARIES, n)]
    records = [*ranks, *made_run.swim_threads(2), *made_run.swim_threads(1)]
    small, large = programming_models(records).values()
    assert [(m.name, m.workers, m.how) for m in small] == [
        ("threads", 1, "thp pages, memory local"),
        ("threads", 2, "thp pages, memory local"),
        ("mpi, Open MPI 4.1.4", 2, "shared"),
        ("mpi, MPICH 4.0.2", 2, "shared"),
        ("mpi, Open MPI 4.1.4", 4, "shared"),
        ("mpi, MPICH 4.0.2", 4, "shared"),
    ]
    assert [m.name for m in large] == ["threads", "threads"], "ranks were not measured on this grid"
    assert small[0].share and small[0].share.conditions["pages"] == "thp" and small[2].share is None
    points = [r for r in rows_of(program_charts.swim_models(records)) if r["workers"] == "2" and r["how"] == "shared"]
    assert {r["series"] for r in points} == {"mpi, Open MPI 4.1.4", "mpi, MPICH 4.0.2"}
    grids_ = [section.title for section in model_sections(records)]
    assert "made-up, 256 x 256 cells, 50 steps per run" in grids_ and "made-up, 2048 x 2048 cells" in str(grids_)
    assert programming_models(ranks) == {} and program_charts.swim_models(ranks) is None
    assert model_sections(ranks) == [], "ranks alone have their own section"


def test_of_several_machines_each_has_its_models() -> None:
    other = [dataclasses.replace(r, machine="other") for r in made_run.swim()]
    (grid, _) = programming_models([*other, *made_run.swim_threads(2)])
    assert grid.startswith("made-up, 256"), "a model of another machine is not beside"


def test_another_latency_is_predicted_and_what_was_tried_stands_beside() -> None:
    records = made_run.anatomy(flags=["disturbed"])
    (table,) = steps(records, ANATOMY)
    assert [s.name for s in table.splits] == ["pop, irecv_isend, 2 reductions", "gyro", "swim, irecv_isend"]
    pop, gyro, _ = table.splits
    result = prediction(records, pop)
    assert result.half and result.more and result.measured and result.error
    assert result.half.value < pop.total.value < result.more.value < result.measured.value
    half_line, more_line = map(flat, prediction_lines(pop, result))
    assert re.fullmatch(r"half the latency: predicted 41\.\d µs, -1\d\.\d %", half_line)
    assert re.fullmatch(
        r"twice the latency: predicted 6\d\.\d µs, measured 6\d\.\d µs ±\S+; "
        r"error of the prediction -\d\.\d % \[disturbed\]",
        more_line,
    )
    assert "disturbed" not in prediction_lines(pop, result, frozenset({"disturbed"}))[1]
    assert (
        "other is -" in prediction_lines(gyro, prediction(records, gyro))[-1]
        and len(prediction_lines(pop, result)) == 2
    )


def test_a_negative_part_is_said_and_not_drawn() -> None:
    records = made_run.anatomy(made_run.LIBRARIES)
    rows = rows_of(program_charts.anatomy(records))
    bars = [r for r in rows if "from" in r]
    assert all(r["from"] >= 0 and r["to"] > r["from"] for r in bars)
    assert sum(r["part"] == "other" for r in bars) == 2 * 2, "gyro has none in either library"
    notes = [flat(r["note"]) for r in rows if "note" in r]
    assert len(notes) == 2 * 3 and sum("other -" in n for n in notes) == 2
    # The parts of each bar are adjacent and extend beyond the step if the curves explain more than its time.
    for label in ("Open MPI 4.1.4", "MPICH 4.0.2"):
        label_bars = [r for r in bars if r["label"] == label]
        starts = {round(r["from"], 12) for r in label_bars}
        assert starts <= {0.0} | {round(r["to"], 12) for r in label_bars}


def test_latencies_are_drawn_over_the_step_as_it_is() -> None:
    rows = [r for r in rows_of(program_charts.anatomy(made_run.anatomy())) if "over" in r]
    assert len(rows) == 3 * 3
    assert all(r["value"] < 1 for r in rows if r["what"].startswith("half"))
    assert all(r["low"] <= r["value"] <= r["high"] and r["value"] > 1 for r in rows if r["what"].startswith("more"))


def test_kernels_are_told_with_their_check(capsys: pytest.CaptureFixture[str]) -> None:
    records = [r for r in made_run.programs() if r.instrument == "npb"]
    wrong = [
        dataclasses.replace(r, flags=frozenset({"unverified"})) if r.conditions["kernel"] == "cg" else r
        for r in records
    ]
    print_tables(wrong)
    lines = {line.split()[0].strip(","): line for line in flat(capsys.readouterr().out).splitlines()[1:]}
    assert "not verified" in lines["cg"] and lines["cg"].rstrip().endswith("u")
    for kernel in ("ep", "ft", "mg"):
        assert " verified" in lines[kernel] and "not verified" not in lines[kernel]
        assert " ms ±" in lines[kernel] and "op/s" in lines[kernel] and "25 %" in lines[kernel]
    assert list(lines)[1:5] == ["ep", "cg", "ft", "mg"], "in the order of the instrument"


def test_kernels_are_drawn_by_their_speed_over_one_rank_of_one_thread() -> None:
    conditions = {"kernel": "lu", "class": "S", "mpi": "openmpi", "library": "Open MPI 4.1.4", "ranks": 1, "threads": 1}
    elapsed = made_run.record("npb", "elapsed", 0.4, **conditions)
    two = made_run.record("npb", "elapsed", 0.1, **{**conditions, "threads": 2, "run_low": 0.08, "run_high": 0.2})
    slow = made_run.record("npb", "elapsed", 0.8, **{**conditions, "ranks": 2}, flags=["disturbed"])
    other = made_run.record(
        "npb", "elapsed", 0.1, **{**conditions, "kernel": "sp", "threads": 2}
    )  # not measured with one rank of one thread
    rows = rows_of(program_charts.npb([two, elapsed, slow, other]))
    assert {r["series"]: (r["value"], r["flagged"]) for r in rows} == {
        "Open MPI 4.1.4, 1 rank of 2 threads": (pytest.approx(4, rel=0.01), False),
        "Open MPI 4.1.4, 2 ranks": (pytest.approx(0.5, rel=0.01), True),
    }
    (fast,) = (r for r in rows if not r["flagged"])
    assert (fast["low"], fast["high"]) == (pytest.approx(2, rel=0.01), pytest.approx(5, rel=0.01)) and fast[
        "kernel"
    ] == "lu, class S"


def test_the_terminal_has_a_table_that_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [*made_run.pop(count=16), *made_run.anatomy(flags=["disturbed"])]
    for width in (60, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("meshmark.views.terminal.tables.PIPE_COLUMNS", width)
        print_tables(records)
        text = flat(capsys.readouterr().out)
        table = [line for line in text.splitlines() if line.startswith(("neighbour, ", "sendrecv, ", "gyro  "))]
        assert table and max(map(len, table)) <= width
        assert len({line.split("  ")[0] for line in table}) == 5, "names of rows in each block of columns"
        assert "*grid 4x4" in text and text.count("*grid") == 1
        assert text.count("disturbed") == 1, "what all carry is said once"
        assert "the best of 5 grids" in text and "twice the latency" in text


def test_the_report_has_programs_and_a_line_of_what_was_not_asked(tmp_path: Path) -> None:
    records = [*made_run.pop(made_run.LIBRARIES, 16), *made_run.anatomy(flags=["disturbed"])]
    page = flat(write_report(records, [], made_run.run_info(), tmp_path).html.read_text())
    assert re.findall(r'<section id="(\w+)">', page) == [
        "machine",
        "anatomy",
        "pop",
        "pop_grids",
        "absent",
        "flags",
        "provenance",
    ]
    (names,) = re.findall("<p>Not requested in this run: (.*?)\\.</p>", page)
    assert {"latency", "halo", "gups", "clock"} < {*names.split(", ")} and "pop" not in names.split(", ")
    assert "absent: not measured" not in page and '<div class="tile"' not in page and "tile none" not in page
    assert "<b>neighbour, 1 reduction</b>" in page and "the best of 5 grids" in page
    assert re.search(r"<li>gyro: other is -\d+ µs: the curves overestimate the communication time</li>", page)
    assert page.count(">disturbed</span>") > 3
    assert (tmp_path / "charts" / "anatomy.png").stat().st_size > 1000
