"""What a machine hides: settings of trees and of made-up machines are judged as they are, and nothing is guessed."""

from __future__ import annotations

import errno
import json
import shlex
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from meshmark.doctor.counters import open_counter
from meshmark.doctor.finding import ORDER, Finding
from meshmark.doctor.host import examine
from meshmark.machine.tree import Tree
from support.cli import meshmark
from support.paths import MACHINES

RECORDED = sorted(
    m["name"]
    for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
    if m["label"] == "recorded-in-guest"
)

NOBODY = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"
ROOT = NOBODY.replace("1000", "0").replace("0000000000000000", "000001ffffffffff")
THE_MACHINE = "         0          0 4294967295\n"
# A bare server of two nodes that is as it should be; each test spoils one thing of it.
GOOD = {
    "proc/cpuinfo": "vendor_id : GenuineIntel\nflags : fpu tsc cqm_mbm_total cqm_mbm_local\n",
    "proc/self/status": NOBODY,
    "proc/self/uid_map": THE_MACHINE,
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
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
    "usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0": "",
}
# A tree has neither devices nor programs.
NEVER_RECORDED = {"model-specific registers (MSR)", "fio", "numactl", "mpirun"}


def made(folder: Path, **changes: str | None) -> Path:
    """The good machine with some files changed, or without those that are None."""
    for name, text in {**GOOD, **changes}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def of(findings: list[Finding], name: str) -> Finding:
    (found,) = [f for f in findings if f.name == name]
    return found


def no_tries(*_: int) -> int:
    raise AssertionError("a recorded tree must not be asked of the running system")


def no_programs(_: str) -> str | None:
    raise AssertionError("a recorded tree must not be asked of the running system")


def looked(root: Path, absent: Any = ()) -> list[Finding]:
    return examine(root, absent, which=no_programs, try_counter=no_tries)


def test_a_machine_as_it_should_be_is_well(tmp_path: Path) -> None:
    findings = looked(made(tmp_path))
    assert {f.name for f in findings if f.judged != "ok"} == NEVER_RECORDED
    assert not [f for f in findings if f.command]
    assert of(findings, "counters of memory controllers and links").found == "2 units: uncore_imc"


STATUS_2 = NOBODY.replace("0-3", "1")
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
        {"proc/sys/kernel/perf_event_paranoid": "4", "proc/self/status": ROOT},
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
        "huge page pool",
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0"},
        "hidden",
        "no pages of 2 MiB",
        "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ),
    (
        "bandwidth monitoring (resctrl)",
        {"sys/fs/resctrl/info/L3_MON/num_rmids": None},
        "hidden",
        "not mounted",
        "sudo mount -t resctrl resctrl /sys/fs/resctrl",
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
        {"proc/self/status": NOBODY.replace("0-1", "1")},
        "hidden",
        "1 of 2: 1",
        "echo 0-1 | sudo tee /sys/fs/cgroup/user.slice/cpuset.mems",
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
    ("counters of the cores", {"sys/bus/event_source/devices/cpu/type": None}, "hidden", "the kernel found none", ""),
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
        "the kernel found none",
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
def test_each_thing_is_judged_as_it_is(
    tmp_path: Path, name: str, changes: dict[str, str | None], judged: str, found: str, command: str
) -> None:
    finding = of(looked(made(tmp_path, **changes)), name)
    assert finding.judged == judged and found in finding.found
    assert command in finding.command and bool(command) == bool(finding.command)


def test_what_is_not_there_is_unknown_and_never_well(tmp_path: Path) -> None:
    findings = looked(tmp_path)
    assert {f.judged for f in findings} == {"unknown"}
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
def test_a_single_file_that_is_not_there_is_unknown(tmp_path: Path, file: str, name: str) -> None:
    changes: dict[str, str | None] = {file: None}
    if file == "proc/self/cgroup":
        changes |= {k: None for k in GOOD if k.startswith("sys/fs/cgroup")}
    assert of(looked(made(tmp_path, **changes)), name).judged == "unknown"


# ------------------------------------------------------------------ containers


@pytest.mark.parametrize(
    "sign",
    [
        {".dockerenv": ""},
        {"run/.containerenv": ""},
        {"proc/self/cgroup": "0::/kubepods/burstable/pod1\n"},
    ],
)
def test_a_container_is_sent_to_its_host(tmp_path: Path, sign: dict[str, str]) -> None:
    spoiled = {
        "proc/sys/kernel/numa_balancing": "1",
        "proc/sys/kernel/perf_event_paranoid": "2",
        "sys/fs/cgroup/cpu.max": "50000 100000",
    }
    findings = looked(made(tmp_path, **{**spoiled, **sign}))
    assert of(findings, "NUMA balancing").command == "on the host: sudo sysctl kernel.numa_balancing=0"
    assert of(findings, "system-wide counters").judged == "hidden"
    assert of(findings, "CPU quota").found == "0.5 CPUs"
    assert of(findings, "CPU quota").command == "on the host: docker update --cpu-quota -1 CONTAINER"


def test_the_name_of_a_group_does_not_become_a_command(tmp_path: Path) -> None:
    group = "a;reboot $(x)"
    changes = {"proc/self/cgroup": f"0::/{group}\n", f"sys/fs/cgroup/{group}/cpu.max": "50000 100000"}
    command = of(looked(made(tmp_path, **changes)), "CPU quota").command
    assert shlex.split(command.partition(" | ")[2]) == ["sudo", "tee", f"/sys/fs/cgroup/{group}/cpu.max"]


def test_a_privileged_container_can_help_itself(tmp_path: Path) -> None:
    changes = {".dockerenv": "", "proc/self/status": ROOT, "proc/sys/kernel/numa_balancing": "1"}
    assert of(looked(made(tmp_path, **changes)), "NUMA balancing").command == "sysctl kernel.numa_balancing=0"


def test_root_of_a_user_namespace_is_not_root_of_the_machine(tmp_path: Path) -> None:
    """Every bit of CapEff is set there, and the kernel asks for those over the machine."""
    changes = {
        "proc/self/status": ROOT,
        "proc/self/uid_map": "0 100000 65536\n",
        "proc/self/limits": None,
        "proc/sys/kernel/perf_event_paranoid": "2",
        "proc/sys/kernel/nmi_watchdog": "1",
    }
    findings = looked(made(tmp_path, **changes))
    assert of(findings, "system-wide counters").judged == "hidden"
    assert "user namespace" in of(findings, "system-wide counters").found
    assert of(findings, "NMI watchdog").command == "on the host: sudo sysctl kernel.nmi_watchdog=0"
    assert of(findings, "locked memory").judged == "unknown"
    full = looked(made(tmp_path / "full", **{**changes, "proc/self/uid_map": THE_MACHINE}))
    assert of(full, "system-wide counters").judged == "ok" and of(full, "locked memory").judged == "ok"


# ------------------------------------------------------------------ the running system


def live(monkeypatch: pytest.MonkeyPatch, root: Path, answer: Callable[..., int], **programs: str) -> list[Finding]:
    """A made-up machine as if it were the running one."""
    monkeypatch.setattr(Tree, "live", property(lambda _: True))
    return examine(root, which=programs.get, try_counter=answer)


@pytest.mark.parametrize(
    ("paranoid", "status", "error", "judged", "said"),
    [
        ("2", NOBODY, 0, "ok", "can be opened"),
        ("0", NOBODY, errno.EPERM, "hidden", "a seccomp filter"),
        ("2", NOBODY, errno.EACCES, "hidden", "without CAP_PERFMON"),
        ("2", ROOT, errno.EPERM, "hidden", "a seccomp filter"),
        ("2", ROOT, errno.ENOSYS, "hidden", "no perf_event_open"),
        ("x", NOBODY, errno.EACCES, "hidden", "perf_event_paranoid unknown"),
    ],
)
def test_the_kernel_has_the_last_word_on_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paranoid: str, status: str, error: int, judged: str, said: str
) -> None:
    root = made(tmp_path, **{"proc/sys/kernel/perf_event_paranoid": paranoid, "proc/self/status": status})
    finding = of(live(monkeypatch, root, lambda *_: error), "system-wide counters")
    assert finding.judged == judged and said in finding.found


def test_cycles_that_cannot_be_counted_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = lambda kind, *_: errno.ENOENT if kind == 0 else 0  # noqa: E731
    finding = of(live(monkeypatch, made(tmp_path), answer), "counters of the cores")
    assert finding.judged == "hidden" and "ENOENT" in finding.found
    refused = lambda kind, *_: errno.EACCES if kind == 0 else 0  # noqa: E731
    assert of(live(monkeypatch, made(tmp_path), refused), "counters of the cores").judged == "ok"


def test_programs_are_installed_by_the_installer_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {"fio": "/usr/bin/fio", "apt-get": "/usr/bin/apt-get"}
    findings = live(monkeypatch, made(tmp_path), lambda *_: 0, **programs)
    assert of(findings, "fio").judged == "ok" and of(findings, "fio").found == "/usr/bin/fio"
    assert of(findings, "mpirun").command == "sudo apt-get install openmpi-bin"
    findings = live(monkeypatch, made(tmp_path), lambda *_: 0, dnf="/usr/bin/dnf")
    assert of(findings, "mpirun").command == "sudo dnf install openmpi"
    assert of(live(monkeypatch, made(tmp_path), lambda *_: 0), "numactl").command == ""


def test_a_setting_that_this_kernel_lacks_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path, **{"proc/sys/kernel/numa_balancing": None})
    assert of(looked(root), "NUMA balancing").judged == "unknown"
    assert of(live(monkeypatch, root, lambda *_: 0), "NUMA balancing").found == "not in this kernel"
    made(tmp_path, **{"proc/sys/kernel/numa_balancing": "cannot be read as a number"})
    assert of(live(monkeypatch, root, lambda *_: 0), "NUMA balancing").judged == "unknown"


def test_a_counter_of_this_system_is_asked_for_without_harm() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    answers = {open_counter(1, 0, 0, -1), open_counter(0, 0, 0, -1), open_counter(1, 0, -1, 0)}
    assert all(0 <= a < 4096 for a in answers)
    assert open_counter(10**6, 0, 0, -1) != 0  # no such kind
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ------------------------------------------------------------------ the sampler, order, trees


def test_what_the_sampler_cannot_see_is_found_with_its_hint(tmp_path: Path) -> None:
    absent = [
        {"metric": "memory.busy", "why": "no counters", "hint": "do this"},
        {"metric": "link.busy", "why": "no counters", "hint": "do this"},
        {"metric": "io.busy:eth0", "why": "no speed"},
        {"metric": "power", "why": "none"},
        {"metric": "l3.total", "why": "none"},
    ]
    findings = [f for f in looked(made(tmp_path), absent) if f.name.startswith("sampler")]
    assert [(f.name, f.found, f.judged, f.command) for f in findings] == [
        ("sampler: memory.busy, link.busy", "no counters", "hidden", "do this"),
        ("sampler: eth0", "no speed", "hidden", ""),
    ]


def test_the_worst_comes_first(tmp_path: Path) -> None:
    changes = {"proc/sys/kernel/numa_balancing": "1", "proc/sys/kernel/nmi_watchdog": "1", "proc/cpuinfo": None}
    ranks = [ORDER.index(f.judged) for f in looked(made(tmp_path, **changes))]
    assert ranks == sorted(ranks) and ranks[0] == ORDER.index("spoils-measurements") and len(set(ranks)) == 4


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines_are_examined(tmp_path: Path, name: str) -> None:
    with tarfile.open(MACHINES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    findings = looked(tmp_path / "root")
    assert of(findings, "hypervisor").judged == "spoils-measurements"
    assert of(findings, "clock source").judged in {"ok", "spoils-measurements"}
    assert of(findings, "SMT").judged == "ok"
    nodes = len(list((tmp_path / "root/sys/devices/system/node").glob("node[0-9]*")))
    assert of(findings, "nodes of this process").judged in {"ok", "hidden"}
    balancing = of(findings, "NUMA balancing")
    recorded = (tmp_path / "root/proc/sys/kernel/numa_balancing").read_text().strip()
    spoils = recorded != "0" and nodes > 1
    assert balancing.judged == ("spoils-measurements" if spoils else "ok")
    for f in findings:
        assert f.found and f.why and "\n" not in f.found + f.why + f.command


PIECES = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "2\n3",
        "max",
        "max 100000",
        "-5 0",
        "99999999999999999999999",
        "0x1",
        "[never]",
        "CapEff:\tzz",
        "CapEff: ffffffffffffffffffff",
        "Uid:",
        "Max open files x y",
        "0-",
        "9-1",
        "flags : hypervisor",
        "\0",
        "some avg10=",
        "0::/../..",
        "0::/a/b",
        "1:cpu:/x",
        "\x1b[2J",
        "é",
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.lists(PIECES | st.text(max_size=15), max_size=4), max_size=8))
@example({"sys/devices/system/clocksource/clocksource0/current_clocksource": ["\x1b"]})
def test_no_tree_is_a_traceback(tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]]) -> None:
    changes = {k: "\n".join(v).encode("utf-8", "replace").decode() for k, v in files.items()}
    for f in looked(made(tmp_path_factory.mktemp("tree"), **changes)):
        assert f.judged in ORDER and f.found.isprintable() and f.command.isprintable() and f.found
        json.dumps(f.to_json())


def test_folders_in_the_place_of_files_are_no_traceback(tmp_path: Path) -> None:
    for name in GOOD:
        (tmp_path / name).mkdir(parents=True)
    assert looked(tmp_path)


# ------------------------------------------------------------------ the command


def test_the_command_examines_this_machine() -> None:
    done = meshmark("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"name", "found", "judged", "why", "command"} == set(found[0])
    assert len({f["name"] for f in found}) == len(found) > 20
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    assert next(f for f in found if f["name"] == "clock source")["found"].startswith(clock)


def test_commands_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    done = meshmark(
        "doctor", "--root", str(made(tmp_path, **{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}))
    )
    assert done.returncode == 0, done.stderr
    wanted = "    echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    assert wanted in done.stdout.splitlines()
    assert done.stdout.splitlines()[1].startswith("spoils")
    assert "1 affect measurements" in done.stderr


def test_nothing_to_read_is_one_line_and_a_status(tmp_path: Path) -> None:
    done = meshmark("doctor", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "nothing could be read" in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
