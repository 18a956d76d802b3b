"""Test runs of scenarios: whatever programs do, their times add up to the run time and no process survives.

The tests check relations (which program waited for which, which times add up), never speeds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.records import records_of
from meshmark.load.scenario.result import LoadRun, utilisation
from meshmark.load.scenario.run import find_load, run_scenario
from meshmark.views.terminal.gantt import gantt_text
from support.made_program import made_program
from support.processes import children_of, descendants_with, nobody_with
from support.scenarios import CPUS, QUIET, one_line, run, two_cpus
from support.waiting import until


def closes(got: LoadRun) -> None:
    """Assert that the times of each thread add up to its run time, and that the spans of charts have the same sums."""
    assert got.threads
    for t in got.threads:
        if t.wall_s < 0.05:
            continue
        # A busy machine may interrupt the observer between its readings of the clock and of the kernel's counters.
        assert t.accounted == pytest.approx(1, abs=0.01 + 0.05 / t.wall_s), t
        drawn = sum(s.user_s + s.system_s + s.waiting_s + s.sleeping_s for s in t.spans)
        assert drawn == pytest.approx(t.wall_s, rel=0.01, abs=0.02), t
        assert sum(s.user_s + s.system_s for s in t.spans) == pytest.approx(t.user_s + t.system_s, rel=0.05, abs=0.02)
    total = got.totals()
    assert total.user_s + total.system_s + total.idle_s == pytest.approx(total.available_s)
    assert total.run_s == pytest.approx(sum(p.wall_s for p in got.programs))


def test_two_busy_programs_on_one_cpu_wait_for_each_other(tmp_path: Path, program: Path) -> None:
    load_run = run(tmp_path, QUIET + f"[[program]]\nname = 'busy'\ncopies = 2\nfile = '{program}'\ncpus = '{CPUS[0]}'")
    assert load_run.status == "ok"
    assert [p.how for p in load_run.programs] == ["ok", "ok"]
    closes(load_run)
    a, b = load_run.programs
    # While both programs ran, one of them waited: CPU time of the one is waiting time of the other.
    assert a.waiting_s + b.waiting_s > 0.5 * min(a.user_s + a.system_s, b.user_s + b.system_s)
    for p in (a, b):
        # The remaining time is sleep, such as the wait for the disk on a busy machine.
        busy_s = p.user_s + p.system_s + p.waiting_s
        assert busy_s + p.sleeping_s == pytest.approx(p.wall_s, rel=0.03, abs=0.05)
        assert p.done["flops"] > 0
        assert load_run.windows[p.program, p.copy]
    assert a.done["flops"] == b.done["flops"]
    assert all(set(t.cpus) == {CPUS[0]} for t in load_run.threads)
    assert load_run.fairness() <= 1
    use = utilisation(load_run)
    assert all(0 <= u <= 1 for _, u in use)


@two_cpus
def test_three_busy_programs_on_two_cpus_wait_for_what_two_cpus_cannot_give(tmp_path: Path, program: Path) -> None:
    cpus = f"{CPUS[0]},{CPUS[1]}"
    load_run = run(tmp_path, QUIET + f"[[program]]\nname = 'busy'\ncopies = 3\nfile = '{program}'\ncpus = '{cpus}'")
    closes(load_run)
    sleeping_s = sum(p.sleeping_s for p in load_run.programs)
    waiting_s = sum(p.waiting_s for p in load_run.programs)
    wall_s = sum(p.wall_s for p in load_run.programs)
    assert waiting_s > 0
    assert waiting_s >= wall_s - 2 * load_run.bench_s - sleeping_s - 0.02 * wall_s
    assert load_run.totals().waiting_s == pytest.approx(waiting_s)


def test_a_sleeping_program_sleeps_and_its_children_are_seen(tmp_path: Path) -> None:
    load_run = run(tmp_path, QUIET + "[[program]]\nname = 'idle'\ncommand = ['sh', '-c', 'sleep 0.6; sleep 0.5; :']")
    closes(load_run)
    p = load_run.programs[0]
    leader = load_run.threads[0]
    assert leader.sleeping_s > 0.9 * leader.wall_s - 0.1
    assert p.waiting_s < 0.5 * p.sleeping_s
    assert {t.command for t in load_run.threads} >= {"sleep"}
    assert p.user_s + p.system_s < 0.5 * p.wall_s


def test_a_team_is_seen_thread_by_thread(tmp_path: Path) -> None:
    # On a busy machine, the observer may miss a short program; the test then tries a longer one.
    for calls in (1500, 6000, 24000):
        folder = tmp_path / str(calls)
        folder.mkdir()
        team = made_program(find_load(), folder / "team.json", calls, threads=2)
        text = QUIET + f"[[program]]\nname = 'team'\nfile = '{team}'\noversubscribe = true\nwait_policy = 'passive'"
        load_run = run(folder, text)
        closes(load_run)
        p = load_run.programs[0]
        threads_s = sum(t.user_s + t.system_s for t in load_run.threads)
        # The time of threads that ended between two samples is part of the program's sums.
        assert threads_s + p.unseen_s == pytest.approx(p.user_s + p.system_s, rel=0.05, abs=0.03)
        team_threads = len([t for t in load_run.threads if t.wall_s > 0.01])
        if team_threads == 2:
            break
    assert team_threads == 2


def test_whoever_dies_or_cannot_start_is_told_and_the_others_finish(tmp_path: Path, program: Path) -> None:
    events: list[str] = []
    file = tmp_path / "scenario.toml"
    file.write_text(
        QUIET
        + f"""
        [[program]]
        name = "busy"
        file = '{program}'
        [[program]]
        name = "dies"
        command = ["sh", "-c", "echo last words >&2; kill -SEGV $$"]
        [[program]]
        name = "fails"
        command = ["sh", "-c", "exit 3"]
        [[program]]
        name = "nowhere"
        command = ["./is-not-there"]
        [[program]]
        name = "grouped"
        command = ["true"]
        cgroup = "/proc/no-cgroup"
        [[program]]
        name = "lost"
        command = ["true"]
        cwd = "/proc/not/there"
        """
    )
    load_run = run_scenario(file, tmp_path / "run", report=lambda e: events.append(str(e["event"])))
    by_name = {p.program: p for p in load_run.programs}
    assert load_run.status == "ok"
    assert {n: p.how for n, p in by_name.items()} == {
        "busy": "ok",
        "dies": "signal",
        "fails": "status",
        "nowhere": "failed",
        "grouped": "failed",
        "lost": "failed",
    }
    assert "SIGSEGV" in by_name["dies"].reason
    assert "last words" in by_name["dies"].reason
    assert "status 3" in by_name["fails"].reason
    assert "is-not-there" in by_name["nowhere"].reason
    assert "cgroup" in by_name["grouped"].reason
    assert "/proc/not/there" in by_name["lost"].reason
    assert "released" in events
    assert "failed" in events
    records, absences = records_of(load_run)
    assert {r.conditions["program"] for r in records if r.metric == "elapsed"} == {"busy"}
    assert len(absences) == 5
    assert all("\n" not in a.reason for a in absences)
    text = gantt_text(load_run)
    assert "not started" in text
    assert "terminated" in text


def test_why_a_program_could_not_start_is_heard_though_its_death_is_told_first(tmp_path: Path) -> None:
    load_run = run(
        tmp_path,
        QUIET
        + """
        [[program]]
        name = "lost"
        command = ["true"]
        cwd = "/proc/not/there"
        copies = 60
        [[program]]
        name = "late"
        command = ["./is-not-there"]
        copies = 60
        """,
    )
    assert [p.how for p in load_run.programs] == ["failed"] * 120
    assert {p.reason for p in load_run.programs if p.program == "lost"} == {
        "cwd /proc/not/there: No such file or directory"
    }
    (late_reason,) = {p.reason for p in load_run.programs if p.program == "late"}
    assert late_reason.startswith("'./is-not-there' cannot be executed")


def test_a_program_whose_file_is_spoiled_says_so_and_the_others_finish(tmp_path: Path, program: Path) -> None:
    raw = json.loads(program.read_text())
    raw["variants"][0]["kernel"] = "trioda"
    (tmp_path / "spoiled.json").write_text(json.dumps(raw))
    load_run = run(
        tmp_path,
        QUIET
        + f"""
        [[program]]
        name = "spoiled"
        file = "spoiled.json"
        [[program]]
        name = "busy"
        file = "{program}"
        """,
    )
    spoiled, busy = load_run.programs
    assert spoiled.how == "failed"
    assert "trioda" in spoiled.reason
    assert busy.how == "ok"


def test_where_and_how_programs_run_is_as_asked(tmp_path: Path) -> None:
    last = CPUS[-1]
    text = (
        QUIET
        + f"""
        [[program]]
        name = "where"
        copies = 2
        start_s = [0, 0.4]
        cpus = ["{CPUS[0]}", "{last}"]
        nice = 3
        threads = 1
        wait_policy = "passive"
        env = {{COLOUR = "blue"}}
        command = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; nice; echo $COLOUR $OMP_WAIT_POLICY; pwd"]
        cwd = "."
        [[program]]
        name = "idle class"
        priority = "idle"
        command = ["sh", "-c", "cut -d' ' -f41 /proc/self/stat"]
        """
    )
    load_run = run(tmp_path, text)
    assert all(p.how == "ok" for p in load_run.programs), load_run.programs
    own_nice = os.getpriority(os.PRIO_PROCESS, 0)
    for copy, cpu in ((0, CPUS[0]), (1, last)):
        words = (tmp_path / "run" / "output" / f"where.{copy}.out").read_text().split()
        assert words[1] == str(cpu)
        assert words[2] == str(min(19, own_nice + 3))
        assert words[3:5] == ["blue", "passive"]
        assert Path(words[5]) == tmp_path
    assert (tmp_path / "run" / "output" / "idle_class.0.out").read_text().strip() == "5"  # SCHED_IDLE
    first, second, _ = load_run.programs
    assert first.released_s <= second.released_s >= 0.4
    assert load_run.bound["where", 1] == (last,)


def test_who_ended_is_told_at_once_and_in_order(tmp_path: Path) -> None:
    text = QUIET + "".join(f"[[program]]\nname = 'p{i}'\nstart_s = {0.4 * i:g}\ncommand = ['true']\n" for i in range(4))
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    events: list[tuple[str, str, float, float]] = []
    run_scenario(
        file,
        tmp_path / "run",
        report=lambda e: events.append((str(e["event"]), str(e.get("program")), float(e["t_s"]), time.monotonic())),
    )
    exits = [t for t in events if t[0] == "exit"]
    assert [p for _, p, _, _ in exits] == ["p0", "p1", "p2", "p3"]
    assert [t[2] for t in events] == sorted(t[2] for t in events)
    # The programs end 0.4 s after each other, and their exits are not all reported at the end.
    assert exits[-1][3] - exits[0][3] > 0.1, exits


def test_a_folder_that_is_no_cgroup_is_told_and_not_left_behind(tmp_path: Path) -> None:
    load_run = run(tmp_path, QUIET + f"[[program]]\ncommand = ['true']\ncgroup = '{tmp_path}/group'")
    assert load_run.programs[0].how == "failed"
    assert f"cgroup {tmp_path}/group" in load_run.programs[0].reason
    assert not (tmp_path / "group").exists()


def test_a_policy_places_the_copies(tmp_path: Path) -> None:
    text = (
        "[scenario]\ncanary = false\npolicy = 'any'\nslots = 'threads'\n"
        + f"""
        [[program]]
        name = "one"
        copies = {min(2, len(CPUS))}
        command = ["true"]
        """
    )
    load_run = run(tmp_path, text)
    cpus = [c for p in load_run.programs for c in load_run.bound[p.program, p.copy]]
    assert len(cpus) == len(set(cpus)) == len(load_run.programs)
    assert set(cpus) <= set(CPUS)


def test_a_timeout_ends_what_runs_and_flags_it(tmp_path: Path) -> None:
    text = "[scenario]\ntimeout_s = 0.5\ncanary = false\n[[program]]\nname = 'long'\ncommand = ['sleep', '600']\n"
    load_run = run(tmp_path, text + "[[program]]\nname = 'short'\ncommand = ['true']")
    assert load_run.status == "timeout"
    assert {p.program: p.how for p in load_run.programs} == {"long": "timeout", "short": "ok"}
    assert "stopped" in load_run.flags(load_run.programs[0])


RUNNER = """
import sys
from pathlib import Path
from meshmark.load.scenario.run import run_scenario
run_scenario(Path(sys.argv[1]), Path(sys.argv[2]))
"""
# The script leaves its process group and session, ignores the signals that can be ignored, and so do its children.
STUBBORN = "trap '' TERM INT HUP; setsid sleep 601 & (trap '' TERM; sleep 602 & wait) & while :; do sleep 603; done"


@pytest.mark.parametrize("whom", ["python", "top", "sampler"])
def test_no_child_survives_whoever_is_killed(tmp_path: Path, whom: str) -> None:
    mark = f"MESHMARK_TEST_MARK={tmp_path.name}-{whom}-{os.getpid()}"
    file, out = tmp_path / "scenario.toml", tmp_path / "run"
    file.write_text(
        QUIET
        + f"""
        [[program]]
        name = "stubborn"
        copies = 2
        start_s = [0, 600]
        env = {{MESHMARK_TEST_MARK = "{mark.partition("=")[2]}"}}
        command = ["sh", "-c", {json.dumps(STUBBORN)}]
        """
    )
    with subprocess.Popen([sys.executable, "-c", RUNNER, str(file), str(out)], stderr=subprocess.PIPE) as python:
        try:
            assert until(lambda: len(descendants_with(mark)) >= 5)
            top = children_of(python.pid)[0]
            os.kill({"python": python.pid, "top": top, "sampler": children_of(top)[0]}[whom], signal.SIGKILL)
            assert nobody_with(mark)
            python.wait(timeout=120)
        finally:
            python.kill()
    load_run = read_run(out)
    assert load_run.status in {"cut", "stopped"}
    assert load_run.programs[0].how in {"cut", "stopped", "signal"}
    assert load_run.programs[1].how == "failed"
    assert load_run.threads
    assert "stopped" in load_run.flags(load_run.programs[0])
    assert gantt_text(load_run)
    records, absences = records_of(load_run)
    assert not [r for r in records if r.metric == "elapsed"]
    assert absences


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_and_what_there_is_was_written(tmp_path: Path, number: int, status: int) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "format": "meshmark load plan",
                "version": 1,
                "programs": [{"name": "a", "argv": ["sleep", "600"]}, {"name": "b", "argv": ["sleep", "600"]}],
            }
        )
    )
    with (tmp_path / JOURNAL).open("wb") as sink, subprocess.Popen([find_load(), "run", plan], stdout=sink) as child:
        assert until(lambda: (tmp_path / JOURNAL).read_bytes().count(b'"released"') == 2)
        child.send_signal(number)
        assert child.wait(timeout=120) == status
    load_run = read_run(tmp_path)
    assert load_run.status == "stopped"
    assert [p.how for p in load_run.programs] == ["stopped", "stopped"]
    assert load_run.end["signal"] == number


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "format"),
        ('{"format": "meshmark load plan", "version": 2}', "version"),
        ('{"format": "meshmark load plan", "version": 1}', "programs"),
        ('{"format": "meshmark load plan", "version": 1, "programs": []}', "programs"),
        ('{"format": "meshmark load plan", "version": 1, "programs": [{"name": "a"}]}', "argv"),
        ('{"format": "meshmark load plan", "version": 1, "programs": [{"argv": ["a"]}]}', "name"),
        (
            '{"format": "meshmark load plan", "version": 1, "programs": [{"name": "a", "argv": ["a"], "nice": "x"}]}',
            "nice",
        ),
        (
            '{"format": "meshmark load plan", "version": 1, "sample_s": 0, "programs": [{"name": "a", "argv": ["a"]}]}',
            "sample_s",
        ),
    ],
)
def test_a_wrong_plan_is_one_line(tmp_path: Path, plan: str, words: str) -> None:
    (tmp_path / "plan.json").write_text(plan)
    completed = subprocess.run(
        [find_load(), "run", tmp_path / "plan.json"], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert words in completed.stderr
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize("fd", ["x", "2", "3x", "9999"])
def test_a_wrong_descriptor_for_news_is_one_line(tmp_path: Path, fd: str) -> None:
    plan = {"format": "meshmark load plan", "version": 1, "programs": [{"name": "a", "argv": ["true"]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    completed = subprocess.run(
        [find_load(), "run", tmp_path / "plan.json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MESHMARK_NOTIFY": fd},
    )
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert "MESHMARK_NOTIFY" in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    with pytest.raises(UsageError) as error:
        run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    assert "contains a run already" in one_line(error)
    with pytest.raises(UsageError):
        read_run(tmp_path / "nothing")
