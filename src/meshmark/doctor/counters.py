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

from meshmark.doctor.finding import HostFinding
from meshmark.machine.absence import is_absent
from meshmark.machine.facts import host_facts
from meshmark.machine.tree import FileTree, allowed_in_status

# Capability numbers of <linux/capability.h>.
_DAC_OVERRIDE, _DAC_READ_SEARCH, IPC_LOCK, _SYS_RAWIO, _SYS_ADMIN, SYS_NICE, _PERFMON = 1, 2, 14, 17, 21, 23, 38
KERNEL, CPU = "proc/sys/kernel", "sys/devices/system/cpu"
_EVENTS: Final = "sys/bus/event_source/devices"
FILES_PER_CPU: Final = 32  # counters open at the same time per CPU
MIN_LOCKED: Final = 8 << 20  # B for the ring buffers of counters; also the default limit of recent Linux kernels
TryCounter = Callable[[int, int, int, int], int]


def open_counter(kind: int, config: int, pid: int, cpu: int) -> int:
    """Open and close a counter with perf_event_open(2), and return 0 or the errno."""
    number = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    flags = 1 | (1 << 5 | 1 << 6 if pid == 0 else 0)  # disabled; a process's counter excludes kernel and hypervisor
    attributes = struct.pack("=IIQQQQQIIQ", kind, 64, config, 0, 0, 0, flags, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, ctypes.c_char_p(attributes), pid, cpu, -1, 0)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


class CounterHost:
    """The machine to check: the tree below a root, host facts and the rights of this process."""

    def __init__(self, root: Path, which: Callable[[str], str | None], try_counter: TryCounter) -> None:
        self.tree = FileTree(root)
        self.live = self.tree.live
        self.which, self.try_counter = which, try_counter
        self.facts: Mapping[str, Any] = host_facts(root)
        status = self.tree.text("proc/self/status") or ""
        capabilities = re.search(r"^CapEff:\s*([0-9a-fA-F]{1,16})\s*$", status, re.M)
        self._capabilities = int(capabilities[1], 16) if capabilities else None
        self._root = re.search(r"^Uid:\s*\d+\s+0\b", status, re.M) is not None
        # Capabilities in a user namespace apply only to its own resources, which exclude the hardware.
        uid_map = (self.tree.text("proc/self/uid_map") or "").split()
        self.namespaced = len(uid_map) >= 3 and uid_map[:3] != ["0", "0", "4294967295"]
        groups = self.tree.text("proc/self/cgroup") or ""
        self.container = (
            self.namespaced
            or any(self._exists(p) for p in (".dockerenv", "run/.containerenv", "run/systemd/container"))
            or re.search(r"/(docker|kubepods|lxc|libpod|containerd|buildkit)\b", groups) is not None
        )
        self.listed = self.tree.cpus(f"{CPU}/online") or self._switched_on()
        self.affinity = allowed_in_status(status, "Cpus")
        self.unlisted = self._unlisted()
        self.cpus = tuple(sorted({*self.listed, *self.unlisted}))
        self.nodes = self.tree.cpus("sys/devices/system/node/online") or tuple(
            self.tree.numbered("sys/devices/system/node", "node")
        )
        self.allowed_nodes = allowed_in_status(status, "Mems")
        self.guest = self.fact("virtual", "guest") is True
        self.x86 = re.search(r"^flags\s*:", self.tree.text("proc/cpuinfo") or "", re.M) is not None

    def _switched_on(self) -> tuple[int, ...]:
        """Return the CPUs that have a folder and are not offline."""
        numbers = self.tree.numbered(CPU, "cpu")
        return tuple(n for n in numbers if self.tree.number(f"{CPU}/cpu{n}/online") != 0)

    def _unlisted(self) -> tuple[int, ...]:
        """Return the CPUs on which this process may run although the kernel's list of online CPUs lacks them."""
        candidates = sorted(set(self.affinity or ()) - set(self.listed))
        # The kernel removes the folder `topology` of a CPU that goes offline.
        return tuple(
            n
            for n in candidates
            if any(self.tree.names(f"{CPU}/cpu{n}/topology")) and self.tree.number(f"{CPU}/cpu{n}/online") != 0
        )

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """Return the CPUs that this process may use, by affinity mask or else control group; None if unknown."""
        group = self.fact("cgroup", "cpus")
        mask = self.affinity if self.affinity is not None else group
        return None if mask is None else tuple(sorted(set(mask) & set(self.cpus)))

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """Return the nodes with memory that this process may use."""
        sizes = {n["os_index"]: n["memory_bytes"] for n in self.fact("topology", "nodes") or ()}
        usable_nodes = self.nodes if self.allowed_nodes is None else sorted(set(self.nodes) & set(self.allowed_nodes))
        return tuple(n for n in usable_nodes if sizes.get(n) != 0)

    def _exists(self, name: str) -> bool:
        try:
            return self.tree.path(name).exists()
        except (OSError, ValueError):
            return False

    def exists(self, name: str) -> bool:
        """Return whether a file or folder exists."""
        return self._exists(name)

    def fact(self, *keys: str) -> Any:
        """Return a fact of `host_facts`; None if it is absent."""
        value: Any = self.facts
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if is_absent(value) else value

    def has(self, *capabilities: int) -> bool | None:
        """Return whether this process has one of these capabilities for the machine; None if unknown."""
        if self._capabilities is None:
            return None
        return not self.namespaced and any(self._capabilities >> c & 1 for c in capabilities)

    def names(self, folder: str) -> list[str] | None:
        """Return the sorted names in a folder; None if the folder does not exist or is not readable."""
        try:
            return sorted(p.name for p in self.tree.path(folder).iterdir())
        except (OSError, ValueError):
            return None

    def limit(self, name: str) -> tuple[float, float] | None:
        """Return the soft and the hard limit of this process in the unit of /proc/PID/limits; infinity means no limit.

        None if the limit is unknown.
        """
        text = self.tree.text("proc/self/limits") or ""
        row = re.search(rf"^{re.escape(name)}\s+(unlimited|\d{{1,20}})\s+(unlimited|\d{{1,20}})", text, re.M)
        return (float(row[1].replace("unlimited", "inf")), float(row[2].replace("unlimited", "inf"))) if row else None

    @property
    def _as_root(self) -> str:
        """Return the prefix of commands that need root: `sudo `, or "" for root, because a container may lack sudo."""
        return "" if self._root else "sudo "

    @property
    def _elsewhere(self) -> bool:
        """Return whether kernel settings can be changed only outside the container."""
        return self.container and not self.has(_SYS_ADMIN)

    def root_command(self, command: str) -> str:
        """Return a command with the prefix that runs it as root, on the host if a container cannot change settings."""
        return f"on the host: sudo {command}" if self._elsewhere else self._as_root + command

    def own_command(self, command: str) -> str:
        """Return a command with the prefix that runs it as root; it concerns only this process or its container."""
        return self._as_root + command

    def write(self, value: str, name: str) -> str:
        """Return the command that writes a value to a file in /proc or /sys."""
        if self._elsewhere:
            return f"on the host: echo {value} | sudo tee /{name}"
        return f"echo {value} | {self._as_root}tee /{name}"


def unknown(name: str, file: str, reason: str) -> HostFinding:
    """Return the finding for a file that is missing in a recorded tree, or not readable."""
    return HostFinding(name, f"/{file} does not exist or is not readable", "unknown", reason)


def not_in_kernel(host: CounterHost, name: str, file: str, reason: str) -> HostFinding:
    """Return the finding about a missing setting: ok if the running kernel has other settings in its folder.

    Otherwise, it is unknown.
    """
    folder, _, setting = file.rpartition("/")
    names = host.names(folder) if host.live else None
    if names and setting not in names:
        return HostFinding(name, "not in this kernel", "ok", reason)
    return unknown(name, file, reason)


# ------------------------------------------------------------------ counters


def sampler(absent: Sequence[Mapping[str, str]]) -> Iterator[HostFinding]:
    """Yield one finding per reason why the sampler lacks metrics."""
    metrics_by_reason: dict[tuple[str, str], list[str]] = {}
    for a in absent:
        metric, _, component = a.get("metric", "").partition(":")
        if metric.startswith(("power", "l3", "host.pressure")):
            continue  # other checks cover these metrics and know remedies
        metrics_by_reason.setdefault((a.get("why", ""), a.get("hint", "")), []).append(component or metric)
    for (reason, hint), metrics in metrics_by_reason.items():
        names = ", ".join(dict.fromkeys(metrics[:4])) + (f" and {len(metrics) - 4} more" if len(metrics) > 4 else "")
        yield HostFinding(f"sampler: {names}", reason, "hidden", "hatched on the map and not recorded", hint)


def perf(host: CounterHost) -> Iterator[HostFinding]:
    """Check whether this process may open system-wide counters, by settings and, on a live system, by a test."""
    name, effect = "system-wide counters", "memory controllers, links and caches count for the machine, not a process"
    paranoid = host.tree.number(f"{KERNEL}/perf_event_paranoid")
    privileged = host.has(_PERFMON, _SYS_ADMIN)
    command = host.root_command("sysctl kernel.perf_event_paranoid=0")
    setting_text = "perf_event_paranoid unknown" if paranoid is None else f"perf_event_paranoid {paranoid}"
    allowed = privileged or (paranoid is not None and paranoid <= 0)
    suffix = ", but with CAP_PERFMON" if privileged and (paranoid is None or paranoid > 0) else ""
    if host.live:
        error = host.try_counter(1, 0, -1, min(os.sched_getaffinity(0)))  # PERF_COUNT_SW_CPU_CLOCK, on all machines
        if not error:
            yield HostFinding(name, f"{setting_text}{suffix}: can be opened", "ok", effect)
        elif error == errno.ENOSYS:
            yield HostFinding(name, "this kernel has no perf_event_open", "hidden", effect)
        elif allowed:
            yield HostFinding(
                name,
                f"{setting_text}{suffix}, but refused ({_errno_name(error)}), probably by a seccomp filter",
                "hidden",
                effect,
                "docker run --cap-add PERFMON --security-opt seccomp=unconfined …",
            )
        else:
            yield HostFinding(
                name, f"{setting_text}, without CAP_PERFMON{namespace_note(host)}", "hidden", effect, command
            )
    elif paranoid is None:
        yield unknown(name, f"{KERNEL}/perf_event_paranoid", effect)
    elif allowed:
        yield HostFinding(name, setting_text + suffix, "ok", effect)
    elif privileged is None:
        yield HostFinding(name, f"{setting_text}; the capabilities were not recorded", "unknown", effect, command)
    else:
        yield HostFinding(name, f"{setting_text}, without CAP_PERFMON{namespace_note(host)}", "hidden", effect, command)


def namespace_note(host: CounterHost) -> str:
    """Return words for a command that must run outside the user namespace; "" outside of one."""
    return " for the machine (in a user namespace)" if host.namespaced else ""


def _errno_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def units(host: CounterHost) -> Iterator[HostFinding]:
    """Check which PMUs exist."""
    devices = host.names(_EVENTS)
    core, uncore = "counters of the cores", "counters of memory controllers and links"
    core_effect = "without them, instructions, cache misses and the actual clock rate are unknown"
    uncore_effect = "without them, traffic of memory and links is hatched on the map"
    if devices is None:
        yield unknown(core, _EVENTS, core_effect)
        yield unknown(uncore, _EVENTS, uncore_effect)
        return
    core_devices = [d for d in devices if re.fullmatch(r"cpu|cpu_core|cpu_atom|armv[789]\w*|armv8_pmuv3\w*", d)]
    error = host.try_counter(0, 0, 0, -1) if host.live and core_devices else 0  # cycles of this process
    hypervisor = "on the hypervisor: give this guest a PMU (QEMU: -cpu host,pmu=on)" if host.guest else ""
    if core_devices and error in {0, errno.EACCES, errno.EPERM}:  # `perf` reports missing permission
        yield HostFinding(core, ", ".join(core_devices), "ok", core_effect)
    elif core_devices:
        observation = f"{', '.join(core_devices)}, but cycles cannot be counted ({_errno_name(error)})"
        yield HostFinding(core, observation, "hidden", core_effect, hypervisor)
    else:
        observation = "the hypervisor provides none" if host.guest else "the kernel reports none"
        yield HostFinding(core, observation, "hidden", core_effect, hypervisor)
    units = [
        d for d in devices if re.match(r"uncore_|amd_(df|umc|l3)|arm_(cmn|dsu)|hisi_|nvidia_\w*pmu|dmc620|cha_", d)
    ]
    kinds = sorted({re.sub(r"(_\d+)+$", "", d) for d in units})
    if units:
        yield HostFinding(uncore, f"{len(units)} units: {', '.join(kinds[:6])}", "ok", uncore_effect)
    else:
        observation = (
            "none, since hypervisors do not provide them to guests" if host.guest else "the kernel reports none"
        )
        module = "" if host.guest or not host.x86 else host.root_command("modprobe intel_uncore")
        if "amd" in str(host.fact("cpu", "vendor") or "").lower() and module:
            module = host.root_command("modprobe amd_uncore")
        yield HostFinding(uncore, observation, "hidden", uncore_effect, module)


def watchdog(host: CounterHost) -> Iterator[HostFinding]:
    """Yield a finding about whether the NMI watchdog occupies a hardware counter of every CPU."""
    name, effect = "NMI watchdog", "occupies one of the few counters of every CPU, so that others are multiplexed"
    enabled = host.tree.number(f"{KERNEL}/nmi_watchdog")
    if enabled is None:
        yield not_in_kernel(host, name, f"{KERNEL}/nmi_watchdog", effect)
    elif enabled:
        yield HostFinding(name, "on", "hidden", effect, host.root_command("sysctl kernel.nmi_watchdog=0"))
    else:
        yield HostFinding(name, "off", "ok", effect)


def resctrl(host: CounterHost) -> Iterator[HostFinding]:
    """Yield a finding about whether resctrl is mounted and measures the memory traffic of each last-level cache."""
    name, effect = "bandwidth monitoring (resctrl)", "measures the memory traffic of each last-level cache"
    flags = (host.tree.text("proc/cpuinfo") or "").split()
    mounted = host.exists("sys/fs/resctrl/info") or host.exists("sys/fs/resctrl/schemata")
    data = "sys/fs/resctrl/mon_data"
    domains = host.names(data)
    if any(host.exists(f"{data}/{domain}/mbm_total_bytes") for domain in domains or ()):
        yield HostFinding(name, "mounted", "ok", effect)
    elif mounted and domains is None and host.exists(data):
        yield HostFinding(name, "mounted, but its monitoring is not readable", "hidden", effect)
    elif mounted:
        yield HostFinding(name, "mounted, but without bandwidth monitoring", "hidden", effect)
    elif "cqm_mbm_total" in flags or host.exists("sys/fs/resctrl"):
        command = host.root_command("mount -t resctrl resctrl /sys/fs/resctrl")
        yield HostFinding(name, "supported by the processor, but not mounted", "hidden", effect, command)
    elif not flags:
        yield unknown(name, "proc/cpuinfo", effect)
    else:
        observation = "not provided by the hypervisor" if host.guest else "not supported by the processor"
        yield HostFinding(name, observation, "hidden", effect)


def energy(host: CounterHost) -> Iterator[HostFinding]:
    """Yield a finding about whether the energy counters of packages and memory exist and are readable."""
    name, effect = "energy counters (RAPL)", "measure the power of packages and memory"
    zones = [n for n in host.names("sys/class/powercap") or [] if re.match(r"intel-rapl:|amd_energy", n)]
    counters = [f"sys/class/powercap/{z}/energy_uj" for z in zones]
    counters = [c for c in counters if host.exists(c)]
    if not counters:
        if host.names("sys/class/powercap") is None and not host.live:
            yield unknown(name, "sys/class/powercap", effect)
        elif host.guest:
            yield HostFinding(name, "the hypervisor provides none", "hidden", effect)
        elif host.x86:
            yield HostFinding(name, "not found", "hidden", effect, host.root_command("modprobe intel_rapl_msr"))
        else:
            yield HostFinding(name, "this processor has none", "hidden", effect)
        return
    unreadable = [c for c in counters if host.tree.number(c) is None]
    if unreadable:
        # By default, only root may read these files, because they can leak secrets (PLATYPUS, 2020).
        command = host.root_command("chmod a+r /sys/class/powercap/*/energy_uj")
        yield HostFinding(name, f"{len(unreadable)} of {len(counters)} are not readable", "hidden", effect, command)
    else:
        yield HostFinding(name, f"{len(counters)} of {len(counters)} are readable", "ok", effect)


def msr(host: CounterHost) -> Iterator[HostFinding]:
    """Yield a finding about whether the model-specific registers of all CPUs are readable.

    It is unknown for a recorded tree, which contains no devices.
    """
    name, effect = (
        "model-specific registers (MSR)",
        "contain the state of prefetchers and the limits of the uncore clock",
    )
    if not host.live:
        yield HostFinding(name, "recorded trees contain no devices", "unknown", effect)
    elif not host.x86:
        yield HostFinding(name, "this processor has none", "ok", effect)
    elif not (devices := [f"dev/cpu/{n}/msr" for n in host.cpus if host.exists(f"dev/cpu/{n}/msr")]):
        yield HostFinding(name, "/dev/cpu/*/msr does not exist", "hidden", effect, host.root_command("modprobe msr"))
    elif all(os.access(host.tree.path(device), os.R_OK) for device in devices) and host.has(_SYS_RAWIO):
        yield HostFinding(name, "readable", "ok", effect)
    else:
        yield HostFinding(
            name, "only root with CAP_SYS_RAWIO may read them", "hidden", effect, host.own_command("meshmark survey")
        )


def mesh(host: CounterHost) -> Iterator[HostFinding]:
    """Check whether the layout of an Arm mesh, which Linux reports only in debugfs, is readable."""
    name, effect = (
        "map of the mesh (arm-cmn)",
        "shows which crosspoint of the mesh has which core, cache and controller",
    )
    devices = [d for d in host.names(_EVENTS) or [] if d.startswith("arm_cmn")]
    if not devices:
        observation = "no such mesh" if host.names(_EVENTS) is not None else ""
        yield HostFinding(name, observation, "ok", effect) if observation else unknown(name, _EVENTS, effect)
    elif host.names("sys/kernel/debug/arm-cmn"):
        yield HostFinding(name, "readable in debugfs", "ok", effect)
    else:
        entries = host.names("sys/kernel/debug")
        command = "mount -t debugfs none /sys/kernel/debug" if entries == [] else "chmod a+rx /sys/kernel/debug"
        yield HostFinding(name, "debugfs is not mounted or not readable", "hidden", effect, host.root_command(command))
