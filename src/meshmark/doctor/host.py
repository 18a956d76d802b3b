"""Checks what a host hides from Meshmark and what affects measurements, with the commands that change it.

Settings are read below a root, which may be a recorded tree. Only on the live system are counters opened and programs
searched. A setting that cannot be read is `unknown`, never `ok`.

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
    Host,
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
from meshmark.doctor.finding import Finding, in_order
from meshmark.doctor.limits import raise_limit
from meshmark.doctor.settings import thp_mode
from meshmark.machine.absence import is_absent
from meshmark.machine.tree import format_list
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
) -> list[Finding]:
    """All findings, worst first.

    Args:
        root: `/`, or a recorded tree with proc and sys.
        absent: Absent metrics of the sampler, with keys `metric`, `why` and `hint`.
        which: Finds a program on the live system.
        try_counter: Opens a counter (type, config, pid, cpu) and returns 0 or the errno; by default `open_counter`.
    """
    host = Host(root, which, try_counter or open_counter)
    return in_order((*sampler(absent), *(f for check in _CHECKS for f in check(host))))


# ------------------------------------------------------------------ influences on measurements


def _balancing(host: Host) -> Iterator[Finding]:
    name, why = "NUMA balancing", "migrates pages and causes page faults during measurements"
    on = host.tree.number(f"{KERNEL}/numa_balancing")
    if on is None:
        yield not_in_kernel(host, name, f"{KERNEL}/numa_balancing", why)
    elif on and len(host.nodes) == 1:
        yield Finding(name, f"on ({on}), but there is only one node", "ok", why)
    elif on:
        command = host.root_command("sysctl kernel.numa_balancing=0")
        yield Finding(name, f"on ({on})", "spoils-measurements", why, command)
    else:
        yield Finding(name, "off", "ok", why)


def _huge(host: Host) -> Iterator[Finding]:
    name, why = "transparent huge pages", "without them, latencies beyond the reach of the TLB include page walks"
    mode, file = thp_mode(host.tree)
    if mode is None:
        yield unknown(name, file, why)
    elif mode == "never":
        yield Finding(name, "never", "hidden", why, host.write("madvise", file))
    else:
        yield Finding(name, str(mode), "ok", why)
    yield _huge_pool(host)


def _huge_pool(host: Host) -> Finding:
    """Whether every node whose memory this process may use has free pages of 2 MiB."""
    name, why = "huge page pool", "measurements with --pages 2MiB are absent without it"
    pools = host.fact("pages", "huge") or []
    if not pools:
        return unknown(name, "sys/kernel/mm/hugepages", why)
    pool = next((p for p in pools if p["size_bytes"] == _HUGE_BYTES), None)
    if pool is None:
        sizes = ", ".join(plain(p["size_bytes"], "B") for p in pools)
        return Finding(name, f"this kernel has no pages of 2 MiB, only of {sizes}", "hidden", why)
    file = f"hugepages/hugepages-{_HUGE_BYTES >> 10}kB/nr_hugepages"
    total, text = pool["total"], "pages of 2 MiB"
    by_node = {n: pages for n in host.memory_nodes if (pages := _free_pages(pool["nodes"].get(str(n), {}))) is not None}
    if is_absent(total) and not by_node:
        return unknown(name, f"sys/kernel/mm/{file}", why)
    if total == 0 or (len(by_node) < 2 and len(host.nodes) < 2):
        free = _free_pages(pool)
        if free == 0:
            found = f"no {text}" if total == 0 else f"{total} {text}, all of them in use"
            return Finding(name, found, "hidden", why, host.write(_pages_to_reserve(total), f"sys/kernel/mm/{file}"))
        return Finding(name, f"{total} {text}" + (f", {free} of them free" if free != total else ""), "ok", why)
    if len(by_node) < len(host.memory_nodes):
        lost = format_list([n for n in host.memory_nodes if n not in by_node])
        return Finding(name, f"{total} {text} on unknown nodes: not reported for {lost}", "unknown", why)
    empty = [n for n, pages in by_node.items() if pages == 0]
    if empty:
        others = {n: pages for n, pages in by_node.items() if pages}
        rest = f"; node {format_list(list(others))} has {min(others.values())} or more" if others else ""
        folder = str(empty[0]) if len(empty) == 1 else "{" + ",".join(map(str, empty)) + "}"
        command = host.write(_pages_to_reserve(0), f"sys/devices/system/node/node{folder}/{file}")
        return Finding(name, f"node {format_list(empty)} has no free {text}{rest}", "hidden", why, command)
    nodes = f"node {format_list(list(by_node))}"
    return Finding(name, f"{min(by_node.values())} or more free {text} on {nodes}", "ok", why)


def _free_pages(pool: Mapping[str, object]) -> int | None:
    """Free pages of a pool, or their total where the tree does not state how many are free; None if unknown."""
    return next((count for key in ("free", "total") if isinstance(count := pool.get(key), int)), None)


def _pages_to_reserve(total: int) -> str:
    """A number of pages with which 1 GiB is free, if none is at present."""
    return str(total + (1 << 30) // _HUGE_BYTES)


def _frequency(host: Host) -> Iterator[Finding]:
    name, why = (
        "frequency governor",
        "a clock rate that follows the load slows the first samples and makes repetitions differ",
    )
    groups = [g for g in host.fact("settings", "clocks") or [] if not is_absent(g["governor"])]
    if not groups:
        if not host.live and not host.guest:
            yield unknown(name, f"{CPU}/cpu*/cpufreq", why)
        else:
            by = "controlled by the hypervisor" if host.guest else "not controlled by the kernel"
            yield Finding(name, by, "hidden", why)
        return
    cpus_by_setting: dict[str, set[int]] = {}
    for group in groups:
        driver = "" if is_absent(group["driver"]) else f" ({group['driver']})"
        cpus_by_setting.setdefault(group["governor"] + driver, set()).update(group["cpus"])
    found = next(iter(cpus_by_setting))
    if len(cpus_by_setting) > 1:
        found = ", ".join(f"{setting} on CPUs {format_list(list(cpus))}" for setting, cpus in cpus_by_setting.items())
    mine = set(host.cpus if host.allowed is None else host.allowed)
    governors = {g["governor"] for g in groups if mine & set(g["cpus"])} or {g["governor"] for g in groups}
    lost = mine - {cpu for g in groups for cpu in g["cpus"]}
    if governors != {"performance"}:
        command = host.write("performance", f"{CPU}/cpu*/cpufreq/scaling_governor")
        yield Finding(name, found, "spoils-measurements", why, command)
    elif lost:
        yield Finding(name, f"{found}; not reported for CPUs {format_list(list(lost))}", "unknown", why)
    else:
        yield Finding(name, found, "ok", why)


def _kinds(host: Host) -> Iterator[Finding]:
    name, why = "kinds of cores", "cores of several kinds give different results: measure one kind at a time"
    kinds = host.fact("topology", "core_kinds") or []
    if not kinds:
        return
    found = ", ".join(f"{kind['name']}: CPUs {format_list(kind['cpus'])}" for kind in kinds)
    mine = set(host.cpus if host.allowed is None else host.allowed)
    used = [kind for kind in kinds if mine & set(kind["cpus"])]
    if len(used) > 1:
        command = f"taskset -c {format_list(sorted(mine & set(used[0]['cpus'])))} meshmark …"
        yield Finding(name, found, "spoils-measurements", why, command)
    else:
        yield Finding(name, found + f"; this process may use {used[0]['name']} only" if used else found, "ok", why)


def _smt(host: Host) -> Iterator[Finding]:
    name, why = "SMT", "CPUs of one core share it: measure one CPU per core, and keep its siblings idle"
    active = host.fact("settings", "smt_active")
    if active is None:
        yield unknown(name, f"{CPU}/smt/active", why)
    else:
        yield Finding(name, "on" if active else f"off ({host.fact('settings', 'smt') or 'not active'})", "ok", why)


def _clock(host: Host) -> Iterator[Finding]:
    name, why = (
        "clock source",
        "reading a clock outside the processor takes a microsecond and disturbs measurements",
    )
    current = host.fact("settings", "clocksource")
    if current is None:
        yield unknown(name, f"{_CLOCK}/current_clocksource", why)
    elif current in {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}:
        sources = host.fact("settings", "clocksources") or []
        command = (
            host.write("tsc", f"{_CLOCK}/current_clocksource")
            if "tsc" in sources
            else host.root_command("dmesg | grep -i tsc")
        )
        found = f"{current}; tsc is available" if "tsc" in sources else f"{current}; the kernel disabled the tsc"
        yield Finding(name, found, "spoils-measurements", why, command)
    else:
        yield Finding(name, str(current), "ok", why)


def _hypervisor(host: Host) -> Iterator[Finding]:
    name, why = "hypervisor", "other guests take CPU time and bandwidth, and the reported topology may be wrong"
    guest = host.fact("virtual", "guest")
    if guest is None:
        yield Finding(name, "not known", "unknown", why)
    elif guest:
        kind = host.fact("virtual", "hypervisor")
        yield Finding(name, f"a guest under {kind}" if kind else "a guest", "spoils-measurements", why)
    else:
        yield Finding(name, "none", "ok", why)


def _groups(host: Host) -> Iterator[Finding]:
    """Limits that a container, a service or a batch system imposes on this process."""
    group = host.fact("cgroup") or {}

    def unread(key: str) -> bool:
        value = group.get(key)
        return value is None or (is_absent(value) and "no limit" not in str(value["absent"]))

    yield _allowed_cpus(host)
    name, why = "nodes of this process", "memory of other nodes cannot be allocated or measured"
    group_nodes = host.fact("cgroup", "nodes")
    allowed_nodes = host.allowed_nodes if host.allowed_nodes is not None else group_nodes
    if allowed_nodes is None or not host.nodes:
        yield unknown(name, "proc/self/status", why)
    elif lost := sorted(set(host.nodes) - set(allowed_nodes)):
        nodes, mine = format_list(host.nodes), sorted(set(host.nodes) - set(lost))
        command = raise_limit(host, f'--cpuset-mems "{nodes}"', "cpuset.mems", nodes)
        yield Finding(name, f"{len(mine)} of {len(host.nodes)}: {format_list(mine)}", "hidden", why, command)
    else:
        yield Finding(name, f"all {len(host.nodes)}", "ok", why)
    name, why = "CPU quota", "when it is used up, all threads stop for the rest of the period"
    quota = host.fact("cgroup", "cpu_quota")
    if quota is not None:
        command = raise_limit(host, "--cpu-quota -1", "cpu.max", "max")
        yield Finding(name, f"{quota:.3g} CPUs", "spoils-measurements", why, command)
    elif unread("cpu_quota"):
        yield unknown(name, "sys/fs/cgroup", why)
    else:
        yield Finding(name, "none", "ok", why)
    name, why = "memory limit", "a process with a larger footprint is swapped out or killed"
    limit, total = host.fact("cgroup", "memory_limit_bytes"), host.fact("memory", "total_bytes")
    if limit is not None and (total is None or limit < total):
        command = raise_limit(host, "--memory 0 --memory-swap 0", "memory.max", "max")
        yield Finding(name, f"{limit / 2**30:.3g} GiB", "hidden", why, command)
    elif limit is None and unread("memory_limit_bytes"):
        yield unknown(name, "sys/fs/cgroup", why)
    else:
        yield Finding(name, "none", "ok", why)


def _allowed_cpus(host: Host) -> Finding:
    name, why = "CPUs of this process", "other CPUs cannot be measured or used for placement"
    mine, group = host.allowed, host.fact("cgroup", "cpus")
    if mine is None or not host.cpus:
        return unknown(name, "proc/self/status", why)
    if host.unlisted:
        found = (
            f"{format_list(mine)}, although /{CPU}/online lists only {format_list(host.listed)}: LXCFS or another file "
            "system replaces that list"
        )
        return Finding(
            name, found, "hidden", "the affinity mask is used; programs that believe the list use other CPUs"
        )
    if len(mine) == len(host.cpus):
        return Finding(name, f"all {len(host.cpus)}", "ok", why)
    cpus = format_list(host.cpus)
    by_affinity = group is not None and set(host.cpus) <= set(group)
    command = (
        f"taskset -cp {cpus} $$" if by_affinity else raise_limit(host, f'--cpuset-cpus "{cpus}"', "cpuset.cpus", cpus)
    )
    return Finding(name, f"{len(mine)} of {len(host.cpus)}: {format_list(mine)}", "hidden", why, command)


def _realtime(host: Host) -> Iterator[Finding]:
    name, why = "real-time permission", "lets measurements keep other processes off their CPUs"
    limit, nice = host.limit("Max realtime priority"), host.has(SYS_NICE)
    allowed = nice or (limit is not None and limit[0] > 0)
    if not allowed and (limit is None or nice is None):
        yield unknown(name, "proc/self/limits", why)
        return
    if not allowed:
        command = (
            "docker run --cap-add SYS_NICE …" if host.container else host.own_command("prlimit --rtprio=99 --pid $$")
        )
        yield Finding(name, f"neither CAP_SYS_NICE{namespace_note(host)} nor a limit above 0", "hidden", why, command)
    else:
        yield Finding(name, "CAP_SYS_NICE" if nice else f"priorities up to {limit[0]:g}" if limit else "", "ok", why)
    name, why = (
        "real-time throttle",
        "shielded samples run with real-time priority; a limit well below the usual 95 % interrupts them",
    )
    share = host.fact("settings", "realtime_share")
    if share is None:
        yield not_in_kernel(host, name, f"{KERNEL}/sched_rt_runtime_us", why)
    elif share < _USUAL_REALTIME and allowed:
        command = host.root_command("sysctl kernel.sched_rt_runtime_us=950000")
        yield Finding(name, f"{100 * share:.3g} % of each period", "spoils-measurements", why, command)
    else:
        found = "off" if share >= 1 else f"{100 * share:.3g} % of each period"
        yield Finding(name, found if allowed else found + ", but this process has no real-time permission", "ok", why)


def _limits(host: Host) -> Iterator[Finding]:
    name, why = "locked memory", "needed for the buffers of counters and for pages that must not move"
    locked = host.limit("Max locked memory")
    if host.has(IPC_LOCK):
        yield Finding(name, "CAP_IPC_LOCK: no limit", "ok", why)
    elif locked is None:
        yield unknown(name, "proc/self/limits", why)
    elif locked[0] < MIN_LOCKED:
        enough = locked[1] >= MIN_LOCKED
        command = (
            f"ulimit -l {MIN_LOCKED >> 10}" if enough else host.own_command(f"prlimit --memlock={MIN_LOCKED} --pid $$")
        )
        yield Finding(name, f"{locked[0] / 2**20:.3g} MiB", "hidden", why, command)
    else:
        yield Finding(name, "no limit" if locked[0] == float("inf") else f"{locked[0] / 2**20:.4g} MiB", "ok", why)
    name, why = "open files", "each counter needs one file per CPU"
    files, need = host.limit("Max open files"), max(1024, FILES_PER_CPU * len(host.cpus))
    if files is None or not host.cpus:
        yield unknown(name, "proc/self/limits" if files is None else f"{CPU}/online", why)
    elif files[0] < need:
        command = f"ulimit -n {need}" if files[1] >= need else host.own_command(f"prlimit --nofile={need} --pid $$")
        yield Finding(name, f"{files[0]:.0f}; {counted(len(host.cpus), 'CPU')} need {need}", "hidden", why, command)
    else:
        yield Finding(name, "no limit" if files[0] == float("inf") else f"{files[0]:.0f}", "ok", why)


def _pressure(host: Host) -> Iterator[Finding]:
    name, why = "pressure (PSI)", "shows whether tasks wait for CPUs, memory or I/O"
    if re.match(r"some avg10=", host.tree.text("proc/pressure/cpu") or ""):
        yield Finding(name, "/proc/pressure is readable", "ok", why)
    elif not host.live and not host.exists("proc/pressure"):
        yield unknown(name, "proc/pressure/cpu", why)
    else:
        command = "add psi=1 to the kernel command line and reboot"
        yield Finding(name, "off, or not in this kernel", "hidden", why, command)


# ------------------------------------------------------------------ programs


def _programs(host: Host) -> Iterator[Finding]:
    tools = (
        ("fio", "fio", "needed to measure storage"),
        ("numactl", "numactl", "needed to compare placement with other tools"),
        ("mpirun", "openmpi-bin", "needed for MPI instruments"),
    )
    installers = (("apt-get", "apt-get install"), ("dnf", "dnf install"), ("zypper", "zypper install"))
    install = next((command for program, command in installers if host.live and host.which(program)), "")
    for program, package, why in tools:
        if not host.live:
            yield Finding(program, "programs of recorded trees are unknown", "unknown", why)
        elif where := host.which(program):
            yield Finding(program, where, "ok", why)
        else:
            # In other distributions, packages are named like the program, except MPI.
            wanted = package if "apt" in install else package.removesuffix("-bin")
            yield Finding(
                program, "not installed", "hidden", why, host.own_command(f"{install} {wanted}") if install else ""
            )
    name, why = "BLAS", "needed to measure matrix products and linpack"
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
        yield Finding(name, "libraries of recorded trees are unknown", "unknown", why)
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
    """Matching files at most two folders down, because libraries are in folders by architecture and threading."""
    for deep in ("", "*/", "*/*/"):
        try:
            yield from folder.glob(deep + pattern)
        except OSError:
            return


_CHECKS: Final[tuple[Callable[[Host], Iterator[Finding]], ...]] = (
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
