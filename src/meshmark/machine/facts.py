"""Reads facts about a host from /proc, /sys and the firmware: processor, memory, firmware, settings.

`host_facts()` returns a JSON-compatible dictionary. Facts are reported by the system, not measured. **A missing fact
is `{"absent": "the reason"}` in place of its value**; check with `is_absent(value)`.

    schema              1
    machine             {"id", "name", "hash"}      (see `machine.identity`)
    cpu                 {"vendor", "model", "family", "model_number", "stepping", "microcode": each a str, or a list of
                         str if the CPUs differ, "isa": [relevant flags that all CPUs have, e.g. "avx2", "avx512f"],
                         "claimed_hz": base clock according to the model name or the firmware, Hz, or a list of clocks}
    topology            `Topology.to_dict()`, see there (packages, nodes, caches, cores, cpus, allowed_cpus,
                        distances, doubts: list of str)
    caches              [{"level": 1, "kind": "data" | "instruction" | "unified", "size_bytes", "line_bytes",
                         "ways", "shared_by": CPUs that share a cache, "count": number of such caches}]
    memory              {"total_bytes": total of the kernel, "nodes_bytes": sum of the nodes' sizes,
                         "safe_bytes": the minimum of both, "available_bytes",
                         "swap_bytes", "dimms": [{"slot", "bank", "size_bytes", "kind": "DDR5", "rate_t_per_s":
                         configured transfers per second, "max_rate_t_per_s", "width_bits", "part"}],
                         "channels": populated channels (an int), "channels_rule": rule that counted them,
                         "rate_t_per_s", "peak_bytes_per_s": channels × width × rate}
    node_performance    [{"target", "initiators": [nodes], "access": class of initiators, "read_latency_s",
                         "write_latency_s", "read_bytes_per_s", "write_bytes_per_s"}] as the firmware declares (HMAT)
    kernel              {"release", "version", "options": [options of its command line that affect performance]}
    pages               {"base_bytes", "thp": "madvise", "thp_defrag", "thp_shmem", "khugepaged_defrag",
                         "huge": [{"size_bytes", "total", "free", "reserved", "surplus",
                                   "nodes": {"0": {"total", "free"}}}]}
    settings            {"numa_balancing": int, "swappiness": int, "zone_reclaim": int, "overcommit": int,
                         "smt": "on" | "off" | "notsupported" …, "smt_active": bool, "governor",
                         "frequency_driver", "frequency_min_hz", "frequency_max_hz", "boost": bool, each a list of the
                         values if the CPUs differ, "clocks": [{"cpus": [int], "governor", "driver", "min_hz",
                         "max_hz", "base_hz", "boost"}] for each group of CPUs with the same values,
                         "clocksource", "clocksources": [str], "realtime_share": 0…1,
                         "perf_event_paranoid": int, "isolated_cpus": [int], "nohz_full_cpus": [int],
                         "prefetchers": "on", or which prefetchers are off}
    mitigations         {"spectre_v2": "Mitigation: …", …}
    virtual             {"guest": bool, "hypervisor": str, "signs": [evidence]}
    firmware            {"bios_vendor", "bios_version", "bios_date", "system_vendor", "product",
                         "board_vendor", "board"}
    cgroup              {"version": 1 | 2, "path", "cpus": [int], "nodes": [int], "memory_limit_bytes",
                         "cpu_quota": number of CPUs, a float}  (no limit = {"absent": "no limit is set"})
    load                {"1min", "5min", "15min", "running", "tasks"}

Sizes are in B, rates in Hz or transfers/s, bandwidth in B/s. All files are read below `root`, which may be a recorded
tree; only for `/` is the running system queried as well.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from meshmark.machine.absence import absent
from meshmark.machine.control_group import control_groups, cpu_quota
from meshmark.machine.identity import identity
from meshmark.machine.prefetchers import prefetchers
from meshmark.machine.processor import boost, clocks, processor, single
from meshmark.machine.smbios import channels, dimms
from meshmark.machine.sources import from_sysfs
from meshmark.machine.topology import Topology
from meshmark.machine.tree import Files, FilesInMemory, FileTree, MachineError, allowed_in_status, chosen
from meshmark.native import call_library

_CPU, _KERNEL, _VM = "sys/devices/system/cpu", "proc/sys/kernel", "proc/sys/vm"


def host_facts(root: Path = Path("/")) -> dict[str, object]:
    """Return the facts of the machine whose /proc and /sys are below `root`.

    Args:
        root: `/`, or a recorded tree.

    Returns:
        A dictionary with the schema in this module's docstring. A part that cannot be read is absent with its reason,
        and does not affect the others.
    """
    tree = FileTree(root)
    topology: Topology | None
    try:
        topology = from_sysfs(root)
        reason = ""
    except MachineError as error:
        topology, reason = None, str(error)
    return {"schema": 1} | _read(
        {
            "machine": lambda: identity(root) if topology else absent(reason),
            "topology": lambda: topology.to_dict() if topology else absent(reason),
            "caches": lambda: _caches(topology) if topology else absent(reason),
            **_parts(tree, topology),
            "node_performance": lambda: node_performance(tree),
            "cgroup": lambda: _cgroup(tree),
            "load": lambda: _load(tree),
        }
    )


def recorded_facts(files: Mapping[str, bytes]) -> dict[str, object]:
    """Return the facts of a machine from a few recorded files, without its identity, topology, limits and load.

    Args:
        files: Content by path below `/`.
    """
    return _read(_parts(FilesInMemory(files), None))


def _parts(tree: Files, topology: Topology | None) -> dict[str, Callable[[], object]]:
    """Return the readers of the facts that do not change while a machine runs."""
    cpu, virtual = processor(tree), _virtual(tree)
    return {
        "cpu": lambda: cpu,
        "memory": lambda: _memory(tree, topology, virtual["guest"] is True),
        "kernel": lambda: {
            "release": _text(tree, f"{_KERNEL}/osrelease", _release(tree)),
            "version": _build(tree),
            "options": _options(tree),
        },
        "pages": lambda: _pages(tree),
        "settings": lambda: _settings(tree) | {"prefetchers": _prefetchers(tree, cpu, virtual)},
        "mitigations": lambda: _mitigations(tree),
        "virtual": lambda: virtual,
        "firmware": lambda: _firmware(tree),
    }


def _read(parts: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    facts: dict[str, object] = {}
    for name, part in parts.items():
        try:
            facts[name] = part()
        except (OSError, ValueError, MachineError) as error:  # a damaged recording, or a file that disappears
            facts[name] = absent(f"cannot be read: {error}")
    return facts


def _text(tree: Files, name: str, other: str | None = None) -> object:
    """Return the text of a file, or `other` if the file is missing; absent if the text is empty or missing."""
    text = tree.text(name)
    text = other if text is None else text
    return text if text else absent(f"/{name} {'is empty' if text == '' else 'does not exist or is not readable'}")


def _number(tree: Files, name: str, scale: int = 1) -> object:
    value = tree.number(name)
    return value * scale if value is not None else absent(f"/{name} does not exist or is not a number")


def _release(tree: Files) -> str | None:
    match = re.match(r"Linux version (\S+)", tree.text("proc/version") or "")
    return match[1] if match else None


_OPTION = re.compile(
    r"(mitigations|isolcpus|nohz_full|rcu_nocbs|irqaffinity|(default_)?hugepagesz?|transparent_hugepage|numa|"
    r"numa_balancing|numa_zonelist_order|nosmt|maxcpus|nr_cpus|possible_cpus|mem|tsc|clocksource|idle|preempt|"
    r"(intel|amd)_pstate|(processor|intel_idle)\.max_cstate|cpuidle\..*|cpufreq\..*|nmi_watchdog|skew_tick|"
    r"(no)?pti|nospectre_v\d|spec_store_bypass_disable|retbleed|iommu(\..*)?|(intel|amd)_iommu|audit|hpet|"
    r"efi_fake_mem|memmap|movable_node|kernelcore)(=\S*)?"
)


def performance_options(command_line: str) -> list[str]:
    """Return the options of a kernel command line that affect performance. Other options may be private."""
    return [word for word in command_line.split(" -- ", maxsplit=1)[0].split() if _OPTION.fullmatch(word)]


def _options(tree: Files) -> object:
    line = tree.text("proc/cmdline")
    return absent("/proc/cmdline does not exist") if line is None else performance_options(line)


def _build(tree: Files) -> object:
    """Return the build without its author, such as `#1 SMP PREEMPT_DYNAMIC …`.

    The build distinguishes kernels of one release.
    """
    match = re.search(r"#[0-9]+.*", tree.text("proc/version") or "")
    return match[0] if match else absent("/proc/version does not exist or contains no build")


# ------------------------------------------------------------------ caches


def _caches(topology: Topology) -> object:
    counts = Counter((c.level, c.kind, c.size_bytes, c.line_bytes, c.ways, len(c.cpus)) for c in topology.caches)
    order = {"data": 0, "instruction": 1, "unified": 2}
    rows = [
        {
            "level": level,
            "kind": kind,
            "size_bytes": size if size is not None else absent("not reported by the kernel"),
            "line_bytes": line if line is not None else absent("not reported by the kernel"),
            "ways": ways if ways is not None else absent("not reported by the kernel"),
            "shared_by": shared,
            "count": count,
        }
        for (level, kind, size, line, ways, shared), count in sorted(
            counts.items(), key=lambda i: (i[0][0], order[i[0][1]], str(i[0]))
        )
    ]
    return rows or absent("the kernel reports no caches")


# ------------------------------------------------------------------ memory


def wire_bandwidth(tree: Files | None = None) -> int | None:
    """Return the theoretical peak of all memory channels in B/s, from rates and widths of modules; None if unknown."""
    tree = tree or FileTree(Path("/"))
    peak = _memory(tree, None, _virtual(tree)["guest"] is True)["peak_bytes_per_s"]
    return peak if isinstance(peak, int) else None


_PERFORMANCE = {"latency_s": ("latency", 1e-9), "bytes_per_s": ("bandwidth", 2.0**20)}  # ns, MiB/s


def node_performance(tree: Files) -> object:
    """Return latency and bandwidth of each memory node as the firmware declares them, for the best initiators only.

    Source:
        Linux, Documentation/admin-guide/mm/numaperf.rst. Class 0 counts any initiator, class 1 only CPUs.
    """
    base = "sys/devices/system/node"
    rows: list[dict[str, object]] = []
    for target in tree.numbered(base, "node"):
        for access in tree.numbered(f"{base}/node{target}", "access"):
            folder = f"{base}/node{target}/access{access}/initiators"
            values = {
                f"{kind}_{name}": number * factor
                for kind in ("read", "write")
                for name, (file, factor) in _PERFORMANCE.items()
                if (number := tree.number(f"{folder}/{kind}_{file}"))
            }
            if values:
                rows.append({"target": target, "initiators": tree.numbered(folder, "node"), "access": access, **values})
    return rows or absent("the firmware declares no latency and bandwidth of memory (no HMAT)")


def _memory(tree: Files, topology: Topology | None, guest: bool) -> dict[str, object]:
    meminfo = tree.text("proc/meminfo") or ""

    def meminfo_bytes(name: str) -> object:
        match = re.search(rf"^{name}: *([0-9]{{1,18}}) kB", meminfo, re.M | re.ASCII)
        return int(match[1]) * 1024 if match else absent(f"/proc/meminfo has no {name}")

    total, nodes = meminfo_bytes("MemTotal"), topology.nodes_memory_bytes if topology else None
    safe = topology.safe_memory_bytes if topology else None
    facts: dict[str, object] = {
        "total_bytes": total,
        "nodes_bytes": nodes if nodes is not None else absent("not every node reports its memory"),
        "safe_bytes": safe if safe is not None else absent("neither the nodes nor the kernel report a size"),
        "available_bytes": meminfo_bytes("MemAvailable"),
        "swap_bytes": meminfo_bytes("SwapTotal"),
    }
    table = tree.data("sys/firmware/dmi/tables/DMI")
    if table is None:
        exists = tree.exists("sys/firmware/dmi/tables/DMI")
        reason = "the firmware table /sys/firmware/dmi/tables/DMI " + (
            "is readable only by root" if exists else "does not exist"
        )
        modules = []
    else:
        modules = dimms(table)
        reason = "the firmware table contains no memory modules"
    names = ("dimms", "channels", "channels_rule", "rate_t_per_s", "peak_bytes_per_s")
    if not modules:
        return facts | {name: absent(reason) for name in names}
    facts["dimms"] = [
        {k: absent("not reported by the firmware") if v is None else v for k, v in dataclasses.asdict(m).items()}
        for m in modules
    ]
    channel_facts = channels(modules)
    reason = "the names of the slots do not identify the channels"
    facts["channels"], facts["channels_rule"] = channel_facts or (absent(reason), absent(reason))
    rates, widths = {m.rate_t_per_s for m in modules}, {m.width_bits for m in modules}
    slowest = min((r for r in rates if r is not None), default=None)
    unknown = slowest is None or None in rates
    facts["rate_t_per_s"] = absent("the firmware does not report the rate of every module") if unknown else slowest
    peak: object
    if guest:
        peak = absent("in a guest, the hypervisor's table does not describe the hardware")
    elif channel_facts is None or unknown or slowest is None or len(widths) != 1 or None in widths:
        peak = absent("the firmware does not report the channels, rates and a common width of all modules")
    else:
        peak = channel_facts[0] * slowest * (next(w for w in widths if w) // 8)
    facts["peak_bytes_per_s"] = peak
    return facts


def _chosen(tree: Files, name: str) -> object:
    return chosen(tree.text(name)) or absent(f"/{name} does not exist or marks no choice")


def _pages(tree: Files) -> dict[str, object]:
    thp, huge = "sys/kernel/mm/transparent_hugepage", "sys/kernel/mm/hugepages"
    pools: list[tuple[int, dict[str, object]]] = []
    for name in sorted(tree.names(huge)):
        match = re.fullmatch(r"hugepages-([0-9]{1,12})kB", name)
        if not match:
            continue
        nodes = {}
        for n in tree.numbered("sys/devices/system/node", "node"):
            folder = f"sys/devices/system/node/node{n}/hugepages/{name}"
            nodes[str(n)] = {
                "total": _number(tree, f"{folder}/nr_hugepages"),
                "free": _number(tree, f"{folder}/free_hugepages"),
            }
        size = int(match[1]) * 1024
        pool: dict[str, object] = {
            "size_bytes": size,
            "total": _number(tree, f"{huge}/{name}/nr_hugepages"),
            "free": _number(tree, f"{huge}/{name}/free_hugepages"),
            "reserved": _number(tree, f"{huge}/{name}/resv_hugepages"),
            "surplus": _number(tree, f"{huge}/{name}/surplus_hugepages"),
            "nodes": nodes,
        }
        pools.append((size, pool))
    base: object = absent("recordings do not contain the page size")
    if tree.live:
        import mmap

        base = mmap.PAGESIZE
    return {
        "base_bytes": base,
        "thp": _chosen(tree, f"{thp}/enabled"),
        "thp_defrag": _chosen(tree, f"{thp}/defrag"),
        "thp_shmem": _chosen(tree, f"{thp}/shmem_enabled"),
        "khugepaged_defrag": _number(tree, f"{thp}/khugepaged/defrag"),
        "huge": [pool for _, pool in sorted(pools, key=lambda p: p[0])] or absent("the kernel has no huge page pools"),
    }


# ------------------------------------------------------------------ settings


def _prefetchers(tree: Files, cpu: Mapping[str, object], virtual: Mapping[str, object]) -> object:
    if virtual["guest"] is True:
        return absent("a hypervisor hides them")
    state = prefetchers(tree, str(cpu.get("vendor", "")))
    return (
        absent("/dev/cpu/*/msr does not exist, is not readable, or has no register for them")
        if state is None
        else state
    )


def _settings(tree: Files) -> dict[str, object]:
    groups = clocks(tree)
    no_cpufreq = "the kernel does not control the clock rate (no cpufreq)"
    active = tree.number(f"{_CPU}/smt/active")
    clock = "sys/devices/system/clocksource/clocksource0"
    runtime, period = tree.number(f"{_KERNEL}/sched_rt_runtime_us"), tree.number(f"{_KERNEL}/sched_rt_period_us")
    share: object = absent("/proc/sys/kernel/sched_rt_runtime_us does not exist")
    if runtime is not None and period:
        share = 1.0 if runtime < 0 else min(1.0, runtime / period)

    def or_absent(value: object) -> object:
        return value or absent("not reported by the kernel" if groups else no_cpufreq)

    def cpus(name: str) -> object:
        ids = tree.cpus(f"{_CPU}/{name}")
        return list(ids) if ids is not None else absent(f"/{_CPU}/{name} does not exist")

    return {
        "numa_balancing": _number(tree, f"{_KERNEL}/numa_balancing"),
        "swappiness": _number(tree, f"{_VM}/swappiness"),
        "zone_reclaim": _number(tree, f"{_VM}/zone_reclaim_mode"),
        "overcommit": _number(tree, f"{_VM}/overcommit_memory"),
        "smt": _text(tree, f"{_CPU}/smt/control"),
        "smt_active": active == 1 if active is not None else absent(f"/{_CPU}/smt/active does not exist"),
        "governor": or_absent(single(group.governor for group in groups)),
        "frequency_driver": or_absent(single(group.driver for group in groups)),
        "frequency_min_hz": or_absent(single(group.min_hz for group in groups)),
        "frequency_max_hz": or_absent(single(group.max_hz for group in groups)),
        "boost": boost(tree, groups),
        "clocks": [group.to_dict() for group in groups] or absent(no_cpufreq),
        "clocksource": _text(tree, f"{clock}/current_clocksource"),
        "clocksources": (tree.text(f"{clock}/available_clocksource") or "").split()
        or absent(f"/{clock}/available_clocksource does not exist"),
        "realtime_share": share,
        "perf_event_paranoid": _number(tree, f"{_KERNEL}/perf_event_paranoid"),
        "isolated_cpus": cpus("isolated"),
        "nohz_full_cpus": cpus("nohz_full"),
    }


def _mitigations(tree: Files) -> object:
    folder = f"{_CPU}/vulnerabilities"
    mitigations = {name: text for name in sorted(tree.names(folder)) if (text := tree.text(f"{folder}/{name}"))}
    return mitigations or absent(f"/{folder} does not exist")


# ------------------------------------------------------------------ guest and firmware


_MAKERS = {
    "qemu": "QEMU",
    "kvm": "KVM",
    "vmware": "VMware",
    "virtualbox": "VirtualBox",
    "innotek": "VirtualBox",
    "xen": "Xen",
    "bochs": "Bochs",
    "parallels": "Parallels",
    "virtual machine": "Hyper-V",
    "bhyve": "bhyve",
    "openstack": "OpenStack",
    "firecracker": "Firecracker",
    "google compute engine": "KVM (Google)",
}


# The names of hypervisors in CPUID, as the Linux kernel and their documentation state them.
_SIGNATURES: Final = {
    "KVMKVMKVM": "KVM",
    "Microsoft Hv": "Hyper-V",
    "TCGTCGTCGTCG": "QEMU",
    "VBoxVBoxVBox": "VirtualBox",
    "VMwareVMware": "VMware",
    "XenVMMXenVMM": "Xen",
    "bhyve bhyve ": "bhyve",
}


def _virtual(tree: Files) -> dict[str, object]:
    """Return evidence of a hypervisor.

    A vendor name alone is not enough, because clouds offer bare-metal machines, too.
    """
    signs: list[str] = []
    hypervisor: str | None = None
    cpuinfo = tree.text("proc/cpuinfo") or ""
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.M)
    has_flag = bool(flags) and "hypervisor" in flags[1].split() if flags else False
    if has_flag:
        signs.append("cpuinfo flag hypervisor")
    if kind := tree.text("sys/hypervisor/type"):
        signs.append(f"/sys/hypervisor/type {kind}")
        hypervisor = {"xen": "Xen"}.get(kind, kind)
    names = " ".join(tree.text(f"sys/class/dmi/id/{n}") or "" for n in ("sys_vendor", "product_name", "bios_vendor"))
    maker = next((word for word in _MAKERS if word in names.lower()), None)
    if maker:
        signs.append(f"firmware names {names.strip()}")
        hypervisor = hypervisor or _MAKERS[maker]
    if compatible := tree.text("proc/device-tree/hypervisor/compatible"):
        signs.append(f"device tree hypervisor {compatible}")
        hypervisor = hypervisor or compatible
    clocks = (tree.text("sys/devices/system/clocksource/clocksource0/available_clocksource") or "").split()
    for clock, name in (("kvm-clock", "KVM"), ("hyperv_clocksource_tsc_page", "Hyper-V"), ("xen", "Xen")):
        if clock in clocks:
            signs.append(f"clock source {clock}")
            hypervisor = hypervisor or name
    if tree.live and (signature := call_library("meshmark_hypervisor")["value"]):
        signs.append(f"CPUID signature {signature}")
        hypervisor = hypervisor or _SIGNATURES.get(signature, signature)
    guest: object = True
    if not signs:
        guest = False if flags else absent("not known: no x86 flag and no firmware name")
    reason = "in a guest of an unknown hypervisor" if signs else "no evidence of one"
    return {"guest": guest, "hypervisor": hypervisor or absent(reason), "signs": signs}


def _firmware(tree: Files) -> dict[str, object]:
    names = {
        "bios_vendor": "bios_vendor",
        "bios_version": "bios_version",
        "bios_date": "bios_date",
        "system_vendor": "sys_vendor",
        "product": "product_name",
        "board_vendor": "board_vendor",
        "board": "board_name",
    }
    return {key: _text(tree, f"sys/class/dmi/id/{name}") for key, name in names.items()}


# ------------------------------------------------------------------ limits and load


def _cgroup(tree: Files) -> dict[str, object]:
    """Return the tightest limits of this process's control group and its ancestors."""
    facts: dict[str, object] = {}
    groups = control_groups(tree)
    mounted = any(tree.names("sys/fs/cgroup"))
    if not groups.paths:
        missing = absent("/proc/self/cgroup does not exist")
        facts = {"version": missing, "path": missing}
    else:
        path = groups.paths.get("", next(iter(groups.paths.values())))
        facts = {"version": 2 if groups.unified else 1, "path": path}
    no_limit = absent("no limit is set" if mounted else "/sys/fs/cgroup is not mounted or not recorded")
    memory_name = "memory.max" if groups.unified else "memory.limit_in_bytes"
    limits = [tree.number(f"{folder}/{memory_name}") for folder in groups.folders("memory")]
    quota = cpu_quota(tree, groups)
    effective = ("cpuset.cpus.effective", "cpuset.mems.effective") if groups.unified else ("cpuset.cpus", "cpuset.mems")
    status = tree.text("proc/self/status") or ""
    for key, name, in_status in (
        ("cpus", effective[0], allowed_in_status(status, "Cpus")),
        ("nodes", effective[1], allowed_in_status(status, "Mems")),
    ):
        group_ids = next((c for folder in groups.folders("cpuset") if (c := tree.cpus(f"{folder}/{name}"))), None)
        ids = group_ids or in_status
        facts[key] = list(ids) if ids else absent("reported neither by the group nor by /proc/self/status")
    facts["memory_limit_bytes"] = min((n for n in limits if n is not None and n < 1 << 60), default=None) or no_limit
    facts["cpu_quota"] = quota[0] if quota else no_limit
    return facts


def _load(tree: Files) -> object:
    match = re.match(r"([0-9.]+) ([0-9.]+) ([0-9.]+) ([0-9]+)/([0-9]+)", tree.text("proc/loadavg") or "")
    if not match:
        return absent("/proc/loadavg does not exist")
    values: dict[str, Any] = {k: float(match[i]) for i, k in enumerate(("1min", "5min", "15min"), 1)}
    return values | {"running": int(match[4]), "tasks": int(match[5])}


def host_id(facts: Mapping[str, object] | None = None) -> str:
    """Return the id of this machine, as in records; only its name if the topology cannot be read.

    Args:
        facts: A present or earlier result of `host_facts()`; if None, only the id is read, which is faster.
    """
    if facts is None:
        return identity()["id"]
    machine = facts.get("machine")
    machine_id = machine.get("id") if isinstance(machine, dict) else None
    return str(machine_id or identity()["name"])
