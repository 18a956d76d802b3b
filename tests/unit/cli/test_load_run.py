"""Test `meshmark load run` and the study commands: failures print one line, and finished runs are not repeated.

The tests run real programs for tenths of a second on a machine that may be busy, so they compare times with each other
and never expect a speed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from meshmark import process
from meshmark.cli.load.load_live import LoadProgress
from meshmark.cli.load.study import app as study_app
from meshmark.load.calibration.native import find_load
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.scenario.journal import read_run
from meshmark.load.scenario.placing import HostResources
from meshmark.load.scenario.scenario import Scenario, parse_scenario
from meshmark.load.studies.alone import TOGETHER, ScenarioStudy
from meshmark.load.studies.outcome import read_outcomes
from meshmark.load.studies.study import StudyOptions
from meshmark.store.record import Record
from meshmark.views.pages.studies import read_study
from support import cli
from support.made_program import made_program
from support.processes import nobody_with
from support.waiting import until

CPUS = tuple(sorted(os.sched_getaffinity(0)))
QUIET = "[scenario]\ncanary = false\n"
BUSY = ["sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a program with about 0.2 s of fixed work."""
    return made_program(find_load(), tmp_path_factory.mktemp("program") / "busy.json", 1500)


def meshmark(*words: str | Path, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return cli.meshmark(*words, env={"XDG_DATA_HOME": str(folder / "data")}, cwd=folder, **more)


def wrote(folder: Path, text: str) -> Path:
    file = folder / "scenario.toml"
    file.write_text(text)
    return file


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("hint: ")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], done.stderr


# ------------------------------------------------------------------ refused before anything starts


@pytest.mark.parametrize("command", [["load", "base", "--quick"], ["load", "run", "scenario.toml"]])
def test_a_busy_machine_gives_no_calibration_data(tmp_path: Path, command: list[str]) -> None:
    wrote(tmp_path, QUIET + '[[program]]\nname = "traffic"\nrun_time_s = 1\nmemory_gb_per_s = 1\n')
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in CPUS]
    try:
        completed = meshmark(*command, folder=tmp_path)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert completed.returncode == 1 and completed.stdout == ""
    assert re.search(r"error: calibration data: other processes use \d+ % of the CPUs; allowed: 10 %", completed.stderr)
    assert "use --force" in completed.stderr and not list((tmp_path / "data").glob("runs/*"))


def test_a_scenario_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    refused(meshmark("load", "run", "none.toml", folder=tmp_path), 2, "none.toml", "No such file")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("memory_mib = 1e8\ncopies = 3", ("memory_mib", "300000000 MiB", "are available")),
        (f"threads = {len(CPUS) + 1}", ("threads", str(len(CPUS) + 1), f"allowed: {len(CPUS)}")),
        ("cpus = '4000'", ("cpus", "4000")),
        ("policy = 'no-such-policy'", ("no-such-policy",)),
    ],
)
def test_what_is_not_here_is_refused_with_numbers_and_nothing_is_made(
    tmp_path: Path, keys: str, words: tuple[str, ...]
) -> None:
    file = wrote(tmp_path, QUIET + f"[[program]]\nname = 'p'\ncommand = ['touch', '{tmp_path}/ran']\n{keys}")
    refused(meshmark("load", "run", file, "--out", "out", folder=tmp_path), 2, *words)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


def test_a_programs_team_larger_than_its_set_is_refused_unless_that_is_meant(tmp_path: Path) -> None:
    made_program(find_load(), tmp_path / "team.json", 200, threads=2)
    text = QUIET + f"[[program]]\nname = 'team'\nfile = 'team.json'\ncpus = '{CPUS[0]}'\n"
    refused(meshmark("load", "run", wrote(tmp_path, text), folder=tmp_path), 2, "threads", "found 2", "allowed: 1")
    completed = meshmark("load", "run", wrote(tmp_path, text + "oversubscribe = true"), "--json", folder=tmp_path)
    assert completed.returncode == 0, completed.stderr
    records = [Record.from_json(json.loads(line)) for line in completed.stdout.splitlines()]
    assert all("oversubscribed" in r.flags for r in records if r.metric == "elapsed")


def test_a_program_that_was_made_for_another_wish_is_not_taken_for_this_one(tmp_path: Path) -> None:
    program_file = made_program(find_load(), tmp_path / "p.json", 10)
    raw = json.loads(program_file.read_text())
    raw["prescription"] = TargetProfile(name="p", run_time_s=2.0).to_json()
    program_file.write_text(json.dumps(raw))
    text = QUIET + "[[program]]\nname = 'p'\nrun_time_s = 2\n"
    assert meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path).returncode == 0
    text += "memory_gb_per_s = 1"
    completed = meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path)
    refused(completed, 2, "p.json", "memory_gb_per_s", "now 1.0")
    program_file.write_text(program_file.read_text()[:100])
    refused(meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path), 2, "p.json", "program")


# ------------------------------------------------------------------ faults during a run


def test_who_dies_is_told_and_the_others_finish(tmp_path: Path, program: Path) -> None:
    file = wrote(
        tmp_path,
        QUIET
        + f"""
        [[program]]
        name = "dies"
        command = ["sh", "-c", "kill -9 $$"]
        [[program]]
        name = "busy"
        file = "{program}"
        [[program]]
        name = "nowhere"
        command = ["./lacks"]
        """,
    )
    (tmp_path / "lacks").write_text("#!/is/not/there\n")
    (tmp_path / "lacks").chmod(0o755)
    completed = meshmark("load", "run", file, "--out", "out", "--json", folder=tmp_path)
    assert completed.returncode == 1, completed.stderr
    assert "dies, copy 0: terminated by SIGKILL" in completed.stderr
    assert "busy, copy 0: ended" in completed.stderr
    assert "nowhere, copy 0: not started: './lacks' cannot be executed" in completed.stderr
    assert "\x1b" not in completed.stderr  # there is no progress bar without a terminal
    records = [Record.from_json(json.loads(line)) for line in completed.stdout.splitlines()]
    assert {r.conditions["program"] for r in records if r.metric == "elapsed"} == {"busy"}
    (error_line,) = [line for line in completed.stderr.splitlines() if line.startswith("meshmark: error: ")]
    assert "2 of 3 programs failed: dies: was terminated by SIGKILL; nowhere: './lacks' cannot be" in error_line
    assert (tmp_path / "out" / "gantt.html").is_file()


STUBBORN = "trap '' TERM INT HUP; (setsid sleep 604 &); i=0; while :; do i=$((i+1)); done"


def test_a_journal_that_cannot_grow_is_one_line_and_nobody_stays(tmp_path: Path) -> None:
    mark = f"{tmp_path.name}-{os.getpid()}"
    file = wrote(
        tmp_path,
        f"""
        [scenario]
        canary = false
        sample_s = 0.005
        [[program]]
        name = "stubborn"
        copies = 2
        env = {{MESHMARK_TEST_MARK = "{mark}"}}
        command = ["sh", "-c", {json.dumps(STUBBORN)}]
        """,
    )
    completed = process.run(
        cli.command("load", "run", file, "--out", "out", "--no-store"),
        process.Preparation(limits={resource.RLIMIT_FSIZE: (16384, 16384)}),
        text=True,
        cwd=tmp_path,
        env=cli.environment({"XDG_DATA_HOME": str(tmp_path / "data")}),
    )
    error_lines = [line for line in completed.stderr.splitlines() if line.startswith("meshmark: ")]
    assert completed.returncode == 1, completed.stderr
    assert len(error_lines) == 1, completed.stderr
    assert "cannot write the results: File too large" in error_lines[0]
    assert str(tmp_path / "out") in error_lines[0] or "are in out" in error_lines[0]
    assert (tmp_path / "out" / "run.jsonl").stat().st_size <= 16384
    assert read_run(tmp_path / "out").cut
    assert nobody_with(mark)


# ------------------------------------------------------------------ progress during a run


class _Terminal:
    """Replacement for a standard error that is a terminal; it keeps what is written to it."""

    def __init__(self) -> None:
        self.said = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.said += text
        return len(text)

    def flush(self) -> None:
        pass


def test_a_terminal_is_told_how_many_run_and_wait_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with LoadProgress(parse_scenario("[[program]]\ncommand = ['x']\ncopies = 3", "made"), 60.0) as live:
        live.take({"event": "start", "t_s": 2.0})
        for copy in range(2):
            live.take({"event": "released", "t_s": 2.1, "program": "program", "copy": copy})
        live.draw()
        assert "1 wait, 2 run" in terminal.said
        assert re.search(r"at least (59|60) s left", terminal.said)
        live.take({"event": "exit", "t_s": 5.5, "program": "program", "copy": 1, "status": 3})
        live.draw()
    assert "3.50 s  program, copy 1: exited with status 3" in terminal.said
    assert "1 wait, 1 run, 1 ended" in terminal.said


# ------------------------------------------------------------------ comparison with runs alone


def two_on_one_cpu(program: Path) -> Scenario:
    return parse_scenario(
        QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'\ncopies = 2\ncpus = '{CPUS[0]}'\n"
        "[[program]]\nname = 'idle'\ncommand = ['sleep', '0.2']",
        "made",
    )


def test_who_shares_a_cpu_is_slower_than_alone_and_who_sleeps_is_not(tmp_path: Path, program: Path) -> None:
    study = ScenarioStudy(
        tmp_path / "study", scenario=two_on_one_cpu(program), options=StudyOptions(repetitions=4)
    ).run()
    assert [p.label for p in study.points] == ["busy", "idle"]
    busy, idle = (p.slowdown for p in study.points)
    assert busy.interval is not None and idle.interval is not None
    assert busy.interval[0] <= busy.ratio <= busy.interval[1]
    # Each copy has half of a CPU. If other processes use that CPU, the interval is wide, but contains the slowdown.
    assert busy.interval[1] > 1.3
    assert idle.interval[0] < busy.interval[1]
    assert study.median_run is not None
    assert {p.program for p in read_run(study.median_run).programs} == {"busy", "idle"}
    # Alone, the copies run one after the other on the CPU that they share when they run together.
    alone = [o for o in read_outcomes(study.folder) if o.cell == "busy alone"]
    for o in alone:
        assert read_run(study.folder / "runs" / o.run).bound == {("busy", 0): (CPUS[0],)}
    by_metric = {(r.metric, r.conditions.get("program"), r.conditions.get("company")): r for r in study.records}
    slowdown = by_metric["slowdown", "busy", None]
    assert slowdown.conditions["estimate"] == busy.ratio
    assert slowdown.conditions["estimate_low"] == busy.interval[0]
    assert len(by_metric["elapsed", "busy", "together"].samples) == 4
    assert len(by_metric["bench", None, None].samples) == 4
    assert read_study(study.folder).records == list(study.records)
    assert "busy" in study.table
    assert f"{busy.interval[0]:.3f} – {busy.interval[1]:.3f}" in study.table
    assert 0 < by_metric["fairness", None, None].value <= 1


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_alone_is_where_the_policy_puts_it_in_company(tmp_path: Path) -> None:
    text = "[scenario]\ncanary = false\npolicy = 'any'\nslots = 'threads'\n" + "".join(
        f"[[program]]\nname = '{name}'\ncommand = ['true']\n" for name in "ab"
    )
    study = ScenarioStudy(
        tmp_path / "study", scenario=parse_scenario(text, "made"), options=StudyOptions(repetitions=1)
    ).run()
    assert study.median_run is not None
    together = read_run(study.median_run).bound
    assert together["a", 0] != together["b", 0]
    for o in read_outcomes(study.folder):
        for key, cpus in read_run(study.folder / "runs" / o.run).bound.items():
            assert cpus == together[key]


def test_a_company_in_which_one_died_does_not_count(tmp_path: Path) -> None:
    text = QUIET + "[[program]]\nname = 'a'\ncommand = ['true']\n[[program]]\nname = 'b'\ncommand = ['false']"
    completed = meshmark("load", "run", wrote(tmp_path, text), "--alone", "--out", "out", folder=tmp_path)
    assert completed.returncode == 1
    assert "program b, copy 0: ended with status 1" in completed.stderr.splitlines()[-2]


def test_repetitions_alone_are_of_the_scenario_only(tmp_path: Path) -> None:
    scenario = parse_scenario(QUIET + "[[program]]\nname = 'a'\ncommand = ['true']", "made")
    study = ScenarioStudy(tmp_path / "study", scenario=scenario, alone=False, options=StudyOptions(repetitions=6)).run()
    assert {o.cell for o in read_outcomes(study.folder)} == {TOGETHER}
    elapsed = [r for r in study.records if r.metric == "elapsed"]
    assert [len(r.samples) for r in elapsed] == [6]
    assert elapsed[0].interval is not None
    assert study.points == []
    # The study is extended later, in the same folder, by runs of the programs alone.
    extended = ScenarioStudy(
        tmp_path / "study", scenario=scenario, alone=True, options=StudyOptions(repetitions=6), here=HostResources.now()
    ).run()
    assert len(read_outcomes(extended.folder)) == 12


def test_a_killed_comparison_goes_on_in_its_folder(tmp_path: Path, program: Path) -> None:
    file = wrote(tmp_path, QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'")
    words = ("load", "run", file, "--alone", "--repetitions", "4", "--out", "out")
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with cli.start(*words, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert until(lambda: len(read_outcomes(tmp_path / "out")) >= 2 or child.poll() is not None, 90)
        child.send_signal(signal.SIGKILL)
    outcomes = read_outcomes(tmp_path / "out")
    assert 2 <= len(outcomes) < 8
    journal_times = {o.run: (tmp_path / "out" / "runs" / o.run / "run.jsonl").stat().st_mtime_ns for o in outcomes}
    resumed = meshmark(*words, folder=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert f"{len(outcomes)} runs are done" in resumed.stderr
    assert read_outcomes(tmp_path / "out")[: len(outcomes)] == outcomes
    assert len(read_outcomes(tmp_path / "out")) == 8
    for run, modified_ns in journal_times.items():
        assert (tmp_path / "out" / "runs" / run / "run.jsonl").stat().st_mtime_ns == modified_ns
    table = resumed.stdout.splitlines()
    assert any(line.startswith("program ") and "slowdown" in line for line in table)
    changed_scenario = wrote(tmp_path, QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'\nnice = 1")
    refused(meshmark("load", "run", changed_scenario, "--alone", "--out", "out", folder=tmp_path), 2, "scenario", "out")


# ------------------------------------------------------------------ studies as commands

STUDIES: Any = typer.main.get_command(study_app)


def example(name: str) -> list[str]:
    lines = [x.strip() for x in (STUDIES.commands[name].help or "").splitlines() if x.strip().startswith("example:")]
    assert len(lines) == 1, name
    words = shlex.split(lines[0].removeprefix("example:"))
    assert words[:4] == ["meshmark", "load", "study", name]
    return words[4:]


@pytest.mark.parametrize("name", STUDIES.commands)
def test_every_study_says_an_example_that_it_understands(name: str) -> None:
    context = STUDIES.commands[name].make_context(name, example(name))
    assert ("./a.out" in example(name)) == bool(context.params.get("command"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with base data of a few kernels and a program `a.out`."""
    folder = tmp_path_factory.mktemp("home")
    names = "triad,copy,sum,dot,fill_past,gemm,horner,hash,stencil_2d_5pt,fft"
    (folder / "base.toml").write_text(f"""
        name = "load-quick"
        [[step]]
        instrument = "kernels"
        options = {{ kernel = "{names}", volume = "256KiB,memory", stride = "1", threads = "1,2", budget = "60s" }}
        """)
    completed = meshmark("load", "base", "--spec", "base.toml", "--out", "base", "--force", folder=folder)
    assert completed.returncode == 0, completed.stderr
    (folder / "a.out").write_text("#!/bin/sh\n" + shlex.join(BUSY) + "\n")
    (folder / "a.out").chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("name", STUDIES.commands)
def test_every_studys_example_runs_and_its_lines_are_records(name: str, home: Path) -> None:
    words = example(name)
    options = ["--json", "--no-store", "--repetitions", "2", "--out", f"out-{name}"]
    known_options = {o for p in STUDIES.commands[name].params for o in p.opts}
    options += ["--run-time", "0.2"] if "--run-time" in known_options else []
    options += ["--base", "base"] if "--base" in known_options else []
    options += ["--repetitions", "4"] if "--repetitions" in words else []
    options_index = words.index("--") if "--" in words else len(words)
    # Alone, `mix` needs 40 s.
    arguments = [*words[:options_index], *options, *words[options_index:]]
    completed = meshmark("load", "study", name, *arguments, folder=home, timeout_s=900)
    if completed.returncode == 77:
        assert name == "isolation", completed.stderr
        assert "one memory domain" in completed.stderr
        return
    assert completed.returncode == 0, completed.stderr
    records = [Record.from_json(json.loads(line)) for line in completed.stdout.splitlines()]
    assert records
    assert {r.conditions["study"] for r in records} == {
        {"matrix": "interference_matrix", "curve": "interference_curve"}.get(name, name.replace("-", "_"))
    }
    assert records == read_study(home / f"out-{name}").records
