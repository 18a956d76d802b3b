"""What a machine hides from measuring and watching, what on it would spoil numbers, and the command that changes it.

Read below a root, so that a recorded tree stands in; only the running system is asked whether it really gives a
counter, and for its programs. A setting that cannot be read is unknown, and never judged to be well.

Sources: the kernel's documentation (admin-guide/sysctl/kernel, admin-guide/perf-security, filesystems/resctrl,
power/powercap, accounting/psi, admin-guide/perf/arm-cmn), capabilities(7), user_namespaces(7), perf_event_open(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import shlex
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from meshmark.machine.facts import host_facts, is_absent
from meshmark.machine.tree import Tree, format_list

Judged = Literal["spoils-measurements", "hidden", "unknown", "ok"]
ORDER: Final[tuple[Judged, ...]] = ("spoils-measurements", "hidden", "unknown", "ok")
# Numbers of the kernel's capability.h.
_DAC_OVERRIDE, _DAC_READ_SEARCH, _IPC_LOCK, _SYS_RAWIO, _SYS_ADMIN, _SYS_NICE, _PERFMON = 1, 2, 14, 17, 21, 23, 38
_KERNEL, _CPU = "proc/sys/kernel", "sys/devices/system/cpu"
_EVENTS: Final = "sys/bus/event_source/devices"
_CLOCK: Final = "sys/devices/system/clocksource/clocksource0"
_THP: Final = "sys/kernel/mm/transparent_hugepage"
_FILES_PER_CPU: Final = 32  # counters that are open at once for each CPU
_USUAL_REALTIME: Final = (
    0.9  # bursts of shielded samples stay well below it; without any throttle a spinning thread takes a CPU for good
)
_LOCKED: Final = 8 << 20  # B: the rings of the counters, and the kernel's own default of late
_LIBRARIES: Final = ("libopenblas", "libblis", "libmkl_rt", "libflexiblas")

TryCounter = Callable[[int, int, int, int], int]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        found: what it is here, in words.
        why: what it means for measuring or watching, one line.
        command: what would change it; empty where nothing on this machine would, or nothing need be changed.
    """

    name: str
    found: str
    judged: Judged
    why: str
    command: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "found": self.found, "judged": self.judged, "why": self.why, "command": self.command}


def examine(
    root: Path = Path("/"),
    absent: Sequence[Mapping[str, str]] = (),
    *,
    which: Callable[[str], str | None] = shutil.which,
    try_counter: TryCounter | None = None,
) -> list[Finding]:
    """Everything that is looked at, the worst first.

    Args:
        root: `/`, or a recorded tree with proc and sys.
        absent: what the sampler says that it cannot see: `metric`, `why`, `hint`.
        which: finds a program of the running system.
        try_counter: opens a counter of the running system (type, config, pid, cpu) and returns an errno, 0 if it
            opened; none: the kernel is asked.
    """
    host = _Host(root, which, try_counter or open_counter)
    return in_order((*_sampler(absent), *(f for check in _CHECKS for f in check(host))))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Each in one line, the worst first; of what is equally bad, first what a command would change."""
    return sorted(map(_one_line, findings), key=lambda f: (ORDER.index(f.judged), not f.command))


def _one_line(finding: Finding) -> Finding:
    """What files said, without what would move a terminal's cursor."""
    found = " ".join("".join(c if c.isprintable() else " " for c in finding.found).split())[:200]
    if not found:  # a spoiled file, of which nothing can be judged
        return replace(finding, found="nothing that can be read", judged="unknown", command="")
    return replace(finding, found=found, command=" ".join(finding.command.split()))


def open_counter(kind: int, config: int, pid: int, cpu: int) -> int:
    """Opens and closes a counter; the errno, 0 where it opened."""
    number = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    flags = 1 | (1 << 5 | 1 << 6 if pid == 0 else 0)  # disabled; of a process its own code alone
    attributes = struct.pack("=IIQQQQQIIQ", kind, 64, config, 0, 0, 0, flags, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, ctypes.c_char_p(attributes), pid, cpu, -1, 0)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


class _Host:
    """What the checks ask of a machine."""

    def __init__(self, root: Path, which: Callable[[str], str | None], try_counter: TryCounter) -> None:
        self.tree = Tree(root)
        self.live = self.tree.live
        self.which, self.try_counter = which, try_counter
        self.facts: Mapping[str, Any] = host_facts(root)
        status = self.tree.text("proc/self/status") or ""
        effective = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})\s*$", status, re.M)
        self._capabilities = int(effective[1], 16) if effective else None
        self._root = re.search(r"^Uid:\s*\d+\s+0\b", status, re.M) is not None
        # Capabilities of a user namespace hold for what belongs to it, and the hardware does not.
        users = (self.tree.text("proc/self/uid_map") or "").split()
        self.namespaced = len(users) >= 3 and users[:3] != ["0", "0", "4294967295"]
        groups = self.tree.text("proc/self/cgroup") or ""
        self.container = (
            self.namespaced
            or any(self._there(p) for p in (".dockerenv", "run/.containerenv", "run/systemd/container"))
            or re.search(r"/(docker|kubepods|lxc|libpod|containerd|buildkit)\b", groups) is not None
        )
        self.online = len(self.tree.cpus(f"{_CPU}/online") or ()) or None
        self.nodes = len(self.tree.cpus("sys/devices/system/node/online") or ()) or None
        self.guest = self.fact("virtual", "guest") is True
        self.x86 = re.search(r"^flags\s*:", self.tree.text("proc/cpuinfo") or "", re.M) is not None

    def _there(self, name: str) -> bool:
        try:
            return self.tree.path(name).exists()
        except (OSError, ValueError):
            return False

    def there(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return self._there(name)

    def fact(self, *keys: str) -> Any:
        """A fact of `host_facts`, None where it is absent."""
        found: Any = self.facts
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return None if is_absent(found) else found

    def has(self, *capabilities: int) -> bool | None:
        """Whether this process has one of these capabilities over the machine; None where that is not known."""
        if self._capabilities is None:
            return None
        return not self.namespaced and any(self._capabilities >> c & 1 for c in capabilities)

    def names(self, folder: str) -> list[str] | None:
        """Names of a folder, None where it is not there."""
        try:
            return sorted(p.name for p in self.tree.path(folder).iterdir())
        except (OSError, ValueError):
            return None

    def limit(self, name: str) -> tuple[float, float] | None:
        """A soft and a hard limit of this process, in the kernel's unit; infinite for unlimited."""
        text = self.tree.text("proc/self/limits") or ""
        row = re.search(rf"^{re.escape(name)}\s+(unlimited|\d{{1,20}})\s+(unlimited|\d{{1,20}})", text, re.M)
        return (float(row[1].replace("unlimited", "inf")), float(row[2].replace("unlimited", "inf"))) if row else None

    @property
    def _as_root(self) -> str:
        """What goes before a command for root: `sudo`, which a container's root lacks and does not need."""
        return "" if self._root else "sudo "

    @property
    def _elsewhere(self) -> bool:
        """Whether the settings of the kernel are out of this process's reach, whoever it is in its container."""
        return self.container and not self.has(_SYS_ADMIN)

    def root_command(self, command: str) -> str:
        """A command for root; from a container, one for the machine that holds it."""
        return f"on the host: sudo {command}" if self._elsewhere else self._as_root + command

    def own_command(self, command: str) -> str:
        """A command for root that concerns this process or its container alone."""
        return self._as_root + command

    def write(self, value: str, name: str) -> str:
        """The command that writes a value to a file of the kernel."""
        if self._elsewhere:
            return f"on the host: echo {value} | sudo tee /{name}"
        return f"echo {value} | {self._as_root}tee /{name}"


def _unknown(name: str, file: str, why: str) -> Finding:
    return Finding(name, f"/{file} is not there or not readable", "unknown", why)


def _not_in_kernel(host: _Host, name: str, file: str, why: str) -> Finding:
    """Of a setting that is not there: a kernel that runs and shows its others has not got it, a tree may lack it."""
    folder, _, setting = file.rpartition("/")
    names = host.names(folder) if host.live else None
    if names and setting not in names:
        return Finding(name, "not in this kernel", "ok", why)
    return _unknown(name, file, why)


# ------------------------------------------------------------------ counters


def _sampler(absent: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """What the sampler says that it cannot see; several metrics of one reason are one finding."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for a in absent:
        metric, _, component = a.get("metric", "").partition(":")
        if metric.startswith(("power", "l3", "host.pressure")):
            continue  # looked at below, with what would help
        reasons.setdefault((a.get("why", ""), a.get("hint", "")), []).append(component or metric)
    for (why, hint), metrics in reasons.items():
        shown = ", ".join(dict.fromkeys(metrics[:4])) + (f" and {len(metrics) - 4} more" if len(metrics) > 4 else "")
        yield Finding(f"sampler: {shown}", why, "hidden", "stays hatched on the map and is not recorded", hint)


def _perf(host: _Host) -> Iterator[Finding]:
    """Whether this process may count for the whole machine, by the settings, and by trying."""
    name, why = "counters of the machine", "memory controllers, links and caches count for the machine, not a process"
    paranoid = host.tree.number(f"{_KERNEL}/perf_event_paranoid")
    privileged = host.has(_PERFMON, _SYS_ADMIN)
    lower = host.root_command("sysctl kernel.perf_event_paranoid=0")
    said = "perf_event_paranoid is not told" if paranoid is None else f"perf_event_paranoid {paranoid}"
    allowed = privileged or (paranoid is not None and paranoid <= 0)
    by = ", but with CAP_PERFMON" if privileged and (paranoid is None or paranoid > 0) else ""
    if host.live:
        wrong = host.try_counter(1, 0, -1, min(os.sched_getaffinity(0)))  # the kernel's own clock: all machines have it
        if not wrong:
            yield Finding(name, f"{said}{by}: one was opened", "ok", why)
        elif wrong == errno.ENOSYS:
            yield Finding(name, "this kernel counts nothing (no perf_event_open)", "hidden", why)
        elif allowed:
            yield Finding(
                name,
                f"{said}{by}, and yet refused ({_errno_name(wrong)}): a filter of system calls stands between",
                "hidden",
                why,
                "docker run --cap-add PERFMON --security-opt seccomp=unconfined …",
            )
        else:
            yield Finding(name, f"{said}, without CAP_PERFMON{_empty(host)}", "hidden", why, lower)
    elif paranoid is None:
        yield _unknown(name, f"{_KERNEL}/perf_event_paranoid", why)
    elif allowed:
        yield Finding(name, said + by, "ok", why)
    elif privileged is None:
        yield Finding(name, f"{said}; the capabilities were not recorded", "unknown", why, lower)
    else:
        yield Finding(name, f"{said}, without CAP_PERFMON{_empty(host)}", "hidden", why, lower)


def _empty(host: _Host) -> str:
    return " over the machine (a user namespace)" if host.namespaced else ""


def _errno_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def _units(host: _Host) -> Iterator[Finding]:
    """Which counters there are at all."""
    devices = host.names(_EVENTS)
    core, uncore = "counters of the cores", "counters of memory controllers and links"
    why_core = "without them instructions, cache misses and the true clock cannot be told"
    why_uncore = "without them traffic of memory and links stays hatched"
    if devices is None:
        yield _unknown(core, _EVENTS, why_core)
        yield _unknown(uncore, _EVENTS, why_uncore)
        return
    mine = [d for d in devices if re.fullmatch(r"cpu|cpu_core|cpu_atom|armv[789]\w*|armv8_pmuv3\w*", d)]
    wrong = host.try_counter(0, 0, 0, -1) if host.live and mine else 0  # cycles of this very process
    hypervisor = "on the hypervisor: give this guest a PMU (QEMU: -cpu host,pmu=on)" if host.guest else ""
    if mine and wrong in {0, errno.EACCES, errno.EPERM}:  # refused is not missing; that is said elsewhere
        yield Finding(core, ", ".join(mine), "ok", why_core)
    elif mine:
        found = f"{', '.join(mine)}, but cycles cannot be counted ({_errno_name(wrong)})"
        yield Finding(core, found, "hidden", why_core, hypervisor)
    else:
        found = "the hypervisor gives none" if host.guest else "the kernel found none"
        yield Finding(core, found, "hidden", why_core, hypervisor)
    units = [
        d for d in devices if re.match(r"uncore_|amd_(df|umc|l3)|arm_(cmn|dsu)|hisi_|nvidia_\w*pmu|dmc620|cha_", d)
    ]
    kinds = sorted({re.sub(r"(_\d+)+$", "", d) for d in units})
    if units:
        yield Finding(uncore, f"{len(units)} units: {', '.join(kinds[:6])}", "ok", why_uncore)
    else:
        found = "none; hypervisors do not give them to guests" if host.guest else "the kernel found none"
        module = "" if host.guest or not host.x86 else host.root_command("modprobe intel_uncore")
        if "amd" in str(host.fact("cpu", "vendor") or "").lower() and module:
            module = host.root_command("modprobe amd_uncore")
        yield Finding(uncore, found, "hidden", why_uncore, module)


def _watchdog(host: _Host) -> Iterator[Finding]:
    name, why = "NMI watchdog", "takes one of the few counters of every CPU, so that others must share by turns"
    on = host.tree.number(f"{_KERNEL}/nmi_watchdog")
    if on is None:
        yield _not_in_kernel(host, name, f"{_KERNEL}/nmi_watchdog", why)
    elif on:
        yield Finding(name, "on", "hidden", why, host.root_command("sysctl kernel.nmi_watchdog=0"))
    else:
        yield Finding(name, "off", "ok", why)


def _resctrl(host: _Host) -> Iterator[Finding]:
    name, why = "bandwidth monitoring (resctrl)", "tells the traffic of each last-level cache with memory"
    flags = (host.tree.text("proc/cpuinfo") or "").split()
    mounted = host.there("sys/fs/resctrl/info")
    if mounted and host.names("sys/fs/resctrl/mon_data"):
        yield Finding(name, "mounted", "ok", why)
    elif mounted:
        yield Finding(name, "mounted, but without monitoring, or not readable", "hidden", why)
    elif "cqm_mbm_total" in flags or host.there("sys/fs/resctrl"):
        command = host.root_command("mount -t resctrl resctrl /sys/fs/resctrl")
        yield Finding(name, "the processor has it, but it is not mounted", "hidden", why, command)
    elif not flags:
        yield _unknown(name, "proc/cpuinfo", why)
    else:
        by = "the hypervisor does not give it" if host.guest else "the processor has none"
        yield Finding(name, by, "hidden", why)


def _energy(host: _Host) -> Iterator[Finding]:
    name, why = "energy counters (RAPL)", "tell the power that packages and memory draw"
    zones = [n for n in host.names("sys/class/powercap") or [] if re.match(r"intel-rapl:|amd_energy", n)]
    counters = [f"sys/class/powercap/{z}/energy_uj" for z in zones]
    counters = [c for c in counters if host.there(c)]
    if not counters:
        if host.names("sys/class/powercap") is None and not host.live:
            yield _unknown(name, "sys/class/powercap", why)
        elif host.guest:
            yield Finding(name, "the hypervisor gives none", "hidden", why)
        elif host.x86:
            yield Finding(name, "none here", "hidden", why, host.root_command("modprobe intel_rapl_msr"))
        else:
            yield Finding(name, "this processor has none", "hidden", why)
        return
    shut = [c for c in counters if host.tree.number(c) is None]
    if shut:
        # Readable by all it can betray secrets (PLATYPUS, 2020), which is why it is not by default.
        command = host.root_command("chmod a+r /sys/class/powercap/*/energy_uj")
        yield Finding(name, f"{len(shut)} of {len(counters)} may not be read", "hidden", why, command)
    else:
        yield Finding(name, f"{len(counters)} of {len(counters)} can be read", "ok", why)


def _msr(host: _Host) -> Iterator[Finding]:
    name, why = "registers of the model (msr)", "say which prefetchers are on, and limits of the uncore clock"
    device = host.tree.path("dev/cpu/0/msr")
    if not host.live:
        yield Finding(name, "a recorded tree has no devices", "unknown", why)
    elif not host.x86:
        yield Finding(name, "this processor has none", "ok", why)
    elif not host.there("dev/cpu/0/msr"):
        yield Finding(name, "/dev/cpu/0/msr is not there", "hidden", why, host.root_command("modprobe msr"))
    elif os.access(device, os.R_OK) and host.has(_SYS_RAWIO):
        yield Finding(name, "can be read", "ok", why)
    else:
        yield Finding(
            name, "only root with CAP_SYS_RAWIO may read them", "hidden", why, host.own_command("meshmark survey")
        )


def _mesh(host: _Host) -> Iterator[Finding]:
    """On Arm the kernel tells where a mesh's parts lie in debugfs alone."""
    name, why = "map of the mesh (arm-cmn)", "tells which crosspoint of the mesh has which core, cache and controller"
    devices = [d for d in host.names(_EVENTS) or [] if d.startswith("arm_cmn")]
    if not devices:
        found = "no such mesh here" if host.names(_EVENTS) is not None else ""
        yield Finding(name, found, "ok", why) if found else _unknown(name, _EVENTS, why)
    elif host.names("sys/kernel/debug/arm-cmn"):
        yield Finding(name, "debugfs has it", "ok", why)
    else:
        mounted = host.names("sys/kernel/debug")
        command = "mount -t debugfs none /sys/kernel/debug" if mounted == [] else "chmod a+rx /sys/kernel/debug"
        yield Finding(name, "debugfs is not mounted, or not readable", "hidden", why, host.root_command(command))


# ------------------------------------------------------------------ what spoils numbers


def _balancing(host: _Host) -> Iterator[Finding]:
    name, why = "NUMA balancing", "moves pages to other nodes, and faults on purpose, while they are measured"
    on = host.tree.number(f"{_KERNEL}/numa_balancing")
    if on is None:
        yield _not_in_kernel(host, name, f"{_KERNEL}/numa_balancing", why)
    elif on and host.nodes is not None and host.nodes < 2:
        yield Finding(name, f"on ({on}), but there is one node only", "ok", why)
    elif on:
        command = host.root_command("sysctl kernel.numa_balancing=0")
        yield Finding(name, f"on ({on})", "spoils-measurements", why, command)
    else:
        yield Finding(name, "off", "ok", why)


def _huge(host: _Host) -> Iterator[Finding]:
    name, why = "transparent huge pages", "without them each latency beyond the TLB's reach has a page walk in it"
    mode = host.fact("pages", "thp")
    if mode is None:
        yield _unknown(name, f"{_THP}/enabled", why)
    elif mode == "never":
        yield Finding(name, "never", "hidden", why, host.write("madvise", f"{_THP}/enabled"))
    else:
        yield Finding(name, str(mode), "ok", why)
    name, why = "pool of huge pages", "measurements on pages of the pool (--pages 2MiB) are absent without it"
    pools = host.fact("pages", "huge")
    small = next((p for p in pools or [] if not is_absent(p["total"])), None)
    if small is None:
        yield _unknown(name, "sys/kernel/mm/hugepages", why)
        return
    size, total = int(small["size_bytes"]), int(small["total"])
    if total == 0:
        pages = max(1, (1 << 30) // size)
        pool = f"sys/kernel/mm/hugepages/hugepages-{size // 1024}kB/nr_hugepages"
        yield Finding(name, f"no page of {size >> 20} MiB", "hidden", why, host.write(str(pages), pool))
    else:
        yield Finding(name, f"{total} pages of {size >> 20} MiB", "ok", why)


def _frequency(host: _Host) -> Iterator[Finding]:
    name, why = (
        "frequency governor",
        "a clock that follows the load makes the first samples slow and repetitions differ",
    )
    governor, driver = host.fact("settings", "governor"), host.fact("settings", "frequency_driver")
    governors = [governor] if isinstance(governor, str) else list(governor or [])
    by = f" ({driver})" if driver else ""
    if not governors:
        if not host.live and not host.there(f"{_CPU}/cpu0"):
            yield _unknown(name, f"{_CPU}/cpu0/cpufreq", why)
        else:
            by = "the hypervisor steers the clock" if host.guest else "the kernel does not steer the clock here"
            yield Finding(name, by, "hidden", why)
    elif governors == ["performance"]:
        yield Finding(name, f"performance{by}", "ok", why)
    else:
        command = host.write("performance", f"{_CPU}/cpu*/cpufreq/scaling_governor")
        yield Finding(name, ", ".join(governors) + by, "spoils-measurements", why, command)


def _smt(host: _Host) -> Iterator[Finding]:
    name, why = "SMT", "two CPUs of one core share it: measure one CPU a core, and keep others off its sibling"
    active = host.fact("settings", "smt_active")
    if active is None:
        yield _unknown(name, f"{_CPU}/smt/active", why)
    else:
        yield Finding(name, "on" if active else f"off ({host.fact('settings', 'smt') or 'not active'})", "ok", why)


def _clock(host: _Host) -> Iterator[Finding]:
    name, why = (
        "clock source",
        "each read of a clock outside the processor takes a microsecond and disturbs what it times",
    )
    current = host.fact("settings", "clocksource")
    if current is None:
        yield _unknown(name, f"{_CLOCK}/current_clocksource", why)
    elif current in {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}:
        have = host.fact("settings", "clocksources") or []
        command = (
            host.write("tsc", f"{_CLOCK}/current_clocksource")
            if "tsc" in have
            else host.root_command("dmesg | grep -i tsc")
        )
        found = f"{current}; tsc is there too" if "tsc" in have else f"{current}; the kernel gave up the tsc"
        yield Finding(name, found, "spoils-measurements", why, command)
    else:
        yield Finding(name, str(current), "ok", why)


def _hypervisor(host: _Host) -> Iterator[Finding]:
    name, why = "hypervisor", "other guests take time and bandwidth, and the topology told may not be the true one"
    guest = host.fact("virtual", "guest")
    if guest is None:
        yield Finding(name, "nothing here tells", "unknown", why)
    elif guest:
        kind = host.fact("virtual", "hypervisor")
        yield Finding(name, f"a guest under {kind}" if kind else "a guest", "spoils-measurements", why)
    else:
        yield Finding(name, "none", "ok", why)


def _groups(host: _Host) -> Iterator[Finding]:
    """What a container, a service or a batch system leaves to this process."""
    group = host.fact("cgroup") or {}
    path = str(host.fact("cgroup", "path") or "/").strip("/")
    at = shlex.quote(f"sys/fs/cgroup/{path}".rstrip("/"))  # whoever named the group: the command is made to be copied

    def widen(docker: str, file: str, value: str) -> str:
        return f"on the host: docker update {docker} CONTAINER" if host.container else host.write(value, f"{at}/{file}")

    def unread(key: str) -> bool:
        value = group.get(key)
        return value is None or (is_absent(value) and "no limit" not in str(value["absent"]))

    for name, why, kind, there, option in (
        (
            "CPUs of this process",
            "what it may not run on it cannot measure, and placement is narrower than the machine",
            "cpus",
            host.online,
            "cpus",
        ),
        (
            "nodes of this process",
            "memory of other nodes cannot be bound to, so it cannot be measured",
            "nodes",
            host.nodes,
            "mems",
        ),
    ):
        mine = host.fact("cgroup", kind)
        if mine is None or there is None:
            yield _unknown(name, "proc/self/status", why)
        elif len(mine) < there:
            command = widen(f'--cpuset-{option} "0-{there - 1}"', f"cpuset.{option}", f"0-{there - 1}")
            yield Finding(name, f"{len(mine)} of {there}: {format_list(mine)}", "hidden", why, command)
        else:
            yield Finding(name, f"all {there}", "ok", why)
    name, why = "quota of CPU time", "once it is used up every thread stands still for the rest of the period"
    quota = host.fact("cgroup", "cpu_quota")
    if quota is not None:
        command = widen("--cpu-quota -1", "cpu.max", "max")
        yield Finding(name, f"{quota:.3g} CPUs' worth", "spoils-measurements", why, command)
    elif unread("cpu_quota"):
        yield _unknown(name, "sys/fs/cgroup", why)
    else:
        yield Finding(name, "none", "ok", why)
    name, why = "limit of memory", "a footprint beyond it is swapped out or killed"
    limit, total = host.fact("cgroup", "memory_limit_bytes"), host.fact("memory", "total_bytes")
    if limit is not None and (total is None or limit < total):
        command = widen("--memory 0 --memory-swap 0", "memory.max", "max")
        yield Finding(name, f"{limit / 2**30:.3g} GiB", "hidden", why, command)
    elif limit is None and unread("memory_limit_bytes"):
        yield _unknown(name, "sys/fs/cgroup", why)
    else:
        yield Finding(name, "none", "ok", why)


def _realtime(host: _Host) -> Iterator[Finding]:
    name, why = "real-time permission", "lets a measurement keep other programs off its CPUs"
    limit, nice = host.limit("Max realtime priority"), host.has(_SYS_NICE)
    allowed = nice or (limit is not None and limit[0] > 0)
    if not allowed and (limit is None or nice is None):
        yield _unknown(name, "proc/self/limits", why)
        return
    if not allowed:
        command = (
            "docker run --cap-add SYS_NICE …" if host.container else host.own_command("prlimit --rtprio=99 --pid $$")
        )
        yield Finding(name, f"neither CAP_SYS_NICE{_empty(host)} nor a limit above 0", "hidden", why, command)
    else:
        yield Finding(name, "CAP_SYS_NICE" if nice else f"priorities up to {limit[0]:g}" if limit else "", "ok", why)
    name, why = (
        "real-time throttle",
        "shielded samples run in real time; a throttle well below the usual 95 % stops them in the middle",
    )
    share = host.fact("settings", "realtime_share")
    if share is None:
        yield _not_in_kernel(host, name, f"{_KERNEL}/sched_rt_runtime_us", why)
    elif share < _USUAL_REALTIME and allowed:
        command = host.root_command("sysctl kernel.sched_rt_runtime_us=950000")
        yield Finding(name, f"{100 * share:.3g} % of each period", "spoils-measurements", why, command)
    else:
        found = "off" if share >= 1 else f"{100 * share:.3g} % of each period"
        yield Finding(name, found if allowed else found + ", but nothing here may run in real time", "ok", why)


def _limits(host: _Host) -> Iterator[Finding]:
    name, why = "locked memory", "buffers of the counters, and pages that must not move, are locked"
    locked = host.limit("Max locked memory")
    if host.has(_IPC_LOCK):
        yield Finding(name, "CAP_IPC_LOCK: no limit", "ok", why)
    elif locked is None:
        yield _unknown(name, "proc/self/limits", why)
    elif locked[0] < _LOCKED:
        enough = locked[1] >= _LOCKED
        command = f"ulimit -l {_LOCKED >> 10}" if enough else host.own_command(f"prlimit --memlock={_LOCKED} --pid $$")
        yield Finding(name, f"{locked[0] / 2**20:.3g} MiB", "hidden", why, command)
    else:
        yield Finding(name, "no limit" if locked[0] == float("inf") else f"{locked[0] / 2**20:.4g} MiB", "ok", why)
    name, why = "open files", "a counter is a file for each CPU, and those of a large machine are many"
    files, need = host.limit("Max open files"), max(1024, _FILES_PER_CPU * (host.online or 1))
    if files is None:
        yield _unknown(name, "proc/self/limits", why)
    elif files[0] < need:
        command = f"ulimit -n {need}" if files[1] >= need else host.own_command(f"prlimit --nofile={need} --pid $$")
        yield Finding(name, f"{files[0]:.0f}, {need} would do for {host.online or 1} CPUs", "hidden", why, command)
    else:
        yield Finding(name, "no limit" if files[0] == float("inf") else f"{files[0]:.0f}", "ok", why)


def _pressure(host: _Host) -> Iterator[Finding]:
    name, why = "pressure (PSI)", "tells whether tasks wait for CPUs, memory or I/O"
    if re.match(r"some avg10=", host.tree.text("proc/pressure/cpu") or ""):
        yield Finding(name, "/proc/pressure can be read", "ok", why)
    elif not host.live and not host.there("proc/pressure"):
        yield _unknown(name, "proc/pressure/cpu", why)
    else:
        command = "add psi=1 to the kernel's command line, and boot anew"
        yield Finding(name, "off, or not in this kernel", "hidden", why, command)


# ------------------------------------------------------------------ programs


def _programs(host: _Host) -> Iterator[Finding]:
    tools = (
        ("fio", "fio", "storage is measured through it"),
        ("numactl", "numactl", "others' programs are placed with it for comparison"),
        ("mpirun", "openmpi-bin", "message passing is measured through it"),
    )
    installers = (("apt-get", "apt-get install"), ("dnf", "dnf install"), ("zypper", "zypper install"))
    install = next((words for program, words in installers if host.live and host.which(program)), "")
    for program, package, why in tools:
        if not host.live:
            yield Finding(program, "programs of a recorded tree are not known", "unknown", why)
        elif where := host.which(program):
            yield Finding(program, where, "ok", why)
        else:
            # The packages of others are called like the program, but for MPI.
            wanted = package if "apt" in install else package.removesuffix("-bin")
            yield Finding(
                program, "not installed", "hidden", why, host.own_command(f"{install} {wanted}") if install else ""
            )
    name, why = "BLAS", "matrix products and linpack are measured with it"
    libraries = sorted(
        {
            p.name
            for word in _LIBRARIES
            for folder in ("usr/lib", "usr/lib64", "usr/local/lib", "opt/intel")
            for p in _found(host.tree.root / folder, f"{word}*.so*")
        }
    )
    if libraries:
        yield Finding(name, ", ".join(libraries[:3]), "ok", why)
    elif not host.live:
        yield Finding(name, "libraries of a recorded tree are not known", "unknown", why)
    else:
        wanted = "libopenblas0-pthread" if "apt" in install else "openblas-threads"
        yield Finding(
            name,
            "no OpenBLAS, BLIS, MKL or FlexiBLAS",
            "hidden",
            why,
            host.own_command(f"{install} {wanted}") if install else "",
        )


def _found(folder: Path, pattern: str) -> Iterator[Path]:
    """Files at most two folders down: libraries lie by architecture, and by kind of threads."""
    for deep in ("", "*/", "*/*/"):
        try:
            yield from folder.glob(deep + pattern)
        except OSError:
            return


_CHECKS: Final[tuple[Callable[[_Host], Iterator[Finding]], ...]] = (
    _hypervisor,
    _groups,
    _balancing,
    _frequency,
    _clock,
    _realtime,
    _perf,
    _units,
    _watchdog,
    _resctrl,
    _energy,
    _msr,
    _mesh,
    _huge,
    _smt,
    _limits,
    _pressure,
    _programs,
)
