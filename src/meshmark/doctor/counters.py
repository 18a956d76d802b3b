"""Findings about hardware counters, energy meters and the sampler's sources."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from meshmark.doctor.finding import Finding
from meshmark.machine.facts import host_facts, is_absent
from meshmark.machine.tree import Tree

# Numbers of the kernel's capability.h.
_DAC_OVERRIDE, _DAC_READ_SEARCH, IPC_LOCK, _SYS_RAWIO, _SYS_ADMIN, SYS_NICE, _PERFMON = 1, 2, 14, 17, 21, 23, 38
KERNEL, CPU = "proc/sys/kernel", "sys/devices/system/cpu"
_EVENTS: Final = "sys/bus/event_source/devices"
FILES_PER_CPU: Final = 32  # counters that are open at once for each CPU
LOCKED: Final = 8 << 20  # B: the rings of the counters, and the kernel's own default of late
TryCounter = Callable[[int, int, int, int], int]


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


class Host:
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
        self.online = len(self.tree.cpus(f"{CPU}/online") or ()) or None
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


def unknown(name: str, file: str, why: str) -> Finding:
    return Finding(name, f"/{file} is not there or not readable", "unknown", why)


def not_in_kernel(host: Host, name: str, file: str, why: str) -> Finding:
    """Of a setting that is not there: a kernel that runs and shows its others has not got it, a tree may lack it."""
    folder, _, setting = file.rpartition("/")
    names = host.names(folder) if host.live else None
    if names and setting not in names:
        return Finding(name, "not in this kernel", "ok", why)
    return unknown(name, file, why)


# ------------------------------------------------------------------ counters


def sampler(absent: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
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


def perf(host: Host) -> Iterator[Finding]:
    """Whether this process may count for the whole machine, by the settings, and by trying."""
    name, why = "counters of the machine", "memory controllers, links and caches count for the machine, not a process"
    paranoid = host.tree.number(f"{KERNEL}/perf_event_paranoid")
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
            yield Finding(name, f"{said}, without CAP_PERFMON{empty(host)}", "hidden", why, lower)
    elif paranoid is None:
        yield unknown(name, f"{KERNEL}/perf_event_paranoid", why)
    elif allowed:
        yield Finding(name, said + by, "ok", why)
    elif privileged is None:
        yield Finding(name, f"{said}; the capabilities were not recorded", "unknown", why, lower)
    else:
        yield Finding(name, f"{said}, without CAP_PERFMON{empty(host)}", "hidden", why, lower)


def empty(host: Host) -> str:
    return " over the machine (a user namespace)" if host.namespaced else ""


def _errno_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def units(host: Host) -> Iterator[Finding]:
    """Which counters there are at all."""
    devices = host.names(_EVENTS)
    core, uncore = "counters of the cores", "counters of memory controllers and links"
    why_core = "without them instructions, cache misses and the true clock cannot be told"
    why_uncore = "without them traffic of memory and links stays hatched"
    if devices is None:
        yield unknown(core, _EVENTS, why_core)
        yield unknown(uncore, _EVENTS, why_uncore)
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


def watchdog(host: Host) -> Iterator[Finding]:
    name, why = "NMI watchdog", "takes one of the few counters of every CPU, so that others must share by turns"
    on = host.tree.number(f"{KERNEL}/nmi_watchdog")
    if on is None:
        yield not_in_kernel(host, name, f"{KERNEL}/nmi_watchdog", why)
    elif on:
        yield Finding(name, "on", "hidden", why, host.root_command("sysctl kernel.nmi_watchdog=0"))
    else:
        yield Finding(name, "off", "ok", why)


def resctrl(host: Host) -> Iterator[Finding]:
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
        yield unknown(name, "proc/cpuinfo", why)
    else:
        by = "the hypervisor does not give it" if host.guest else "the processor has none"
        yield Finding(name, by, "hidden", why)


def energy(host: Host) -> Iterator[Finding]:
    name, why = "energy counters (RAPL)", "tell the power that packages and memory draw"
    zones = [n for n in host.names("sys/class/powercap") or [] if re.match(r"intel-rapl:|amd_energy", n)]
    counters = [f"sys/class/powercap/{z}/energy_uj" for z in zones]
    counters = [c for c in counters if host.there(c)]
    if not counters:
        if host.names("sys/class/powercap") is None and not host.live:
            yield unknown(name, "sys/class/powercap", why)
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


def msr(host: Host) -> Iterator[Finding]:
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


def mesh(host: Host) -> Iterator[Finding]:
    """On Arm the kernel tells where a mesh's parts lie in debugfs alone."""
    name, why = "map of the mesh (arm-cmn)", "tells which crosspoint of the mesh has which core, cache and controller"
    devices = [d for d in host.names(_EVENTS) or [] if d.startswith("arm_cmn")]
    if not devices:
        found = "no such mesh here" if host.names(_EVENTS) is not None else ""
        yield Finding(name, found, "ok", why) if found else unknown(name, _EVENTS, why)
    elif host.names("sys/kernel/debug/arm-cmn"):
        yield Finding(name, "debugfs has it", "ok", why)
    else:
        mounted = host.names("sys/kernel/debug")
        command = "mount -t debugfs none /sys/kernel/debug" if mounted == [] else "chmod a+rx /sys/kernel/debug"
        yield Finding(name, "debugfs is not mounted, or not readable", "hidden", why, host.root_command(command))
