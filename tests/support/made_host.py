"""A simulated bare server, whose files a test of the doctor changes, and the findings about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshmark.doctor.finding import HostFinding
from meshmark.doctor.host import examine

AS_USER = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"
AS_ROOT = AS_USER.replace("1000", "0").replace("0000000000000000", "000001ffffffffff")
INITIAL_UID_MAP = "         0          0 4294967295\n"
# A bare server of two nodes with ideal settings; each test changes one of them.
GOOD = {
    "proc/cpuinfo": "vendor_id : GenuineIntel\nflags : fpu tsc cqm_mbm_total cqm_mbm_local\n",
    "proc/self/status": AS_USER,
    "proc/self/uid_map": INITIAL_UID_MAP,
    "proc/self/cgroup": "0::/user.slice\n",
    "proc/self/limits": "Limit  Soft  Hard  Units\n"
    "Max open files            65536                65536                files\n"
    "Max locked memory         unlimited            unlimited            bytes\n"
    "Max realtime priority     99                   99\n",
    "proc/meminfo": "MemTotal: 67108864 kB\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "proc/sys/kernel/perf_event_paranoid": "0\n",
    "proc/sys/kernel/nmi_watchdog": "0\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/sys/kernel/sched_rt_runtime_us": "-1\n",
    "proc/sys/kernel/sched_rt_period_us": "1000000\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
    "sys/fs/cgroup/user.slice/memory.max": "max\n",
    "sys/fs/resctrl/info/L3_MON/num_rmids": "1\n",
    "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes": "1\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1\n",
    "sys/bus/event_source/devices/cpu/type": "4\n",
    "sys/bus/event_source/devices/uncore_imc_0/type": "9\n",
    "sys/bus/event_source/devices/uncore_imc_1/type": "10\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/devices/system/cpu/smt/active": "0\n",
    "sys/devices/system/cpu/smt/control": "off\n",
    **{f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_driver": "intel_pstate\n" for n in range(4)},
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "1024\n",
    **{f"sys/devices/system/node/node{n}/hugepages/hugepages-2048kB/nr_hugepages": "512\n" for n in range(2)},
    "usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0": "",
}


def made(folder: Path, **changes: str | None) -> Path:
    """Write the ideal machine with some changed files, without those that are None, and return its root."""
    for name, text in {**GOOD, **changes}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def of(findings: list[HostFinding], name: str) -> HostFinding:
    (finding,) = [f for f in findings if f.name == name]
    return finding


def no_tries(*_: int) -> int:
    raise AssertionError("a recorded tree must not be asked of the running system")


def no_programs(_: str) -> str | None:
    raise AssertionError("a recorded tree must not be asked of the running system")


def looked(root: Path, absent: Any = ()) -> list[HostFinding]:
    return examine(root, absent, which=no_programs, try_counter=no_tries)
