"""Current influences on this machine are reported with their values; what a recording cannot show is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from meshmark.doctor.counters import CounterHost
from meshmark.doctor.finding import ORDER, HostFinding
from meshmark.doctor.now import examine
from meshmark.machine.activity import Activity, BusyProcess
from meshmark.machine.tree import FileTree
from support.cli import meshmark
from support.made_host import AS_ROOT, GOOD, made, no_programs, no_tries, of

CPU = "sys/devices/system/cpu"
PSI = "some avg10={0} avg60=2.00 avg300=1.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=3\n"
QUIET = {
    "proc/loadavg": "0.50 0.40 0.30 1/100 4711\n",
    "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB\n",
    "proc/vmstat": "pswpin 100\npswpout 100\n",
    "sys/fs/cgroup/user.slice/cpu.stat": "usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000000\n",
    **{f"proc/pressure/{kind}": PSI.format("0.00") for kind in ("cpu", "memory", "io")},
    **{f"sys/fs/cgroup/user.slice/{kind}.pressure": PSI.format("0.00") for kind in ("cpu", "memory", "io")},
    **{f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": "7\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpufreq/scaling_max_freq": "3500000\n" for n in range(4)},
    **{f"{CPU}/cpu{n}/cpufreq/cpuinfo_max_freq": "3500000\n" for n in range(4)},
}


def active(**changes: Any) -> Activity:
    quiet: dict[str, Any] = {
        "interval_s": 2.0,
        "runnable": 1.0,
        "busy": dict.fromkeys(range(4), 0.25),
        "stolen": dict.fromkeys(range(4), 0.0),
        "devices": {"sda": 0.1, "sdb": 0.7},
        "programs": (),
    }
    return Activity(**{**quiet, **changes})


class Machine:
    """A simulated machine that replaces the running one and whose files change while it is observed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FileTree, "live", property(lambda _: True))
        self.folder = folder

    def findings(
        self, activity: Activity | None = None, later: Mapping[str, str] | None = None, **changes: str | None
    ) -> list[HostFinding]:
        root = made(self.folder, **{**QUIET, **changes})

        def observe() -> Activity:
            for name, text in (later or {}).items():
                (root / name).write_text(text)
            return activity or active()

        results, interval_s = examine(observe, host=CounterHost(root, no_programs, no_tries))
        assert interval_s == 2.0
        return results


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_nothing_slows_a_quiet_machine(machine: Machine) -> None:
    findings = machine.findings()
    assert {f.verdict for f in findings} == {"ok"} and not any(f.command for f in findings)
    assert len({f.name for f in findings}) == len(findings) >= 10


def test_more_threads_than_cpus_slow_it_and_the_busiest_are_named(machine: Machine) -> None:
    programs = tuple(BusyProcess(f"p{n}", n, 1.0) for n in (11, 12, 13, 14))
    changes = {f"proc/{n}/status": "Uid:\t4294967\t4294967\t0\t0\n" for n in (11, 12)}
    busy = dict.fromkeys(range(4), 1.0)
    findings = machine.findings(active(runnable=9.0, busy=busy, programs=programs), **changes)
    load = of(findings, "load")
    assert load.value == "9.0 runnable threads on 4 CPUs (0-3), 100 % busy; load average 0.5, 0.4, 0.3 (1, 5, 15 min)"
    assert (load.verdict, load.command) == ("slows", "sudo renice -n 10 -p 11 12")
    names = of(findings, "busiest programs")
    assert names.verdict == "slows" and names.value.endswith(", in 2.0 s") and "p14" not in names.value
    assert "p11 (100 % of a CPU, pid 11, user 4294967)" in names.value and "pid 13, ended" in names.value


@pytest.mark.parametrize(
    ("runnable", "busy", "judged"),
    [(4.0, 0.95, "spoils-measurements"), (4.0, 0.5, "ok"), (4.5, 0.5, "slows"), (4.3, 1.0, "spoils-measurements")],
)
def test_the_load_is_judged_by_the_number_of_cpus(machine: Machine, runnable: float, busy: float, judged: str) -> None:
    activity = active(runnable=runnable, busy=dict.fromkeys(range(4), busy))
    assert of(machine.findings(activity), "load").verdict == judged


def test_the_cpus_that_this_process_may_use_count_too(machine: Machine) -> None:
    status = GOOD["proc/self/status"].replace("0-3", "2-3")
    activity = active(busy={0: 0.0, 1: 0.0, 2: 1.0, 3: 0.9})
    load = of(machine.findings(activity, **{"proc/self/status": status}), "load")
    assert load.verdict == "spoils-measurements"
    assert "4 CPUs (0-3), 48 % busy; the 2 CPUs (2-3) that this process may use, 95 % busy" in load.value


@pytest.mark.parametrize(("share", "judged"), [(0.0, "ok"), (0.03, "spoils-measurements"), (0.2, "slows")])
def test_stolen_time_is_judged_by_its_share(machine: Machine, share: float, judged: str) -> None:
    findings = machine.findings(active(stolen=dict.fromkeys(range(4), share)))
    assert of(findings, "steal by the hypervisor").verdict == judged


@pytest.mark.parametrize(
    ("kind", "name", "spoils", "slows"),
    [
        ("cpu", "CPU pressure", "12.00", "60.00"),
        ("memory", "memory pressure", "1.50", "11.00"),
        ("io", "I/O pressure", "6.00", "35.00"),
    ],
)
def test_pressure_is_judged_by_the_last_ten_seconds(
    machine: Machine, kind: str, name: str, spoils: str, slows: str
) -> None:
    for share, verdict in (("0.00", "ok"), (spoils, "spoils-measurements"), (slows, "slows")):
        finding = of(machine.findings(**{f"proc/pressure/{kind}": PSI.format(share)}), name)
        assert finding.verdict == verdict and "2.0 % of 60 s, 1.0 % of 300 s" in finding.value
    findings = of(
        machine.findings(**{f"sys/fs/cgroup/user.slice/{kind}.pressure": PSI.format(slows)}),
        "pressure in the control group",
    )
    assert findings.verdict == "slows" and "(group /user.slice)" in findings.value


def test_pressure_names_the_memory_that_is_left_and_the_busiest_device(machine: Machine) -> None:
    findings = machine.findings()
    assert of(findings, "memory pressure").value.endswith("32 GiB of 64 GiB available")
    assert of(findings, "I/O pressure").value.endswith("busiest device: sdb, 70 % of the time in use")


def test_a_kernel_without_pressure_leaves_it_unknown(machine: Machine) -> None:
    changes: dict[str, str | None] = dict.fromkeys((n for n in QUIET if "pressure" in n), None)
    findings = machine.findings(**changes)
    names = ("CPU pressure", "memory pressure", "I/O pressure", "pressure in the control group")
    assert [of(findings, name).verdict for name in names] == ["unknown"] * 4


def test_a_quota_that_is_used_up_slows_it_and_can_be_removed(machine: Machine) -> None:
    quota = {"sys/fs/cgroup/user.slice/cpu.max": "50000 100000\n"}
    stat = "sys/fs/cgroup/user.slice/cpu.stat"
    name = "throttling by CPU quota"
    assert of(machine.findings(**quota), name).verdict == "ok"
    later = {stat: "nr_periods 120\nnr_throttled 28\nthrottled_usec 2500000\n"}
    finding = of(machine.findings(None, later, **quota), name)
    assert finding.verdict == "slows" and finding.command == "echo max | sudo tee /sys/fs/cgroup/user.slice/cpu.max"
    assert "0.500 CPUs" in finding.value and "18 of 20 periods in 2.0 s: stopped for 1.50 s" in finding.value
    files = {stat: "nr_periods 210\nnr_throttled 11\nthrottled_usec 1010000\n"}
    assert of(machine.findings(None, files, **quota), name).verdict == "spoils-measurements"


def test_the_quota_of_a_group_of_version_1_counts(machine: Machine) -> None:
    folder = "sys/fs/cgroup/cpu/batch"
    changes = {
        "proc/self/cgroup": "3:cpu,cpuacct:/batch\n",
        f"{folder}/cpu.cfs_quota_us": "200000",
        f"{folder}/cpu.cfs_period_us": "100000",
        f"{folder}/cpu.stat": "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n",
    }
    later = {f"{folder}/cpu.stat": "nr_periods 21\nnr_throttled 10\nthrottled_time 3000000000\n"}
    finding = of(machine.findings(None, later, **changes), "throttling by CPU quota")
    assert finding.verdict == "slows" and "2.00 CPUs" in finding.value and "stopped for 3.00 s" in finding.value
    assert finding.command == f"echo -1 | sudo tee /{folder}/cpu.cfs_quota_us"
    assert of(machine.findings(**changes), "pressure in the control group").verdict == "hidden"


def test_throttling_by_heat_is_seen_in_counts_and_in_cooling_devices(machine: Machine) -> None:
    name = "throttling by heat or power"
    later = {f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": f"{7 + n}\n" for n in range(3)}
    finding = of(machine.findings(None, later), name)
    assert (finding.verdict, finding.value) == ("slows", "CPUs 1-2, up to 2 times in 2.0 s")
    device = {"sys/class/thermal/cooling_device0/type": "Processor\n"}
    hot = {"sys/class/thermal/cooling_device0/cur_state": "2\n"}
    assert of(machine.findings(**device, **hot), name).verdict == "slows"
    fan = {"sys/class/thermal/cooling_device0/type": "Fan\n"}
    assert of(machine.findings(**fan, **hot), name).verdict == "ok"


def test_a_lowered_limit_of_the_clock_rate_is_named_with_its_cpus(machine: Machine) -> None:
    changes = {f"{CPU}/cpu{n}/cpufreq/scaling_max_freq": "1200000\n" for n in (2, 3)}
    finding = of(machine.findings(**changes), "limit of the clock rate")
    assert (finding.verdict, finding.value) == ("slows", "1.200 GHz of 3.500 GHz on CPUs 2-3")
    assert finding.command == f"echo 3500000 | sudo tee /{CPU}/cpu*/cpufreq/scaling_max_freq"


@pytest.mark.parametrize(("pages", "judged"), [(0, "ok"), (10, "spoils-measurements"), (100_000, "slows")])
def test_swapping_is_judged_by_its_rate(machine: Machine, pages: int, judged: str) -> None:
    finding = of(machine.findings(None, {"proc/vmstat": f"pswpin {100 + pages}\npswpout 100\n"}), "swap activity")
    assert finding.verdict == judged and "512 MiB of 1 GiB in use" in finding.value


def test_a_recorded_machine_says_what_needs_two_moments(tmp_path: Path) -> None:
    root = made(tmp_path, **{**QUIET, "proc/loadavg": "9.00 4.00 3.00 1/100 7\n", "proc/self/status": AS_ROOT})

    def observe() -> Activity:
        raise AssertionError("a recorded tree must not be observed")

    findings, interval_s = examine(observe, root)
    assert interval_s == 0
    assert (of(findings, "load").verdict, of(findings, "CPU pressure").verdict) == ("slows", "ok")
    for name in ("busiest programs", "steal by the hypervisor", "throttling by heat or power", "swap activity"):
        finding = of(findings, name)
        assert finding.verdict == "unknown" and "needs two moments" in finding.value


def test_damaged_files_cause_no_traceback(machine: Machine) -> None:
    for text in ("", "\0", "-1", "some avg10=x", "9" * 30, "nr_throttled -1", "é\x1b[2J"):
        for finding in machine.findings(None, None, **dict.fromkeys(QUIET, text)):
            assert finding.verdict in ORDER and finding.value.isprintable()


def test_the_command_answers_in_its_last_line_and_names_the_interval() -> None:
    completed = meshmark("doctor")
    assert completed.returncode == 0, completed.stderr
    assert "this machine, observed for " in completed.stderr.splitlines()[-1]
    findings = [json.loads(line) for line in meshmark("doctor", "--json").stdout.splitlines()]
    assert {"load", "busiest programs", "memory pressure", "swap activity"} <= {f["name"] for f in findings}
