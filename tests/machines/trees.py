"""Synthetic trees of /proc and /sys of server processors, for tests of the meaning of counters.

Nobody booted these machines. Every tree has the files that Meshmark reads, with the texts that a kernel writes: the
layout follows Documentation/ABI (sysfs-bus-event_source-devices-*, sysfs-devices-mapping, sysfs-devices-node,
sysfs-devices-system-cpu) and proc(5). Sizes are small ones of their kind; counts are invented. `servers.py`
describes the machines, `pmus.py` their PMUs.

    make_tree(folder, "intel-spr-2s")     one of `servers.NAMES`, below the folder; returns the root
    many(folder, cpus=256, nodes=4)       of any size, to measure what watching costs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from machines.pmus import PMUS, Pmu, spr
from machines.servers import MACHINES, NAMES, Machine, intel, list_text, parallel

TABS = ("\t\t", "\t", "")  # after a key of /proc/cpuinfo, by eighths of its length


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _proc(machine: Machine) -> dict[str, str]:
    processors = []
    for cpu in range(machine.cpus):
        lines = [("processor", str(cpu)), *machine.cpuinfo]
        if machine.cpuinfo[0][0] == "vendor_id":
            lines += [
                ("physical id", str(machine.package_of(cpu))),
                ("siblings", str(machine.cores * machine.threads)),
                ("core id", str(machine.core_of(cpu))),
                ("cpu cores", str(machine.cores)),
                ("flags", "fpu tsc msr apic constant_tsc arch_perfmon nonstop_tsc aperfmperf"),
            ]
        processors.append("".join(f"{key}{TABS[len(key) // 8]}: {value}\n" for key, value in lines))
    times = "1000 10 500 90000 20 0 5 0 0 0"
    stat = ["cpu  " + " ".join(str(int(t) * machine.cpus) for t in times.split())]
    stat += [f"cpu{cpu} {times}" for cpu in range(machine.cpus)]
    stat += ["intr 1000 0 0", "ctxt 5000", "btime 1790000000", "processes 400", "procs_running 1", "procs_blocked 0"]
    total = machine.packages * machine.gib << 20
    return {
        "proc/cpuinfo": "\n".join(processors) + "\n",
        "proc/stat": "\n".join(stat) + "\n",
        "proc/meminfo": f"MemTotal:       {total} kB\nMemFree:        {total // 2} kB\n",
        "proc/diskstats": " 259       0 nvme0n1 1200 3 48000 600 800 2 64000 900 0 700 1500 0 0 0 0 10 5\n",
        "sys/block/nvme0n1/size": "3907029168\n",
    }


def _cpus(machine: Machine) -> dict[str, str]:
    folder = "sys/devices/system/cpu"
    all_cpus = f"0-{machine.cpus - 1}\n"
    files = {f"{folder}/{name}": all_cpus for name in ("present", "online", "possible")}
    packages = {p: list_text(machine.cpus_of(p)) + "\n" for p in range(machine.packages)}
    for cpu in range(machine.cpus):
        topology = f"{folder}/cpu{cpu}/topology"
        siblings = list_text(machine.siblings(cpu)) + "\n"
        package = machine.package_of(cpu)
        files |= {
            f"{topology}/physical_package_id": f"{package}\n",
            f"{topology}/die_id": "0\n",
            f"{topology}/core_id": f"{machine.core_of(cpu)}\n",
            f"{topology}/thread_siblings_list": siblings,
            f"{topology}/core_cpus_list": siblings,
            f"{topology}/package_cpus_list": packages[package],
            f"{topology}/core_siblings_list": packages[package],
        }
    return files


def _nodes(machine: Machine) -> dict[str, str]:
    folder = "sys/devices/system/node"
    all_nodes = list_text(range(machine.packages)) + "\n"
    files = {f"{folder}/{name}": all_nodes for name in ("online", "possible", "has_cpu", "has_memory")}
    total = machine.gib << 20
    memory = {"MemTotal": total, "MemFree": total // 2, "MemUsed": total // 2, "Dirty": 0, "AnonHugePages": 0}
    counts = "numa_hit 1000\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 10\nlocal_node 900\nother_node 100\n"
    for node in range(machine.packages):
        files |= {
            f"{folder}/node{node}/cpulist": list_text(machine.cpus_of(node)) + "\n",
            f"{folder}/node{node}/distance": " ".join(
                str(machine.distance(node, other)) for other in range(machine.packages)
            )
            + "\n",
            f"{folder}/node{node}/meminfo": "".join(
                f"Node {node} {key + ':':<15} {value:>8} kB\n" for key, value in memory.items()
            )
            + f"Node {node} HugePages_Total:     0\n",
            f"{folder}/node{node}/numastat": counts,
        }
    return files


def _make(root: Path, machine: Machine, pmus: Sequence[Pmu]) -> Path:
    files = {**_proc(machine), **_cpus(machine), **_nodes(machine)}
    buses = root / "sys" / "bus" / "event_source" / "devices"
    buses.mkdir(parents=True)
    for pmu in pmus:
        folder = f"sys/devices/{pmu.name}"
        files[f"{folder}/type"] = f"{pmu.type}\n"
        if pmu.cpus is not None:
            files[f"{folder}/{pmu.cpus_file}"] = pmu.cpus
        files |= {f"{folder}/format/{name}": text for name, text in pmu.format.items()}
        files |= {f"{folder}/events/{name}": text for name, text in pmu.events.items()}
        files |= {f"{folder}/{name}": text for name, text in pmu.files.items()}
        (buses / pmu.name).symlink_to(Path("../../../devices") / pmu.name)
    _write(root, files)
    return root


def make_tree(folder: Path, name: str) -> Path:
    """Write the tree of a machine below `folder`, and return its root, which has `proc` and `sys`.

    Raises:
        ValueError: No machine has this name.
    """
    if name not in MACHINES:
        raise ValueError(f"name: found '{name}', there are {', '.join(NAMES)}")
    return _make(folder / name, MACHINES[name], PMUS[name](MACHINES[name]))


def many(folder: Path, cpus: int = 256, nodes: int = 4) -> Path:
    """Write a tree of the kind of Sapphire Rapids with this many CPUs and nodes, to measure the cost of watching.

    Links join nodes in a ring, and with five nodes or more also nodes that are two steps apart.

    Raises:
        ValueError: The CPUs cannot be distributed evenly.
    """
    if nodes < 1 or cpus < nodes or cpus % nodes:
        raise ValueError(f"cpus: found {cpus}, it must be a multiple of nodes ({nodes})")
    steps = range(1, min(2, (nodes - 1) // 2) + 1)
    links = [(a, 2 * (s - 1), (a + s) % nodes, 2 * (s - 1) + 1) for s in steps for a in range(nodes)]
    if nodes == 2:
        links = list(parallel(3))
    machine = Machine(intel(143, "synthetic"), nodes, cpus // nodes, links=tuple(links))
    return _make(folder / f"many-{cpus}-{nodes}", machine, spr(machine))
