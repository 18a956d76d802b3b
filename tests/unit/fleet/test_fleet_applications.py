"""Applications on nodes: what is refused before anything runs, what nodes run, and the verdicts on their runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.applications.application import shipped
from meshmark.errors import AbsentError, UsageError
from meshmark.fleet.application_records import ApplicationOutcome, verdicts_of
from meshmark.fleet.campaigns.campaign import NodeSelection, begin, new_campaign
from meshmark.fleet.campaigns.confirm import repeated
from meshmark.fleet.data.ingest import ingest
from meshmark.fleet.data.panel import read_panel
from meshmark.fleet.data.results import read_result
from meshmark.fleet.data.values import query, read_matrix
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import Confirmation, controls, decide, look, reference
from meshmark.fleet.health.limits import with_limits
from meshmark.fleet.plan import NodePlan
from meshmark.measure.runs.spec import parse_spec
from meshmark.native import find_native
from meshmark.values.arrow import rows_of
from support.made_application import SPEC, SUM, lines_with, plan_of, run_line
from support.made_fleet import MadeEngine, lines_of, write_result

AS_IT_IS = {"build": "b", "command": "c", "start": "s"}


def with_plan(fleet: Fleet, plan: NodePlan) -> NodePlan:
    fleet.plans.mkdir(parents=True, exist_ok=True)
    (fleet.plans / f"{plan.id}.json").write_bytes(plan.to_bytes())
    return plan


def verdict(
    folder: Path, *runs: dict[str, Any], status: str = "ok", file: str = SUM, spec: str = SPEC
) -> ApplicationOutcome:
    """Return the verdict on these runs."""
    plan = with_plan(Fleet(folder), plan_of(folder, file, spec=spec))
    path = write_result(folder, "n1", lines_with(lines_of("n1"), plan, *runs, status=status))
    (node_verdict,) = verdicts_of(folder / "plans", read_result(path)).values()
    return node_verdict


def values(found: ApplicationOutcome) -> dict[str, tuple[float, ...]]:
    return {record.metric: record.samples for record in found.records}


# ------------------------------------------------------------------ plans


def test_a_step_has_all_that_a_node_needs_to_run_the_program(tmp_path: Path) -> None:
    spec = SPEC + "warmup = 0\nrepetitions = 2\noutput_kib = 1\ndimensions = { size = 7 }\n"
    plan = plan_of(tmp_path, SUM + '"sub/{{x}}" = "{threads} {{}}"\n', spec=spec)
    assert [step["id"] for step in plan.steps] == ["01-sum.r1", "02-sum.r2"]
    first = plan.steps[0]
    assert first["argv"] == ["sh", f"{tmp_path}/sum.sh", "input.txt"]
    program = first["program"]
    assert program["files"] == {"input.txt": "7", "sub/{{x}}": "1 {}"}
    assert (program["runs"], program["warmup"], program["kept"], program["timeout_s"]) == (2, 0, 1024, 20.0)
    # The limits are the same as in `measure app`: the runner defines no constants.
    assert (program["verify_timeout_s"], program["verify_output"], program["failures"]) == (300.0, 1 << 30, 2)
    assert first["limit_s"] >= 3 * 20.0 and plan.limit_s == 2 * first["limit_s"]


def test_applications_and_instruments_take_turns(tmp_path: Path) -> None:
    spec = SPEC + 'repetitions = 2\n[[step]]\ninstrument = "clock"\nrepetitions = 2\noptions = { budget = "1s" }\n'
    plan = plan_of(tmp_path, spec=spec)
    assert [step["id"] for step in plan.steps] == ["01-sum.r1", "02-clock.r1", "03-sum.r2", "04-clock.r2"]
    assert ["program" in step for step in plan.steps] == [True, False, True, False]


def test_each_step_runs_its_own_file_whatever_its_name_is(tmp_path: Path) -> None:
    for name in ("a", "a-2"):
        file = SUM.replace("input.txt", f"{name}.txt").replace("size = 100", "size = 100\nk = 1")
        (tmp_path / f"{name}.toml").write_text(file.replace("sum.sh", "sum.sh {k}"), encoding="utf-8")
    steps = ('"a.toml"', '"a.toml"\ndimensions = { k = 2 }', '"a-2.toml"', '"a.toml"\nname = "v.r2"')
    spec = 'name = "ours"\n' + "".join(f"[[step]]\napplication = {step}\n" for step in steps)
    plan = plan_of(tmp_path, spec=spec)
    assert [step["argv"][-2:] for step in plan.steps] == [
        ["1", "a.txt"],
        ["2", "a.txt"],
        ["1", "a-2.txt"],
        ["1", "a.txt"],
    ]
    assert [step["id"] for step in plan.steps] == ["01-a", "02-a-3", "03-a-2", "04-v.r2.r1"]
    repeated_plan = repeated(plan, 2)
    assert [step["id"] for step in repeated_plan.steps[3::4]] == ["004-v.r2.r1", "008-v.r2.r2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[figure]", 'prepare = ["make"]\n[figure]'), "application.prepare: found 'make'; allowed on nodes: inputs"),
        (("[figure]", "profile = true\n[figure]"), "application.profile: found true; allowed on nodes: false"),
        (("size = 100", "size = 100\nranks = 2"), "dimensions.ranks: found 2; allowed on nodes: 1; a launcher"),
        (("size = 100", "size = [1, 2]"), "dimensions.size: found 1, 2; allowed on nodes: one value"),
        (("size = 100", "size = 1\ncopies = 2"), "dimensions.copies: found 2; allowed on nodes: 1"),
        (("size = 100", 'size = 1\ncache = "1MiB"'), "dimensions.cache: found 1MiB; allowed on nodes: all"),
        (("size = 100", 'size = 1\nprefetchers = "on"'), "dimensions.prefetchers: found on; allowed on nodes: none"),
        (("sh {source}", "{meshmark} {source}"), "application: found {meshmark}; allowed on nodes: other programs"),
        (("sh {source}", "./sum {source}"), "application.command: found './sum'; allowed on nodes: a program of"),
        (("[figure]", 'output = "/x"\n[figure]'), "application.output: found '/x'; allowed on nodes: a file in"),
        (("[figure]", 'output = "input.txt"\n[figure]'), "application.output: found 'input.txt'; allowed on nodes: a"),
        (("timeout_s = 20", "timeout_s = 1e5"), "limits.timeout_s: found 100000, with which 3 runs may take longer"),
        (
            ("[limits]", "[build.O2]\n[limits]"),
            "build: found 'O2'; allowed on nodes: a program that is installed on the nodes",
        ),
        (("expected", "expekted"), "verify.expekted: unknown key"),
    ],
)
def test_what_nodes_cannot_do_is_refused_by_its_key(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_of(tmp_path, SUM.replace(*change))
    assert message in str(error.value) and "sum.toml: " in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("../x", "found 'out/../x'; allowed on nodes: a file in the folder of the run"),
        ("input.txt", "found 'out/input.txt'; allowed on nodes: a file that [files] does not have"),
    ],
)
def test_the_file_of_results_is_checked_with_its_values(tmp_path: Path, value: str, message: str) -> None:
    file = SUM.replace("[figure]", 'output = "out/{k}"\n[figure]').replace("size = 100", f'size = 100\nk = "{value}"')
    with pytest.raises(UsageError) as error:
        plan_of(tmp_path, file.replace('"input.txt" =', '"out/input.txt" ='))
    assert f"application.output: {message}" in str(error.value)


def test_small_limits_and_one_rank_are_as_they_are(tmp_path: Path) -> None:
    file = SUM.replace("timeout_s = 20", "timeout_s = 20\noutput_mib = 1e-9\nmemory_mib = 1e-9")
    (step,) = plan_of(tmp_path, file.replace("size = 100", "size = 100\nranks = 1")).steps
    assert (step["program"]["output"], step["program"]["memory"]) == (1, 1), "the runner refuses 0"
    assert step["program"]["environment"] == {} and step["argv"][0] == "sh"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("", "step[0]: found neither of instrument and application"),
        ('application = "a.toml"\ninstrument = "clock"', "step[0]: found both of instrument and application"),
        ('application = "none.toml"', "step[0]: application: found '"),
        ('application = "a.toml"\noptions = { x = 1 }', "step[0]: options: found with an application"),
        ('instrument = "clock"\nruns = 3', "step[0]: runs: found with an instrument"),
        ('application = "a.toml"\nruns = 0', "step[0].runs: found 0; allowed: an integer from 1 to 100"),
        ('application = "a.toml"\ndimensions = { a = [1] }', "step[0].dimensions.a: found [1]"),
    ],
)
def test_steps_that_are_wrong_are_refused(tmp_path: Path, step: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        plan_of(tmp_path, spec=f'name = "ours"\n[[step]]\n{step}\n')
    assert message in str(error.value)


def test_outputs_that_no_head_would_take_in_are_refused(tmp_path: Path) -> None:
    spec = SPEC.replace("runs = 2", "runs = 100\noutput_kib = 512")
    with pytest.raises(UsageError) as error:
        plan_of(tmp_path, spec=spec)
    # 102 runs with two outputs of 512 KiB each.
    message = (
        "ours: step[0].output_kib: found 512, with which a node may have 102 MiB of outputs; allowed: 64 MiB, so at"
    )
    assert str(error.value) == f"{message} most 321"
    plan_of(tmp_path, spec=spec.replace("512", "321"))
    with pytest.raises(UsageError, match=r"step\[0\]\.output_kib: found 321"):
        plan_of(tmp_path, SUM.replace("[figure]", 'output = "r"\n[figure]'), spec=spec.replace("512", "321"))
    plan_of(tmp_path, spec=SPEC.replace("runs = 2", "repetitions = 100"))  # the limits have their default values


def test_a_survey_of_one_machine_has_no_applications() -> None:
    with pytest.raises(UsageError, match=r"step\[0\]: application: found 'sum.toml'; allowed: in steps of meshmark fl"):
        parse_spec(SPEC, "ours.toml")


def test_a_confirmation_gives_programs_no_seed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, spec=SPEC + '[[step]]\ninstrument = "clock"\noptions = { budget = "1s" }\n')
    repeated_plan = repeated(plan, 3)
    assert [step["argv"][-2:] for step in repeated_plan.steps[:2]] == [plan.steps[0]["argv"][-2:], ["--seed", "1"]]
    assert len(repeated_plan.steps) == 6 and repeated_plan.steps[0]["program"] == plan.steps[0]["program"]


def test_which_shipped_applications_work_on_nodes_is_documented(tmp_path: Path) -> None:
    works = []
    for name in shipped():
        with contextlib.suppress(UsageError):
            plan_of(tmp_path, spec=f'name = "ours"\n[[step]]\napplication = "{name}"\n')
            works.append(f"`{name}`")
    page = (Path(__file__).parents[3] / "docs/reference/survey.md").read_text(encoding="utf-8")
    assert f"work on nodes: {', '.join(works[:-1])} and {works[-1]}" in page.replace("\n", " ")


# ------------------------------------------------------------------ verdicts


def test_runs_become_records_as_of_measure_app(tmp_path: Path) -> None:
    outcome = verdict(
        tmp_path, run_line(0, elapsed_s=9.0), run_line(1), run_line(2, elapsed_s=0.7, err="rate: 260 MB/s\n")
    )
    assert not outcome.absences and not outcome.wrong
    assert values(outcome) == {
        "figure_of_merit": (250e6, 260e6),
        "elapsed": (0.5, 0.7),
        "user": (0.25, 0.25),
        "system": (0.125, 0.125),
        "peak_memory": (1 << 20, 1 << 20),
        "minor_faults": (100, 100),
        "major_faults": (0, 0),
        "switches_involuntary": (2, 2),
    }
    figure = outcome.records[0]
    assert (figure.instrument, figure.unit, figure.better, figure.flags) == ("app", "B/s", "higher", frozenset())
    assert figure.conditions["program"] == "sum" and figure.conditions["size"] == "100"
    assert figure.machine == "n1-0123abcd" and figure.provenance["verified"] is True
    # For counts of events, neither direction is better: nodes are not judged by these metrics.
    assert {r.better for r in outcome.records if r.unit == "1"} == {"none"}


def test_memory_that_the_runner_hides_is_no_record(tmp_path: Path) -> None:
    figures = values(verdict(tmp_path, run_line(1, peak_bytes=0), run_line(2)))
    assert "peak_memory" not in figures and "elapsed" in figures


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        (('"{size}"', '"{size} more"'), SPEC),
        (("MB/s'", "MB'"), SPEC),
        (('"B/s"', '"1/s"'), SPEC),
        (("1e6", "1e3"), SPEC),
        (('"higher"', '"lower"'), SPEC),
        (("[figure]", 'output = "result"\n[figure]'), SPEC),
        (("", ""), SPEC + "warmup = 0\n"),
    ],
)
def test_another_input_or_figure_is_another_point(tmp_path: Path, change: tuple[str, str], spec: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = verdict(tmp_path / "a", run_line())
    second = verdict(tmp_path / "b", run_line(), file=SUM.replace(*change), spec=spec)
    assert first.records[0].conditions["definition"] != second.records[0].conditions["definition"]


def test_another_number_of_runs_or_a_limit_is_the_same_point(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = verdict(tmp_path / "a", run_line())
    spec = SPEC.replace("runs = 2", "runs = 5\nwarmup = 2\noutput_kib = 9")
    second = verdict(tmp_path / "b", run_line(), file=SUM.replace("timeout_s = 20", "timeout_s = 30"), spec=spec)
    assert first.records[0].conditions["definition"] == second.records[0].conditions["definition"]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({"how": "status", "code": 3, "err": "no licence\n"}, "ended with status 3: no licence"),
        ({"how": "signal", "code": 11}, "ended with SIGSEGV: sum: 5050"),
        ({"how": "signal", "code": 25}, "wrote more than 1024 MiB to a file"),
        ({"how": "time"}, "took longer than 20 s"),
        ({"how": "time", "stuck": 1}, "took longer than 20 s; 1 process cannot be ended"),
        ({"how": "start", "code": 2}, "cannot be started: No such file or directory"),
        ({"how": "folder", "code": 28}, "its folder on the node cannot be used: No space left on device"),
        ({"how": "output"}, "wrote more than 1024 MiB"),
        ({"left": 2}, "left 2 processes running, which were killed"),
        ({"out": "sum: 5050\n"}, "figure.pattern: found no match in the output, a positive number is required"),
        ({"out": "sum: 5050\n", "cut": True}, "of which the node kept only the end; a larger output_kib keeps more"),
        ({"number": "x"}, "its run cannot be read: 01-sum: number: found 'x'"),
    ],
)
def test_failures_have_the_labels_of_measure_app(tmp_path: Path, run: dict[str, Any], reason: str) -> None:
    bad = run_line(**{"number": 1, **run})
    outcome = verdict(tmp_path, bad, bad, status="failed")
    assert not outcome.records and not outcome.wrong
    (absence,) = outcome.absences
    assert absence.kind == "error" and absence.instrument == "app"
    assert absence.reason.startswith("sum size=100: ") and reason in absence.reason


def test_a_program_that_is_not_installed_is_absent_with_its_package(tmp_path: Path) -> None:
    outcome = verdict(tmp_path, run_line(0, how="missing", code=2), status="absent")
    (absence,) = outcome.absences
    assert (absence.kind, absence.reason) == ("absent", "sum: found no program sh; it is in the package sum-tools")


def test_one_failure_leaves_the_other_runs(tmp_path: Path) -> None:
    outcome = verdict(tmp_path, run_line(1, how="signal", code=9), run_line(1), run_line(2))
    assert not outcome.absences and outcome.records[0].provenance["failed"] == 1
    assert values(outcome)["elapsed"] == (0.5, 0.5)


def test_a_wrong_result_names_the_node(tmp_path: Path) -> None:
    outcome = verdict(tmp_path, run_line(1), run_line(2, out="rate: 250 MB/s\nsum: 5051\n"))
    assert values(outcome)["elapsed"] == (0.5,)
    assert outcome.wrong == ["sum: verify.expected: found 5051.0; expected 5050.0 ± 0.00505"]


@pytest.mark.parametrize(
    ("verify", "reason", "wrong"),
    [
        ({"how": "status", "code": 1, "out": "differs\n"}, "verify.command: ended with status 1: differs", True),
        ({"how": "missing", "code": 2, "out": ""}, "verify.command: cannot run cmp: No such file or directory", False),
        ({"how": "time", "code": 0, "out": ""}, "verify.command: took longer than 300 s", False),
        (
            {"how": "status", "code": 127, "out": "cmp: not found\n"},
            "verify.command: ended with status 127: cmp",
            False,
        ),
        ({"how": "status", "code": 126, "out": ""}, "verify.command: ended with status 126: ", False),
        ({"how": "signal", "code": 9, "out": ""}, "verify.command: ended with SIGKILL: ", False),
    ],
)
def test_a_command_that_cannot_verify_says_nothing_about_a_node(
    tmp_path: Path, verify: dict[str, Any], reason: str, wrong: bool
) -> None:
    file = SUM.replace("[limits]", 'command = "cmp a b"\n[limits]')
    bad = run_line(verify=verify)
    outcome = verdict(tmp_path, bad, bad, file=file, status="failed")
    assert outcome.absences[0].reason.startswith(f"sum size=100: {reason}") and bool(outcome.wrong) == wrong


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({"out": "rate: 250 MB/s\n"}, "verify.pattern: found no match in the output"),
        ({"out": "rate: 250 MB/s\nsum: many\n"}, "verify.pattern: found 'many', a number is required"),
        ({"out": "rate: 250 MB/s\nsum: 50\n", "cut": True}, "verify.expected: found 50.0"),
    ],
)
def test_output_without_the_number_is_no_wrong_result(tmp_path: Path, run: dict[str, Any], reason: str) -> None:
    bad = run_line(**run)
    outcome = verdict(tmp_path, bad, bad)
    assert reason in outcome.absences[0].reason and not outcome.wrong


def test_work_of_others_and_of_the_hypervisor_is_flagged(tmp_path: Path) -> None:
    assert verdict(tmp_path, run_line(busy_s=0.9)).records[0].flags == {"disturbed"}
    assert verdict(tmp_path, run_line(stolen_s=0.2)).records[0].flags == {"stolen"}


# ------------------------------------------------------------------ ingestion


def test_applications_are_ingested_like_instruments(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    plan = with_plan(fleet, plan_of(tmp_path))
    inbox = fleet.campaign(name) / "inbox"
    wrong_run = run_line(2, out="rate: 1 MB/s\nsum: 1\n")
    write_result(inbox, "n1", lines_with(lines_of("n1"), plan, run_line(1), run_line(2)))
    write_result(inbox, "n2", lines_with(lines_of("n2"), plan, run_line(1), wrong_run))
    write_result(inbox, "n3", lines_with(lines_of("n3"), plan, run_line(0, how="missing"), status="absent"))
    ingested = ingest(fleet, name, "hawk")
    assert sorted(ingested.nodes) == ["n1", "n2", "n3"]
    assert ingested.failures == {"sum: found no program sh; it is in the package sum-tools": ["n3"]}
    matrix = read_matrix(fleet, name, "hawk")
    assert {p.metric for p in matrix.points} == {"figure_of_merit", "elapsed", "user", "system", "peak_memory"}
    rows = query(fleet, "nodes", [name], "hawk", "SELECT node, wrong FROM read_parquet(?) ORDER BY node")
    assert rows is not None
    assert [len(row["wrong"]) for row in rows_of(rows)] == [0, 1, 0]


def judged(fleet: Fleet, kind: str, day: int, plan: NodePlan, nodes: list[str], wrong: Sequence[str] = ()) -> None:
    """Ingest a campaign in which the program is slow on n07 and gives a wrong result on some nodes."""
    name = f"{kind}-202611{day:02d}T120000-{day:04x}"
    for node in nodes:
        rng = random.Random(f"{node} {day}")
        total = 5051 if node in wrong else 5050

        def runs(_step: int, node: str = node, dice: random.Random = rng, total: int = total) -> list[dict[str, Any]]:
            factor = (0.9 if node == "n07" else 1.0) * (1 + dice.gauss(0, 0.005))
            options = {
                "elapsed_s": 0.5 / factor,
                "user_s": 0.25 / factor,
                "out": f"rate: {250 * factor} MB/s\nsum: {total}\n",
            }
            return [run_line(number, **options) for number in (1, 2)]

        lines = lines_with(lines_of(node), plan, more=runs)
        write_result(fleet.campaign(name) / "inbox", node, lines)
    assert len(ingest(fleet, name, "cluster").nodes) == len(nodes)


def test_a_node_on_which_a_program_is_slow_is_named(tmp_path: Path) -> None:
    fleet, nodes = Fleet(tmp_path), [f"n{i:02d}" for i in range(1, 21)]
    plan = with_plan(fleet, plan_of(tmp_path, spec=SPEC + "repetitions = 2\n"))
    for day in (1, 2, 3):
        judged(fleet, "check", day, plan, nodes)
    findings = look(fleet, "cluster")
    assert "n07" in findings.suspects()
    confirm_plan = with_plan(fleet, repeated(plan, 6))
    judged(fleet, "confirm", 4, confirm_plan, sorted({*findings.suspects(), *controls(findings)}))
    confirmation = Confirmation(
        read_panel(fleet, fleet.campaigns()[-1:], "cluster"), reference(fleet, "cluster", findings)
    )
    (case,) = decide(fleet, "cluster", findings, confirmation)
    assert case.node == "n07" and {m.metric for m in case.metrics} == {"figure_of_merit", "elapsed", "user"}
    assert case.metrics[0].instrument == "app" and case.metrics[0].conditions["program"] == "sum"


@pytest.mark.parametrize(("count", "suspected"), [(1, True), (10, True), (11, False), (20, False)])
def test_what_most_nodes_compute_wrongly_names_none(tmp_path: Path, count: int, suspected: bool) -> None:
    fleet, nodes = Fleet(tmp_path), [f"n{i:02d}" for i in range(1, 21)]
    plan = with_plan(fleet, plan_of(tmp_path))
    judged(
        fleet, "check", 1, plan, [*nodes, *(f"m{i:02d}" for i in range(40))]
    )  # more nodes than the newest campaign has
    judged(fleet, "check", 2, plan, nodes, wrong=nodes[-count:])
    findings = look(fleet, "cluster")
    assert (set(findings.wrong) == set(nodes[-count:])) == suspected and findings.common == (
        set() if suspected else {"sum"}
    )
    assert set(nodes[-count:]) <= set(findings.suspects()) or not suspected


def test_nodes_without_a_result_of_a_program_are_no_majority(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), "check-20261102T120000-0002"
    plan = with_plan(fleet, plan_of(tmp_path))
    inbox = fleet.campaign(name) / "inbox"
    for number in range(1, 21):
        node = f"n{number:02d}"
        line = run_line(1, out="rate: 250 MB/s\nsum: 1\n") if number <= 7 else run_line(1)
        if number > 12:
            line = run_line(0, how="missing", code=2)
        write_result(inbox, node, lines_with(lines_of(node), plan, line))
    ingest(fleet, name, "cluster")
    findings = look(fleet, "cluster")
    assert findings.common == {"sum"} and not findings.wrong, "7 of the 12 that have the program"


def test_health_checks_are_without_programs_of_users(tmp_path: Path) -> None:
    fleet, nodes = Fleet(tmp_path), [f"n{i:02d}" for i in range(1, 21)]
    plan, name = plan_of(tmp_path), "check-20261101T120000-0001"
    begin(fleet, name, plan, MadeEngine.of(nodes, lambda *_: None), NodeSelection(), {"cluster": "cluster"})
    judged(fleet, "check", 1, plan, nodes)
    with pytest.raises(AbsentError, match="has applications only, which have no limits on nodes"):
        with_limits(fleet, "cluster", look(fleet, "cluster"))


def test_results_whose_plan_is_lost_are_kept_aside(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    plan = plan_of(tmp_path)
    write_result(fleet.campaign(name) / "inbox", "n1", lines_with(lines_of("n1"), plan, run_line()))
    ingested = ingest(fleet, name, "hawk")
    assert ingested.nodes == [] and "has its application" in ingested.skipped["n1.jsonl.gz"]
    assert len(list((fleet.campaign(name) / "refused").iterdir())) == 1


# ------------------------------------------------------------------ the runner


def carried_out(folder: Path, plan: NodePlan) -> ApplicationOutcome:
    """Run a plan with the native runner and return the verdict on the file that it writes."""
    with_plan(Fleet(folder), plan)
    words = [find_native("meshmark-node"), folder / "plans" / f"{plan.id}.json", "--out", folder, "--name", "n1"]
    completed = subprocess.run(
        [*words, "--beside", "--scratch", folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert completed.returncode == 0, completed.stderr
    (node_verdict,) = verdicts_of(folder / "plans", read_result(folder / "n1.jsonl.gz")).values()
    return node_verdict


def test_a_node_runs_a_program_and_its_figures_are_records(tmp_path: Path) -> None:
    outcome = carried_out(tmp_path, plan_of(tmp_path))
    assert not outcome.absences and not outcome.wrong
    figures = values(outcome)
    assert figures["figure_of_merit"] == (250e6, 250e6) and all(0 < e < 20 for e in figures["elapsed"])
    assert not list(tmp_path.glob("meshmark-node-*")), "the folder of the runs is removed"


def test_what_a_node_refuses_to_compute_is_said_and_other_steps_go_on(tmp_path: Path) -> None:
    spec = SPEC + '[[step]]\ninstrument = "clock"\noptions = { budget = "100ms", clocks = "tsc" }\n'
    plan = plan_of(tmp_path, script="echo 'rate: 1 MB/s'; echo sum: 7\n", spec=spec)
    outcome = carried_out(tmp_path, plan)
    assert not outcome.records and "verify.expected: found 7.0" in outcome.absences[0].reason and outcome.wrong
    steps = read_result(tmp_path / "n1.jsonl.gz").steps
    assert [step.status for step in steps] == ["ok", "ok"] and steps[1].reading.records


def test_plans_read_back_with_their_applications(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert json.loads(plan.to_bytes())["steps"][0]["application"]["source"] == str(tmp_path)
    assert dataclasses.replace(plan, spec="other").id != plan.id
