"""Test that studies conclude correctly from known numbers, and that a killed study keeps its finished runs.

The tests run real programs for tenths of a second on a machine that may be busy, so they compare times with each other
and never expect a speed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.calibration.native import find_load
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.journal import read_run
from meshmark.load.scenario.scenario import Scenario, ScenarioProgram
from meshmark.load.studies.cells import QUIET, lengthened, member, order, run_cells, scenario, start_study
from meshmark.load.studies.copies import CopiesStudy
from meshmark.load.studies.curve import CurveStudy
from meshmark.load.studies.isolation import IsolationStudy
from meshmark.load.studies.matrix import MatrixStudy
from meshmark.load.studies.mix import MixStudy
from meshmark.load.studies.omp_overload import OmpOverloadStudy
from meshmark.load.studies.outcome import JOURNAL, CellRun, StudyCell, read_outcomes
from meshmark.load.studies.overload import OverloadStudy
from meshmark.load.studies.results import StudyResults, point
from meshmark.load.studies.shared_bus import SharedBusStudy
from meshmark.load.studies.study import StudyOptions
from meshmark.load.synthesis import explain, synthesize
from meshmark.load.synthesis.program import dump_program, parse_program
from meshmark.store.record import Record
from meshmark.values.inputs import checked
from meshmark.views.charts.drawing import for_file
from meshmark.views.pages.studies import STUDIES, draw, read_study
from support.made_base import made_base
from support.made_program import made_program
from support.scenarios import one_line
from support.waiting import until

CPUS = tuple(sorted(os.sched_getaffinity(0)))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
BUSY = ["sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"]
ONCE = StudyOptions(repetitions=1, rounds=0)


# ------------------------------------------------------------------ order of runs and outcomes


def cell(name: str) -> StudyCell:
    program = ScenarioProgram(name="p", command=("true",))
    return StudyCell(name=name, scenarios=(Scenario(programs=(program,), canary=QUIET),))


def test_alone_and_together_take_turns_and_the_seed_draws_the_rest() -> None:
    groups = [[cell(f"{i} alone"), cell(f"{i} together")] for i in range(8)]
    for repetition in range(6):
        names = [c.name for c in order(groups, repetition, seed=3)]
        assert names == [c.name for c in order(groups, repetition, seed=3)]
        assert sorted(names) == sorted(c.name for g in groups for c in g)
        for a, b in zip(names[::2], names[1::2], strict=True):
            assert a.split()[0] == b.split()[0]  # runs that are compared follow each other
            assert a.endswith("together") == bool(repetition % 2)
    orders = [[c.name for c in order(groups, r, seed=3)] for r in (0, 2)]
    assert orders[0] != orders[1]
    assert orders[0] != [c.name for c in order(groups, 0, seed=4)]


def test_a_folder_of_another_study_is_refused_by_the_parameter(tmp_path: Path) -> None:
    start_study(tmp_path / "s", "copies", {"seed": 0, "cpus": "0"})
    start_study(tmp_path / "s", "copies", {"seed": 0, "cpus": "0"})
    with pytest.raises(UsageError) as error:
        start_study(tmp_path / "s", "copies", {"seed": 1, "cpus": "0"})
    assert "seed" in one_line(error)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="not empty"):
        start_study(tmp_path / "other", "copies", {})


def run_of(cell: str, repetition: int, wall_s: float, reason: str = "") -> CellRun:
    use = {
        "program": "p",
        "copy": 0,
        "how": "ok",
        "wall_s": wall_s,
        "waiting_s": 0.5 * wall_s,
        "user_s": wall_s,
        "system_s": 0.0,
        "threads": 1,
        "counts": {},
    }
    totals = dict.fromkeys(
        ("bench_s", "available_s", "user_s", "system_s", "idle_s", "completion_s", "run_s", "waiting_s"), 1.0
    )
    return CellRun.from_json(
        {
            "type": "run",
            "cell": cell,
            "repetition": repetition,
            "run": "000-00",
            "start": "",
            "measured": ["p"],
            "uses": [use],
            "totals": {**totals, "cpus": 1},
            "flags": ["disturbed"],
            "reason": reason,
        }
    )


def test_an_outcome_is_read_back_as_it_was_written_and_a_torn_one_is_not(tmp_path: Path) -> None:
    outcome = run_of("a", 0, 2.0)
    line = json.dumps(outcome.to_json())
    (tmp_path / JOURNAL).write_text(line + '\n{"type": "run", "cell": 3}\nnonsense\n[]\n' + line[: len(line) // 2])
    assert read_outcomes(tmp_path) == [outcome]


def test_a_point_pairs_repetitions_and_says_why_it_is_none() -> None:
    alone = [run_of("a", r, 1.0 + r) for r in range(4)]
    together = [run_of("t", r, 2.0 + 2 * r) for r in range(4)]
    paired, reason = point(1.0, "x", alone, together, "wall", {})
    assert reason == ""
    assert paired is not None
    assert paired.pairs == (2.0, 2.0, 2.0, 2.0)
    assert paired.slowdown.interval is not None
    assert point(1.0, "x", alone, together, "dedicated", {})[0] is not None
    no_point, reason = point(1.0, "x", alone, [run_of("t", 0, 1.0, "it died")], "wall", {})
    assert (no_point, reason) == (None, "it died")
    assert point(1.0, "x", alone, [], "wall", {})[0] is None


# ------------------------------------------------------------------ bad input


def base() -> list[Variant]:
    return list(made_base(seed=1, thread_counts=(1, 2), most=400))


CALLS: dict[str, Callable[[Path], Any]] = {
    "repetitions": lambda out: CopiesStudy(out, work=BUSY, options=StudyOptions(repetitions=0)).run(),
    "clock": lambda out: OverloadStudy(out, work=BUSY, options=StudyOptions(clock="dedicated")).run(),
    "cpus": lambda out: CopiesStudy(out, work=BUSY, cpus=(4000,)).run(),
    "counts": lambda out: CopiesStudy(out, work=BUSY, counts=(0,)).run(),
    "command": lambda out: CopiesStudy(out, work=["no-such-program-here"]).run(),
    "extra": lambda out: OverloadStudy(out, work=BUSY, extra=0).run(),
    "work": lambda out: OverloadStudy(out).run(),
    "policies": lambda out: OmpOverloadStudy(out, parallel=BUSY, sequential=BUSY, policies=("eager",)).run(),
    "priorities": lambda out: OmpOverloadStudy(out, parallel=BUSY, sequential=BUSY, priorities=("20",)).run(),
    "margin": lambda out: IsolationStudy(
        out, variants=base(), domains=((CPUS[0],), (CPUS[-1],)), rate_gb_per_s=1.0, margin=-1
    ).run(),
}
if len(CPUS) > 1:
    CALLS |= {
        "copies": lambda out: SharedBusStudy(out, variants=base(), copies=len(CPUS) + 1).run(),
        "rates": lambda out: SharedBusStudy(out, variants=base(), rates_gb_per_s=(-1.0,)).run(),
        "threshold": lambda out: SharedBusStudy(out, variants=base(), threshold=0).run(),
        "run_time_s": lambda out: SharedBusStudy(out, variants=base(), run_time_s=0).run(),
        "write_fraction": lambda out: MixStudy(out, variants=base(), rate_gb_per_s=1.0, write_fractions=(1.5,)).run(),
        "classes": lambda out: MatrixStudy(out, variants=base(), classes=("steam",)).run(),
        "neighbours": lambda out: CurveStudy(out, work=BUSY, variants=base(), neighbours=len(CPUS)).run(),
        "held_out_gb_per_s": lambda out: CurveStudy(
            out, work=BUSY, variants=base(), rates_gb_per_s=(1, 2), held_out_gb_per_s=(3,)
        ).run(),
    }


@pytest.mark.parametrize("key", CALLS)
def test_a_wrong_argument_is_named_before_anything_runs(key: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        CALLS[key](tmp_path / "study")
    assert key.removesuffix("s") in one_line(error)
    assert not (tmp_path / "study").exists()


def test_one_memory_domain_is_absent_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as error:
        IsolationStudy(tmp_path / "study", variants=base(), domains=((CPUS[0],),)).run()
    assert "domain" in one_line(error)
    assert not (tmp_path / "study").exists()


def test_one_cpu_is_absent_for_what_needs_two(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="two CPUs"):
        CurveStudy(tmp_path / "study", work=BUSY, variants=base(), cpus=CPUS[:1]).run()


# ------------------------------------------------------------------ real programs


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a program with about 0.2 s of fixed work."""
    return made_program(find_load(), tmp_path_factory.mktemp("program") / "busy.json", 1500)


@pytest.fixture(scope="session")
def variants(program: Path) -> list[Variant]:
    """Return base data of the three variants of the program, measured in one run of the program."""
    completed = subprocess.run([find_load(), "program", program], capture_output=True, text=True, check=True)
    trial_lines = {x["name"]: x for x in map(json.loads, completed.stdout.splitlines()) if x["type"] == "variant"}
    variants = []
    for raw in json.loads(program.read_text())["variants"]:
        variant = checked(Variant, {k: v for k, v in raw.items() if k not in ("calls", "phase")}, "made")
        call_s = trial_lines[variant.name]["cpu_s"] / trial_lines[variant.name]["calls"]
        variants.append(replace(variant, wall_s=call_s, cpu_s=call_s))
    return variants


def test_overload_makes_one_more_than_there_are_cpus_wait(program: Path, tmp_path: Path) -> None:
    study = OverloadStudy(tmp_path / "study", work=program, cpus=CPUS[:1], options=ONCE).run()
    for programs in (1, 2):
        records = [r for r in study.records if r.conditions["programs"] == programs]
        total = {r.metric: r.value for r in records if "copy" not in r.conditions}
        assert total["available"] == pytest.approx(total["bench"])  # of one CPU
        assert total["user_sum"] + total["system_sum"] + total["idle"] == pytest.approx(total["available"])
        assert total["idle"] > -0.1 * total["available"]
        assert total["bench"] <= total["run_sum"] + 0.5
    # Two programs have equal work and share a CPU: each waits for about as long as the other computes.
    cpu_s = total["user_sum"] + total["system_sum"]
    assert total["waiting_sum"] > 0.3 * cpu_s / 2
    assert total["bench"] > 0.9 * cpu_s
    waiting = [r for r in records if r.metric == "waiting"]
    assert [r.conditions["copy"] for r in waiting] == [0, 1]
    assert max(r.value for r in waiting) > 0.01 * total["bench"]
    # The programs measure their waiting times themselves. The observer sees them also while they start and end.
    assert sum(r.value for r in waiting) <= 1.1 * total["waiting_sum"] + 0.05
    assert all("oversubscribed" in r.flags for r in waiting)
    assert "2 on 1" in study.table


def repetitions(study: CopiesStudy) -> list[int]:
    return [len(r.samples) for r in study.records if r.metric == "throughput"]


def test_copies_have_times_throughput_records_and_a_chart(tmp_path: Path) -> None:
    messages: list[str] = []
    study = CopiesStudy(
        tmp_path / "study",
        work=BUSY,
        cpus=CPUS[:1],
        counts=(2, 3),
        options=StudyOptions(repetitions=4, notify=messages.append),
    ).run()
    assert study.counts == [1, 2, 3]
    assert repetitions(study) == [4, 4, 4]
    assert len(messages) == 12
    # Three copies on one CPU do three times the work of one, so they take longer. If other processes use the machine,
    # the interval is wide, but contains the true slowdown.
    interval = study.points[-1].slowdown.interval
    assert interval is not None and interval[1] > 1.3
    assert all(t > 0 for t in study.throughput.values())
    records = read_study(study.folder).records
    assert records == list(study.records)
    slowdowns = [r for r in records if r.metric == "slowdown"]
    assert [r.conditions["copies"] for r in slowdowns] == [2, 3]
    spec = for_file(draw(records)["copies"])
    ratios = [row["value"] for rows in spec["datasets"].values() for row in rows if "label" in row]
    assert ratios == [p.slowdown.ratio for p in study.points]
    options = StudyOptions(repetitions=4)
    resumed = CopiesStudy(study.folder, work=BUSY, cpus=CPUS[:1], counts=(2, 3), options=options).run()
    assert resumed.records == study.records


@two_cpus
def test_a_curve_predicts_what_was_held_out(program: Path, variants: list[Variant], tmp_path: Path) -> None:
    reach = explain(variants, TargetProfile(run_time_s=0.5, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert reach is not None
    low, middle, high = (reach[0] + share * (reach[1] - reach[0]) for share in (0.2, 0.4, 0.6))
    study = CurveStudy(
        tmp_path / "study",
        work=program,
        variants=variants,
        cpus=CPUS[:2],
        rates_gb_per_s=(low, high),
        held_out_gb_per_s=(middle,),
        neighbour_run_time_s=0.5,
        outlasts=40,
        options=StudyOptions(repetitions=2, rounds=0),
    ).run()
    assert [p.x for p in study.points] == pytest.approx([low, high])
    assert all(p.slowdown.ratio > 0 for p in study.points)
    assert len(study.predictions) == 1
    check = study.predictions[0]
    assert check.error_points == pytest.approx(100 * abs(check.predicted - check.measured.slowdown.ratio))
    assert study.predict(middle) == check.predicted
    assert study.predict(low) <= study.predict(high)
    with pytest.raises(UsageError):
        study.predict(2 * high)
    assert {r.metric for r in study.records} == {"elapsed", "slowdown", "prediction_gap"}
    assert draw(study.records).keys() == {"interference_curve"}
    for run in (study.folder / "runs").iterdir():
        for p in read_run(run).programs:  # neighbours are terminated, measured programs end
            assert p.how == ("ok" if p.program == "measured" else "signal"), (run, p)


def test_threads_that_share_one_cpu_never_run_at_once(tmp_path: Path) -> None:
    team = made_program(find_load(), tmp_path / "team.json", 3000, threads=2)
    study = OmpOverloadStudy(
        tmp_path / "study",
        parallel=team,
        sequential=BUSY,
        threads=2,
        cpus=CPUS[:1],
        policies=("passive",),
        options=ONCE,
    ).run()
    value = {(r.metric, r.conditions.get("company")): r.value for r in study.records}
    # On a busy machine, the times of both threads are read at different moments. On two CPUs, the serialisation would
    # be 0, and 2 threads would run.
    assert value["serialisation", "alone"] > 0.7
    assert value["serialisation", "together"] > 0.7
    assert value["running_threads", "together"] < 1.3
    assert 0 < value["attained", None] <= 1
    assert all("oversubscribed" in r.flags for r in study.records)
    assert draw(study.records).keys() == {"omp_overload"}


def test_sequential_programs_of_a_lower_priority_receive_less(tmp_path: Path) -> None:
    team = made_program(find_load(), tmp_path / "team.json", 8000, threads=2)
    study = OmpOverloadStudy(
        tmp_path / "study",
        parallel=team,
        sequential=BUSY,
        threads=2,
        cpus=CPUS[:1],
        policies=("passive",),
        priorities=("0", "19", "idle"),
        options=ONCE,
    ).run()
    attained = {r.conditions.get("priority", "0"): r.value for r in study.records if r.metric == "attained"}
    assert attained["19"] < 0.7 * attained["0"] and attained["idle"] < 0.7 * attained["0"]


@pytest.mark.slow
@two_cpus
def test_a_matrix_has_every_class_beside_every_other_and_itself(variants: list[Variant], tmp_path: Path) -> None:
    study = MatrixStudy(
        tmp_path / "study",
        variants=variants,
        classes=("stream@memory", "gemm"),
        cpus=CPUS[:2],
        run_time_s=0.1,
        options=StudyOptions(repetitions=2, rounds=0),
    ).run()
    assert study.cells.keys() == {(a, b) for a in study.classes for b in study.classes}
    for run in (study.folder / "runs").iterdir():
        cpu_index = {p.program: CPUS.index(read_run(run).bound[p.program, 0][0]) for p in read_run(run).programs}
        turn = int(run.name[-2:]) % 2  # the programs swap CPUs with each repetition
        assert cpu_index["measured"] == turn
        assert cpu_index.get("neighbour", 1 - turn) == 1 - turn


@pytest.mark.slow
@two_cpus
def test_a_bus_has_its_rates_and_says_where_it_passes_or_why_not(variants: list[Variant], tmp_path: Path) -> None:
    reach = explain(variants, TargetProfile(run_time_s=0.2, metrics={"memory_gb_per_s": 1.0}))["memory_gb_per_s"]
    assert reach is not None
    rates = [reach[0] + share * (reach[1] - reach[0]) for share in (0.3, 0.7)]
    study = SharedBusStudy(
        tmp_path / "study",
        variants=variants,
        cpus=CPUS[:2],
        rates_gb_per_s=(*rates, 1e5),
        run_time_s=0.2,
        options=StudyOptions(repetitions=2, rounds=0, clock="dedicated"),
    ).run()
    assert len(study.points) == 2
    assert study.points[0].x < study.points[1].x
    impossible = [a for a in study.absences if a.conditions.get("memory_rate_asked") == 1e14]
    assert "possible" in impossible[0].reason
    crossings = [r for r in study.records if r.metric == "crossing_rate"]
    assert bool(crossings) == (study.crossing.value is not None)
    assert crossings or study.crossing.reason in [a.reason for a in study.absences]
    assert [len(o.copies()) for o in read_outcomes(study.folder) if "together" in o.cell] == [2] * 4


@two_cpus
def test_a_neighbour_that_ends_too_early_does_not_count(program: Path, tmp_path: Path) -> None:
    def beside(work: Sequence[str], endless: bool) -> StudyCell:
        members = (member("measured", program, [CPUS[:1]]), member("other", work, [CPUS[1:2]], endless=endless))
        return StudyCell(name=f"beside {endless}", scenarios=(scenario("two", *members),), measured=("measured",))

    short, long = beside(["true"], False), beside(["true"], True)

    def alone(name: str) -> StudyCell:
        return StudyCell(name=name, scenarios=(scenario("one", member("measured", program, [CPUS[:1]])),))

    outcomes = run_cells(tmp_path, [[alone("a"), short], [alone("b"), long]], 3, 0)
    assert len(outcomes[short.name]) == 1  # the failed cell is not tried again
    assert len(outcomes["a"]) < 3  # the cell that it would be compared with is not run again, either
    assert "other" in outcomes[short.name][0].reason
    assert [o.reason for o in outcomes[long.name]] == ["", "", ""]
    assert len(outcomes["b"]) == 3


def test_a_program_that_dies_is_said_and_not_counted(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError) as error:
        CopiesStudy(
            tmp_path / "study", work=["sh", "-c", "echo no luck >&2; exit 3"], cpus=CPUS[:1], options=ONCE
        ).run()
    assert "status 3: no luck" in one_line(error)


def test_a_program_that_hangs_is_ended_and_not_counted(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError) as error:
        CopiesStudy(
            tmp_path / "study", work=["sleep", "100"], cpus=CPUS[:1], options=replace(ONCE, timeout_s=0.2)
        ).run()
    assert "timeout" in one_line(error)


def test_a_study_is_not_resumed_with_another_program(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")
    for _ in range(2):
        with pytest.raises(UsageError, match="not a program of meshmark load make"):
            CopiesStudy(tmp_path / "study", work=file, cpus=CPUS[:1], options=ONCE).run()
    file.write_text("[]")
    with pytest.raises(UsageError, match="work"):
        CopiesStudy(tmp_path / "study", work=file, cpus=CPUS[:1], options=ONCE).run()


KILLED = """
import sys
from pathlib import Path
from meshmark.load.studies.copies import CopiesStudy
from meshmark.load.studies.study import StudyOptions
options = StudyOptions(repetitions=4)
CopiesStudy(Path(sys.argv[1]), work=sys.argv[2:], cpus=({cpu},), counts=(1, 2), options=options).run()
"""


def test_a_killed_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    mark = {"STUDY_OF_TEST": str(folder)}
    words = [sys.executable, "-c", KILLED.format(cpu=CPUS[0]), str(folder), *BUSY]
    child = subprocess.Popen(words, env={**os.environ, **mark})
    assert until(lambda: len(read_outcomes(folder)) >= 3 or child.poll() is not None)
    child.send_signal(signal.SIGKILL)
    child.wait()
    journal_before = (folder / JOURNAL).read_bytes()
    outcomes_before = read_outcomes(folder)
    assert 3 <= len(outcomes_before) < 8
    runs = {o.run: (folder / "runs" / o.run / "run.jsonl").stat().st_mtime_ns for o in outcomes_before}
    with (folder / JOURNAL).open("ab") as journal:
        journal.write(b'{"type": "run", "cell": "1 co')

    messages: list[str] = []
    study = CopiesStudy(
        folder, work=BUSY, cpus=CPUS[:1], counts=(1, 2), options=StudyOptions(repetitions=4, notify=messages.append)
    ).run()
    assert f"{len(outcomes_before)} runs are done" in messages[0]
    assert len(messages) == 1 + 8 - len(outcomes_before)
    assert (folder / JOURNAL).read_bytes().startswith(journal_before)
    assert read_outcomes(folder)[: len(outcomes_before)] == outcomes_before
    assert repetitions(study) == [4, 4]
    for run, modified_ns in runs.items():
        assert (folder / "runs" / run / "run.jsonl").stat().st_mtime_ns == modified_ns
    for entry in Path("/proc").iterdir():  # no process of the killed study still runs
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            assert str(folder).encode() not in environ


def test_a_longer_program_has_the_same_mix() -> None:
    short = synthesize(base(), TargetProfile(run_time_s=2.0, metrics={"memory_gb_per_s": 2.0}))
    long = parse_program(dump_program(lengthened(short, 6)), "long")
    assert long.planned()["run_time_s"] == pytest.approx(6 * short.planned()["run_time_s"])
    assert long.planned()["memory_gb_per_s"] == pytest.approx(short.planned()["memory_gb_per_s"])


def test_every_study_has_a_chart_of_its_records() -> None:
    """The records have intervals and flags, or lack intervals, and can all be drawn."""
    conditions_by_study: dict[str, dict[str, Any]] = {
        "shared_bus": {"memory_rate": 2e9, "copies": 2},
        "mix": {"write_fraction": 0.25},
        "isolation": {"domains": 2},
        "overload": {"programs": 3},
        "omp_overload": {"wait_policy": "active"},
        "copies": {"copies": 2},
        "interference_matrix": {"class": "stream", "neighbour": "dense"},
        "interference_curve": {"neighbour_rate": 1e9, "held_out": True, "neighbour": "x"},
        "scenario": {"program": "x"},
    }
    records = []
    for study, conditions in conditions_by_study.items():
        for repetitions in (1, 6):
            results = StudyResults(study=study, machine="m", common={"cpus": "0-1"}, provenance={})
            alone = [run_of("a", r, 1.0 + 0.1 * r) for r in range(repetitions)]
            together = [run_of("t", r, 1.5 + 0.1 * r) for r in range(repetitions)]
            chart_point, _ = point(1.0, "x", alone, together, "wall", conditions)
            assert chart_point is not None
            results.add_point(chart_point)
            results.add("user_sum", [1.0], conditions)
            results.add("waiting_sum", [2.0], conditions)
            records += results.records
    for record in records:
        assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record
    charts = draw(records)
    assert charts.keys() == STUDIES.keys() == conditions_by_study.keys()
    for name, chart in charts.items():
        spec = for_file(chart)
        assert json.dumps(spec, allow_nan=False)
        rows = [row for rows in spec["datasets"].values() for row in rows if "flagged" in row]
        assert rows, name
        assert name == "overload" or all(row["low"] <= row["value"] <= row["high"] for row in rows)


def test_no_records_are_no_charts() -> None:
    assert draw([]) == {}
    assert STUDIES.keys() == {
        "shared_bus",
        "mix",
        "isolation",
        "overload",
        "omp_overload",
        "interference_matrix",
        "interference_curve",
        "copies",
        "scenario",
    }
