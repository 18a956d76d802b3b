"""Trees in the shapes of real machines: every form of the sets of the kernel is read as hwloc reads it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from machines.shapes import SHAPES, Form, Shape, mask_text, write_shape
from meshmark.machine.sources import from_sysfs
from meshmark.machine.topology import Topology

Cpus = frozenset[int]


def sets_of(t: Topology) -> dict[str, object]:
    return {
        "cpus": [c.os_index for c in t.cpus],
        "cores": {frozenset(c.cpus) for c in t.cores},
        "packages": {frozenset(p.cpus) for p in t.packages},
        "nodes": {n.os_index: frozenset(n.near_cpus) for n in t.nodes},
        "distances": t.distances,
        "caches": {(c.level, c.kind, frozenset(c.cpus), c.size_bytes) for c in t.caches},
    }


def bits(text: str) -> Cpus:
    value = 0
    for word in text.split(","):
        value = value << 32 | int(word or "0", 16)
    return frozenset(n for n in range(value.bit_length()) if value >> n & 1)


def sets_of_hwloc(root: Path) -> dict[str, object]:
    """Return what lstopo states about a tree, in the same form."""
    variables = {"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,stop"}
    words = ["lstopo-no-graphics", "--no-io", "--disallowed", "--filter", "icache:all", "--of", "xml", "-"]
    completed = subprocess.run(words, env=os.environ | variables, capture_output=True, timeout=60, check=True)
    top = ElementTree.fromstring(completed.stdout)
    by_type: dict[str, list[ElementTree.Element]] = {}
    for element in top.iter("object"):
        by_type.setdefault(element.get("type", ""), []).append(element)
    nodes = {int(o.get("os_index", "")): o for o in by_type["NUMANode"]}
    values = [int(v) for d in top.findall("distances2") for e in d.findall("u64values") for v in (e.text or "").split()]
    size = len(nodes)
    caches = [o for kind, objects in by_type.items() if re.fullmatch(r"L\di?Cache", kind) for o in objects]
    return {
        "cpus": sorted(int(o.get("os_index", "")) for o in by_type["PU"]),
        "cores": {bits(o.get("cpuset", "")) for o in by_type["Core"]},
        "packages": {bits(o.get("cpuset", "")) for o in by_type["Package"]},
        "nodes": {n: bits(o.get("cpuset", "")) for n, o in nodes.items()},
        "distances": tuple(tuple(values[r * size : (r + 1) * size]) for r in range(size)) if values else None,
        "caches": {
            (
                int(o.get("depth", "")),
                {"1": "data", "2": "instruction"}.get(o.get("cache_type", ""), "unified"),
                bits(o.get("cpuset", "")),
                int(o.get("cache_size", "")),
            )
            for o in caches
        },
    }


def sets_of_shape(shape: Shape) -> dict[str, object]:
    return {
        "cpus": shape.cpus,
        "cores": {frozenset(c) for c in shape.cores},
        "packages": {frozenset(p) for p in shape.packages},
        "distances": tuple(map(tuple, shape.distances)) or None,
        "caches": {
            (level, kind.lower(), frozenset(group), 32768 * level)
            for (level, kind), groups in shape.caches.items()
            for group in groups
        },
    }


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("name", SHAPES)
def test_every_form_of_a_set_is_read(name: str, form: Form, tmp_path: Path) -> None:
    shape = SHAPES[name]
    t = from_sysfs(write_shape(tmp_path, shape, form))
    assert sets_of(t) | sets_of_shape(shape) == sets_of(t)
    assert {n.os_index: list(n.cpus) for n in t.nodes} == dict(shape.nodes or {0: shape.cpus})
    assert list(t.offline_cpus) == list(shape.offline)


@pytest.mark.skipif(not shutil.which("lstopo-no-graphics"), reason="hwloc's lstopo is not installed")
@pytest.mark.parametrize("form", [Form.MASKS, Form.NEWER_MASKS, Form.BOTH])
@pytest.mark.parametrize("name", SHAPES)
def test_hwloc_reads_the_same(name: str, form: Form, tmp_path: Path) -> None:
    root = write_shape(tmp_path, SHAPES[name], form)
    ours, hwloc = sets_of(from_sysfs(root)), sets_of_hwloc(root)
    if len(SHAPES[name].nodes) < 2:  # hwloc states no distances for a single node
        hwloc["distances"] = ours["distances"]
    assert ours == hwloc


def test_packages_without_numbers_are_those_of_their_masks(tmp_path: Path) -> None:
    name = "s390 with books: packages without numbers, empty instruction caches"
    t = from_sysfs(write_shape(tmp_path, SHAPES[name]))
    assert [(p.index, p.os_index, p.cpus) for p in t.packages] == [(n, None, (2 * n, 2 * n + 1)) for n in range(4)]
    assert [c.package for c in t.cpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert t.doubts == ("the kernel reports no NUMA nodes: all CPUs and memory are treated as node 0",)


@pytest.mark.parametrize("number", [None, "-1\n"])
def test_packages_are_unknown_without_masks_and_numbers(number: str | None, tmp_path: Path) -> None:
    root = write_shape(tmp_path, Shape(cores=[[0], [1]], nodes={0: [0, 1]}))
    for cpu in (0, 1):
        if number is not None:
            (root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id").write_text(number)
    t = from_sysfs(root)
    assert t.packages == () and [c.package for c in t.cpus] == [None, None]
    assert t.summary() == "unknown packages, 1 NUMA node, 2 cores, 2 CPUs"
    assert "the package of CPUs 0-1 is unknown" in t.doubts
    assert t.to_dict()["packages"] == []


def test_numbers_alone_make_packages(tmp_path: Path) -> None:
    root = write_shape(tmp_path, Shape(cores=[[0], [1], [2]]))
    for cpu, package in ((0, 3), (1, 7), (2, 3)):
        (root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id").write_text(f"{package}\n")
    assert [(p.os_index, p.cpus) for p in from_sysfs(root).packages] == [(3, (0, 2)), (7, (1,))]


def test_a_mask_that_overlaps_another_core_yields_to_the_list(tmp_path: Path) -> None:
    root = write_shape(tmp_path, Shape(cores=[[0, 2], [1, 3]], packages=[[0, 1, 2, 3]]), Form.BOTH)
    for name in ("core_cpus", "thread_siblings"):
        (root / f"sys/devices/system/cpu/cpu1/topology/{name}").write_text(mask_text([0, 1, 2, 3]))
    assert [c.cpus for c in from_sysfs(root).cores] == [(0, 2), (1, 3)]


@pytest.mark.parametrize("text", ["", "\n", "zz\n", "0,00000003\n", "00000000,3\n", ",\n", "1" * 20000 + "\n"])
def test_a_malformed_mask_is_unknown(text: str, tmp_path: Path) -> None:
    root = write_shape(tmp_path, Shape(cores=[[0, 1]], packages=[[0, 1]]))
    for cpu in (0, 1):
        (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings").write_text(text)
    t = from_sysfs(root)
    if text == "0,00000003\n":  # a highest word of one digit is valid
        assert [c.cpus for c in t.cores] == [(0, 1)]
    else:
        assert [c.cpus for c in t.cores] == [(0,), (1,)]
        assert "CPUs 0-1 are in no core: each is treated as a separate core" in t.doubts


def test_a_cache_is_left_out_where_its_sharers_are_not_stated(tmp_path: Path) -> None:
    shape = Shape(cores=[[0], [1]], caches={(1, "Data"): [[0], [1]], (3, "Unified"): [[0, 1]]})
    root = write_shape(tmp_path, shape)
    for cpu in (0, 1):
        (root / f"sys/devices/system/cpu/cpu{cpu}/cache/index1/shared_cpu_map").unlink()
    assert [(c.level, c.cpus) for c in from_sysfs(root).caches] == [(1, (0,)), (1, (1,))]


def test_empty_sets_of_caches_are_those_of_cores(tmp_path: Path) -> None:
    """Linux on Itanium has such sets, and hwloc reads them alike."""
    root = write_shape(tmp_path, Shape(cores=[[0, 1], [2, 3]], caches={(3, "Unified"): [[0, 1, 2, 3]]}))
    for cpu in range(4):
        (root / f"sys/devices/system/cpu/cpu{cpu}/cache/index0/shared_cpu_map").write_text("00000000\n")
    assert [c.cpus for c in from_sysfs(root).caches] == [(0, 1), (2, 3)]


def test_compute_units_of_amd_have_a_core_per_thread(tmp_path: Path) -> None:
    shape = Shape(
        cores=[[0, 1]],
        packages=[[0, 1]],
        core_ids={0: 0, 1: 1},
        files={"proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nflags\t\t: fpu\n\n"},
    )
    assert [c.cpus for c in from_sysfs(write_shape(tmp_path / "host", shape)).cores] == [(0,), (1,)]
    guest = {"proc/cpuinfo": shape.files["proc/cpuinfo"].replace("fpu", "fpu hypervisor")}
    tree = write_shape(tmp_path / "guest", Shape(cores=[[0, 1]], packages=[[0, 1]], files=guest))
    assert [c.cpus for c in from_sysfs(tree).cores] == [(0, 1)]


def test_a_cache_of_several_packages_is_doubtful(tmp_path: Path) -> None:
    t = from_sysfs(write_shape(tmp_path, SHAPES["an L3 of two packages"]))
    assert t.doubts == ("an L3 cache of CPUs 0-1 spans 2 packages",)


def test_cpus_are_found_by_their_folders_alone(tmp_path: Path) -> None:
    root = write_shape(tmp_path, SHAPES["two packages of two nodes each, SMT"], Form.LISTS)
    for name in ("online", "present"):
        (root / f"sys/devices/system/cpu/{name}").unlink()
    (root / "sys/devices/system/cpu/cpu15/online").write_text("0\n")
    t = from_sysfs(root)
    assert [c.os_index for c in t.cpus] == list(range(15)) and t.offline_cpus == (15,)


def test_the_affinity_adds_cpus_that_the_online_list_lacks(tmp_path: Path) -> None:
    """LXCFS numbers the CPUs of a container from 0 in `online`."""
    shape = Shape(cores=[[0], [1], [2], [3]], packages=[[0, 1, 2, 3]], nodes={0: [0, 1, 2, 3]})
    root = write_shape(tmp_path, shape)
    (root / "sys/devices/system/cpu/online").write_text("0\n")
    status = root / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tcat\nCpus_allowed:\t8\n")
    t = from_sysfs(root)
    assert t.allowed_cpus == (3,) and 3 in [c.os_index for c in t.cpus] and 3 not in t.offline_cpus
    assert "LXCFS" in t.doubts[0]


def test_the_affinity_adds_no_offline_cpu(tmp_path: Path) -> None:
    """The recorded affinity of a process includes offline CPUs."""
    root = write_shape(tmp_path, Shape(cores=[[0], [1]], nodes={0: [0, 1]}, offline=[2]))
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text("Cpus_allowed_list:\t0-7\n")
    t = from_sysfs(root)
    assert t.offline_cpus == (2,) and t.allowed_cpus == (0, 1) and not any("LXCFS" in d for d in t.doubts)


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        (
            {f"sys/devices/system/cpu/cpu{n}/cpu_capacity": f"{c}\n" for n, c in enumerate((1024, 1024, 512, 250))},
            {"performance": (0, 1), "middle": (2,), "efficiency": (3,)},
        ),
        (
            {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"},
            {"performance": (0, 1), "efficiency": (2, 3)},
        ),
        (
            {
                "sys/devices/cpu_core/cpus": "0\n",
                "sys/devices/cpu_atom/cpus": "1-2\n",
                "sys/devices/cpu_lowpower/cpus": "3\n",
            },
            {"performance": (0,), "efficiency": (1, 2), "low-power": (3,)},
        ),
        (
            {
                f"sys/devices/system/cpu/cpu{n}/cpufreq/cpuinfo_max_freq": f"{f}\n"
                for n, f in enumerate((5000000, 5200000, 3800000, 3800000))
            },
            {"performance": (0, 1), "efficiency": (2, 3)},
        ),
        (  # favoured cores of one kind
            {
                f"sys/devices/system/cpu/cpu{n}/cpufreq/cpuinfo_max_freq": f"{f}\n"
                for n, f in enumerate((5000000, 5200000, 5100000, 4700000))
            },
            {},
        ),
        (
            {
                "proc/cpuinfo": "".join(
                    f"processor\t: {n}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n"
                    for n, part in enumerate(("0xd40", "0xd40", "0xd4f", "0xd4f"))
                )
            },
            {"model 0x41:0xd40": (0, 1), "model 0x41:0xd4f": (2, 3)},
        ),
        (  # two models, whose cores reach slightly different clocks
            {
                f"sys/devices/system/cpu/cpu{n}/{name}": text
                for n, part, capacity in ((0, "d87", 718), (1, "d85", 997), (2, "d87", 731), (3, "d85", 1024))
                for name, text in (
                    ("cpu_capacity", f"{capacity}\n"),
                    ("regs/identification/midr_el1", f"0x00000000410f{part}1\n"),
                )
            },
            {"performance": (1, 3), "efficiency": (0, 2)},
        ),
        (  # PMUs, and capacities in which favoured cores have more
            {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"}
            | {f"sys/devices/system/cpu/cpu{n}/cpu_capacity": f"{c}\n" for n, c in enumerate((1024, 986, 623, 623))},
            {"performance": (0, 1), "efficiency": (2, 3)},
        ),
        (  # two models of similar capacity
            {
                f"sys/devices/system/cpu/cpu{n}/{name}": text
                for n, part, capacity in ((0, "d4d", 950), (1, "d4d", 950), (2, "d4e", 1024), (3, "d4e", 1024))
                for name, text in (
                    ("cpu_capacity", f"{capacity}\n"),
                    ("regs/identification/midr_el1", f"0x00000000410f{part}1\n"),
                )
            },
            {"performance": (2, 3), "efficiency": (0, 1)},
        ),
        (  # a recording without the links from CPUs to the policies of their clocks
            {
                f"sys/devices/system/cpu/cpufreq/policy{n}/{name}": text
                for n, cpus, khz in ((0, "0 1", "1512000"), (2, "2 3", "2016000"))
                for name, text in (("affected_cpus", f"{cpus}\n"), ("cpuinfo_max_freq", f"{khz}\n"))
            },
            {"performance": (2, 3), "efficiency": (0, 1)},
        ),
        (
            {
                f"sys/devices/system/cpu/cpu{n}/regs/identification/midr_el1": f"0x00000000410f{part}1\n"
                for n, part in enumerate(("d03", "d03", "d08", "d08"))
            },
            {"model 0x41:0xd03": (0, 1), "model 0x41:0xd08": (2, 3)},
        ),
        (  # Linux before 3.8 states one model after all CPUs
            {
                "proc/cpuinfo": "".join(f"processor\t: {n}\nBogoMIPS\t: 38.40\n\n" for n in range(4))
                + "CPU implementer\t: 0x41\nCPU part\t: 0xc0f\n"
            },
            {},
        ),
        (
            {
                "sys/bus/event_source/devices/cpu_core/cpus": "0\n",
                "sys/bus/event_source/devices/cpu_atom/cpus": "1-3\n",
            },
            {"performance": (0,), "efficiency": (1, 2, 3)},
        ),
        ({f"sys/devices/system/cpu/cpu{n}/cpu_capacity": "1024\n" for n in range(4)}, {}),
    ],
)
def test_kinds_of_cores_are_told_apart(
    files: dict[str, str], kinds: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    t = from_sysfs(write_shape(tmp_path, Shape(cores=[[0], [1], [2], [3]], files=files)))
    assert {k.name: k.cpus for k in t.core_kinds} == kinds
    by_cpu = {cpu: name for name, cpus in kinds.items() for cpu in cpus}
    assert [c.kind for c in t.cpus] == [by_cpu.get(c.os_index) for c in t.cpus]
    assert (f"{len(kinds)} kinds" in t.summary()) == bool(kinds)
