"""Influences on one process: waiting, its threads, limits of its control group, page faults; or why it is hidden."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from meshmark.doctor.counters import CounterHost
from meshmark.doctor.finding import HostFinding
from meshmark.doctor.one_process import examine
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from support.cli import meshmark
from support.made_host import made, no_programs, no_tries, of

PID = 4711
PSI = "some avg10={} avg60=0.00 avg300=0.00 total=9\n"
FIRST: dict[str, Any] = {
    "cpu_s": 10,
    "faults": 5,
    "state": "S",
    "nice": 0,
    "started": 99,
    "ran_s": (5, 5),
    "waited_s": (1, 1),
    "involuntary": 100,
    "cpus": ("0-3", "0-3"),
    "swap_kb": 0,
    "uid": 4294967,
    "tgid": PID,
}
TICKS = os.sysconf("SC_CLK_TCK")


def files(**values: Any) -> dict[str, str]:
    """Return the files of a process with two threads in /proc at one moment."""
    v = {**FIRST, **values}
    middle = f"1 1 1 0 -1 0 0 0 {v['faults']} 0 {v['cpu_s'] * TICKS} 0 0 0 20 {v['nice']} 2 0 {v['started']} 0 0"
    status = f"Tgid:\t{v['tgid']}\nUid:\t{v['uid']}\t{v['uid']}\t0\t0\nVmSwap:\t{v['swap_kb']} kB\n"
    contents = {"stat": f"{PID} (a) (b c) {v['state']} {middle}\n", "status": status, "cgroup": "0::/job\n"}
    for n, tid in enumerate((PID, PID + 1)):
        switches = f"voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t{v['involuntary']}\n"
        contents[f"task/{tid}/status"] = f"Cpus_allowed_list:\t{v['cpus'][n]}\n{switches}"
        contents[f"task/{tid}/schedstat"] = f"{round(v['ran_s'][n] * 1e9)} {round(v['waited_s'][n] * 1e9)} 3\n"
    return {f"proc/{PID}/{name}": text for name, text in contents.items()}


Look = Callable[..., list[HostFinding]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def found(later: Mapping[str, Any] | None = None, **changes: Any) -> list[HostFinding]:
        """Return the findings about a process whose values change to `later` within 2 s."""
        changed_files = {name: text for name, text in changes.items() if "/" in name}
        first = {name: value for name, value in changes.items() if "/" not in name}
        root = made(tmp_path, **{"proc/meminfo": "SwapTotal: 1024 kB\n", **files(**first), **changed_files})

        def wait() -> float:
            later_files = {name: text for name, text in (later or {}).items() if "/" in name}
            values = {name: value for name, value in (later or {}).items() if "/" not in name}
            made(
                tmp_path,
                **{
                    "proc/meminfo": "SwapTotal: 1024 kB\n",
                    **files(**{**first, **values}),
                    **changed_files,
                    **later_files,
                },
            )
            return 2.0

        return examine(CounterHost(root, no_programs, no_tries), PID, wait)

    return found


def test_nothing_slows_a_process_that_has_its_cpus(look: Look) -> None:
    group = {"sys/fs/cgroup/job/cpu.pressure": PSI.format("0.00")}
    findings = look({"cpu_s": 14, "ran_s": (7, 7)}, **group)
    assert {f.verdict for f in findings} == {"ok"} and not any(f.command for f in findings)
    assert of(findings, "process state").value == f"a) (b c (pid {PID}, user 4294967), 2 threads, sleeping"
    assert of(findings, "CPU share").value == "2.00 CPUs in 2.0 s"
    assert of(findings, "threads and CPUs").value == "2 active threads on 4 allowed CPUs (0-3)"


def test_waiting_is_a_share_of_the_time_in_which_its_threads_could_run(look: Look) -> None:
    finding = of(look({"ran_s": (5.5, 5.5), "waited_s": (2.5, 2.5)}), "waiting for a CPU")
    assert finding.verdict == "slows" and finding.value.startswith("75 % ") and "(3.00 of 4.00 s)" in finding.value
    nice = of(look({"ran_s": (5.5, 5.5), "waited_s": (2.5, 2.5)}, nice=5), "waiting for a CPU")
    assert nice.command == f"sudo renice -n 0 -p {PID}"
    assert of(look({"ran_s": (6.9, 6.9), "waited_s": (1.1, 1.1)}), "waiting for a CPU").verdict == "spoils-measurements"


def test_a_sleeping_process_does_not_wait_for_a_cpu(look: Look) -> None:
    finding = of(look({"waited_s": (1.01, 1)}), "waiting for a CPU")
    assert finding.verdict == "ok" and "hardly runnable" in finding.value


def test_more_active_threads_than_allowed_cpus_slow_it_and_the_mask_can_be_widened(look: Look) -> None:
    later = {"ran_s": (6, 6), "waited_s": (2, 2)}
    finding = of(look(later, cpus=("2", "2")), "threads and CPUs")
    assert finding.verdict == "slows" and finding.value == "2 active threads on 1 allowed CPU (2)"
    assert finding.command.endswith(f"taskset -acp 0-3 {PID}")
    group = {"sys/fs/cgroup/job/cpuset.cpus.effective": "2\n", "sys/fs/cgroup/job/cpuset.cpus": "2\n"}
    assert of(look(later, cpus=("2", "2"), **group), "threads and CPUs").command == (
        "echo 0-3 | sudo tee /sys/fs/cgroup/job/cpuset.cpus"
    )


def test_threads_that_are_bound_to_a_cpu_each_do_not_share_it(look: Look) -> None:
    assert of(look({"ran_s": (7, 7)}, cpus=("0", "1")), "threads and CPUs").verdict == "ok"


def test_the_quota_and_the_pressure_of_its_own_control_group_count(look: Look) -> None:
    folder = "sys/fs/cgroup/job"
    first = {f"{folder}/cpu.max": "100000 100000", f"{folder}/cpu.stat": "nr_periods 0\nnr_throttled 0\n"}
    later = {f"{folder}/cpu.stat": "nr_periods 20\nnr_throttled 20\nthrottled_usec 1000000\n"}
    findings = look(later, **first, **{f"{folder}/memory.pressure": PSI.format("20.00")})
    quota = of(findings, "throttling by CPU quota")
    assert quota.verdict == "slows" and quota.command == "echo max | sudo tee /sys/fs/cgroup/job/cpu.max"
    pressure = of(findings, "pressure in the control group")
    assert pressure.verdict == "slows" and "memory 20 % (group /job)" in pressure.value


def test_faults_swap_and_switches_are_counted(look: Look) -> None:
    findings = look({"faults": 205, "involuntary": 200, "swap_kb": 2048})
    assert (of(findings, "major page faults").verdict, of(findings, "major page faults").value) == (
        "slows",
        "200 in 2.0 s",
    )
    swap = of(findings, "memory in swap")
    assert (swap.verdict, swap.value) == ("spoils-measurements", "2 MiB")
    switches = of(findings, "context switches")
    assert switches.verdict == "spoils-measurements" and switches.value == "0/s voluntary, 100/s involuntary"


def test_a_stopped_process_can_be_continued(look: Look) -> None:
    finding = of(look({}, state="T"), "process state")
    assert finding.verdict == "slows" and finding.command.endswith(f"kill -CONT {PID}")


def test_a_process_that_ends_or_is_replaced_meanwhile_is_one_line(look: Look, tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match=r"4711 .* ended while it was observed"):
        look({"started": 100})
    with pytest.raises(MeshmarkError, match=r"4711 .* ended while it was observed"):
        look({"state": "Z"})


@pytest.mark.parametrize(
    ("pid", "changes", "error", "said"),
    [
        (1, {}, UsageError, "found 1, which is not a process"),
        (PID, {"state": "Z"}, UsageError, "has ended"),
        (PID, {"tgid": 12}, UsageError, "a thread of process 12"),
        (2, {}, AbsentError, "belongs to another user"),
    ],
)
def test_what_is_not_a_visible_process_is_refused(
    tmp_path: Path, pid: int, changes: dict[str, Any], error: type[MeshmarkError], said: str
) -> None:
    root = made(tmp_path, **files(**changes))
    (root / "proc/2").mkdir()
    with pytest.raises(error, match=said):
        examine(CounterHost(root, no_programs, no_tries), pid, lambda: 2.0)


def test_a_kernel_without_waiting_times_leaves_them_unknown(look: Look) -> None:
    without = {f"proc/{PID}/task/{tid}/schedstat": "" for tid in (PID, PID + 1)}
    assert of(look(without, **without), "waiting for a CPU").verdict == "unknown"


def test_the_command_reports_a_real_process_and_refuses_others_in_one_line() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            completed = meshmark("doctor", "--pid", str(child.pid))
        finally:
            child.kill()
    assert completed.returncode == 0, completed.stderr
    assert f"sleep (pid {child.pid}" in completed.stdout
    assert completed.stderr.splitlines()[-1].startswith(f"process {child.pid}, observed for 2.0 s: ")
    for words in (
        ("--pid", "0"),
        ("--pid", "x"),
        ("--pid", "999999999"),
        ("mpi", "--pid", "1"),
        ("--root", "/", "--pid", "1"),
    ):
        completed = meshmark("doctor", *words)
        errors = [line for line in completed.stderr.splitlines() if not line.startswith("hint: ")]
        assert completed.returncode == 2 and len(errors) == 1 and "--pid" in errors[0] and not completed.stdout
