"""Small trees of /sys in the shapes of real machines, in every form of sets that the Linux kernel and recordings use.

    write_shape(folder, SHAPES["masks of a server"], Form.MASKS)

The trees are synthetic; the layout follows Documentation/ABI/stable/sysfs-devices-{system-cpu,node}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

Groups = Sequence[Sequence[int]]


class Form(Enum):
    """The files that contain sets of CPUs."""

    LISTS = "lists"  # thread_siblings_list, cpulist, shared_cpu_list
    MASKS = "masks"  # thread_siblings, cpumap, shared_cpu_map: recordings of hwloc and util-linux
    NEWER_MASKS = "newer masks"  # core_cpus and package_cpus instead of …_siblings
    BOTH = "both"
    DAMAGED_MASKS = "damaged masks"  # the lists are intact, so nothing is lost


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A machine. Sets of CPUs are given as groups; an empty attribute has no files."""

    cores: Groups
    packages: Groups = ()
    package_ids: Sequence[int] = ()  # IDs of the packages; counted from 0 by default
    core_ids: Mapping[int, int] = field(default_factory=dict)  # by CPU; counted within the package by default
    nodes: Mapping[int, Sequence[int]] = field(default_factory=dict)
    distances: Sequence[Sequence[int]] = ()
    caches: Mapping[tuple[int, str], Groups] = field(default_factory=dict)  # by level and type, 32 KiB x level
    initiators: Mapping[tuple[int, int], Sequence[int]] = field(default_factory=dict)  # by node and access class
    offline: Sequence[int] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # further files

    @property
    def cpus(self) -> list[int]:
        return sorted(cpu for core in self.cores for cpu in core)


def list_text(ids: Iterable[int]) -> str:
    """Return a set as the Linux kernel lists it: `0-1,4`."""
    runs: list[list[int]] = []
    for n in sorted(ids):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) + "\n"


def mask_text(ids: Iterable[int], bits: int = 64) -> str:
    """Return a set as a mask of the Linux kernel: words of 32 bits, the highest first."""
    value = sum(1 << n for n in ids)
    bits = max(bits, value.bit_length())
    words = [f"{value >> 32 * n & 0xFFFFFFFF:08x}" for n in range((bits + 31) // 32)]
    return ",".join(reversed(words)) + "\n"


def _sets(form: Form, newer: tuple[str, str], older: tuple[str, str], ids: Iterable[int]) -> dict[str, str]:
    """Return the files of one set; names are (mask, list)."""
    ids = list(ids)
    match form:
        case Form.LISTS:
            return {older[1]: list_text(ids)}
        case Form.MASKS:
            return {older[0]: mask_text(ids)}
        case Form.NEWER_MASKS:
            return {newer[0]: mask_text(ids)}
        case Form.BOTH:
            return {name: text for pair in (newer, older) for name, text in zip(pair, _texts(ids), strict=True)}
        case Form.DAMAGED_MASKS:
            return {newer[0]: "0000zz11\n", older[0]: "\n", older[1]: list_text(ids)}


def _texts(ids: list[int]) -> tuple[str, str]:
    return mask_text(ids), list_text(ids)


_CORE = (("core_cpus", "core_cpus_list"), ("thread_siblings", "thread_siblings_list"))
_PACKAGE = (("package_cpus", "package_cpus_list"), ("core_siblings", "core_siblings_list"))
_NODE = (("cpumap", "cpulist"),) * 2
_CACHE = (("shared_cpu_map", "shared_cpu_list"),) * 2


def _topology(shape: Shape, form: Form) -> dict[str, str]:
    files: dict[str, str] = {}
    ids = shape.package_ids or range(len(shape.packages))
    for core in shape.cores:
        for cpu in core:
            folder = f"cpu{cpu}/topology/"
            files |= {folder + name: text for name, text in _sets(form, *_CORE, core).items()}
            for package_id, package in zip(ids, shape.packages, strict=True):
                if cpu in package:
                    cores_with_cpu = [c for c in shape.cores if set(c) <= set(package)]
                    files[folder + "physical_package_id"] = f"{package_id}\n"
                    files[folder + "core_id"] = f"{shape.core_ids.get(cpu, cores_with_cpu.index(core))}\n"
                    files |= {folder + name: text for name, text in _sets(form, *_PACKAGE, package).items()}
    for index, ((level, kind), groups) in enumerate(shape.caches.items()):
        for group in groups:
            for cpu in group:
                folder = f"cpu{cpu}/cache/index{index}/"
                files |= {folder + name: text for name, text in _sets(form, *_CACHE, group).items()}
                files |= {
                    folder + "level": f"{level}\n",
                    folder + "type": f"{kind}\n",
                    folder + "size": f"{32 * level}K\n",
                }
    return files


def write_shape(root: Path, shape: Shape, form: Form = Form.MASKS) -> Path:
    """Write the tree of a shape and return its root."""
    cpu, node = "sys/devices/system/cpu/", "sys/devices/system/node/"
    all_cpus = [*shape.cpus, *shape.offline]
    files = {cpu + name: list_text(ids) for name, ids in (("online", shape.cpus), ("present", all_cpus))}
    files |= {f"{cpu}cpu{n}/online": "0\n" for n in shape.offline}
    files |= {cpu + name: text for name, text in _topology(shape, form).items()}
    if shape.nodes:
        files[node + "online"] = list_text(shape.nodes)
    for index, (number, cpus) in enumerate(shape.nodes.items()):
        folder = f"{node}node{number}/"
        files |= {folder + name: text for name, text in _sets(form, *_NODE, cpus).items()}
        files[folder + "meminfo"] = f"Node {number} MemTotal:       1048576 kB\n"
        if shape.distances:
            files[folder + "distance"] = " ".join(map(str, shape.distances[index])) + "\n"
    for name, text in (files | {"proc/meminfo": "MemTotal: 1048576 kB\n"} | dict(shape.files)).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for (number, access), initiators in shape.initiators.items():
        folder_of = root / f"{node}node{number}/access{access}/initiators"
        folder_of.mkdir(parents=True)
        for initiator in initiators:
            (folder_of / f"node{initiator}").symlink_to(root / f"{node}node{initiator}")
    return root


def _blocks(first: int, count: int, size: int) -> list[list[int]]:
    return [list(range(first + index * size, first + (index + 1) * size)) for index in range(count)]


def _ring(nodes: int) -> list[list[int]]:
    return [[10 + 10 * min((a - b) % nodes, (b - a) % nodes) for b in range(nodes)] for a in range(nodes)]


SHAPES = {
    "two packages of two nodes each, SMT": Shape(
        cores=[[n, n + 8] for n in range(8)],
        packages=[[*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)]],
        nodes={n: [2 * n, 2 * n + 1, 2 * n + 8, 2 * n + 9] for n in range(4)},
        distances=_ring(4),
        caches={
            (1, "Data"): [[n, n + 8] for n in range(8)],
            (1, "Instruction"): [[n, n + 8] for n in range(8)],
            (2, "Unified"): [[n, n + 8] for n in range(8)],
            (3, "Unified"): [[*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)]],
        },
    ),
    "s390 with books: packages without numbers, empty instruction caches": Shape(
        cores=[[n] for n in range(8)],
        packages=_blocks(0, 4, 2),
        package_ids=[-1] * 4,
        caches={(1, "Data"): [[n] for n in range(8)], (2, "Unified"): [[n] for n in range(8)]},
        files={
            f"sys/devices/system/cpu/cpu{n}/topology/{part}_siblings": mask_text(
                range(n - n % size, n - n % size + size)
            )
            for n in range(8)
            for part, size in (("book", 4), ("drawer", 8))
        },
    ),
    "POWER9: nodes 0, 8 and 250 to 253, packages 0 and 8, four threads": Shape(
        cores=_blocks(0, 4, 4),
        packages=_blocks(0, 2, 8),
        package_ids=[0, 8],
        core_ids={n: 8 * (n // 4) for n in range(16)},
        nodes={0: list(range(8)), 8: list(range(8, 16)), **{n: [] for n in range(250, 254)}},
        distances=[
            [10, 40, 80, 80, 81, 81],
            [40, 10, 81, 81, 80, 80],
            [80, 81, 10, 82, 82, 82],
            [80, 81, 82, 10, 82, 82],
            [81, 80, 82, 82, 10, 82],
            [81, 80, 82, 82, 82, 10],
        ],
        caches={(1, "Data"): _blocks(0, 4, 4), (3, "Unified"): _blocks(0, 2, 8)},
    ),
    "sparse CPUs above 64 and an offline CPU": Shape(
        cores=[[0], [70], [71], [130]],
        packages=[[0, 70], [71, 130]],
        nodes={0: [0, 70], 5: [71, 130]},
        distances=[[10, 21], [21, 10]],
        offline=[1, 69],
    ),
    "memory of CPUs by access class 1, devices by class 0": Shape(
        cores=[[0], [1], [2], [3]],
        packages=[[0, 1, 2, 3]],
        nodes={0: [0, 1], 1: [2, 3], 2: []},
        distances=[[10, 20, 17], [20, 10, 17], [17, 17, 10]],
        initiators={(2, 0): [0, 1], (2, 1): [1]},
    ),
    "memory of CPUs by access class 0 alone": Shape(
        cores=[[0], [1]],
        packages=[[0, 1]],
        nodes={0: [0], 1: [1], 2: []},
        distances=[[10, 20, 17], [20, 10, 17], [17, 17, 10]],
        initiators={(2, 0): [1]},
    ),
    "memory-only node by distances": Shape(
        cores=[[0], [1]],
        packages=[[0], [1]],
        nodes={0: [0], 1: [1], 2: []},
        distances=[[10, 20, 30], [20, 10, 15], [30, 15, 10]],
    ),
    "many nodes": Shape(
        cores=[[n] for n in range(24)],
        packages=_blocks(0, 3, 8),
        nodes={n: [2 * n, 2 * n + 1] for n in range(12)},
        distances=_ring(12),
    ),
    "core numbers that repeat in each die, an L3 each": Shape(
        cores=_blocks(0, 8, 2),
        packages=[list(range(16))],
        core_ids={n: n % 8 // 2 for n in range(16)},
        nodes={0: list(range(16))},
        distances=[[10]],
        caches={(3, "Unified"): _blocks(0, 2, 8)},
    ),
    "no caches, no nodes": Shape(cores=[[0, 1], [2, 3]], packages=[[0, 1, 2, 3]]),
    "an L3 of two packages": Shape(
        cores=[[0], [1]], packages=[[0], [1]], nodes={0: [0, 1]}, caches={(3, "Unified"): [[0, 1]]}
    ),
    "big.LITTLE: the small cores lack an L2": Shape(
        cores=[[n] for n in range(6)],
        packages=[list(range(6))],
        caches={(1, "Data"): [[n] for n in range(6)], (3, "Unified"): [list(range(6))], (2, "Unified"): [[4], [5]]},
        files={f"sys/devices/system/cpu/cpu{n}/cpu_capacity": f"{446 if n < 4 else 1024}\n" for n in range(6)},
    ),
}
