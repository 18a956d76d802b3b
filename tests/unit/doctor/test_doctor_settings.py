"""Each setting of a host, or of a container on it, is judged by its files; without a file it is unknown."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from support.made_host import AS_ROOT, AS_USER, GOOD, INITIAL_UID_MAP, looked, made, of

# A tree has neither devices nor programs.
NEVER_RECORDED = {"model-specific registers (MSR)", "fio", "numactl", "mpirun"}


def test_a_well_configured_machine_is_ok(tmp_path: Path) -> None:
    findings = looked(made(tmp_path))
    assert {f.name for f in findings if f.verdict != "ok"} == NEVER_RECORDED
    assert not [f for f in findings if f.command]
    assert of(findings, "counters of memory controllers and links").value == "2 units: uncore_imc"


NODES = "sys/devices/system/node"
THP = "sys/kernel/mm/transparent_hugepage"
POOL = "hugepages/hugepages-2048kB"
CPUS = "sys/devices/system/cpu"
STATUS_2 = AS_USER.replace("0-3", "1")
CASES: list[tuple[str, dict[str, str | None], str, str, str]] = [
    (
        "system-wide counters",
        {"proc/sys/kernel/perf_event_paranoid": "2"},
        "hidden",
        "2, without CAP_PERFMON",
        "sudo sysctl kernel.perf_event_paranoid=0",
    ),
    (
        "system-wide counters",
        {"proc/sys/kernel/perf_event_paranoid": "4", "proc/self/status": AS_ROOT},
        "ok",
        "4, but with CAP_PERFMON",
        "",
    ),
    (
        "system-wide counters",
        {"proc/sys/kernel/perf_event_paranoid": "1", "proc/self/status": "Uid: 0 0 0 0"},
        "unknown",
        "not recorded",
        "sysctl kernel.perf_event_paranoid=0",
    ),
    ("NMI watchdog", {"proc/sys/kernel/nmi_watchdog": "1"}, "hidden", "on", "sudo sysctl kernel.nmi_watchdog=0"),
    (
        "NUMA balancing",
        {"proc/sys/kernel/numa_balancing": "1"},
        "spoils-measurements",
        "on",
        "sudo sysctl kernel.numa_balancing=0",
    ),
    (
        "NUMA balancing",
        {"proc/sys/kernel/numa_balancing": "1", "sys/devices/system/node/online": "0"},
        "ok",
        "one node",
        "",
    ),
    ("NUMA balancing", {"proc/sys/kernel/numa_balancing": "yes"}, "unknown", "numa_balancing", ""),
    (
        "transparent huge pages",
        {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
        "hidden",
        "never",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "transparent huge pages",
        {f"{THP}/hpage_pmd_size": "2097152", f"{THP}/hugepages-2048kB/enabled": "always inherit madvise [never]"},
        "hidden",
        "never",
        f"echo madvise | sudo tee /{THP}/hugepages-2048kB/enabled",
    ),
    (
        "transparent huge pages",
        {f"{THP}/hpage_pmd_size": "2097152", f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never"},
        "ok",
        "madvise",
        "",
    ),
    (
        "huge page pool",
        {f"{NODES}/node1/{POOL}/nr_hugepages": "0"},
        "hidden",
        "node 1 has no free pages of 2 MiB; node 0 has 512",
        f"echo 512 | sudo tee /{NODES}/node1/{POOL}/nr_hugepages",
    ),
    (
        "huge page pool",
        {f"{NODES}/node{n}/{POOL}/free_hugepages": "0" for n in range(2)},
        "hidden",
        "node 0-1 has no free pages",
        f"sudo tee /{NODES}/node{{0,1}}/{POOL}/nr_hugepages",
    ),
    (
        "huge page pool",
        {f"{NODES}/node1/{POOL}/nr_hugepages": "0", "proc/self/status": AS_USER.replace("list:\t0-1", "list:\t0")},
        "ok",
        "node 0",
        "",
    ),
    ("huge page pool", {f"{NODES}/node1/{POOL}/nr_hugepages": None}, "unknown", "not reported for 1", ""),
    (
        "huge page pool",
        {
            "sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "8",
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
        },
        "hidden",
        "no pages of 2 MiB",
        "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ),
    (
        "huge page pool",
        {
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": None,
            "sys/kernel/mm/hugepages/hugepages-32768kB/nr_hugepages": "8",
            "sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "8",
        },
        "hidden",
        "no pages of 2 MiB, only of 64 KiB, 32 MiB",
        "",
    ),
    (
        "huge page pool",
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0"},
        "hidden",
        "no pages of 2 MiB",
        "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ),
    (
        "bandwidth monitoring (resctrl)",
        {k: None for k in GOOD if "resctrl" in k},
        "hidden",
        "not mounted",
        "sudo mount -t resctrl resctrl /sys/fs/resctrl",
    ),
    (
        "bandwidth monitoring (resctrl)",
        {k: None for k in GOOD if "resctrl" in k} | {"sys/fs/resctrl/schemata": "L2:0=ff"},
        "hidden",
        "mounted, but without bandwidth monitoring",
        "",
    ),
    (
        "bandwidth monitoring (resctrl)",
        {
            "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes": None,
            "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy": "1",
        },
        "hidden",
        "mounted, but without bandwidth monitoring",
        "",
    ),
    (
        "bandwidth monitoring (resctrl)",
        {k: None for k in GOOD if "resctrl" in k} | {"proc/cpuinfo": "flags : fpu\n"},
        "hidden",
        "not supported by the processor",
        "",
    ),
    (
        "energy counters (RAPL)",
        {"sys/class/powercap/intel-rapl:0/energy_uj": "no number"},
        "hidden",
        "1 of 1",
        "sudo chmod a+r /sys/class/powercap/*/energy_uj",
    ),
    (
        "energy counters (RAPL)",
        {"sys/class/powercap/intel-rapl:0/energy_uj": None, "sys/class/powercap/x/name": "x"},
        "hidden",
        "not found",
        "sudo modprobe intel_rapl_msr",
    ),
    (
        "frequency governor",
        {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"},
        "spoils-measurements",
        "powersave (intel_pstate)",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ),
    (
        "frequency governor",
        {f"{CPUS}/cpu{n}/cpufreq/scaling_governor": "schedutil" for n in (2, 3)},
        "spoils-measurements",
        "performance (intel_pstate) on CPUs 0-1, schedutil (intel_pstate) on CPUs 2-3",
        f"echo performance | sudo tee /{CPUS}/cpu*/cpufreq/scaling_governor",
    ),
    (
        "frequency governor",
        {f"{CPUS}/cpu{n}/cpufreq/scaling_governor": "schedutil" for n in (2, 3)}
        | {"proc/self/status": AS_USER.replace("0-3", "0-1")},
        "ok",
        "schedutil (intel_pstate) on CPUs 2-3",
        "",
    ),
    (
        "frequency governor",
        {f"{CPUS}/cpu3/cpufreq/scaling_governor": None, f"{CPUS}/cpu3/cpufreq/scaling_driver": None},
        "unknown",
        "not reported for CPUs 3",
        "",
    ),
    ("SMT", {"sys/devices/system/cpu/smt/active": "1"}, "ok", "on", ""),
    (
        "clock source",
        {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
        "spoils-measurements",
        "tsc is available",
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "clock source",
        {
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
            "sys/devices/system/clocksource/clocksource0/available_clocksource": "hpet acpi_pm",
        },
        "spoils-measurements",
        "disabled the tsc",
        "sudo dmesg | grep -i tsc",
    ),
    ("hypervisor", {"proc/cpuinfo": "flags : fpu hypervisor\n"}, "spoils-measurements", "a guest", ""),
    ("hypervisor", {"proc/cpuinfo": None}, "unknown", "not known", ""),
    ("real-time throttle", {"proc/sys/kernel/sched_rt_runtime_us": "950000"}, "ok", "95 %", ""),
    (
        "real-time throttle",
        {"proc/sys/kernel/sched_rt_runtime_us": "300000"},
        "spoils-measurements",
        "30 %",
        "sudo sysctl kernel.sched_rt_runtime_us=950000",
    ),
    (
        "real-time permission",
        {"proc/self/limits": GOOD["proc/self/limits"].replace("99 ", "0 ")},
        "hidden",
        "neither CAP_SYS_NICE",
        "sudo prlimit --rtprio=99 --pid $$",
    ),
    (
        "real-time throttle",
        {
            "proc/self/limits": GOOD["proc/self/limits"].replace("99 ", "0 "),
            "proc/sys/kernel/sched_rt_runtime_us": "950000",
        },
        "ok",
        "this process has no real-time permission",
        "",
    ),
    (
        "CPUs of this process",
        {"proc/self/status": STATUS_2},
        "hidden",
        "1 of 4: 1",
        "echo 0-3 | sudo tee /sys/fs/cgroup/user.slice/cpuset.cpus",
    ),
    (
        "nodes of this process",
        {"proc/self/status": AS_USER.replace("0-1", "1")},
        "hidden",
        "1 of 2: 1",
        "echo 0-1 | sudo tee /sys/fs/cgroup/user.slice/cpuset.mems",
    ),
    (
        "CPUs of this process",
        {f"{CPUS}/online": "0-1,88-89", "proc/self/status": AS_USER.replace("0-3", "0-1")},
        "hidden",
        "2 of 4: 0-1",
        "echo 0-1,88-89 | sudo tee /sys/fs/cgroup/user.slice/cpuset.cpus",
    ),
    (
        "CPUs of this process",
        {"proc/self/status": STATUS_2, "sys/fs/cgroup/user.slice/cpuset.cpus.effective": "0-3"},
        "hidden",
        "1 of 4: 1",
        "taskset -cp 0-3 $$",
    ),
    ("CPUs of this process", {"proc/self/status": AS_USER.replace("0-3", "0-127")}, "ok", "all 4", ""),
    (
        "CPUs of this process",
        {f"{CPUS}/online": "0", f"{CPUS}/cpu3/topology/core_id": "3", "proc/self/status": AS_USER.replace("0-3", "3")},
        "hidden",
        f"3, although /{CPUS}/online lists only 0: LXCFS",
        "",
    ),
    (
        "CPUs of this process",
        {
            f"{CPUS}/online": "0-1",
            f"{CPUS}/cpu3/topology/core_id": "3",
            "proc/self/status": AS_USER.replace("0-3", "1,3"),
        },
        "hidden",
        "1,3, although",
        "",
    ),
    (
        "nodes of this process",
        {f"{NODES}/online": "0,8", "proc/self/status": AS_USER.replace("list:\t0-1", "list:\t8")},
        "hidden",
        "1 of 2: 8",
        "echo 0,8 | sudo tee /sys/fs/cgroup/user.slice/cpuset.mems",
    ),
    (
        "CPU quota",
        {"sys/fs/cgroup/user.slice/cpu.max": "150000 100000"},
        "spoils-measurements",
        "1.5 CPUs",
        "echo max | sudo tee /sys/fs/cgroup/user.slice/cpu.max",
    ),
    (
        "memory limit",
        {"sys/fs/cgroup/user.slice/memory.max": str(2 << 30)},
        "hidden",
        "2 GiB",
        "echo max | sudo tee /sys/fs/cgroup/user.slice/memory.max",
    ),
    ("memory limit", {"sys/fs/cgroup/user.slice/memory.max": str(1 << 40)}, "ok", "none", ""),
    (
        "locked memory",
        {
            "proc/self/limits": GOOD["proc/self/limits"].replace(
                "unlimited            unlimited", "65536                65536"
            )
        },
        "hidden",
        "0.0625 MiB",
        "sudo prlimit --memlock=8388608 --pid $$",
    ),
    (
        "open files",
        {
            "proc/self/limits": GOOD["proc/self/limits"].replace(
                "65536                65536", "256                  65536"
            )
        },
        "hidden",
        "256; 4 CPUs need 1024",
        "ulimit -n 1024",
    ),
    (
        "open files",
        {"sys/devices/system/cpu/online": "0-4095"},
        "hidden",
        "4096 CPUs need 131072",
        "sudo prlimit --nofile=131072 --pid $$",
    ),
    ("pressure (PSI)", {"proc/pressure/cpu": ""}, "hidden", "off", "add psi=1"),
    ("counters of the cores", {"sys/bus/event_source/devices/cpu/type": None}, "hidden", "the kernel reports none", ""),
    (
        "counters of the cores",
        {"sys/bus/event_source/devices/cpu/type": None, "proc/cpuinfo": "flags : hypervisor\n"},
        "hidden",
        "the hypervisor provides none",
        "on the hypervisor",
    ),
    (
        "counters of memory controllers and links",
        {k: None for k in GOOD if "uncore" in k},
        "hidden",
        "the kernel reports none",
        "sudo modprobe intel_uncore",
    ),
    (
        "map of the mesh (arm-cmn)",
        {"sys/bus/event_source/devices/arm_cmn_0/type": "9"},
        "hidden",
        "debugfs",
        "sudo chmod a+rx /sys/kernel/debug",
    ),
    (
        "map of the mesh (arm-cmn)",
        {"sys/bus/event_source/devices/arm_cmn_0/type": "9", "sys/kernel/debug/arm-cmn/map": "x"},
        "ok",
        "readable in debugfs",
        "",
    ),
    ("BLAS", {"usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0": None}, "unknown", "unknown", ""),
]


@pytest.mark.parametrize(("name", "changes", "judged", "found", "command"), CASES)
def test_each_setting_is_judged(
    tmp_path: Path, name: str, changes: dict[str, str | None], judged: str, found: str, command: str
) -> None:
    finding = of(looked(made(tmp_path, **changes)), name)
    assert finding.verdict == judged and found in finding.value
    assert command in finding.command and bool(command) == bool(finding.command)


def test_settings_of_an_empty_tree_are_unknown(tmp_path: Path) -> None:
    findings = looked(tmp_path)
    assert {f.verdict for f in findings} == {"unknown"}
    assert {f.command for f in findings} == {""}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("proc/sys/kernel/perf_event_paranoid", "system-wide counters"),
        ("proc/sys/kernel/nmi_watchdog", "NMI watchdog"),
        ("proc/sys/kernel/numa_balancing", "NUMA balancing"),
        ("proc/sys/kernel/sched_rt_runtime_us", "real-time throttle"),
        ("proc/self/limits", "open files"),
        ("sys/devices/system/cpu/smt/active", "SMT"),
        ("sys/devices/system/cpu/online", "CPUs of this process"),
        ("sys/devices/system/node/online", "nodes of this process"),
        ("proc/self/cgroup", "CPU quota"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "transparent huge pages"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "huge page pool"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "clock source"),
    ],
)
def test_a_setting_without_its_file_is_unknown(tmp_path: Path, file: str, name: str) -> None:
    changes: dict[str, str | None] = {file: None}
    renamed_files = {
        "proc/self/cgroup": "sys/fs/cgroup",
        f"{CPUS}/online": f"{CPUS}/cpu",
        f"{NODES}/online": f"{NODES}/node",
    }
    changes |= {k: None for k in GOOD if file in renamed_files and k.startswith(renamed_files[file])}
    assert of(looked(made(tmp_path, **changes)), name).verdict == "unknown"


@pytest.mark.parametrize(
    ("changes", "name", "command"),
    [
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n3:cpuset:/set\n0::/user.slice\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
            },
            "CPU quota",
            "echo -1 | sudo tee /sys/fs/cgroup/cpu/job/cpu.cfs_quota_us",
        ),
        (
            {"proc/self/cgroup": "3:cpuset:/set\n", "proc/self/status": STATUS_2},
            "CPUs of this process",
            "echo 0-3 | sudo tee /sys/fs/cgroup/cpuset/set/cpuset.cpus",
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "50000 100000",
            },
            "CPU quota",
            "echo max | sudo tee /sys/fs/cgroup/a/cpu.max",
        ),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpuset.cpus": "1", "proc/self/status": STATUS_2},
            "CPUs of this process",
            "echo 0-3 | sudo tee /sys/fs/cgroup/a/cpuset.cpus",
        ),
    ],
)
def test_a_limit_is_changed_in_the_group_and_in_the_file_that_have_it(
    tmp_path: Path, changes: dict[str, str | None], name: str, command: str
) -> None:
    assert of(looked(made(tmp_path, **changes)), name).command == command


def test_masks_alone_state_what_the_process_may_use(tmp_path: Path) -> None:
    status = "Name:\tpython3\nCpus_allowed:\t00000000,00000003\nMems_allowed:\t00000000,00000001\n"
    findings = looked(made(tmp_path, **{"proc/self/status": status}))
    assert of(findings, "CPUs of this process").value == "2 of 4: 0-1"
    assert of(findings, "nodes of this process").value == "1 of 2: 0"


def test_no_command_names_a_group_that_the_recording_lacks(tmp_path: Path) -> None:
    findings = looked(made(tmp_path, **{"proc/self/cgroup": None, "proc/self/status": STATUS_2}))
    finding = of(findings, "CPUs of this process")
    assert (finding.verdict, finding.command) == ("hidden", "")


# ------------------------------------------------------------------ containers


@pytest.mark.parametrize(
    "sign",
    [
        {".dockerenv": ""},
        {"run/.containerenv": ""},
        {"proc/self/cgroup": "0::/kubepods/burstable/pod1\n"},
    ],
)
def test_remedies_of_a_container_refer_to_its_host(tmp_path: Path, sign: dict[str, str]) -> None:
    bad_settings = {
        "proc/sys/kernel/numa_balancing": "1",
        "proc/sys/kernel/perf_event_paranoid": "2",
        "sys/fs/cgroup/cpu.max": "50000 100000",
    }
    findings = looked(made(tmp_path, **{**bad_settings, **sign}))
    assert of(findings, "NUMA balancing").command == "on the host: sudo sysctl kernel.numa_balancing=0"
    assert of(findings, "system-wide counters").verdict == "hidden"
    assert of(findings, "CPU quota").value == "0.5 CPUs"
    assert of(findings, "CPU quota").command == "on the host: docker update --cpu-quota -1 CONTAINER"


def test_the_name_of_a_group_does_not_become_a_command(tmp_path: Path) -> None:
    group = "a;reboot $(x)"
    changes = {"proc/self/cgroup": f"0::/{group}\n", f"sys/fs/cgroup/{group}/cpu.max": "50000 100000"}
    command = of(looked(made(tmp_path, **changes)), "CPU quota").command
    assert shlex.split(command.partition(" | ")[2]) == ["sudo", "tee", f"/sys/fs/cgroup/{group}/cpu.max"]


def test_a_privileged_container_needs_no_host(tmp_path: Path) -> None:
    changes = {".dockerenv": "", "proc/self/status": AS_ROOT, "proc/sys/kernel/numa_balancing": "1"}
    assert of(looked(made(tmp_path, **changes)), "NUMA balancing").command == "sysctl kernel.numa_balancing=0"


def test_root_of_a_user_namespace_is_not_root_of_the_machine(tmp_path: Path) -> None:
    """CapEff has every bit set there, but the kernel requires the capabilities of the machine."""
    changes = {
        "proc/self/status": AS_ROOT,
        "proc/self/uid_map": "0 100000 65536\n",
        "proc/self/limits": None,
        "proc/sys/kernel/perf_event_paranoid": "2",
        "proc/sys/kernel/nmi_watchdog": "1",
    }
    findings = looked(made(tmp_path, **changes))
    assert of(findings, "system-wide counters").verdict == "hidden"
    assert "user namespace" in of(findings, "system-wide counters").value
    assert of(findings, "NMI watchdog").command == "on the host: sudo sysctl kernel.nmi_watchdog=0"
    assert of(findings, "locked memory").verdict == "unknown"
    full = looked(made(tmp_path / "full", **{**changes, "proc/self/uid_map": INITIAL_UID_MAP}))
    assert of(full, "system-wide counters").verdict == "ok" and of(full, "locked memory").verdict == "ok"
