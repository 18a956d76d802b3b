"""Scenarios: what is wrong is said before anything starts; whatever programs do, the ledger closes and nobody stays.

Everything here is about relations (who waited for whom, what adds up), never about how fast.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.journal import JOURNAL, _spans, read_run
from meshmark.load.lanes import lanes, shares
from meshmark.load.metrics import parse_metrics
from meshmark.load.placing import Here, check_here
from meshmark.load.records import records_of
from meshmark.load.result import LoadRun, _rank_sum_bound, canary_said, jain, slowdown, utilisation
from meshmark.load.run import find_load, run_scenario
from meshmark.load.scenario import Member, Scenario, parse_scenario, read_scenario
from meshmark.report.gantt import gantt_html, gantt_svg, write_gantt
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.terminal.gantt import gantt_text
from support.made_program import made_program

CPUS = tuple(sorted(os.sched_getaffinity(0)))
QUIET = "[scenario]\ncanary = false\n"
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 0.3 s of fixed work."""
    return made_program(find_load(), tmp_path_factory.mktemp("program") / "busy.json", 3000)


def run(folder: Path, text: str, **programs: Path) -> LoadRun:
    file = folder / "scenario.toml"
    file.write_text(text)
    return run_scenario(file, folder / "run", base_programs=programs)


def one_line(why: pytest.ExceptionInfo[MeshmarkError]) -> str:
    said = str(why.value)
    assert said
    assert "\n" not in said
    assert len(said) < 700
    return said


def descendants_with(mark: str) -> list[int]:
    """Processes that have a word of their own in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def nobody_with(mark: str) -> bool:
    for _ in range(200):
        if not descendants_with(mark):
            return True
        time.sleep(0.05)
    return False


# ------------------------------------------------------------------ what a scenario may say


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("program", "at least one")),
        ("program = 3", ("program", "3")),
        ("[[program]\nname", ("not TOML",)),
        ("[[program]]\nname = 'a'", ("program a", "nothing to run", "command")),
        ("[[program]]\ncommand = ['x']\ncopys = 2", ("copys", "did you mean copies")),
        ("[[program]]\nrun_time_s = 1\nmemory_gb_per_sec = 2", ("memory_gb_per_sec", "memory_gb_per_s")),
        ("[[program]]\nrun_time_s = -1", ("run_time_s", "-1")),
        ("[[program]]\nrun_time_s = 1\ncommand = ['x']", ("run_time_s", "command")),
        ("[[program]]\nfile = 'a'\ncommand = ['x']", ("command", "file")),
        ("[[program]]\ncommand = 'x'", ("command", "list of texts")),
        ("[[program]]\ncommand = []", ("command", "list of texts")),
        ("[[program]]\ncommand = ['']", ("command", "empty")),
        ('[[program]]\ncommand = ["a\\u0000b"]', ("command",)),
        ("[[program]]\ncommand = ['x']\ncopies = 0", ("copies", "0", "from 1")),
        ("[[program]]\ncommand = ['x']\ncopies = true", ("copies", "True")),
        ("[[program]]\ncommand = ['x']\ncopies = 2\nstart_s = [0, 1, 2]", ("start_s", "3 numbers", "2 copies")),
        ("[[program]]\ncommand = ['x']\nstart_s = -1", ("start_s", "-1")),
        ("[[program]]\ncommand = ['x']\nstart_s = nan", ("start_s", "nan")),
        ("[[program]]\ncommand = ['x']\ncpus = '3-1'", ("cpus", "3-1", "0-3,8")),
        ("[[program]]\ncommand = ['x']\ncpus = ''", ("cpus", "0-3,8")),
        ("[[program]]\ncommand = ['x']\ncpus = '0'\npolicy = 'pack'", ("policy", "cpus")),
        ("[[program]]\ncommand = ['x']\nnice = 20", ("nice", "20", "-20")),
        ("[[program]]\ncommand = ['x']\npriority = 'fife'", ("priority", "fife", "did you mean fifo")),
        ("[[program]]\ncommand = ['x']\nwait_policy = 'lazy'", ("wait_policy", "active, passive")),
        ("[[program]]\ncommand = ['x']\nmemory = 'far'", ("memory", "far", "interleave")),
        ("[[program]]\ncommand = ['x']\nmemory_mib = 0", ("memory_mib", "0")),
        ("[[program]]\ncommand = ['x']\nenv = {'A=B' = 1}", ("env", "A=B")),
        ("[[program]]\ncommand = ['x']\nenv = {A = [1]}", ("env.A", "[1]")),
        ("[[program]]\ncommand = ['x']\ncgroup = 'batch'", ("cgroup", "batch", "/sys/fs/cgroup")),
        ("[[program]]\ncommand = ['x']\noversubscribe = 1", ("oversubscribe", "true and false")),
        ("[[program]]\ncommand = ['x']\nname = 'a/b'", ("name", "a/b")),
        ("[[program]]\ncommand = ['x']\nname = 3", ("name", "3")),
        ("[[program]]\nname='a'\ncommand=['x']\n[[program]]\nname='a'\ncommand=['x']", ("name", "another")),
        ("[scenario]\nsample_s = 0\n[[program]]\ncommand=['x']", ("sample_s", "0")),
        ("[scenario]\nslots = 'cpu'\n[[program]]\ncommand=['x']", ("slots", "procs, cores, threads")),
        ("[scenario]\ncanary = {befor_s = 1}\n[[program]]\ncommand=['x']", ("canary", "befor_s", "before_s")),
        ("[scenario]\ncanary = 3\n[[program]]\ncommand=['x']", ("canary", "3")),
        ("[scenario]\ntimeout = 3\n[[program]]\ncommand=['x']", ("timeout", "timeout_s")),
        ("[senario]\n[[program]]\ncommand=['x']", ("senario", "did you mean scenario")),
        ("metric = 3\n[[program]]\ncommand=['x']", ("metric", "tables [metric.NAME]")),
        ("[metric.copies]\nformula = 'flops / wall_s'\n[[program]]\ncommand=['x']", ("metric.copies", "another")),
        ("[metric.m]\nformula = 'flop / wall_s'\n[[program]]\ncommand=['x']", ("flop", "did you mean flops")),
        ("[metric.m]\nformula = 'flops'\nunits = 'x'\n[[program]]\ncommand=['x']", ("units", "formula and unit")),
        ("[[program]]\ncommand=['x']\ncopies=4000\n[[program]]\ncommand=['x']\ncopies=4000", ("copies", "8000")),
    ],
)
def test_a_wrong_scenario_is_refused_in_one_line_that_names_the_key(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as why:
        parse_scenario(text, "made.toml")
    said = one_line(why)
    for word in ("made.toml", *words):
        assert word in said, said


def test_a_scenario_says_what_was_written() -> None:
    got = parse_scenario(
        """
        [scenario]
        name = "two sorts"
        timeout_s = 60
        canary = {before_s = 1, during = false}
        [[program]]
        name = "traffic"
        copies = 2
        start_s = [0, 1.5]
        cpus = ["0", "1"]
        run_time_s = 10
        memory_gb_per_s = 1.5
        threads = 1
        memory_mib = 64
        [[program]]
        name = "real"
        command = ["echo", "x"]
        env = {N = 3, S = "t"}
        nice = 5
        wait_policy = "passive"
        cwd = "work"
        """,
        "made.toml",
        folder=Path("/there"),
    )
    traffic, real = got.programs
    assert got.timeout_s == 60
    assert (got.canary.before_s, got.canary.after_s, got.canary.during) == (1, 0.5, False)
    assert traffic.start_s == (0, 1.5)
    assert traffic.cpus == ((0,), (1,))
    assert traffic.prescription is not None
    assert traffic.prescription.metrics == {"memory_gb_per_s": 1.5}
    assert traffic.prescription.memory_mib == traffic.memory_mib == 64
    assert real.command == ("echo", "x")
    assert dict(real.env) == {"N": "3", "S": "t"}
    assert real.cwd == "/there/work"
    assert got.processes == 3
    assert got.alone("traffic").programs[0].copies == 1
    with pytest.raises(UsageError, match="traffic, real"):
        got.member("other")


OWN = """
[metric.bytes_per_flop]
formula = "(memory_read_bytes + memory_write_bytes) / flops"
unit = "B/flop"
[[program]]
run_time_s = 1
bytes_per_flop = 4
"""


def test_a_scenarios_own_metrics_can_be_prescribed_in_it() -> None:
    got = parse_scenario(OWN, "made.toml")
    wish = got.programs[0].prescription
    assert wish is not None
    assert wish.metrics == {"bytes_per_flop": 4}
    assert got.metrics.keys() == {"bytes_per_flop"}
    given = parse_metrics('[metric.calls_per_s]\nformula = "system_calls / wall_s"', "own.toml")
    both = parse_scenario(OWN + "calls_per_s = 3", "made.toml", given)
    assert both.metrics.keys() == {"bytes_per_flop", "calls_per_s"}
    with pytest.raises(UsageError) as why:
        parse_scenario(OWN + "calls_per_s = 3", "made.toml")
    assert "calls_per_s" in one_line(why)


def test_a_metric_that_the_scenario_and_the_command_both_have_is_refused() -> None:
    given = parse_metrics('[metric.bytes_per_flop]\nformula = "memory_read_bytes / flops"', "own.toml")
    with pytest.raises(UsageError) as why:
        parse_scenario(OWN, "made.toml", given)
    assert "made.toml: metric.bytes_per_flop" in one_line(why)
    assert "--metrics" in one_line(why)


@given(st.text(max_size=200))
@settings(max_examples=50)
def test_no_text_does_anything_but_be_a_scenario_or_be_refused(text: str) -> None:
    try:
        parse_scenario("[[program]]\ncommand = ['x']\n" + text, "made.toml")
    except UsageError as why:
        assert "\n" not in str(why)


def made(**keys: Any) -> Scenario:
    keys = {"name": "a", "command": ("x",), **keys}
    copies = keys.get("copies", 1)
    keys.setdefault("start_s", (0.0,) * copies)
    keys.setdefault("cpus", ((),) * copies)
    return Scenario(programs=(Member(**keys),))


def test_what_the_host_has_not_is_refused_before_anything_starts() -> None:
    here = Here((0, 1, 2, 3), 1 << 30)
    check_here(made(threads=4), here)
    for wrong, words in (
        (made(threads=5), ("threads", "5", "0-3")),
        (made(threads=3, cpus=((0, 1),)), ("threads", "3", "CPUs 0-1")),
        (made(cpus=((3, 4, 5),)), ("cpus", "4-5", "0-3")),
        (made(memory_mib=600.0, copies=2), ("memory_mib", "1200 MiB", "1024 MiB")),
    ):
        with pytest.raises(UsageError) as why:
            check_here(wrong, here)
        said = one_line(why)
        for word in ("program a", *words):
            assert word in said, said
    check_here(made(threads=5, oversubscribe=True), here)
    with pytest.raises(UsageError, match="2048"):
        check_here(made(), here, {"a": 2 << 30})


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as why:
        read_scenario(tmp_path / "none.toml")
    assert "none.toml" in one_line(why)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError) as why:
        read_scenario(tmp_path / "bytes.toml")
    assert "UTF-8" in one_line(why)


def test_a_program_without_a_file_or_with_a_wrong_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as why:
        run(tmp_path, "[[program]]\nname = 'a'\nrun_time_s = 1")
    assert "program a" in one_line(why)
    (tmp_path / "wrong.json").write_text("{}")
    with pytest.raises(UsageError) as why:
        run(tmp_path, "[[program]]\nname = 'a'\nfile = 'wrong.json'")
    assert "wrong.json" in one_line(why)
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ arithmetic


def test_jain_is_one_where_all_are_alike_and_one_nth_where_one_has_all() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert math.isnan(jain([]))


def test_the_bound_of_a_rank_sum_is_that_of_all_arrangements() -> None:
    for n, m in ((3, 3), (4, 4), (5, 6), (2, 9)):
        counts: dict[int, int] = {}
        for ranks in itertools.combinations(range(n + m), n):
            u = sum(ranks) - n * (n - 1) // 2
            counts[u] = counts.get(u, 0) + 1
        total = math.comb(n + m, n)
        k = _rank_sum_bound(n, m)
        below = sum(c for u, c in counts.items() if u < k) / total
        assert 1 - 2 * below >= 0.95 or k == 0
        below += counts.get(k, 0) / total
        assert k == n * m // 2 or 1 - 2 * below < 0.95
    assert _rank_sum_bound(3, 3) == 0
    assert _rank_sum_bound(4, 4) == 1


def test_a_slowdown_has_an_interval_once_there_are_runs_enough() -> None:
    assert slowdown([10.0], [12.0]).interval is None
    got = slowdown([10.0, 10.1, 9.9, 10.0, 10.05], [12.4, 12.5, 12.6, 12.5, 12.45])
    assert got.ratio == pytest.approx(1.25, abs=0.01)
    assert got.interval is not None
    assert got.interval[0] < got.ratio < got.interval[1]
    with pytest.raises(MeshmarkError):
        slowdown([], [1.0])
    with pytest.raises(MeshmarkError):
        slowdown([0.0], [1.0])


def test_spans_fill_the_time_and_what_was_waited_before_is_put_before() -> None:
    # Asleep for 1 s, then a look during which it only waited, then one that tells 0.15 s of waiting.
    looks = [[1.1, "R", 0, 0, 0, 0, 0], [1.2, "R", 1, 40_000_000, 150_000_000, 3, 1], [1.3, "S", 1, 0, 0, 0, 0]]
    spans, moves, ran_on = _spans(looks, 0.0, 1.4, 0.0, 0.1)
    assert moves == 1
    assert ran_on == (1,)
    assert spans[0].from_s == 0
    assert spans[-1].to_s == 1.4
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    for s in spans:
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s)
    assert sum(s.waiting_s for s in spans) == pytest.approx(0.15)
    assert sum(s.user_s for s in spans) == pytest.approx(0.03)
    assert sum(s.system_s for s in spans) == pytest.approx(0.01)
    assert [s.moved for s in spans].count(True) == 1


look = st.tuples(
    st.floats(0.005, 0.4), st.sampled_from("RSD"), st.integers(0, 3), st.integers(0, 120_000_000),
    st.integers(0, 300_000_000), st.integers(0, 12), st.integers(0, 12),
)  # fmt: skip


@given(st.lists(look, max_size=30))
def test_spans_never_hold_more_than_their_time(steps: list[tuple[Any, ...]]) -> None:
    at, looks = 0.0, []
    for width, *rest in steps:
        at += width
        looks.append([at, *rest])
    spans, _, _ = _spans(looks, 0.0, at + 0.1 if looks else None, 0.0, 0.1)
    for s in spans:
        assert min(s.user_s, s.system_s, s.waiting_s, s.sleeping_s) >= -1e-12
        assert s.user_s + s.system_s + s.waiting_s <= s.wall_s + 1e-9
        assert s.user_s + s.system_s + s.waiting_s + s.sleeping_s == pytest.approx(s.wall_s, abs=1e-9)
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(spans))
    if spans:
        bins = shares(spans, 0.0, spans[-1].to_s, 17)
        assert sum(sum(b) for b in bins) * spans[-1].to_s / 17 == pytest.approx(spans[-1].to_s, rel=1e-6)


# ------------------------------------------------------------------ runs


def closes(got: LoadRun) -> None:
    """Every thread's ledger is whole, and what is drawn is what was added up."""
    assert got.threads
    for t in got.threads:
        if t.wall_s < 0.05:
            continue
        assert t.closes == pytest.approx(1, abs=0.01), t
        drawn = sum(s.user_s + s.system_s + s.waiting_s + s.sleeping_s for s in t.spans)
        assert drawn == pytest.approx(t.wall_s, rel=0.01, abs=0.02), t
        assert sum(s.user_s + s.system_s for s in t.spans) == pytest.approx(t.user_s + t.system_s, rel=0.05, abs=0.02)
    total = got.totals()
    assert total.user_s + total.system_s + total.idle_s == pytest.approx(total.available_s)
    assert total.run_s == pytest.approx(sum(p.wall_s for p in got.programs))


def test_two_busy_programs_on_one_cpu_wait_for_each_other(tmp_path: Path, program: Path) -> None:
    got = run(tmp_path, QUIET + f"[[program]]\nname = 'busy'\ncopies = 2\nfile = '{program}'\ncpus = '{CPUS[0]}'")
    assert got.status == "ok"
    assert [p.how for p in got.programs] == ["ok", "ok"]
    closes(got)
    a, b = got.programs
    # While both were there one of them waited: what the first took in the time of both, the second did not have.
    assert a.waiting_s + b.waiting_s > 0.5 * min(a.user_s + a.system_s, b.user_s + b.system_s)
    for p in (a, b):
        # Busy from beginning to end: hardly anything is left to sleep, though nobody measured that.
        assert p.user_s + p.system_s + p.waiting_s == pytest.approx(p.wall_s, rel=0.03, abs=0.03)
        assert p.done["flops"] > 0
        assert got.windows[p.program, p.copy]
    assert a.done["flops"] == b.done["flops"]
    assert all(set(t.cpus) == {CPUS[0]} for t in got.threads)
    assert got.fairness() <= 1
    use = utilisation(got)
    assert all(0 <= u <= 1 for _, u in use)


@two_cpus
def test_three_busy_programs_on_two_cpus_wait_for_what_two_cpus_cannot_give(tmp_path: Path, program: Path) -> None:
    those = f"{CPUS[0]},{CPUS[1]}"
    got = run(tmp_path, QUIET + f"[[program]]\nname = 'busy'\ncopies = 3\nfile = '{program}'\ncpus = '{those}'")
    closes(got)
    slept = sum(p.sleeping_s for p in got.programs)
    waited = sum(p.waiting_s for p in got.programs)
    wall = sum(p.wall_s for p in got.programs)
    assert waited > 0
    assert waited >= wall - 2 * got.bench_s - slept - 0.02 * wall
    assert got.totals().waiting_s == pytest.approx(waited)


def test_a_sleeping_program_sleeps_and_its_children_are_seen(tmp_path: Path) -> None:
    got = run(tmp_path, QUIET + "[[program]]\nname = 'idle'\ncommand = ['sh', '-c', 'sleep 0.6; sleep 0.5; :']")
    closes(got)
    p = got.programs[0]
    leader = got.threads[0]
    assert leader.sleeping_s > 0.9 * leader.wall_s - 0.1
    assert p.waiting_s < 0.5 * p.sleeping_s
    assert {t.command for t in got.threads} >= {"sleep"}
    assert p.user_s + p.system_s < 0.5 * p.wall_s


def test_a_team_is_seen_thread_by_thread(tmp_path: Path) -> None:
    team = made_program(find_load(), tmp_path / "team.json", 1500, threads=2)
    text = QUIET + f"[[program]]\nname = 'team'\nfile = '{team}'\noversubscribe = true\nwait_policy = 'passive'"
    got = run(tmp_path, text)
    closes(got)
    assert len([t for t in got.threads if t.wall_s > 0.01]) == 2
    p = got.programs[0]
    told = sum(t.user_s + t.system_s for t in got.threads)
    # What ended between two looks is part of the program's sums.
    assert told + p.unseen_s == pytest.approx(p.user_s + p.system_s, rel=0.05, abs=0.03)


def test_whoever_dies_or_cannot_start_is_told_and_the_others_finish(tmp_path: Path, program: Path) -> None:
    seen: list[str] = []
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
    got = run_scenario(file, tmp_path / "run", report=lambda e: seen.append(str(e["event"])))
    by_name = {p.program: p for p in got.programs}
    assert got.status == "ok"
    assert {n: p.how for n, p in by_name.items()} == {
        "busy": "ok", "dies": "signal", "fails": "status", "nowhere": "failed", "grouped": "failed", "lost": "failed",
    }  # fmt: skip
    assert "signal 11" in by_name["dies"].reason
    assert "last words" in by_name["dies"].reason
    assert "status 3" in by_name["fails"].reason
    assert "is-not-there" in by_name["nowhere"].reason
    assert "cgroup" in by_name["grouped"].reason
    assert "/proc/not/there" in by_name["lost"].reason
    assert "released" in seen
    assert "failed" in seen
    records, absences = records_of(got)
    assert {r.conditions["program"] for r in records if r.metric == "elapsed"} == {"busy"}
    assert len(absences) == 5
    assert all("\n" not in a.reason for a in absences)
    text = gantt_text(got)
    assert "not started" in text
    assert "died" in text


def test_why_a_program_could_not_start_is_heard_though_its_death_is_told_first(tmp_path: Path) -> None:
    got = run(tmp_path, QUIET + """
        [[program]]
        name = "lost"
        command = ["true"]
        cwd = "/proc/not/there"
        copies = 60
        [[program]]
        name = "late"
        command = ["./is-not-there"]
        copies = 60
        """)  # fmt: skip
    assert [p.how for p in got.programs] == ["failed"] * 120
    assert {p.reason for p in got.programs if p.program == "lost"} == {"cwd /proc/not/there: No such file or directory"}
    (late,) = {p.reason for p in got.programs if p.program == "late"}
    assert late.startswith("'./is-not-there' cannot be executed")


def test_a_program_whose_file_is_spoiled_says_so_and_the_others_finish(tmp_path: Path, program: Path) -> None:
    raw = json.loads(program.read_text())
    raw["variants"][0]["kernel"] = "trioda"
    (tmp_path / "spoiled.json").write_text(json.dumps(raw))
    got = run(tmp_path, QUIET + f"""
        [[program]]
        name = "spoiled"
        file = "spoiled.json"
        [[program]]
        name = "busy"
        file = "{program}"
        """)  # fmt: skip
    spoiled, busy = got.programs
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
    got = run(tmp_path, text)
    assert all(p.how == "ok" for p in got.programs), got.programs
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    for copy, cpu in ((0, CPUS[0]), (1, last)):
        said = (tmp_path / "run" / "output" / f"where.{copy}.out").read_text().split()
        assert said[1] == str(cpu)
        assert said[2] == str(min(19, mine + 3))
        assert said[3:5] == ["blue", "passive"]
        assert Path(said[5]) == tmp_path
    assert (tmp_path / "run" / "output" / "idle_class.0.out").read_text().strip() == "5"  # SCHED_IDLE
    first, second, _ = got.programs
    assert 0.4 <= second.released_s < first.released_s + 3
    assert got.bound["where", 1] == (last,)


def test_who_ended_is_told_at_once_and_in_order(tmp_path: Path) -> None:
    text = QUIET + "".join(f"[[program]]\nname = 'p{i}'\nstart_s = {0.4 * i:g}\ncommand = ['true']\n" for i in range(4))
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    told: list[tuple[str, str, float, float]] = []
    run_scenario(
        file,
        tmp_path / "run",
        report=lambda e: told.append((str(e["event"]), str(e.get("program")), float(e["t_s"]), time.monotonic())),
    )
    ended = [t for t in told if t[0] == "exit"]
    assert [p for _, p, _, _ in ended] == ["p0", "p1", "p2", "p3"]
    assert [t[2] for t in told] == sorted(t[2] for t in told)
    # They end 0.4 s after each other, and are not told of together once a second.
    assert all(b[3] - a[3] > 0.1 for a, b in itertools.pairwise(ended)), ended


def test_a_folder_that_is_no_cgroup_is_told_and_not_left_behind(tmp_path: Path) -> None:
    got = run(tmp_path, QUIET + f"[[program]]\ncommand = ['true']\ncgroup = '{tmp_path}/group'")
    assert got.programs[0].how == "failed"
    assert f"cgroup {tmp_path}/group" in got.programs[0].reason
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
    got = run(tmp_path, text)
    cpus = [c for p in got.programs for c in got.bound[p.program, p.copy]]
    assert len(cpus) == len(set(cpus)) == len(got.programs)
    assert set(cpus) <= set(CPUS)


def test_a_timeout_ends_what_runs_and_flags_it(tmp_path: Path) -> None:
    text = "[scenario]\ntimeout_s = 0.5\ncanary = false\n[[program]]\nname = 'long'\ncommand = ['sleep', '600']\n"
    got = run(tmp_path, text + "[[program]]\nname = 'short'\ncommand = ['true']")
    assert got.status == "timeout"
    assert {p.program: p.how for p in got.programs} == {"long": "timeout", "short": "ok"}
    assert "truncated" in got.flags(got.programs[0])


RUNNER = """
import sys
from pathlib import Path
from meshmark.load.run import run_scenario
run_scenario(Path(sys.argv[1]), Path(sys.argv[2]))
"""
# It leaves its group and its session, ignores what can be ignored, and has children that do so too.
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
            for _ in range(600):
                if len(descendants_with(mark)) >= 5:
                    break
                time.sleep(0.05)
            assert len(descendants_with(mark)) >= 5
            top = children_of(python.pid)[0]
            os.kill({"python": python.pid, "top": top, "sampler": children_of(top)[0]}[whom], signal.SIGKILL)
            assert nobody_with(mark)
            python.wait(timeout=30)
        finally:
            python.kill()
    got = read_run(out)
    assert got.status in {"cut", "stopped"}
    assert got.programs[0].how in {"cut", "stopped", "signal"}
    assert got.programs[1].how == "failed"
    assert got.threads
    assert "truncated" in got.flags(got.programs[0])
    assert gantt_text(got)
    records, absences = records_of(got)
    assert not [r for r in records if r.metric == "elapsed"]
    assert absences


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_and_what_there_is_was_written(tmp_path: Path, number: int, status: int) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "format": "meshmark load plan", "version": 1,
                "programs": [{"name": "a", "argv": ["sleep", "600"]}, {"name": "b", "argv": ["sleep", "600"]}],
            }
        )
    )  # fmt: skip
    with (tmp_path / JOURNAL).open("wb") as sink, subprocess.Popen([find_load(), "run", plan], stdout=sink) as child:
        for _ in range(600):
            if b'"released"' in (tmp_path / JOURNAL).read_bytes():
                break
            time.sleep(0.05)
        time.sleep(0.3)
        child.send_signal(number)
        assert child.wait(timeout=30) == status
    got = read_run(tmp_path)
    assert got.status == "stopped"
    assert [p.how for p in got.programs] == ["stopped", "stopped"]
    assert got.end["signal"] == number


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("", "is no JSON object"),
        ("[1]", "is no JSON object"),
        ("{}", "format"),
        ('{"format": "meshmark load plan", "version": 2}', "version"),
        ('{"format": "meshmark load plan", "version": 1}', "programs"),
        ('{"format": "meshmark load plan", "version": 1, "programs": []}', "programs"),
        ('{"format": "meshmark load plan", "version": 1, "programs": [{"name": "a"}]}', "argv"),
        ('{"format": "meshmark load plan", "version": 1, "programs": [{"argv": ["a"]}]}', "name"),
        ('{"format": "meshmark load plan", "version": 1, "programs": [{"name": "a", "argv": ["a"], "nice": "x"}]}',
         "nice"),
        ('{"format": "meshmark load plan", "version": 1, "sample_s": 0, "programs": [{"name": "a", "argv": ["a"]}]}',
         "sample_s"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_one_line(tmp_path: Path, plan: str, words: str) -> None:
    (tmp_path / "plan.json").write_text(plan)
    done = subprocess.run([find_load(), "run", tmp_path / "plan.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("fd", ["x", "2", "3x", "9999"])
def test_a_wrong_descriptor_for_news_is_one_line(tmp_path: Path, fd: str) -> None:
    plan = {"format": "meshmark load plan", "version": 1, "programs": [{"name": "a", "argv": ["true"]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run([find_load(), "run", tmp_path / "plan.json"], capture_output=True, text=True, check=False,
                          env={**os.environ, "MESHMARK_NOTIFY": fd})  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert "MESHMARK_NOTIFY" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    with pytest.raises(UsageError) as why:
        run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    assert "contains a run already" in one_line(why)
    with pytest.raises(UsageError):
        read_run(tmp_path / "nothing")


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, program: Path) -> LoadRun:
    folder = tmp_path_factory.mktemp("whole")
    return run(folder, f"""
        [scenario]
        name = "a < b & c"
        canary = {{before_s = 0.1, after_s = 0.1}}
        [[program]]
        name = "busy"
        copies = 2
        start_s = [0, 0.2]
        file = '{program}'
        [[program]]
        name = "shell"
        command = ["sh", "-c", "sleep 0.2; sleep 0.2; exit 0"]
        """)  # fmt: skip


def test_a_torn_journal_is_read_as_far_as_it_goes(tmp_path: Path, whole: LoadRun) -> None:
    shutil.copy(whole.folder / "scenario.json", tmp_path)
    data = (whole.folder / JOURNAL).read_bytes()
    for part in (0.0, 0.1, 0.4, 0.7, 0.999):
        (tmp_path / JOURNAL).write_bytes(data[: int(part * len(data))] + b'{"type": "sample", "threads": [[')
        got = read_run(tmp_path)
        assert got.status == "cut"
        assert gantt_text(got)
        ET.fromstring(gantt_svg(got))
    (tmp_path / JOURNAL).write_bytes(
        data.replace(b'"threads":[', b'"threads":7,"x":[').replace(b'"t_s":1', b'"t_s":"x')
    )
    assert read_run(tmp_path).programs


def test_a_run_becomes_records_that_the_store_takes(tmp_path: Path, whole: LoadRun) -> None:
    records, absences = records_of(whole, "n042")
    assert not absences
    for r in records:
        again = Record.from_json(r.to_json())
        assert again == r
    of_busy = [r for r in records if r.conditions.get("program") == "busy" and r.conditions.get("copy") == 0]
    assert {r.metric for r in of_busy} >= {"elapsed", "user", "system", "waiting", "sleeping", "flop_rate"}
    assert {r.metric for r in records if "program" not in r.conditions} >= {"bench", "idle", "waiting_sum", "fairness"}
    assert {r.conditions["copies"] for r in of_busy} == {2}
    store = Store(tmp_path / "store")
    store.add("run1", "load", records, absences, "n042")
    assert len(store.query(instrument="load")) == len(records)


def test_the_canary_sang_before_during_and_after(whole: LoadRun) -> None:
    if not whole.canary:
        pytest.skip("no line can be flushed on this processor")
    assert {"before", "after"} <= {c["when"] for c in whole.canary}
    assert all(c["load_latency_s"] > 0 for c in whole.canary)
    assert whole.canary[0]["t_s"] < 0


def test_what_the_canary_sang_is_one_line_of_the_table(whole: LoadRun, tmp_path: Path) -> None:
    if not whole.canary:
        pytest.skip("no line can be flushed on this processor")
    said = canary_said(whole)
    assert "\n" not in said
    for when in ("before", "after"):
        assert f"{1e9 * whole.canary_level(when):.1f} ns {when}" in said
    silent = run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    assert canary_said(silent) == ""
    assert silent.canary_drift() == 0


@pytest.mark.parametrize(
    ("memory", "pages", "flagged"),
    [
        ("bind=1", {"1": 100 << 20}, False),
        ("bind=1", {"0": 2 << 20, "1": 98 << 20}, True),
        ("bind=1", {"0": 900 << 10, "1": 99 << 20}, False),  # within a hundredth
        ("bind=1", {"0": 100 << 10}, True),
        ("preferred=1", {"0": 100 << 10}, False),  # and less than a MiB of what may go elsewhere
        ("preferred=1", {"0": 2 << 20}, True),
        ("", {"0": 100 << 20}, False),  # nobody asked
    ],
)
def test_memory_that_is_elsewhere_than_asked_carries_a_flag(
    tmp_path: Path, whole: LoadRun, memory: str, pages: dict[str, int], flagged: bool
) -> None:
    lines = []
    for raw in (whole.folder / JOURNAL).read_text().splitlines():
        line = json.loads(raw)
        if line["type"] == "header":
            line["programs"] = [{**p, "nodes": "1" if memory else "none"} for p in line["programs"]]
        if line["type"] == "total":
            line["pages"] = pages
        lines.append(json.dumps(line))
    (tmp_path / JOURNAL).write_text("\n".join(lines) + "\n")
    about = json.loads((whole.folder / "scenario.json").read_text())
    about["programs"] = [{**p, "memory": memory} for p in about["programs"]]
    (tmp_path / "scenario.json").write_text(json.dumps(about))
    got = read_run(tmp_path)
    assert {"misplaced" in got.flags(p) for p in got.programs} == {flagged}
    records, _ = records_of(got)
    of_busy = next(r for r in records if r.metric == "elapsed" and r.conditions["program"] == "busy")
    assert of_busy.conditions["memory"] == (memory or "default")
    assert of_busy.conditions["observed_node"] == int(max(pages, key=lambda n: pages[n]))
    assert of_busy.conditions["observed_node_share"] == max(pages.values()) / sum(pages.values())


def test_looking_is_told_and_little(whole: LoadRun) -> None:
    # Starting and ending are in it, and the machine may be busy: a relation that only a mistake breaks.
    assert 0 < whole.end["sampling"]["share"] < 0.1


def test_the_picture_shows_every_program_and_is_whole(tmp_path: Path, whole: LoadRun) -> None:
    svg = gantt_svg(whole)
    tree = ET.fromstring(svg)
    texts = [t.text or "" for t in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "busy · 1" in texts
    assert "busy · 2" in texts
    assert "shell" in texts
    assert "a < b & c" in texts
    for word in ("Bench time", "Sum of waiting", "waiting for a CPU", "user", "sleeping", "moved to another CPU"):
        assert word in texts
    assert "prefers-color-scheme:dark" in svg
    page = gantt_html(whole)
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "a &lt; b &amp; c" in page
    paths = write_gantt(whole, tmp_path)
    assert [p.name for p in paths] == ["gantt.html", "gantt.svg", "gantt.png"]
    assert paths[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_text_fits_its_width(whole: LoadRun, width: int) -> None:
    text = gantt_text(whole, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "busy · 1" in text


def test_too_many_threads_are_drawn_as_one_lane_a_copy(whole: LoadRun) -> None:
    assert len(lanes(whole, most=3)) == len(whole.programs)
    assert sum(len(x.threads) for x in lanes(whole, most=3)) == len(whole.threads)
