"""`meshmark load run` and the studies as commands: what goes wrong is one line, what was run stays run.

Real programs run here for tenths of a second, on a machine that may be busy: relations only, never speeds.
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
from meshmark.cli.load_live import Live
from meshmark.cli.study import app as study_app
from meshmark.load.journal import read_run
from meshmark.load.native import find_load
from meshmark.load.placing import Here
from meshmark.load.profile import TargetProfile
from meshmark.load.scenario import Scenario, parse_scenario
from meshmark.load.studies.alone import TOGETHER, co_run
from meshmark.load.studies.bench import StudyOptions
from meshmark.load.studies.outcome import read_outcomes
from meshmark.load.studies.results import read_records
from meshmark.store.record import Record
from support import cli
from support.made_program import made_program
from support.processes import nobody_with
from support.waiting import until

CPUS = tuple(sorted(os.sched_getaffinity(0)))
QUIET = "[scenario]\ncanary = false\n"
BUSY = ["sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 0.2 s of fixed work."""
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
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in CPUS]
    try:
        done = meshmark(*command, folder=tmp_path)
    finally:
        for hog in busy:
            hog.kill()
            hog.wait()
    assert done.returncode == 1 and done.stdout == ""
    assert re.search(r"error: calibration data: other processes use \d+ % of the CPUs; allowed: 10 %", done.stderr)
    assert "use --force" in done.stderr and not list((tmp_path / "data").glob("runs/*"))


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
    done = meshmark("load", "run", wrote(tmp_path, text + "oversubscribe = true"), "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    records = [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert all("oversubscribed" in r.flags for r in records if r.metric == "elapsed")


def test_a_program_that_was_made_for_another_wish_is_not_taken_for_this_one(tmp_path: Path) -> None:
    made = made_program(find_load(), tmp_path / "p.json", 10)
    raw = json.loads(made.read_text())
    raw["prescription"] = TargetProfile(name="p", run_time_s=2.0).to_json()
    made.write_text(json.dumps(raw))
    text = QUIET + "[[program]]\nname = 'p'\nrun_time_s = 2\n"
    assert meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path).returncode == 0
    text += "memory_gb_per_s = 1"
    done = meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path)
    refused(done, 2, "p.json", "memory_gb_per_s", "now 1.0")
    made.write_text(made.read_text()[:100])
    refused(meshmark("load", "run", wrote(tmp_path, text), "--programs", ".", folder=tmp_path), 2, "p.json", "program")


# ------------------------------------------------------------------ faults on the way


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
    done = meshmark("load", "run", file, "--out", "out", "--json", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "dies, copy 0: terminated by signal 9" in done.stderr
    assert "busy, copy 0: ended" in done.stderr
    assert "nowhere, copy 0: not started: './lacks' cannot be executed" in done.stderr
    assert "\x1b" not in done.stderr  # no terminal: no bar
    records = [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert {r.conditions["program"] for r in records if r.metric == "elapsed"} == {"busy"}
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("meshmark: error: ")]
    assert "2 of 3 programs failed: dies: was terminated by signal 9; nowhere: './lacks' cannot be" in told
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
    done = process.run(
        cli.command("load", "run", file, "--out", "out", "--no-store"),
        process.Preparation(limits={resource.RLIMIT_FSIZE: (16384, 16384)}),
        text=True,
        cwd=tmp_path,
        env=cli.environment({"XDG_DATA_HOME": str(tmp_path / "data")}),
    )
    refused_lines = [line for line in done.stderr.splitlines() if line.startswith("meshmark: ")]
    assert done.returncode == 1, done.stderr
    assert len(refused_lines) == 1, done.stderr
    assert "cannot write the results: File too large" in refused_lines[0]
    assert str(tmp_path / "out") in refused_lines[0] or "are in out" in refused_lines[0]
    assert (tmp_path / "out" / "run.jsonl").stat().st_size <= 16384
    assert read_run(tmp_path / "out").cut
    assert nobody_with(mark)


# ------------------------------------------------------------------ what is told on the way


class _Terminal:
    """A standard error that says it is a terminal."""

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
    told = _Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setenv("TERM", "xterm")
    with Live(parse_scenario("[[program]]\ncommand = ['x']\ncopies = 3", "made"), 60.0) as live:
        live.take({"event": "start", "t_s": 2.0})
        for copy in range(2):
            live.take({"event": "released", "t_s": 2.1, "program": "program", "copy": copy})
        live.draw()
        assert "1 wait, 2 run" in told.said
        assert re.search(r"at least (59|60) s left", told.said)
        live.take({"event": "exit", "t_s": 5.5, "program": "program", "copy": 1, "status": 3})
        live.draw()
    assert "3.50 s  program, copy 1: exited with status 3" in told.said
    assert "1 wait, 1 run, 1 ended" in told.said


# ------------------------------------------------------------------ against alone


def two_on_one_cpu(program: Path) -> Scenario:
    return parse_scenario(
        QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'\ncopies = 2\ncpus = '{CPUS[0]}'\n"
        "[[program]]\nname = 'idle'\ncommand = ['sleep', '0.2']",
        "made",
    )


def test_who_shares_a_cpu_is_slower_than_alone_and_who_sleeps_is_not(tmp_path: Path, program: Path) -> None:
    found = co_run(two_on_one_cpu(program), tmp_path / "study", {}, options=StudyOptions(repetitions=4))
    assert [p.label for p in found.points] == ["busy", "idle"]
    busy, idle = (p.slowdown for p in found.points)
    assert busy.interval is not None and idle.interval is not None
    assert busy.interval[0] <= busy.ratio <= busy.interval[1]
    # Two halves of a CPU. Where others take it by turns, all that can be said is a wide interval with the truth in it.
    assert busy.interval[1] > 1.3
    assert idle.interval[0] < busy.interval[1]
    assert found.run is not None
    assert {p.program for p in read_run(found.run).programs} == {"busy", "idle"}
    # Alone on the CPU that the copy has in company, one copy after the other.
    alone = [o for o in read_outcomes(found.folder) if o.cell == "busy alone"]
    for o in alone:
        assert read_run(found.folder / "runs" / o.run).bound == {("busy", 0): (CPUS[0],)}
    by_metric = {(r.metric, r.conditions.get("program"), r.conditions.get("company")): r for r in found.records}
    told = by_metric["slowdown", "busy", None]
    assert told.conditions["estimate"] == busy.ratio
    assert told.conditions["estimate_low"] == busy.interval[0]
    assert len(by_metric["elapsed", "busy", "together"].samples) == 4
    assert len(by_metric["bench", None, None].samples) == 4
    assert read_records(found.folder) == list(found.records)
    assert "busy" in found.table
    assert f"{busy.interval[0]:.3f} – {busy.interval[1]:.3f}" in found.table
    assert 0 < by_metric["fairness", None, None].value <= 1


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_alone_is_where_the_policy_puts_it_in_company(tmp_path: Path) -> None:
    text = "[scenario]\ncanary = false\npolicy = 'any'\nslots = 'threads'\n" + "".join(
        f"[[program]]\nname = '{name}'\ncommand = ['true']\n" for name in "ab"
    )
    found = co_run(parse_scenario(text, "made"), tmp_path / "study", {}, options=StudyOptions(repetitions=1))
    assert found.run is not None
    together = read_run(found.run).bound
    assert together["a", 0] != together["b", 0]
    for o in read_outcomes(found.folder):
        for key, cpus in read_run(found.folder / "runs" / o.run).bound.items():
            assert cpus == together[key]


def test_a_company_in_which_one_died_does_not_count(tmp_path: Path) -> None:
    text = QUIET + "[[program]]\nname = 'a'\ncommand = ['true']\n[[program]]\nname = 'b'\ncommand = ['false']"
    done = meshmark("load", "run", wrote(tmp_path, text), "--alone", "--out", "out", folder=tmp_path)
    assert done.returncode == 1
    assert "program b, copy 0: ended with status 1" in done.stderr.splitlines()[-2]


def test_repetitions_alone_are_of_the_scenario_only(tmp_path: Path) -> None:
    one = parse_scenario(QUIET + "[[program]]\nname = 'a'\ncommand = ['true']", "made")
    found = co_run(one, tmp_path / "study", {}, alone=False, options=StudyOptions(repetitions=6))
    assert {o.cell for o in read_outcomes(found.folder)} == {TOGETHER}
    elapsed = [r for r in found.records if r.metric == "elapsed"]
    assert [len(r.samples) for r in elapsed] == [6]
    assert elapsed[0].interval is not None
    assert found.points == ()
    # More of it later, in the same folder, with the programs alone.
    more = co_run(one, tmp_path / "study", {}, alone=True, options=StudyOptions(repetitions=6), here=Here.now())
    assert len(read_outcomes(more.folder)) == 12


def test_a_killed_comparison_goes_on_in_its_folder(tmp_path: Path, program: Path) -> None:
    file = wrote(tmp_path, QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'")
    words = ("load", "run", file, "--alone", "--repetitions", "4", "--out", "out")
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    with cli.start(*words, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert until(lambda: len(read_outcomes(tmp_path / "out")) >= 2 or child.poll() is not None, 90)
        child.send_signal(signal.SIGKILL)
    done = read_outcomes(tmp_path / "out")
    assert 2 <= len(done) < 8
    ended = {o.run: (tmp_path / "out" / "runs" / o.run / "run.jsonl").stat().st_mtime_ns for o in done}
    again = meshmark(*words, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"{len(done)} runs are done" in again.stderr
    assert read_outcomes(tmp_path / "out")[: len(done)] == done
    assert len(read_outcomes(tmp_path / "out")) == 8
    for run, then in ended.items():
        assert (tmp_path / "out" / "runs" / run / "run.jsonl").stat().st_mtime_ns == then
    table = again.stdout.splitlines()
    assert any(line.startswith("program ") and "slowdown" in line for line in table)
    other = wrote(tmp_path, QUIET + f"[[program]]\nname = 'busy'\nfile = '{program}'\nnice = 1")
    refused(meshmark("load", "run", other, "--alone", "--out", "out", folder=tmp_path), 2, "scenario", "out")


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
    """A folder with base data of a few kernels, and a program a.out."""
    folder = tmp_path_factory.mktemp("home")
    names = "triad,copy,sum,dot,fill_past,gemm,horner,hash,stencil_2d_5pt,fft"
    (folder / "base.toml").write_text(f"""
        name = "load-quick"
        [[step]]
        instrument = "kernels"
        options = {{ kernel = "{names}", volume = "256KiB,memory", stride = "1", threads = "1,2", budget = "15s" }}
        """)
    done = meshmark("load", "base", "--spec", "base.toml", "--out", "base", "--force", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "a.out").write_text("#!/bin/sh\n" + shlex.join(BUSY) + "\n")
    (folder / "a.out").chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("name", STUDIES.commands)
def test_every_studys_example_runs_and_its_lines_are_records(name: str, home: Path) -> None:
    words = example(name)
    options = ["--json", "--no-store", "--repetitions", "2", "--out", f"out-{name}"]
    known = {o for p in STUDIES.commands[name].params for o in p.opts}
    options += ["--run-time", "0.2"] if "--run-time" in known else []
    options += ["--base", "base"] if "--base" in known else []
    options += ["--repetitions", "4"] if "--repetitions" in words else []
    at = words.index("--") if "--" in words else len(words)
    done = meshmark("load", "study", name, *words[:at], *options, *words[at:], folder=home)
    if done.returncode == 77:
        assert name == "isolation", done.stderr
        assert "one memory domain" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    records = [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert records
    assert {r.conditions["study"] for r in records} == {
        {"matrix": "interference_matrix", "curve": "interference_curve"}.get(name, name.replace("-", "_"))
    }
    assert records == read_records(home / f"out-{name}")
