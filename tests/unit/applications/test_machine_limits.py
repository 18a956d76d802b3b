"""Tests of limits of the cache and the clock: what is written where, that it is always undone, and what is refused.

The folders are simulated; `rmdir` removes a resctrl group together with its files, as the kernel does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.applications.application import parse_application
from meshmark.applications.attempt import attempt
from meshmark.applications.configuration import Configuration, Folders, configurations
from meshmark.applications.effects.clock_effects import clock_effects
from meshmark.applications.resources import machine_limits
from meshmark.applications.resources.machine_limits import check_limits, limited, usual_clock
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from support.limited_runs import wait_for_each_other
from support.made_caches import machine
from support.paths import ROOT
from support.waiting import until

RMDIR = '#!/bin/sh\ncp -r "$1" "$(dirname "$0")/removed"\nexec rm -r "$1"\n'


@pytest.fixture
def resctrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a mounted resctrl with 16 ways and return its folder.

    The folder `tools/removed` beside it is the last group that was removed.
    """
    root = tmp_path / "resctrl"
    (root / "info" / "L3").mkdir(parents=True)
    (root / "info" / "L3" / "cbm_mask").write_text("ffff\n")
    (root / "info" / "L3" / "min_cbm_bits").write_text("2\n")
    (root / "schemata").write_text("    MB:0=100;1=100\n    L3:0=ffff;1=ffff\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "rmdir").write_text(RMDIR)
    (tools / "rmdir").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(machine_limits, "RESCTRL", root)
    return root


@pytest.fixture
def cpufreq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate the cpufreq policies of all CPUs of this process, from 0.8 to 3 GHz, and return their folder."""
    root = tmp_path / "cpufreq"
    for n, cpu in enumerate(sorted(os.sched_getaffinity(0))):
        folder = root / f"policy{n}"
        folder.mkdir(parents=True)
        for name, text in (
            ("affected_cpus", cpu),
            ("cpuinfo_min_freq", 800000),
            ("cpuinfo_max_freq", 3000000),
            ("scaling_max_freq", 2900000),
        ):
            (folder / name).write_text(f"{text}\n")
    (root / "policy99").mkdir()
    for name in ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_max_freq"):
        (root / "policy99" / name).write_text("1000000\n")
    (root / "policy99" / "affected_cpus").write_text("4095\n")  # not a CPU of this process
    monkeypatch.setattr(machine_limits, "CPUFREQ", root)
    return root


def limits_of(root: Path) -> set[str]:
    return {path.read_text().strip() for path in root.glob("policy[0-8]/scaling_max_freq")}


def test_a_group_has_its_part_of_each_cache_and_goes_with_the_run(resctrl: Path) -> None:
    with limited({"cache": "4MiB"}, machine) as tasks:
        assert tasks is not None
        group = tasks.parent
        assert group.parent == resctrl and (group / "schemata").read_text() == "L3:0=f;1=f\n"
    assert not group.exists()
    with limited({"cache": "all", "threads": "2"}, machine) as tasks:
        assert tasks is None and not list(resctrl.glob("meshmark*"))


def test_a_run_joins_its_group(resctrl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.applications.attempt.from_sysfs", machine)
    app = parse_application(
        '[application]\ncommand = "true"\n[dimensions]\ncopies = 2\ncache = "2MiB"\n', "a", tmp_path
    )
    outcome = attempt(app, configurations(app)[0], Folders(tmp_path / "run"), 1)
    assert outcome.value is not None, outcome.reason
    removed_group = tmp_path / "tools" / "removed"
    assert (removed_group / "schemata").read_text() == "L3:0=3;1=3\n"
    # A file keeps only the last line that was written, whereas a real group keeps all.
    assert int((removed_group / "tasks").read_text()) > 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_limits_are_undone_if_the_process_is_killed(resctrl: Path, cpufreq: Path, how: signal.Signals) -> None:
    script = f"""
import time
from pathlib import Path
from meshmark.applications.resources import machine_limits
from support.limited_runs import wait_for_each_other
from support.made_caches import machine
machine_limits.RESCTRL, machine_limits.CPUFREQ = Path({str(resctrl)!r}), Path({str(cpufreq)!r})
with machine_limits.limited({{"cache": "4MiB", "clock": "1.5GHz"}}, machine):
    print("limited", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"limited\n"
        assert list(resctrl.glob("meshmark-*")) and limits_of(cpufreq) == {"1500000"}
        os.killpg(child.pid, how)
    assert until(lambda: not list(resctrl.glob("meshmark-*")) and limits_of(cpufreq) == {"2900000"})


def test_runs_that_vary_the_same_limit_wait_for_each_other(cpufreq: Path) -> None:
    def restored() -> None:
        assert limits_of(cpufreq) == {"2900000"}

    wait_for_each_other("clock", "1.2GHz", "all", restored)


def test_a_driver_that_rounds_far_is_an_error(cpufreq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_text = Path.read_text

    def rounded(path: Path, encoding: str | None = None) -> str:
        text = read_text(path, encoding=encoding)
        return "2000000\n" if text == "1200000\n" else text

    monkeypatch.setattr(Path, "read_text", rounded)
    message = r"requested 1.2GHz of policy0, which uses 2GHz"
    with pytest.raises(MeshmarkError, match=message), limited({"clock": "1.2GHz"}, machine):
        pass
    assert limits_of(cpufreq) == {"2900000"}


def test_the_clock_of_our_cpus_is_limited_and_restored(cpufreq: Path) -> None:
    with limited({"clock": "1.2GHz"}, machine):
        assert limits_of(cpufreq) == {"1200000"}
        assert (cpufreq / "policy99" / "scaling_max_freq").read_text() == "1000000\n"
    assert limits_of(cpufreq) == {"2900000"}
    with pytest.raises(ZeroDivisionError), limited({"clock": "900MHz"}, machine):
        raise ZeroDivisionError
    assert limits_of(cpufreq) == {"2900000"}


@pytest.mark.parametrize(
    ("dimension", "value", "message"),
    [
        ("cache", "3.5MiB", r"found 3.50.MiB; allowed: multiples of 1.MiB from 2.MiB to 16.MiB, all"),
        ("cache", "1MiB", r"found 1.MiB; allowed: multiples of 1.MiB from 2.MiB"),
        ("cache", "32MiB", r"from 2.MiB to 16.MiB"),
        ("clock", "0.5GHz", r"found 0.5GHz; allowed: 0.8GHz to 3GHz, all"),
        ("clock", "3.1GHz", r"found 3.1GHz"),
    ],
)
def test_what_the_machine_cannot_set_is_refused(
    resctrl: Path, cpufreq: Path, dimension: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_limits({dimension: ["all", value]}, machine)
    check_limits({"cache": ["all", "2MiB", "16MiB"], "clock": ["all", "800MHz", "3GHz"]}, machine)


@pytest.mark.parametrize("text", ["", "much", "-1MiB", "4MiB..8MiB", "0"])
def test_sizes_are_sizes(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"dimensions.cache: found"):
        parse_application(f'[application]\ncommand = "a"\n[dimensions]\ncache = ["{text}"]\n', "a", tmp_path)


@pytest.mark.parametrize("text", ["", "fast", "2", "0GHz", "-1GHz", "1e3GHz", "2GHz,"])
def test_clocks_are_frequencies(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"dimensions.clock: found"):
        parse_application(f'[application]\ncommand = "a"\n[dimensions]\nclock = ["{text}"]\n', "a", tmp_path)


def test_a_machine_without_these_limits_says_so(
    tmp_path: Path, resctrl: Path, cpufreq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_caches = replace(machine(), caches=())
    with pytest.raises(AbsentError, match="unknown or different sizes"):
        check_limits({"cache": ["2MiB"]}, lambda: without_caches)
    (resctrl / "info" / "L3").rename(resctrl / "info" / "L3CODE")
    with pytest.raises(AbsentError, match="no L3 caches that resctrl can assign"):
        check_limits({"cache": ["2MiB"]}, machine)
    monkeypatch.setattr(machine_limits, "RESCTRL", tmp_path / "none")
    with pytest.raises(AbsentError, match="found no resctrl file system"):
        check_limits({"cache": ["2MiB"]}, machine)
    monkeypatch.setattr(machine_limits, "CPUFREQ", tmp_path / "none")
    with pytest.raises(AbsentError, match="no clock that can be limited"):
        check_limits({"clock": ["2GHz"]}, machine)
    check_limits({"cache": ["all"], "clock": ["all"]}, machine)


def test_a_driver_that_does_not_take_the_clock_is_noticed(cpufreq: Path) -> None:
    limit_file = cpufreq / "policy0" / "scaling_max_freq"
    limit_file.unlink()
    limit_file.symlink_to("/dev/null")  # the value that is read differs from the value that was written
    with (
        pytest.raises(MeshmarkError, match=r"dimensions.clock: cannot limit policy0"),
        limited({"clock": "1.2GHz"}, machine),
    ):
        pass


def test_a_group_that_cannot_be_made_is_an_error(resctrl: Path) -> None:
    (resctrl / f"meshmark-{os.getpid()}").write_text("")
    with pytest.raises(MeshmarkError, match=r"cannot create .*File exists"), limited({"cache": "4MiB"}, machine):
        pass


def test_the_clock_of_all_is_the_limit_where_boost_is_off(cpufreq: Path) -> None:
    assert usual_clock() == 2.9e9
    (cpufreq / "boost").write_text("0\n")
    assert usual_clock() == 2.9e9
    (cpufreq / "boost").write_text("1\n")
    assert "boost is on" in str(usual_clock())
    (cpufreq / "boost").unlink()
    (cpufreq.parent / "intel_pstate").mkdir()
    (cpufreq.parent / "intel_pstate" / "no_turbo").write_text("0\n")
    assert "boost is on" in str(usual_clock())


def test_without_one_limit_the_clock_of_all_is_unknown(cpufreq: Path) -> None:
    shutil.copytree(cpufreq / "policy0", cpufreq / "policy9")
    (cpufreq / "policy9" / "scaling_max_freq").write_text("1000000\n")
    assert "not the same for all CPUs" in str(usual_clock())
    (cpufreq / "policy9" / "scaling_max_freq").unlink()
    assert "the limit of the clock is not known: dimensions.clock: cannot read" in str(usual_clock())


def test_the_clocks_of_an_application_are_judged_for_each_value_of_the_others(cpufreq: Path) -> None:
    combinations = [
        Configuration({"threads": threads, "clock": clock})
        for threads in ("1", "2")
        for clock in ("1.5GHz", "2GHz", "all")
    ]
    hz = {"1.5GHz": 1.5e9, "2GHz": 2e9, "all": 2.9e9}
    values = {
        case.label: {
            r: (1 + 0.001 * r) * 1e9 / (hz[case.values["clock"]] if case.values["threads"] == "1" else 1.5e9)
            for r in range(7)
        }
        for case in combinations
    }
    case, other_case = clock_effects(values, combinations, "lower")
    assert (case["others"], case["word"]) == ("threads=1", "proportional")
    assert (other_case["others"], other_case["word"], other_case["plateau_hz"]) == ("threads=2", "plateau", 1.5e9)
    (cpufreq / "boost").write_text("1\n")
    case, other_case = clock_effects(values, combinations, "lower")
    assert case["word"] == "inconclusive" and "2 clocks, at least 3" in case["text"]
    assert "clock=all is left out, because its clock is not known: boost is on" in case["text"]
    assert clock_effects(values, combinations[:1], "lower") == []
