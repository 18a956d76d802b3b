"""Test that every view of a run shows the plans of synthetic programs, their measured figures and their phases."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from meshmark.load.compare import compare, read_side
from meshmark.load.scenario.journal import read_run
from meshmark.load.scenario.lanes import CHECK, flags_text, lanes, plan_lines, totals_of
from meshmark.load.scenario.records import records_of
from meshmark.load.scenario.result import LoadRun
from meshmark.load.synthesis.make import VARIES, varying
from meshmark.views.gantt import gantt_html, gantt_svg
from meshmark.views.terminal.gantt import gantt_text
from support.made_load import made_load

DONE = {"wall_s": 8.75, "planned_s": 8.0, "memory_read_bytes": 6e9, "memory_write_bytes": 2e9, "flops": 0.0}


def ran(folder: Path, **done: float) -> LoadRun:
    """Return a simulated run of two copies of a synthetic program, which took 9.5 s and 10 s, and a command."""
    return read_run(made_load(folder, {"stream": [9.5, 10.0], "shell": [3.0]}, done={"stream": {**DONE, **done}}))


def test_a_program_has_three_phases(tmp_path: Path) -> None:
    first, second, command = ran(tmp_path / "run").programs
    assert (first.setup_s, first.running_s, first.check_s) == (0.25, 8.75, pytest.approx(0.75))
    assert second.check_s == pytest.approx(1.25)
    assert first.plan_gap == pytest.approx(0.09375)
    assert first.rates() == {"memory_rate": pytest.approx(8e9 / 8.75)}  # counts of 0 have no rate
    assert (command.running_s, command.check_s, command.plan_gap, command.rates()) == (3.0, 0.0, None, {})


def test_records_tell_the_phases_apart(tmp_path: Path) -> None:
    records, _ = records_of(ran(tmp_path / "run"))
    values = {(r.metric, r.conditions.get("program"), r.conditions.get("copy")): r.value for r in records}
    for copy, elapsed in enumerate((9.5, 10.0)):
        phases = [values[m, "stream", copy] for m in ("setup", "running", "check", "plan_gap")]
        assert phases == pytest.approx([0.25, 8.75, elapsed - 8.75, 0.09375])
        assert values["memory_rate", "stream", copy] == pytest.approx(8e9 / 8.75)
    assert {m for m, program, _ in values if program == "shell"}.isdisjoint({"setup", "running", "check", "plan_gap"})


def test_totals_and_lines_show_planned_against_got(tmp_path: Path) -> None:
    run = ran(tmp_path / "run")
    rows = {label: (value, note) for label, value, note in totals_of(run)}
    assert rows["Against plan"] == ("+9.4 %", "run time of stream, the largest deviation")
    assert rows["Set-up"][0] == "0.25 s"
    (line,) = plan_lines(run)
    assert line == (
        "stream: ran 8.75 s of 8.00 s planned (+9.4 %), memory 914.3 MB/s of 1.000 GB/s, "
        "set up in 0.25 s before the start, checked its results in 0.75 s to 1.25 s"
    )
    assert line in re.sub(r"<[^>]*>", "", gantt_html(run))


def test_an_early_end_is_as_far_off_as_a_late_one(tmp_path: Path) -> None:
    rows = {label: value for label, value, _ in totals_of(ran(tmp_path / "run", wall_s=7.0))}
    assert rows["Against plan"] == "-12.5 %"


def test_a_schedule_is_part_of_the_line(tmp_path: Path) -> None:
    (line,) = plan_lines(ran(tmp_path / "run", pace=0.1, spun_s=0.875, late_s=0.5))
    assert "busy-waited 10.0 % of its time to keep its schedule and ended 0.50 s behind it" in line
    (line,) = plan_lines(ran(tmp_path / "soon", pace=0.1, spun_s=0.875, late_s=0.004))
    assert "behind" not in line


def test_charts_mark_the_check_of_results(tmp_path: Path) -> None:
    run = ran(tmp_path / "run")
    spans = [lane.check for lane in lanes(run)]
    assert spans == [pytest.approx((8.75, 9.5)), pytest.approx((8.75, 10.0)), None]
    tree = ET.fromstring(gantt_svg(run))
    marks = [r for r in tree.iter("{http://www.w3.org/2000/svg}rect") if r.get("class") == "check"]
    assert len(marks) == 3  # the legend and two lanes
    assert float(marks[2].get("width", 0)) == pytest.approx(float(marks[1].get("width", 0)) * 1.25 / 0.75, rel=0.01)
    text = gantt_text(run, 100)
    rows = [line for line in text.splitlines() if line.startswith("stream")]
    assert rows[0].count("=") < rows[1].count("=")
    assert f"= {CHECK}" in text


def test_older_journals_and_commands_have_no_plan(tmp_path: Path) -> None:
    run = ran(tmp_path / "run", planned_s=0.0)
    assert "Against plan" not in {label for label, _, _ in totals_of(run)}
    assert plan_lines(run)[0].startswith("stream: ran 8.75 s, memory 914.3 MB/s, set up")
    command_run = read_run(made_load(tmp_path / "plain", {"shell": [1.0]}))
    assert (
        plan_lines(command_run) == []
        and CHECK not in gantt_text(command_run)
        and 'class="check"' not in gantt_svg(command_run)
    )


@pytest.mark.parametrize(("error", "pace"), [(VARIES, 0.1), (0.07, 0.15), (-0.38, 0.8), (3.0, 0.9)])
def test_the_advised_pace_leaves_twice_the_error(error: float, pace: float) -> None:
    assert f"{100 * error:+.1f} %" in varying(error) and f"pace = {pace:g} " in varying(error)


def test_a_program_far_off_its_plan_is_flagged_in_every_view(tmp_path: Path) -> None:
    run = ran(tmp_path / "run")
    assert run.flags(run.programs[0]) == {"off_plan"}
    assert run.flags(run.programs[2]) == frozenset(), "a command has no plan"
    assert flags_text(run) == "flags: off_plan"
    records, _ = records_of(run)
    assert all("off_plan" in r.flags for r in records if r.conditions.get("program") == "stream")
    assert {r.metric for r in records if "program" not in r.conditions and "off_plan" in r.flags} >= {"bench"}
    close_run = ran(tmp_path / "close", planned_s=8.4)
    assert close_run.flags(close_run.programs[0]) == frozenset()


def test_being_off_the_plan_is_no_doubt_about_a_comparison(tmp_path: Path) -> None:
    run_a, run_b = ran(tmp_path / "a"), ran(tmp_path / "b", planned_s=8.75)
    comparison = compare(read_side(run_a.folder), read_side(run_b.folder))
    [stream] = [m for m in comparison.programs if m.program == "stream"]
    assert stream.flags_a == {"off_plan"}
    assert "off_plan" not in stream.doubt
