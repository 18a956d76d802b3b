"""Checks what a host hides from Meshmark and what affects measurements, with the commands that change it.

Settings are read below a root, which may be a recorded tree. Counters are opened and programs are searched on
the live system only. A setting that cannot be read is `unknown`, never `ok`.

Sources: the kernel's documentation (admin-guide/sysctl/kernel, admin-guide/perf-security, filesystems/resctrl,
power/powercap, accounting/psi, admin-guide/perf/arm-cmn), capabilities(7), user_namespaces(7), perf_event_open(2).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from meshmark.doctor.counters import (
    CPU,
    FILES_PER_CPU,
    IPC_LOCK,
    KERNEL,
    MIN_LOCKED,
    SYS_NICE,
    CounterHost,
    TryCounter,
    energy,
    mesh,
    msr,
    namespace_note,
    not_in_kernel,
    open_counter,
    perf,
    resctrl,
    sampler,
    units,
    unknown,
    watchdog,
)
from meshmark.doctor.finding import HostFinding, in_order
from meshmark.doctor.limits import raise_limit
from meshmark.doctor.settings import thp_mode
from meshmark.machine.absence import is_absent
from meshmark.machine.tree import format_list
from meshmark.measure.runs.blas import bundled_libraries
from meshmark.values.units import counted, plain

_CLOCK: Final = "sys/devices/system/clocksource/clocksource0"
_HUGE_BYTES: Final = 2 << 20
# Shielded samples stay well below this share of a period. Throttling should stay on: without it, a spinning real-time
# thread would block its CPU.
_USUAL_REALTIME: Final = 0.9
_LIBRARIES: Final = ("libopenblas", "libblis", "libmkl_rt", "libflexiblas")


def examine(
    root: Path = Path("/"),
    absent: Sequence[Mapping[str, str]] = (),
    *,
    which: Callable[[str], str | None] = shutil.which,
    try_counter: TryCounter | None = None,
) -> list[HostFinding]:
    """Return all findings, worst first.

    Args:
        root: `/`, or a recorded tree with proc and sys.
        absent: Absent metrics of the sampler, with keys `metric`, `why` and `hint`.
        which: Function that returns the path of a program on the live system.
        try_counter: Function that opens a counter (type, config, pid, cpu) and returns 0 or the errno; by default
            `open_counter`.
    """
    host = CounterHost(root, which, try_counter or open_counter)
    return in_order((*sampler(absent), *(f for check in _CHECKS for f in check(host))))


# ------------------------------------------------------------------ influences on measurements


def _balancing(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "NUMA balancing", "migrates pages and causes page faults during measurements"
    mode = host.tree.number(f"{KERNEL}/numa_balancing")
    if mode is None:
        yield not_in_kernel(host, name, f"{KERNEL}/numa_balancing", effect)
    elif mode and len(host.nodes) == 1:
        yield HostFinding(name, f"on ({mode}), but there is only one node", "ok", effect)
    elif mode:
        command = host.root_command("sysctl kernel.numa_balancing=0")
        yield HostFinding(name, f"on ({mode})", "spoils-measurements", effect, command)
    else:
        yield HostFinding(name, "off", "ok", effect)


def _huge(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "transparent huge pages", "without them, latencies beyond the reach of the TLB include page walks"
    mode, file = thp_mode(host.tree)
    if mode is None:
        yield unknown(name, file, effect)
    elif mode == "never":
        yield HostFinding(name, "never", "hidden", effect, host.write("madvise", file))
    else:
        yield HostFinding(name, str(mode), "ok", effect)
    yield _huge_pool(host)


def _huge_pool(host: CounterHost) -> HostFinding:
    """Check whether every node whose memory this process may use has free pages of 2 MiB."""
    name, effect = "huge page pool", "measurements with --pages 2MiB are absent without it"
    pools = host.fact("pages", "huge") or []
    if not pools:
        return unknown(name, "sys/kernel/mm/hugepages", effect)
    pool = next((p for p in pools if p["size_bytes"] == _HUGE_BYTES), None)
    if pool is None:
        sizes = ", ".join(plain(p["size_bytes"], "B") for p in pools)
        return HostFinding(name, f"this kernel has no pages of 2 MiB, only of {sizes}", "hidden", effect)
    file = f"hugepages/hugepages-{_HUGE_BYTES >> 10}kB/nr_hugepages"
    total, text = pool["total"], "pages of 2 MiB"
    free_by_node = {
        n: pages for n in host.memory_nodes if (pages := _free_pages(pool["nodes"].get(str(n), {}))) is not None
    }
    if is_absent(total) and not free_by_node:
        return unknown(name, f"sys/kernel/mm/{file}", effect)
    if total == 0 or (len(free_by_node) < 2 and len(host.nodes) < 2):
        free = _free_pages(pool)
        if free == 0:
            observation = f"no {text}" if total == 0 else f"{total} {text}, all of them in use"
            return HostFinding(
                name, observation, "hidden", effect, host.write(_pages_to_reserve(total), f"sys/kernel/mm/{file}")
            )
        return HostFinding(name, f"{total} {text}" + (f", {free} of them free" if free != total else ""), "ok", effect)
    if len(free_by_node) < len(host.memory_nodes):
        unreported_nodes = format_list([n for n in host.memory_nodes if n not in free_by_node])
        return HostFinding(
            name, f"{total} {text} on unknown nodes: not reported for {unreported_nodes}", "unknown", effect
        )
    empty_nodes = [n for n, pages in free_by_node.items() if pages == 0]
    if empty_nodes:
        nonempty_nodes = {n: pages for n, pages in free_by_node.items() if pages}
        rest = (
            f"; node {format_list(list(nonempty_nodes))} has {min(nonempty_nodes.values())} or more"
            if nonempty_nodes
            else ""
        )
        folder = str(empty_nodes[0]) if len(empty_nodes) == 1 else "{" + ",".join(map(str, empty_nodes)) + "}"
        command = host.write(_pages_to_reserve(0), f"sys/devices/system/node/node{folder}/{file}")
        return HostFinding(name, f"node {format_list(empty_nodes)} has no free {text}{rest}", "hidden", effect, command)
    nodes = f"node {format_list(list(free_by_node))}"
    return HostFinding(name, f"{min(free_by_node.values())} or more free {text} on {nodes}", "ok", effect)


def _free_pages(pool: Mapping[str, object]) -> int | None:
    """Return the number of free pages of a pool, or of all pages if only that is reported; None if unknown."""
    return next((count for key in ("free", "total") if isinstance(count := pool.get(key), int)), None)


def _pages_to_reserve(total: int) -> str:
    """Return the number of pages to reserve so that 1 GiB is free, if no page is free at present."""
    return str(total + (1 << 30) // _HUGE_BYTES)


def _frequency(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = (
        "frequency governor",
        "a clock rate that follows the load slows the first samples and makes repetitions differ",
    )
    groups = [g for g in host.fact("settings", "clocks") or [] if not is_absent(g["governor"])]
    if not groups:
        if not host.live and not host.guest:
            yield unknown(name, f"{CPU}/cpu*/cpufreq", effect)
        else:
            controller = "controlled by the hypervisor" if host.guest else "not controlled by the kernel"
            yield HostFinding(name, controller, "hidden", effect)
        return
    cpus_by_setting: dict[str, set[int]] = {}
    for group in groups:
        driver = "" if is_absent(group["driver"]) else f" ({group['driver']})"
        cpus_by_setting.setdefault(group["governor"] + driver, set()).update(group["cpus"])
    observation = next(iter(cpus_by_setting))
    if len(cpus_by_setting) > 1:
        observation = ", ".join(
            f"{setting} on CPUs {format_list(list(cpus))}" for setting, cpus in cpus_by_setting.items()
        )
    allowed_cpus = set(host.cpus if host.allowed is None else host.allowed)
    governors = {g["governor"] for g in groups if allowed_cpus & set(g["cpus"])} or {g["governor"] for g in groups}
    unreported_cpus = allowed_cpus - {cpu for g in groups for cpu in g["cpus"]}
    if governors != {"performance"}:
        command = host.write("performance", f"{CPU}/cpu*/cpufreq/scaling_governor")
        yield HostFinding(name, observation, "spoils-measurements", effect, command)
    elif unreported_cpus:
        yield HostFinding(
            name, f"{observation}; not reported for CPUs {format_list(list(unreported_cpus))}", "unknown", effect
        )
    else:
        yield HostFinding(name, observation, "ok", effect)


def _kinds(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "kinds of cores", "cores of several kinds give different results: measure one kind at a time"
    kinds = host.fact("topology", "core_kinds") or []
    if not kinds:
        return
    observation = ", ".join(f"{kind['name']}: CPUs {format_list(kind['cpus'])}" for kind in kinds)
    allowed_cpus = set(host.cpus if host.allowed is None else host.allowed)
    allowed_kinds = [kind for kind in kinds if allowed_cpus & set(kind["cpus"])]
    if len(allowed_kinds) > 1:
        command = f"taskset -c {format_list(sorted(allowed_cpus & set(allowed_kinds[0]['cpus'])))} meshmark …"
        yield HostFinding(name, observation, "spoils-measurements", effect, command)
    else:
        yield HostFinding(
            name,
            observation + f"; this process may use {allowed_kinds[0]['name']} only" if allowed_kinds else observation,
            "ok",
            effect,
        )


def _smt(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "SMT", "CPUs of one core share it: measure one CPU per core, and keep its siblings idle"
    active = host.fact("settings", "smt_active")
    if active is None:
        yield unknown(name, f"{CPU}/smt/active", effect)
    else:
        yield HostFinding(
            name, "on" if active else f"off ({host.fact('settings', 'smt') or 'not active'})", "ok", effect
        )


def _clock(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = (
        "clock source",
        "reading a clock outside the processor takes a microsecond and disturbs measurements",
    )
    current = host.fact("settings", "clocksource")
    if current is None:
        yield unknown(name, f"{_CLOCK}/current_clocksource", effect)
    elif current in {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}:
        sources = host.fact("settings", "clocksources") or []
        command = (
            host.write("tsc", f"{_CLOCK}/current_clocksource")
            if "tsc" in sources
            else host.root_command("dmesg | grep -i tsc")
        )
        observation = f"{current}; tsc is available" if "tsc" in sources else f"{current}; the kernel disabled the tsc"
        yield HostFinding(name, observation, "spoils-measurements", effect, command)
    else:
        yield HostFinding(name, str(current), "ok", effect)


def _hypervisor(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "hypervisor", "other guests take CPU time and bandwidth, and the reported topology may be wrong"
    guest = host.fact("virtual", "guest")
    if guest is None:
        yield HostFinding(name, "not known", "unknown", effect)
    elif guest:
        kind = host.fact("virtual", "hypervisor")
        yield HostFinding(name, f"a guest under {kind}" if kind else "a guest", "spoils-measurements", effect)
    else:
        yield HostFinding(name, "none", "ok", effect)


def _groups(host: CounterHost) -> Iterator[HostFinding]:
    """Check the limits that a container, a service or a batch system imposes on this process."""
    group = host.fact("cgroup") or {}

    def is_unknown(key: str) -> bool:
        value = group.get(key)
        return value is None or (is_absent(value) and "no limit" not in str(value["absent"]))

    yield _allowed_cpus(host)
    name, effect = "nodes of this process", "memory of other nodes cannot be allocated or measured"
    group_nodes = host.fact("cgroup", "nodes")
    allowed_nodes = host.allowed_nodes if host.allowed_nodes is not None else group_nodes
    if allowed_nodes is None or not host.nodes:
        yield unknown(name, "proc/self/status", effect)
    elif forbidden_nodes := sorted(set(host.nodes) - set(allowed_nodes)):
        nodes, usable_nodes = format_list(host.nodes), sorted(set(host.nodes) - set(forbidden_nodes))
        command = raise_limit(host, f'--cpuset-mems "{nodes}"', "cpuset.mems", nodes)
        yield HostFinding(
            name, f"{len(usable_nodes)} of {len(host.nodes)}: {format_list(usable_nodes)}", "hidden", effect, command
        )
    else:
        yield HostFinding(name, f"all {len(host.nodes)}", "ok", effect)
    name, effect = "CPU quota", "when it is used up, all threads stop for the rest of the period"
    quota = host.fact("cgroup", "cpu_quota")
    if quota is not None:
        command = raise_limit(host, "--cpu-quota -1", "cpu.max", "max")
        yield HostFinding(name, f"{quota:.3g} CPUs", "spoils-measurements", effect, command)
    elif is_unknown("cpu_quota"):
        yield unknown(name, "sys/fs/cgroup", effect)
    else:
        yield HostFinding(name, "none", "ok", effect)
    name, effect = "memory limit", "a process with a larger footprint is swapped out or killed"
    limit, total = host.fact("cgroup", "memory_limit_bytes"), host.fact("memory", "total_bytes")
    if limit is not None and (total is None or limit < total):
        command = raise_limit(host, "--memory 0 --memory-swap 0", "memory.max", "max")
        yield HostFinding(name, f"{limit / 2**30:.3g} GiB", "hidden", effect, command)
    elif limit is None and is_unknown("memory_limit_bytes"):
        yield unknown(name, "sys/fs/cgroup", effect)
    else:
        yield HostFinding(name, "none", "ok", effect)


def _allowed_cpus(host: CounterHost) -> HostFinding:
    name, effect = "CPUs of this process", "other CPUs cannot be measured or used for placement"
    allowed, group = host.allowed, host.fact("cgroup", "cpus")
    if allowed is None or not host.cpus:
        return unknown(name, "proc/self/status", effect)
    if host.unlisted:
        observation = (
            f"{format_list(allowed)}, although /{CPU}/online lists only {format_list(host.listed)}: LXCFS or another "
            "file system replaces that list"
        )
        return HostFinding(
            name, observation, "hidden", "the affinity mask is used; programs that rely on the list use other CPUs"
        )
    if len(allowed) == len(host.cpus):
        return HostFinding(name, f"all {len(host.cpus)}", "ok", effect)
    cpus = format_list(host.cpus)
    limited_by_affinity = group is not None and set(host.cpus) <= set(group)
    command = (
        f"taskset -cp {cpus} $$"
        if limited_by_affinity
        else raise_limit(host, f'--cpuset-cpus "{cpus}"', "cpuset.cpus", cpus)
    )
    return HostFinding(name, f"{len(allowed)} of {len(host.cpus)}: {format_list(allowed)}", "hidden", effect, command)


def _realtime(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "real-time permission", "lets measurements keep other processes off their CPUs"
    limit, has_sys_nice = host.limit("Max realtime priority"), host.has(SYS_NICE)
    allowed = has_sys_nice or (limit is not None and limit[0] > 0)
    if not allowed and (limit is None or has_sys_nice is None):
        yield unknown(name, "proc/self/limits", effect)
        return
    if not allowed:
        command = (
            "docker run --cap-add SYS_NICE …" if host.container else host.own_command("prlimit --rtprio=99 --pid $$")
        )
        yield HostFinding(
            name, f"neither CAP_SYS_NICE{namespace_note(host)} nor a limit above 0", "hidden", effect, command
        )
    else:
        yield HostFinding(
            name, "CAP_SYS_NICE" if has_sys_nice else f"priorities up to {limit[0]:g}" if limit else "", "ok", effect
        )
    name, effect = (
        "real-time throttle",
        "shielded samples run with real-time priority; a limit well below the usual 95 % interrupts them",
    )
    share = host.fact("settings", "realtime_share")
    if share is None:
        yield not_in_kernel(host, name, f"{KERNEL}/sched_rt_runtime_us", effect)
    elif share < _USUAL_REALTIME and allowed:
        command = host.root_command("sysctl kernel.sched_rt_runtime_us=950000")
        yield HostFinding(name, f"{100 * share:.3g} % of each period", "spoils-measurements", effect, command)
    else:
        observation = "off" if share >= 1 else f"{100 * share:.3g} % of each period"
        yield HostFinding(
            name,
            observation if allowed else observation + ", but this process has no real-time permission",
            "ok",
            effect,
        )


def _limits(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "locked memory", "needed for the buffers of counters and for pages that must not move"
    locked_limit = host.limit("Max locked memory")
    if host.has(IPC_LOCK):
        yield HostFinding(name, "CAP_IPC_LOCK: no limit", "ok", effect)
    elif locked_limit is None:
        yield unknown(name, "proc/self/limits", effect)
    elif locked_limit[0] < MIN_LOCKED:
        hard_limit_suffices = locked_limit[1] >= MIN_LOCKED
        command = (
            f"ulimit -l {MIN_LOCKED >> 10}"
            if hard_limit_suffices
            else host.own_command(f"prlimit --memlock={MIN_LOCKED} --pid $$")
        )
        yield HostFinding(name, f"{locked_limit[0] / 2**20:.3g} MiB", "hidden", effect, command)
    else:
        yield HostFinding(
            name, "no limit" if locked_limit[0] == float("inf") else f"{locked_limit[0] / 2**20:.4g} MiB", "ok", effect
        )
    name, effect = "open files", "each counter needs one file per CPU"
    file_limit, min_files = host.limit("Max open files"), max(1024, FILES_PER_CPU * len(host.cpus))
    if file_limit is None or not host.cpus:
        yield unknown(name, "proc/self/limits" if file_limit is None else f"{CPU}/online", effect)
    elif file_limit[0] < min_files:
        command = (
            f"ulimit -n {min_files}"
            if file_limit[1] >= min_files
            else host.own_command(f"prlimit --nofile={min_files} --pid $$")
        )
        yield HostFinding(
            name, f"{file_limit[0]:.0f}; {counted(len(host.cpus), 'CPU')} need {min_files}", "hidden", effect, command
        )
    else:
        yield HostFinding(name, "no limit" if file_limit[0] == float("inf") else f"{file_limit[0]:.0f}", "ok", effect)


def _pressure(host: CounterHost) -> Iterator[HostFinding]:
    name, effect = "pressure (PSI)", "shows whether tasks wait for CPUs, memory or I/O"
    if re.match(r"some avg10=", host.tree.text("proc/pressure/cpu") or ""):
        yield HostFinding(name, "/proc/pressure is readable", "ok", effect)
    elif not host.live and not host.exists("proc/pressure"):
        yield unknown(name, "proc/pressure/cpu", effect)
    else:
        command = "add psi=1 to the kernel command line and reboot"
        yield HostFinding(name, "off, or not in this kernel", "hidden", effect, command)


# ------------------------------------------------------------------ programs


def _programs(host: CounterHost) -> Iterator[HostFinding]:
    tools = (
        ("fio", "fio", "needed to measure storage"),
        ("numactl", "numactl", "needed to compare placement with other tools"),
        ("mpirun", "openmpi-bin", "needed for MPI instruments"),
    )
    installers = (("apt-get", "apt-get install"), ("dnf", "dnf install"), ("zypper", "zypper install"))
    install_command = next((command for program, command in installers if host.live and host.which(program)), "")
    for program, package, purpose in tools:
        if not host.live:
            yield HostFinding(program, "programs of recorded trees are unknown", "unknown", purpose)
        elif path := host.which(program):
            yield HostFinding(program, path, "ok", purpose)
        else:
            # The packages of other distributions have the same names without the suffix.
            package_name = package if "apt" in install_command else package.removesuffix("-bin")
            yield HostFinding(
                program,
                "not installed",
                "hidden",
                purpose,
                host.own_command(f"{install_command} {package_name}") if install_command else "",
            )
    name, purpose = "BLAS", "needed to measure matrix products and linpack"
    libraries = sorted(
        {
            p.name
            for library in _LIBRARIES
            for folder in ("usr/lib", "usr/lib64", "usr/local/lib", "opt/intel")
            for p in _found(host.tree.root / folder, f"{library}*.so*")
        }
    )
    if libraries:
        yield HostFinding(name, ", ".join(libraries[:3]), "ok", purpose)
    elif not host.live:
        yield HostFinding(name, "libraries of recorded trees are unknown", "unknown", purpose)
    elif bundled := bundled_libraries():
        yield HostFinding(name, ", ".join(dict.fromkeys(b.name for b in bundled)), "ok", purpose)
    else:
        package_name = "libopenblas0-pthread" if "apt" in install_command else "openblas-threads"
        yield HostFinding(
            name,
            "no OpenBLAS, BLIS, MKL or FlexiBLAS",
            "hidden",
            purpose,
            host.own_command(f"{install_command} {package_name}") if install_command else "",
        )


def _found(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield matching files in a folder and two levels below, because folders separate architectures and threading."""
    for prefix in ("", "*/", "*/*/"):
        try:
            yield from folder.glob(prefix + pattern)
        except OSError:
            return


_CHECKS: Final[tuple[Callable[[CounterHost], Iterator[HostFinding]], ...]] = (
    _hypervisor,
    _groups,
    _balancing,
    _frequency,
    _kinds,
    _clock,
    _realtime,
    perf,
    units,
    watchdog,
    resctrl,
    energy,
    msr,
    mesh,
    _huge,
    _smt,
    _limits,
    _pressure,
    _programs,
)
