"""What a machine consists of: packages, NUMA nodes, caches, cores, CPUs.

Three sources give the same `Topology`: the kernel's sysfs below any root (`from_sysfs`), hwloc's XML
(`from_hwloc_xml`) and hwloc's synthetic descriptions such as `pack:4 core:64 pu:1` (`from_synthetic`).

Source: Linux Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu; hwloc 2 manual,
"Importing and exporting topologies from/to XML files" and "Synthetic topologies".
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.parsers import expat

from meshmark.errors import AbsentError
from meshmark.machine.tree import MAX_CPUS, MachineError, Tree, format_list, kilobytes, parse_integer, parse_list

_MAX_XML = 64 << 20
_MAX_DEPTH = 64
_MAX_NODES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A socket. `os_index` is the firmware's number, not always from 0."""

    os_index: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Memory of one distance. Without CPUs it is memory-only (CXL, HBM); with 0 B it is memory-less."""

    os_index: int
    cpus: tuple[int, ...]  # those the kernel counts as its own
    near_cpus: tuple[int, ...]  # those for which it is local, or nearest where it has none of its own
    memory_bytes: int | None  # as the node claims

    @property
    def kind(self) -> str:
        """`ordinary`, `memory-only`, `memory-less` or `empty`."""
        names = {(True, True): "ordinary", (False, True): "memory-only", (True, False): "memory-less"}
        return names.get((bool(self.cpus), self.memory_bytes != 0), "empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache as claimed; `kind` is data, instruction or unified. Unknown sizes are None."""

    level: int
    kind: str
    size_bytes: int | None
    line_bytes: int | None
    ways: int | None
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One core; `index` counts cores from 0 by their first CPU, `os_index` may repeat in other packages."""

    index: int
    os_index: int | None
    package: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """What the OS schedules on: `core` is `Core.index`, `package` and `node` are os_index; node may be None."""

    os_index: int
    core: int
    package: int
    node: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A machine's parts, each sorted by its number. Only CPUs that are online appear as parts."""

    origin: str  # sysfs, hwloc-xml or synthetic
    packages: tuple[Package, ...]
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    cores: tuple[Core, ...]
    cpus: tuple[Cpu, ...]
    allowed_cpus: tuple[int, ...]
    offline_cpus: tuple[int, ...] = ()
    distances: tuple[tuple[int, ...], ...] | None = None  # [from][to], order of `nodes`, 10 = local
    kernel_memory_bytes: int | None = None  # MemTotal of /proc/meminfo
    doubts: tuple[str, ...] = field(default=())  # where the sources contradict each other

    @property
    def nodes_memory_bytes(self) -> int | None:
        """Sum of the nodes' claims, in B; None where one says nothing."""
        claims = [n.memory_bytes for n in self.nodes]
        return None if None in claims else sum(c for c in claims if c is not None)

    @property
    def safe_memory_bytes(self) -> int | None:
        """What may be relied on, in B: the smaller of the nodes' sum and the kernel's total."""
        known = [b for b in (self.nodes_memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(known, default=None)

    def safe_node_bytes(self, node: Node) -> int | None:
        """A node's memory in B, never more than the kernel has in all."""
        known = [b for b in (node.memory_bytes, self.kernel_memory_bytes) if b is not None]
        return min(known, default=None) if node.memory_bytes is not None else None

    @property
    def threads_per_core(self) -> int:
        """The most CPUs that a core has, at least 1."""
        return max((len(c.cpus) for c in self.cores), default=1)

    def node_of(self, cpu: int) -> int | None:
        """os_index of the CPU's node.

        Raises:
            MachineError: the machine has no such CPU online.
        """
        for c in self.cpus:
            if c.os_index == cpu:
                return c.node
        raise MachineError(f"cpu {cpu}: this machine has {format_list([c.os_index for c in self.cpus])}")

    def summary(self) -> str:
        """One line, as `2 packages, 4 NUMA nodes (1 memory-only), 8 cores, 16 CPUs`."""

        def count(n: int, word: str) -> str:
            return f"{n} {word}{'' if n == 1 else 's'}"

        special = [k for k in ("memory-only", "memory-less") if any(n.kind == k for n in self.nodes)]
        notes = ", ".join(f"{sum(n.kind == k for n in self.nodes)} {k}" for k in special)
        return ", ".join(
            [
                count(len(self.packages), "package"),
                count(len(self.nodes), "NUMA node") + (f" ({notes})" if notes else ""),
                count(len(self.cores), "core"),
                count(len(self.cpus), "CPU"),
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """JSON-able form. Numbers of CPUs are lists of int; sizes are in B.

        Keys: `origin`; `summary`; `packages` [{os_index, cpus}]; `nodes` [{os_index, cpus, near_cpus,
        memory_bytes, safe_bytes, kind}]; `caches` [{level, kind, size_bytes, line_bytes, ways, cpus}];
        `cores` [{index, os_index, package, cpus}]; `cpus` [{os_index, core, package, node}];
        `allowed_cpus`, `offline_cpus`; `threads_per_core`; `distances` (matrix, rows and columns in the
        order of `nodes`); `doubts` [str]. An unknown value is {"absent": reason}.
        """

        def known(value: object, reason: str) -> object:
            return {"absent": reason} if value is None else value

        said = f"{self.origin} does not say"
        return {
            "origin": self.origin,
            "summary": self.summary(),
            "packages": [{"os_index": p.os_index, "cpus": list(p.cpus)} for p in self.packages],
            "nodes": [
                {
                    "os_index": n.os_index,
                    "cpus": list(n.cpus),
                    "near_cpus": list(n.near_cpus),
                    "memory_bytes": known(n.memory_bytes, said),
                    "safe_bytes": known(self.safe_node_bytes(n), said),
                    "kind": n.kind,
                }
                for n in self.nodes
            ],
            "caches": [
                {
                    "level": c.level,
                    "kind": c.kind,
                    "size_bytes": known(c.size_bytes, said),
                    "line_bytes": known(c.line_bytes, said),
                    "ways": known(c.ways, said),
                    "cpus": list(c.cpus),
                }
                for c in self.caches
            ],
            "cores": [
                {"index": c.index, "os_index": known(c.os_index, said), "package": c.package, "cpus": list(c.cpus)}
                for c in self.cores
            ],
            "cpus": [
                {"os_index": c.os_index, "core": c.core, "package": c.package, "node": known(c.node, "no node has it")}
                for c in self.cpus
            ],
            "allowed_cpus": list(self.allowed_cpus),
            "offline_cpus": list(self.offline_cpus),
            "threads_per_core": self.threads_per_core,
            "distances": known(self.distances and [list(row) for row in self.distances], said),
            "doubts": list(self.doubts),
        }


# ------------------------------------------------------------------ sysfs


def from_sysfs(root: Path = Path("/")) -> Topology:
    """The topology that the kernel below `root` shows, of CPUs that are online.

    `allowed_cpus` is the affinity of this process for `/`, else `Cpus_allowed_list` of the recorded
    /proc/self/status, else every online CPU.

    Raises:
        MachineError: `root` holds no /sys/devices/system/cpu with a CPU in it.
    """
    tree, base, doubts = Tree(root), "sys/devices/system", list[str]()
    present = tree.numbered(f"{base}/cpu", "cpu")
    online = tree.cpus(f"{base}/cpu/online")
    if online is None:
        online = tuple(c for c in present if tree.number(f"{base}/cpu/cpu{c}/online") != 0)
    known = frozenset(present)
    online = tuple(c for c in online if c in known)
    here = frozenset(online)
    if not online or len(present) > MAX_CPUS:
        raise MachineError(f"{root}: no CPU in sys/devices/system/cpu: this is no tree of a Linux machine")

    package_of: dict[int, int] = {}
    siblings: dict[int, tuple[int, ...]] = {}
    core_id: dict[int, int | None] = {}
    for cpu in online:
        at = f"{base}/cpu/cpu{cpu}/topology"
        package = tree.number(f"{at}/physical_package_id")
        package_of[cpu] = package if package is not None and package >= 0 else 0
        shared = tree.cpus(f"{at}/core_cpus_list") or tree.cpus(f"{at}/thread_siblings_list") or ()
        siblings[cpu] = tuple(sorted({cpu, *(here & set(shared))}))
        core_id[cpu] = tree.number(f"{at}/core_id")
    nodes, distances = _sysfs_nodes(tree, online, doubts)
    return _assemble(
        origin="sysfs",
        package_of=package_of,
        core_groups=[(core_id[c], siblings[c]) for c in online],
        nodes=nodes,
        caches=_sysfs_caches(tree, online),
        allowed=_allowed(tree, online),
        offline=tuple(sorted(set(present) - set(online))),
        distances=distances,
        kernel_memory=kilobytes(tree.text("proc/meminfo"), "MemTotal"),
        doubts=doubts,
    )


def _allowed(tree: Tree, online: tuple[int, ...]) -> tuple[int, ...]:
    if tree.live:
        return tuple(sorted(os.sched_getaffinity(0)))
    status = tree.text("proc/self/status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.M)
    if match:
        try:
            return tuple(sorted(frozenset(online) & set(parse_list(match[1])))) or online
        except MachineError:
            return online
    return online


def _sysfs_nodes(
    tree: Tree, online: tuple[int, ...], doubts: list[str]
) -> tuple[list[Node], tuple[tuple[int, ...], ...] | None]:
    base = "sys/devices/system/node"
    numbers = tree.numbered(base, "node")[:_MAX_NODES]
    if not numbers:
        doubts.append("the kernel shows no NUMA nodes: all CPUs and all memory are taken as node 0")
        total = kilobytes(tree.text("proc/meminfo"), "MemTotal")
        return [Node(os_index=0, cpus=online, near_cpus=online, memory_bytes=total)], None
    here = frozenset(online)
    rows: list[tuple[int, ...]] = []
    for n in numbers:
        row = tuple(
            int(w) for w in (tree.text(f"{base}/node{n}/distance") or "").split() if re.fullmatch("[0-9]{1,5}", w)
        )
        rows.append(row)
    complete = all(len(row) == len(numbers) for row in rows)
    distances = tuple(rows) if complete else None
    if not complete and any(rows):
        doubts.append(f"node distances are not a {len(numbers)} x {len(numbers)} matrix: they are left out")
    own: dict[int, tuple[int, ...]] = {}
    for n in numbers:
        listed = tree.cpus(f"{base}/node{n}/cpulist")
        if listed is None:
            listed = tuple(tree.numbered(f"{base}/node{n}", "cpu"))
        own[n] = tuple(sorted(here & set(listed)))
    nodes = []
    for at, n in enumerate(numbers):
        near = own[n]
        if not near:
            names = tree.numbered(f"{base}/node{n}/access0/initiators", "node")
            near = tuple(sorted({c for i in names for c in own.get(i, ())}))
        if not near and distances:
            reach = {i: distances[at][j] for j, i in enumerate(numbers) if own[i]}
            near = tuple(sorted({c for i, d in reach.items() if d == min(reach.values()) for c in own[i]}))
        memory = kilobytes(tree.text(f"{base}/node{n}/meminfo"), "MemTotal")
        nodes.append(Node(os_index=n, cpus=own[n], near_cpus=near, memory_bytes=memory))
    return nodes, distances


def _sysfs_caches(tree: Tree, online: tuple[int, ...]) -> list[Cache]:
    found: dict[tuple[int, str, tuple[int, ...]], Cache] = {}
    here = frozenset(online)
    kinds = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
    for cpu in online:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index in tree.numbered(folder, "index"):
            at = f"{folder}/index{index}"
            level, kind = tree.number(f"{at}/level"), kinds.get(tree.text(f"{at}/type") or "")
            if level is None or kind is None:
                continue
            shared = tuple(sorted(here & {cpu, *(tree.cpus(f"{at}/shared_cpu_list") or ())}))
            size = re.fullmatch(r"([0-9]{1,12})([KMG]?)", tree.text(f"{at}/size") or "", re.ASCII)
            scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
            found[level, kind, shared] = Cache(
                level=level,
                kind=kind,
                size_bytes=(int(size[1]) * scale[size[2]] or None) if size else None,
                line_bytes=tree.number(f"{at}/coherency_line_size") or None,
                ways=tree.number(f"{at}/ways_of_associativity") or None,
                cpus=shared,
            )
    return list(found.values())


# ------------------------------------------------------------------ assembly


def _assemble(
    *,
    origin: str,
    package_of: dict[int, int],
    core_groups: Iterable[tuple[int | None, tuple[int, ...]]],
    nodes: list[Node],
    caches: list[Cache],
    allowed: tuple[int, ...],
    offline: tuple[int, ...],
    distances: tuple[tuple[int, ...], ...] | None,
    kernel_memory: int | None,
    doubts: list[str],
) -> Topology:
    """Joins the parts, and says where they contradict each other."""
    core_of: dict[int, int] = {}
    cores: list[Core] = []
    for os_index, cpus in sorted(core_groups, key=lambda g: g[1]):
        free = tuple(c for c in cpus if c not in core_of)
        if not free:
            continue
        if len(free) != len(cpus):
            doubts.append(f"core of CPUs {format_list(cpus)} overlaps another core")
        core_of.update(dict.fromkeys(free, len(cores)))
        cores.append(Core(index=len(cores), os_index=os_index, package=package_of[free[0]], cpus=free))
    node_of: dict[int, int] = {}
    for node in nodes:
        twice = [c for c in node.cpus if node_of.setdefault(c, node.os_index) != node.os_index]
        if twice:
            doubts.append(f"CPUs {format_list(twice)} are in node {node.os_index} and an earlier one, which is taken")
    lost = [c for c in package_of if c not in node_of]
    if lost:
        doubts.append(f"no node has CPUs {format_list(lost)}")
    if distances is not None and any(row[i] > min(row) for i, row in enumerate(distances)):
        doubts.append("some node is nearer to another one than to itself, by its distances")
    claims = [n.memory_bytes for n in nodes if n.memory_bytes is not None]
    if kernel_memory and len(claims) == len(nodes) and not math.isclose(sum(claims), kernel_memory, rel_tol=0.02):
        doubts.append(
            f"the nodes claim {sum(claims) / 2**30:.2f} GiB in all, the kernel counts {kernel_memory / 2**30:.2f} GiB: "
            "the smaller is relied on"
        )
    members: dict[int, list[int]] = {}
    for cpu, package in package_of.items():
        members.setdefault(package, []).append(cpu)
    return Topology(
        origin=origin,
        packages=tuple(Package(os_index=p, cpus=tuple(sorted(c))) for p, c in sorted(members.items())),
        nodes=tuple(sorted(nodes, key=lambda n: n.os_index)),
        caches=tuple(sorted(caches, key=lambda c: (c.level, c.kind, c.cpus))),
        cores=tuple(cores),
        cpus=tuple(
            Cpu(os_index=c, core=core_of[c], package=package_of[c], node=node_of.get(c)) for c in sorted(package_of)
        ),
        allowed_cpus=allowed,
        offline_cpus=offline,
        distances=distances,
        kernel_memory_bytes=kernel_memory,
        doubts=tuple(doubts),
    )


# ------------------------------------------------------------------ hwloc XML


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    children: list[_Element] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _parse_xml(data: bytes) -> _Element:
    """The element tree of a document without entities of its own, of at most 64 MiB and 64 levels."""
    if len(data) > _MAX_XML:
        raise MachineError(f"XML of {len(data)} B: at most {_MAX_XML} B are read")
    top = _Element("", {})
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _MAX_DEPTH:
            raise MachineError(f"XML is nested deeper than {_MAX_DEPTH} levels")
        element = _Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def words(text: str) -> None:
        stack[-1].words.append(text)

    def refuse(*_: object) -> None:
        raise MachineError("XML declares an entity: hwloc writes none, so it is not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.CharacterDataHandler = words
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as why:
        raise MachineError(f"XML line {why.lineno}: {expat.ErrorString(why.code)}") from None
    except (ValueError, LookupError) as why:
        raise MachineError(f"XML cannot be decoded: {why}") from None
    return top.children[0]


def _bitmap(text: str, name: str) -> tuple[int, ...]:
    """CPUs of hwloc's bitmap: 32-bit words from the highest, joined by commas, an empty one is 0."""
    value = 0
    words = text.split(",")
    if len(words) > MAX_CPUS // 32:
        raise MachineError(f"{name}: more than {MAX_CPUS} bits")
    for word in words:
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}|", word):
            raise MachineError(f"{name}: found '{word[:20]}', allowed are hexadecimal words of 32 bits")
        value = value << 32 | int(word or "0", 16)
    bits = bin(value)[:1:-1]
    return tuple(i for i, bit in enumerate(bits) if bit == "1")


def _attribute(element: _Element, name: str, default: int | None = None) -> int:
    text = element.attributes.get(name)
    value = parse_integer(text) if text is not None else default
    if value is None or value < 0:
        raise MachineError(
            f"{element.attributes.get('type', element.tag)}: {name}: found "
            f"{'nothing' if text is None else repr(text[:20])}, a whole number is needed"
        )
    return value


def _objects(top: _Element) -> Iterator[tuple[_Element, int, int | None]]:
    """Every object, with the os_index of its package and the number of its core (counted from 0)."""
    cores = 0
    stack: list[tuple[_Element, int, int | None]] = [(top, 0, None)]
    while stack:
        element, package, core = stack.pop()
        kind = element.attributes.get("type", "")
        if kind == "Package":
            package = _attribute(element, "os_index", 0)
        elif kind == "Core":
            core, cores = cores, cores + 1
        yield element, package, core
        stack += [(c, package, core) for c in reversed(element.children) if c.tag == "object"]


def from_hwloc_xml(data: bytes, origin: str = "hwloc-xml") -> Topology:
    """The topology in a file of `lstopo --of xml` (hwloc 2).

    hwloc does not say to which node a CPU of several local ones belongs: the one with the fewest local
    CPUs is taken, then the lowest number; a node that so gets no CPU counts as memory-only.

    Raises:
        MachineError: no XML, not hwloc's, of hwloc 1, with an entity, or without any CPU.
    """
    top = _parse_xml(data)
    version = top.attributes.get("version", "1")
    if top.tag != "topology":
        raise MachineError(f"XML starts with <{top.tag[:20]}>, hwloc's with <topology>")
    if not version.startswith("2."):
        raise MachineError(f"XML is of hwloc format {version[:20]}, format 2 is needed: hwloc 2's lstopo writes it")
    machine = next((c for c in top.children if c.tag == "object"), None)
    if machine is None:
        raise MachineError("XML holds no object: a <topology> has one of type Machine")

    doubts: list[str] = []
    package_of: dict[int, int] = {}
    cores: dict[int, tuple[int | None, list[int]]] = {}
    core_names: dict[int, int | None] = {}
    raw_nodes: dict[int, tuple[tuple[int, ...], int]] = {}
    by_gp: dict[int, int] = {}
    caches: list[Cache] = []
    alone = 0  # CPUs without a core count down from -1
    for element, package, core in _objects(machine):
        kind, given = element.attributes.get("type", ""), element.attributes
        if kind == "PU":
            cpu = _attribute(element, "os_index")
            if cpu >= MAX_CPUS or cpu in package_of:
                raise MachineError(f"PU: os_index: found {cpu}, allowed is each number below {MAX_CPUS} once")
            package_of[cpu] = package
            if core is None:
                alone -= 1
            group = alone if core is None else core
            cores.setdefault(group, (core_names.get(group), []))[1].append(cpu)
        elif kind == "Core" and core is not None:
            core_names[core] = parse_integer(given.get("os_index"))
        elif kind == "NUMANode":
            node = _attribute(element, "os_index")
            if node in raw_nodes or len(raw_nodes) >= _MAX_NODES:
                raise MachineError(f"NUMANode: os_index: found {node} twice, or more than {_MAX_NODES} nodes")
            raw_nodes[node] = (
                _bitmap(given.get("cpuset", ""), "NUMANode: cpuset"),
                _attribute(element, "local_memory", 0),
            )
            by_gp[parse_integer(given.get("gp_index")) or 0] = node
        elif re.fullmatch(r"L[1-5]i?Cache", kind):
            ways = parse_integer(given.get("cache_associativity"))
            caches.append(
                Cache(
                    level=int(kind[1]),
                    kind={"1": "data", "2": "instruction"}.get(given.get("cache_type", "0"), "unified"),
                    size_bytes=_attribute(element, "cache_size", 0) or None,
                    line_bytes=_attribute(element, "cache_linesize", 0) or None,
                    ways=ways if ways is not None and ways > 0 else None,
                    cpus=_bitmap(given.get("cpuset", ""), f"{kind}: cpuset"),
                )
            )
    if not package_of:
        raise MachineError("XML holds no PU (CPU)")
    if alone:
        doubts.append("some CPUs are in no core: each is taken as a core of its own")
    nodes = _xml_nodes(raw_nodes, package_of, doubts)
    if origin == "synthetic":  # `[numa]` without a size: nothing is said, so it is not 0 B
        nodes = [replace(n, memory_bytes=n.memory_bytes or None) for n in nodes]
    allowed = _bitmap(machine.attributes.get("allowed_cpuset", ""), "Machine: allowed_cpuset")
    complete = _bitmap(machine.attributes.get("complete_cpuset", ""), "Machine: complete_cpuset")
    return _assemble(
        origin=origin,
        package_of=package_of,
        core_groups=[(name, tuple(sorted(cpus))) for name, cpus in cores.values()],
        nodes=nodes,
        caches=[c for c in (_within(c, package_of) for c in caches) if c.cpus],  # one of absent CPUs is none here
        allowed=tuple(c for c in allowed if c in package_of) or tuple(sorted(package_of)),
        offline=tuple(c for c in complete if c not in package_of),
        distances=_xml_distances(top, [n.os_index for n in nodes], by_gp, doubts),
        kernel_memory=None,
        doubts=doubts,
    )


def _within(cache: Cache, cpus: Container[int]) -> Cache:
    return replace(cache, cpus=tuple(c for c in cache.cpus if c in cpus))


def _xml_nodes(
    raw: dict[int, tuple[tuple[int, ...], int]], package_of: dict[int, int], doubts: list[str]
) -> list[Node]:
    everything = tuple(sorted(package_of))
    if not raw:
        doubts.append("the XML has no NUMA node: all CPUs are taken as node 0, of unknown memory")
        return [Node(os_index=0, cpus=everything, near_cpus=everything, memory_bytes=None)]
    own: dict[int, list[int]] = {n: [] for n in raw}
    near = {n: tuple(c for c in cpus if c in package_of) for n, (cpus, _) in raw.items()}
    taken: set[int] = set()
    for n in sorted(raw, key=lambda n: (len(near[n]), n)):
        own[n] = [c for c in near[n] if c not in taken]
        taken.update(own[n])
    return [
        Node(os_index=n, cpus=tuple(own[n]), near_cpus=near[n], memory_bytes=memory)
        for n, (_, memory) in sorted(raw.items())
    ]


def _xml_distances(
    top: _Element, nodes: list[int], by_gp: dict[int, int], doubts: list[str]
) -> tuple[tuple[int, ...], ...] | None:
    """The matrix of kind "latency as the OS says", in the order of `nodes`; None where there is none."""
    for element in top.children:
        if element.tag != "distances2" or element.attributes.get("type") != "NUMANode":
            continue
        if "Latency" not in element.attributes.get("name", "NUMALatency"):
            continue
        words = {
            tag: "".join("".join(c.words) + " " for c in element.children if c.tag == tag).split()
            for tag in ("indexes", "u64values")
        }
        order = [parse_integer(w) for w in words["indexes"]]
        if element.attributes.get("indexing") == "gp":
            order = [by_gp.get(i if i is not None else -1) for i in order]
        values = [parse_integer(w) for w in words["u64values"]]
        n = len(nodes)
        if sorted(i for i in order if i is not None) != nodes or len(order) != n or len(values) != n * n:
            doubts.append(f"node distances are not a {n} x {n} matrix: they are left out")
            return None
        at = {node: i for i, node in enumerate(order)}
        matrix = [[values[at[a] * n + at[b]] for b in nodes] for a in nodes]
        if any(v is None for row in matrix for v in row):
            doubts.append("node distances are not whole numbers: they are left out")
            return None
        return tuple(tuple(v or 0 for v in row) for row in matrix)
    return None


# ------------------------------------------------------------------ synthetic


def is_synthetic(text: str) -> bool:
    """Whether this reads like hwloc's synthetic description: `pack:2 [numa] core:4 pu:2`, `node:8 2`."""
    return bool(re.fullmatch(r"[A-Za-z0-9:()\[\]=, _.-]{1,500}", text, re.ASCII)) and bool(
        re.match(r"\s*(\[|[A-Za-z0-9]+(\([^)]*\))?:[0-9]+|[0-9]+(\s|$))", text)
    )


def from_synthetic(description: str) -> Topology:
    """The machine of a synthetic description, as hwloc makes it: `pack:4 [numa] core:64 pu:2`.

    Raises:
        MachineError: hwloc does not take it, or it has 65536 CPUs or more.
        AbsentError: hwloc's lstopo is not installed.
    """
    return from_hwloc_xml(synthetic_xml(description), origin="synthetic")


def synthetic_xml(description: str) -> bytes:
    """hwloc's XML for a synthetic description; errors as for `from_synthetic`."""
    if not is_synthetic(description):
        raise MachineError(
            f"machine '{description[:80]}': found no such file, and a synthetic machine is like 'pack:2 core:4 pu:2'",
            hint="meshmark machine show --help",
        )
    cpus = math.prod(int(n) for n in re.findall(r"(?:^|[:\s])([0-9]{1,9})(?=[\s(]|$)", description))
    if cpus >= MAX_CPUS:
        raise MachineError(f"machine '{description[:80]}': {cpus} CPUs, fewer than {MAX_CPUS} are allowed")
    return lstopo("-i", description, "--if", "synthetic")


def lstopo(*words: str) -> bytes:
    """XML from hwloc's lstopo with these options.

    Raises:
        AbsentError: it is not installed.
        MachineError: it failed or took more than 60 s.
    """
    program = shutil.which("lstopo-no-graphics") or shutil.which("lstopo") or shutil.which("hwloc-ls")
    if program is None:
        raise AbsentError("hwloc's lstopo is not installed", hint="Debian: apt install hwloc")
    keep = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")} if words else dict(os.environ)
    try:
        done = subprocess.run(
            [program, *words, "--of", "xml", "-f", "-"],
            capture_output=True,
            timeout=60,
            check=False,
            env=keep,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise MachineError(f"lstopo {' '.join(words)}: {why}") from None
    if done.returncode != 0 or not done.stdout.lstrip().startswith(b"<"):
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise MachineError(f"machine '{' '.join(words)[:80]}': hwloc does not take it ({said or 'it says nothing'})")
    return done.stdout
