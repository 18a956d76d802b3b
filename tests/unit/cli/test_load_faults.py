"""Test `meshmark load` with wrong input and faults: it refuses before it measures, and its status is reliable.

No test depends on the speed of the machine; programs run for tenths of a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.load.load import app
from meshmark.errors import UsageError
from meshmark.load.calibration.native import find_load
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.placing import threads_of
from meshmark.load.scenario.run import RunCutError, run_scenario
from meshmark.load.scenario.scenario import parse_scenario
from meshmark.load.synthesis.program import parse_program
from meshmark.values.inputs import quoted_value
from support import cli
from support.made_load import made_load, made_study
from support.made_program import made_program
from support.processes import children_of
from support.waiting import alive, until

QUIET = "[scenario]\ncanary = false\n"
WISH = "[[program]]\nname = 'p'\nrun_time_s = 1\n"


def meshmark(*said: str | Path, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    env = {"XDG_DATA_HOME": str(folder / "data"), "TMPDIR": str(folder)}
    return cli.meshmark(*said, env=env, cwd=folder, timeout_s=60, **more)


def wrote(folder: Path, text: str) -> Path:
    file = folder / "scenario.toml"
    file.write_text(text)
    return file


def one_line(done: subprocess.CompletedProcess[str], status: int, *says: str) -> str:
    lines = [x for x in done.stderr.splitlines() if x.startswith("meshmark: ") and "; run folder" not in x]
    assert done.returncode == status, done.stderr
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for part in says:
        assert part in lines[0], done.stderr
    return lines[0]


def refused(folder: Path, said: Sequence[str | Path], *says: str) -> None:
    """Assert that a command is refused with one line before it measures or creates anything.

    The command runs in this process, since starting another one would take longer than the test.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.chdir(folder)
        completed = CliRunner().invoke(app, [str(w) for w in said])
    error = completed.exception
    assert isinstance(error, UsageError), completed.output
    for part in says:
        assert part in str(error)
    assert "\n" not in str(error) and completed.output == "", completed.output
    for name in ("data", "out", "programs"):
        assert not (folder / name).exists()


# ------------------------------------------------------------------ refused before anything is measured

LACKS: list[tuple[str, tuple[str, ...]]] = [
    (WISH + "kernels = ['nope']", ("program p", "kernels", "'nope'")),
    (WISH + "without = ['traid']", ("program p", "without", "did you mean triad?")),
    (WISH + "threads = 4000", ("program p", "threads", "found 4000")),
]
LACKS_HERE: list[tuple[str, tuple[str, ...]]] = [
    *LACKS,
    (WISH + "cpus = '4000'", ("program p", "cpus", "4000")),
    (WISH + "memory = 'bind=500'", ("program p", "memory", "500")),
    (WISH + "memory = 'weighted'", ("program p", "memory", "weighted")),
    (WISH + "policy = 'pakc'", ("program p", "pakc")),
    (WISH + "[[program]]\nname = 'c'\ncommand = ['./not-here']", ("program c", "command", "./not-here")),
    (WISH + "[[program]]\nname = 'c'\ncommand = ['is-no-such-program']", ("program c", "is-no-such-program")),
    (WISH + "[[program]]\nname = 'c'\ncommand = ['./plain.txt']", ("program c", "plain.txt", "not executable")),
    (WISH + "[[program]]\nname = 'c'\ncommand = ['sh']\nenv = {PATH = '/proc/no'}", ("program c", "'sh'")),
    (WISH + "[[program]]\nname = 'c'\ncommand = ['true']\ncwd = 'gone'", ("program c", "cwd", "gone")),
    (WISH + "[[program]]\nname = 'c'\nfile = 'gone.json'", ("program c", "gone.json")),
    (WISH + "[[program]]\nname = 'c'\nfile = 'plain.txt'", ("program c", "plain.txt")),
    (WISH + "[[program]]\nname = 'c'\nfile = '/dev/zero'", ("program c", "/dev/zero", "regular file")),
    (WISH + "memory_rate = 3", ("memory_rate", "unknown key")),
]


@pytest.mark.parametrize(("text", "says"), LACKS_HERE)
def test_what_is_not_here_is_refused_before_base_data_are_measured(
    tmp_path: Path, text: str, says: tuple[str, ...]
) -> None:
    (tmp_path / "plain.txt").write_text("{}")
    refused(tmp_path, ("run", wrote(tmp_path, QUIET + text), "--out", "out"), *says)


@pytest.mark.parametrize("more", [["--alone"], ["--repetitions", "2"], ["--watch"]])
def test_so_it_is_before_a_study_or_a_recorder_begins(tmp_path: Path, more: list[str]) -> None:
    text, says = LACKS[0]
    refused(tmp_path, ("run", wrote(tmp_path, text), "--out", "out", *more), *says)


@pytest.mark.parametrize(("text", "says"), LACKS)
def test_so_it_is_before_programs_are_made(tmp_path: Path, text: str, says: tuple[str, ...]) -> None:
    refused(tmp_path, ("make", wrote(tmp_path, text)), *says)


def test_a_program_is_looked_for_where_it_will_be_started(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "in" / "tool").chmod(0o755)
    texts = (
        "command = ['./tool']\ncwd = 'in'",
        f"command = ['tool']\nenv = {{PATH = '{tmp_path}/in:/bin'}}",
        "command = ['tool']\ncwd = 'in'\nenv = {PATH = '/bin:.'}",
    )
    for number, text in enumerate(texts):
        file = wrote(tmp_path, QUIET + "[[program]]\n" + text)
        completed = meshmark("load", "run", file, "--out", f"out{number}", "--no-store", folder=tmp_path)
        assert completed.returncode == 0, completed.stderr


def test_a_folder_with_a_run_is_refused_before_base_data_are_measured(tmp_path: Path) -> None:
    made_load(tmp_path / "there", {"a": [1.0]})
    refused(tmp_path, ("run", wrote(tmp_path, WISH), "--out", "there"), "there", "contains a run already")


# ------------------------------------------------------------------ exit status


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("command = ['sh', '-c', 'exit 3']", "bad: ended with status 3"),
        ("command = ['sh', '-c', 'kill -9 $$']", "bad: was terminated by SIGKILL"),
        ("command = ['./lacks']", "bad: './lacks' cannot be executed"),
        ("command = ['sleep', '60']", "bad: was terminated at the scenario's timeout_s"),
    ],
)
def test_a_program_that_does_not_end_well_is_status_1_after_the_chart(tmp_path: Path, keys: str, says: str) -> None:
    (tmp_path / "lacks").write_text("#!/is/not/there\n")
    (tmp_path / "lacks").chmod(0o755)
    text = f"[scenario]\ncanary = false\ntimeout_s = 0.5\n[[program]]\nname = 'bad'\n{keys}\n"
    file = wrote(tmp_path, text + "[[program]]\nname = 'good'\ncommand = ['true']")
    completed = meshmark("load", "run", file, "--out", "out", folder=tmp_path)
    one_line(completed, 1, "1 of 2 programs failed", says)
    assert "good" in completed.stdout and (tmp_path / "out" / "gantt.html").is_file()


def test_all_well_is_status_0(tmp_path: Path) -> None:
    file = wrote(tmp_path, QUIET + "[[program]]\ncommand = ['true']\ncopies = 2")
    for words in ([], ["--repetitions", "2"]):
        completed = meshmark("load", "run", file, "--out", f"out{len(words)}", "--no-store", *words, folder=tmp_path)
        assert completed.returncode == 0, completed.stderr


def test_a_comparison_of_which_a_run_does_not_count_is_status_1_after_the_table(tmp_path: Path) -> None:
    # The first two runs, one alone and one together, succeed.
    script = "echo >> runs; test $(wc -l < runs) -le 2"
    file = wrote(tmp_path, QUIET + f"[[program]]\nname = 'a'\ncommand = ['sh', '-c', {json.dumps(script)}]")
    completed = meshmark("load", "run", file, "--alone", "--repetitions", "3", "--out", "out", folder=tmp_path)
    one_line(completed, 1, "scenario: 1 of 3 runs are excluded", "a, copy 0: ended with status 1")


@pytest.mark.parametrize(
    ("number", "killed"),
    [
        (signal.SIGKILL, (0, 1)),
        (signal.SIGKILL, (0,)),
        (signal.SIGKILL, (1,)),
        (signal.SIGSEGV, (0,)),
        (signal.SIGTERM, (0,)),
    ],
)
def test_a_runner_that_was_killed_is_status_1(tmp_path: Path, killed: tuple[int, ...], number: signal.Signals) -> None:
    """The runner is a process and its child; the run is cut if either of them ends."""
    file = wrote(tmp_path, QUIET + "[[program]]\nname = 'long'\ncommand = ['sleep', '600']")
    with cli.start("load", "run", file, "--out", "out", "--no-store", cwd=tmp_path) as child:
        begun(child, tmp_path / "out" / JOURNAL, b'"released"')
        runners = [top := children_of(child.pid)[0], children_of(top)[0]]
        for index in killed:
            os.kill(runners[index], number)
        out, err = child.communicate(timeout=50)
    one_line(subprocess.CompletedProcess([], child.returncode, out, err), 1, "the run was interrupted", "out")
    assert "long" in out
    assert not [p for p in runners if alive(p)]
    assert read_run(tmp_path / "out").programs[0].how in {"cut", "stopped", "signal"}


def begun(child: subprocess.Popen[str], journal: Path, mark: bytes) -> None:
    def marked() -> bool:
        return journal.exists() and mark in journal.read_bytes()

    until(lambda: marked() or child.poll() is not None)
    if not marked():
        child.kill()
        pytest.fail(f"it did not begin: {child.communicate()[1]}")


def test_the_library_tells_a_cut_run_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing_runner = tmp_path / "load"
    crashing_runner.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing_runner.chmod(0o755)
    monkeypatch.setenv("MESHMARK_LOAD", str(crashing_runner))
    with pytest.raises(RunCutError, match="the runner was terminated by SIGSEGV") as error:
        run_scenario(parse_scenario("[[program]]\ncommand = ['true']", "made"), tmp_path / "run")
    assert error.value.run.cut
    with pytest.raises(UsageError, match="contains a run already"):
        run_scenario(parse_scenario("[[program]]\ncommand = ['true']", "made"), tmp_path / "run")


# ------------------------------------------------------------------ ended by a signal


@pytest.mark.parametrize(("number", "more"), [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGHUP, ["--alone"])])
def test_a_signal_ends_a_run_and_says_what_is_kept(tmp_path: Path, number: signal.Signals, more: list[str]) -> None:
    file = wrote(tmp_path, QUIET + "[[program]]\nname = 'long'\ncommand = ['sleep', '600']")
    journal = tmp_path / "out" / ("runs/000-00" if more else "") / JOURNAL
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with cli.start("load", "run", file, "--out", "out", "--no-store", *more, cwd=tmp_path, env=env) as child:
        begun(child, journal, b'"released"')
        children = children_of(child.pid)
        child.send_signal(number)
        out, err = child.communicate(timeout=50)
    ending = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    one_line(subprocess.CompletedProcess([], child.returncode, out, err), 128 + number, ending, "out")
    assert not [p for p in children if alive(p)]
    assert not list((tmp_path / "tmp").iterdir())
    assert read_run(journal.parent).status == "stopped"


def test_an_interrupted_build_says_that_no_program_has_run(tmp_path: Path) -> None:
    file = wrote(tmp_path, QUIET + "[[program]]\nname = 'p'\napplication = 'app.toml'")
    build = "sh -c '[ -e {source}/first ] || { touch {source}/first; exec sleep 600; }'"
    tables = f'[application]\ncommand = "true"\n[build.slow]\ncommands = ["{build}"]'
    (tmp_path / "app.toml").write_text(tables)
    words = ("load", "run", file, "--out", "out", "--no-store")
    with cli.start(*words, cwd=tmp_path) as child:
        assert until((tmp_path / "first").exists)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=50)
    assert child.returncode == 130 and "no program has run; the same command with --out out uses" in err
    assert cli.meshmark(*words, cwd=tmp_path).returncode == 0


SMALL = """
name = "load-quick"
[[step]]
instrument = "kernels"
options = { volume = "64KiB,1MiB,16MiB", threads = "1", budget = "5m" }
"""


def test_nobody_measures_or_runs_what_another_is_at(tmp_path: Path) -> None:
    """Only one process may use a folder; the results of the process that was interrupted are kept."""
    (tmp_path / "small.toml").write_text(SMALL)
    file = wrote(tmp_path, QUIET + "[[program]]\nname = 'long'\ncommand = ['sleep', '600']")
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "TMPDIR": str(tmp_path / "tmp")}
    base = ("load", "base", "--out", "base", "--force")
    study = ("load", "run", file, "--alone", "--out", "study")
    for first, journal, mark, second, says in (
        ((*base, "--spec", "small.toml"), "base/journal/*.jsonl", b'"header"', (*base, "--resume"), "base --resume"),
        (study, f"study/runs/*/{JOURNAL}", b'"released"', study, "and --out study"),
    ):
        with cli.start(*first, cwd=tmp_path, env=env) as child:
            try:
                assert until(lambda at=journal, has=mark: any(has in p.read_bytes() for p in tmp_path.glob(at)))
                one_line(meshmark(*second, folder=tmp_path), 1, "in use by another measuring process")
                child.terminate()
                _, err = child.communicate(timeout=50)
            finally:
                child.kill()
        one_line(subprocess.CompletedProcess([], child.returncode, "", err), 143, "ended by SIGTERM", says)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_trial_does_not_outlive_who_made_it_and_leaves_no_file(tmp_path: Path, number: signal.Signals) -> None:
    slow_runner = tmp_path / "load"
    slow_runner.write_text(f"#!/bin/sh\ncat $2 > {tmp_path}/seen\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    slow_runner.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    code = (
        "import json, sys; from pathlib import Path; from support.made_program import PROGRAM\n"
        "from meshmark.load.synthesis.program import parse_program\n"
        "from meshmark.load.synthesis.make import run_program\n"
        "from meshmark.cli.process import end_by_signals; end_by_signals()\n"
        "run_program(parse_program(json.dumps(PROGRAM), 'p'), [0])"
    )
    code = code.replace("[0]", str(sorted(os.sched_getaffinity(0))[:1]))
    env = {
        **os.environ,
        "MESHMARK_LOAD": str(slow_runner),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL) as child:
        try:
            assert until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
            child.send_signal(number)
            child.wait(30)
        finally:
            child.kill()
    assert until(lambda: not alive(int((tmp_path / "pid").read_text())))
    assert parse_program((tmp_path / "seen").read_text(), "seen").calls == 1000
    assert not list((tmp_path / "tmp").iterdir())


# ------------------------------------------------------------------ inputs without end


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


ENDLESS: dict[str, Callable[[Path], Path]] = {
    "device": lambda p: (p.symlink_to("/dev/zero"), p)[1],
    "fifo": fifo,
    "folder": lambda p: (p.mkdir(), p)[1],
    "circle": lambda p: (p.symlink_to(p), p)[1],
    "large": lambda p: (p.touch(), os.truncate(p, 1 << 37), p)[2],
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_input_without_end_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    program_file = made_program(find_load(), tmp_path / "p.json", 10)
    endless = ENDLESS[kind](tmp_path / "bad")
    file = wrote(tmp_path, QUIET + WISH)
    for words in (
        ("run", endless),
        ("make", endless),
        ("make", file, "--metrics", endless),
        ("base", "--spec", endless, "--force"),
    ):
        refused(tmp_path, words, "bad")
    (tmp_path / "made").mkdir()
    ENDLESS[kind](tmp_path / "made" / "p.json")
    refused(tmp_path, ("run", file, "--programs", "made"), "program p", "p.json")
    assert program_file.is_file()


@pytest.mark.parametrize("kind", [k for k in ENDLESS if k != "large"])  # a long journal is valid
def test_a_folder_of_results_that_holds_such_is_refused_or_read_without_it(tmp_path: Path, kind: str) -> None:
    run = made_load(tmp_path / "run", {"a": [1.0]}, died=["a"])
    (run / JOURNAL).unlink()
    ENDLESS[kind](run / JOURNAL)
    refused(tmp_path, ("show", run), "run")
    refused(tmp_path, ("compare", run, run), "run")
    other_run = made_load(tmp_path / "other", {"a": [1.0]}, died=["a"])
    (other_run / "scenario.json").unlink()
    (other_run / "output").mkdir()
    for name in ("scenario.json", "output/a.0.err", "machine.parquet"):
        ENDLESS[kind](other_run / name)
    assert read_run(other_run).programs[0].how == "signal"
    completed = meshmark("load", "show", other_run, folder=tmp_path)
    assert completed.returncode == 0, completed.stderr
    study = made_study(tmp_path / "study")
    (study / "study.json").unlink()
    ENDLESS[kind](study / "study.json")
    file = wrote(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    completed = meshmark("load", "run", file, "--alone", "--out", "study", folder=tmp_path)
    one_line(completed, 2, "study")


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    "value",
    ["true", "0x" + "f" * 9000, "1e999", "nan", "[" * 90 + "]" * 90, "'" + "x" * 9000 + "'", "-1", "1.5", '"\\u0007"'],
)
@pytest.mark.parametrize("key", ["copies", "threads", "nice", "start_s", "run_time_s", "name", "cpus", "env", "memory"])
def test_a_value_that_is_none_is_one_line_with_the_key(key: str, value: str) -> None:
    if (key, value) in {("nice", "-1"), ("start_s", "1.5"), ("run_time_s", "1.5"), ("start_s", "[" * 90 + "]" * 90)}:
        return
    text = "[[program]]\n" + ("" if key == "run_time_s" else "command = ['x']\n") + f"{key} = {value}\n"
    with pytest.raises(UsageError) as error:
        parse_scenario(text, "s.toml")
    message = str(error.value)
    assert "\n" not in message and len(message) < 400 and message.isprintable(), message
    assert key in message


def test_what_is_shown_of_a_value_is_short_whatever_it_is() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in (1 << 60_000, deep, "x" * 9000, "\x1b[31m", "\ud800", float("nan"), b"\xff"):
        assert len(quoted_value(value)) <= 60 and quoted_value(value).isprintable()
    while deep:
        deep = deep[0]  # frees one layer at a time, without recursion


@pytest.mark.parametrize("value", ["true", "1.5", "0", "'2'", "1e999", "101"])
def test_repetitions_of_a_specification_are_a_whole_number(tmp_path: Path, value: str) -> None:
    spec = f"name = 'x'\n[[step]]\ninstrument = 'kernels'\nrepetitions = {value}\n"
    (tmp_path / "spec.toml").write_text(spec)
    refused(tmp_path, ("base", "--spec", "spec.toml", "--force"), "spec.toml", "repetitions")


@pytest.mark.parametrize(
    "change",
    [{"threads": True}, {"threads": 0}, {"threads": 1 << 40}, {"threads": None}, {"threads": "1"}],
    ids=lambda c: str(c["threads"]),
)
def test_a_programs_threads_are_a_number(tmp_path: Path, change: dict[str, Any]) -> None:
    file = made_program(find_load(), tmp_path / "p.json", 10)
    raw = json.loads(file.read_text())
    raw["prescription"] |= change
    file.write_text(json.dumps(raw))
    with pytest.raises(UsageError, match="threads"):
        threads_of(file)
