"""Test that wrong scenarios, and scenarios that this host cannot run, are refused in one line before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import parse_metrics
from meshmark.load.scenario.placing import HostResources, check_here
from meshmark.load.scenario.scenario import Scenario, ScenarioProgram, parse_scenario, read_scenario
from support.scenarios import one_line, run


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
        ("[[program]]\ncommand = ['x']\ncopies = 2\nstart_s = [0, 1, 2]", ("start_s", "3 entries", "2 copies")),
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
        ("[metric.m]\nformula = 'flops'\nunits = 'x'\n[[program]]\ncommand=['x']", ("units", "did you mean unit")),
        ("[[program]]\ncommand=['x']\ncopies=4000\n[[program]]\ncommand=['x']\ncopies=4000", ("copies", "8000")),
    ],
)
def test_a_wrong_scenario_is_refused_in_one_line_that_names_the_key(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as error:
        parse_scenario(text, "made.toml")
    message = one_line(error)
    for word in ("made.toml", *words):
        assert word in message, message


def test_a_scenario_says_what_was_written() -> None:
    scenario = parse_scenario(
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
    traffic, real = scenario.programs
    assert scenario.timeout_s == 60
    assert (scenario.canary.before_s, scenario.canary.after_s, scenario.canary.during) == (1, 0.5, False)
    assert traffic.start_s == (0, 1.5)
    assert traffic.cpus == ((0,), (1,))
    assert traffic.profile is not None
    assert traffic.profile.metrics == {"memory_gb_per_s": 1.5}
    assert traffic.profile.memory_mib == traffic.memory_mib == 64
    assert real.command == ("echo", "x")
    assert dict(real.env) == {"N": "3", "S": "t"}
    assert real.cwd == "/there/work"
    assert scenario.processes == 3
    assert scenario.alone("traffic").programs[0].copies == 1
    with pytest.raises(UsageError, match="traffic, real"):
        scenario.member("other")


OWN = """
[metric.bytes_per_flop]
formula = "(memory_read_bytes + memory_write_bytes) / flops"
unit = "B/flop"
[[program]]
run_time_s = 1
bytes_per_flop = 4
"""


def test_a_scenarios_own_metrics_can_be_prescribed_in_it() -> None:
    scenario = parse_scenario(OWN, "made.toml")
    profile = scenario.programs[0].profile
    assert profile is not None
    assert profile.metrics == {"bytes_per_flop": 4}
    assert scenario.metrics.keys() == {"bytes_per_flop"}
    command_metrics = parse_metrics('[metric.calls_per_s]\nformula = "system_calls / wall_s"', "own.toml")
    extended = parse_scenario(OWN + "calls_per_s = 3", "made.toml", command_metrics)
    assert extended.metrics.keys() == {"bytes_per_flop", "calls_per_s"}
    with pytest.raises(UsageError) as error:
        parse_scenario(OWN + "calls_per_s = 3", "made.toml")
    assert "calls_per_s" in one_line(error)


def test_a_metric_that_the_scenario_and_the_command_both_have_is_refused() -> None:
    command_metrics = parse_metrics('[metric.bytes_per_flop]\nformula = "memory_read_bytes / flops"', "own.toml")
    with pytest.raises(UsageError) as error:
        parse_scenario(OWN, "made.toml", command_metrics)
    assert "made.toml: metric.bytes_per_flop" in one_line(error)
    assert "--metrics" in one_line(error)


@given(st.text(max_size=200))
@settings(max_examples=50)
def test_no_text_does_anything_but_be_a_scenario_or_be_refused(text: str) -> None:
    try:
        parse_scenario("[[program]]\ncommand = ['x']\n" + text, "made.toml")
    except UsageError as error:
        assert "\n" not in str(error)


def made(**keys: Any) -> Scenario:
    keys = {"name": "a", "command": ("x",), **keys}
    copies = keys.get("copies", 1)
    keys.setdefault("start_s", (0.0,) * copies)
    keys.setdefault("cpus", ((),) * copies)
    return Scenario(programs=(ScenarioProgram(**keys),))


def test_what_the_host_has_not_is_refused_before_anything_starts() -> None:
    host = HostResources((0, 1, 2, 3), 1 << 30)
    check_here(made(threads=4), host)
    for scenario, words in (
        (made(threads=5), ("threads", "5", "0-3")),
        (made(threads=3, cpus=((0, 1),)), ("threads", "3", "CPUs 0-1")),
        (made(cpus=((3, 4, 5),)), ("cpus", "4-5", "0-3")),
        (made(memory_mib=600.0, copies=2), ("memory_mib", "1200 MiB", "1024 MiB")),
    ):
        with pytest.raises(UsageError) as error:
            check_here(scenario, host)
        message = one_line(error)
        for word in ("program a", *words):
            assert word in message, message
    check_here(made(threads=5, oversubscribe=True), host)
    with pytest.raises(UsageError, match="2048"):
        check_here(made(), host, {"a": 2 << 30})


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        read_scenario(tmp_path / "none.toml")
    assert "none.toml" in one_line(error)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError) as error:
        read_scenario(tmp_path / "bytes.toml")
    assert "UTF-8" in one_line(error)


def test_a_program_without_a_file_or_with_a_wrong_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        run(tmp_path, "[[program]]\nname = 'a'\nrun_time_s = 1")
    assert "program a" in one_line(error)
    (tmp_path / "wrong.json").write_text("{}")
    with pytest.raises(UsageError) as error:
        run(tmp_path, "[[program]]\nname = 'a'\nfile = 'wrong.json'")
    assert "wrong.json" in one_line(error)
    assert not (tmp_path / "run").exists()
