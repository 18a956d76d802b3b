"""Reads topologies from hwloc: XML files and synthetic descriptions."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from meshmark.errors import AbsentError, UsageError
from meshmark.machine.topology import MAX_NODES, Cache, Node, Topology, assemble
from meshmark.machine.tree import MAX_CPUS, MachineError, parse_integer

_MAX_XML = 64 << 20
_MAX_DEPTH = 64
# ------------------------------------------------------------------ hwloc XML


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    children: list[_Element] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _parse_xml(data: bytes) -> _Element:
    """The element tree of a document without entity declarations, of at most 64 MiB and 64 levels."""
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
        raise MachineError("XML declares an entity, which hwloc never does")

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
    """CPUs of an hwloc bitmap: 32-bit words from the highest, separated by commas; an empty word is 0."""
    value = 0
    words = text.split(",")
    if len(words) > MAX_CPUS // 32:
        raise MachineError(f"{name}: more than {MAX_CPUS} bits")
    for word in words:
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}|", word):
            raise MachineError(f"{name}: found '{word[:20]}'; allowed: hexadecimal words of 32 bits")
        value = value << 32 | int(word or "0", 16)
    bits = bin(value)[:1:-1]
    return tuple(i for i, bit in enumerate(bits) if bit == "1")


def _attribute(element: _Element, name: str, default: int | None = None) -> int:
    text = element.attributes.get(name)
    value = parse_integer(text) if text is not None else default
    if value is None or value < 0:
        raise MachineError(
            f"{element.attributes.get('type', element.tag)}: {name}: found "
            f"{'nothing' if text is None else repr(text[:20])}, an integer is required"
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
    """The topology in the output of `lstopo --of xml` (hwloc 2).

    If a CPU is local to several nodes, it is assigned to the one with the fewest local CPUs, then to the lowest number.
    Nodes without assigned CPUs count as memory-only.

    Raises:
        MachineError: The data are not XML of hwloc 2, declare an entity, or contain no CPU.
    """
    top = _parse_xml(data)
    version = top.attributes.get("version", "1")
    if top.tag != "topology":
        raise MachineError(f"XML starts with <{top.tag[:20]}>, hwloc's with <topology>")
    if not version.startswith("2."):
        raise MachineError(f"XML of hwloc format {version[:20]}: format 2 is required, as lstopo of hwloc 2 writes it")
    machine = next((c for c in top.children if c.tag == "object"), None)
    if machine is None:
        raise MachineError("XML contains no object: a <topology> has one of type Machine")

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
                raise MachineError(f"PU: os_index: found {cpu}; allowed: each number below {MAX_CPUS} once")
            package_of[cpu] = package
            if core is None:
                alone -= 1
            group = alone if core is None else core
            cores.setdefault(group, (core_names.get(group), []))[1].append(cpu)
        elif kind == "Core" and core is not None:
            core_names[core] = parse_integer(given.get("os_index"))
        elif kind == "NUMANode":
            node = _attribute(element, "os_index")
            if node in raw_nodes or len(raw_nodes) >= MAX_NODES:
                raise MachineError(f"NUMANode: os_index: found {node} twice, or more than {MAX_NODES} nodes")
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
        raise MachineError("XML contains no PU (CPU)")
    if alone:
        doubts.append("some CPUs are in no core: each is treated as a separate core")
    nodes = _xml_nodes(raw_nodes, package_of, doubts)
    if origin == "synthetic":  # the size of `[numa]` is unknown rather than 0 B
        nodes = [replace(n, memory_bytes=n.memory_bytes or None) for n in nodes]
    allowed = _bitmap(machine.attributes.get("allowed_cpuset", ""), "Machine: allowed_cpuset")
    complete = _bitmap(machine.attributes.get("complete_cpuset", ""), "Machine: complete_cpuset")
    return assemble(
        origin=origin,
        package_of=package_of,
        core_groups=[(name, tuple(sorted(cpus))) for name, cpus in cores.values()],
        nodes=nodes,
        caches=[c for c in (_within(c, package_of) for c in caches) if c.cpus],  # without caches of missing CPUs
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
        doubts.append("the XML has no NUMA nodes: all CPUs are treated as node 0, with unknown memory")
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
    """The matrix of latencies reported by the operating system, in the order of `nodes`; None if there is none."""
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
            doubts.append(f"node distances are not a {n} x {n} matrix: ignored")
            return None
        at = {node: i for i, node in enumerate(order)}
        matrix = [[values[at[a] * n + at[b]] for b in nodes] for a in nodes]
        if any(v is None for row in matrix for v in row):
            doubts.append("node distances are not integers: ignored")
            return None
        return tuple(tuple(v or 0 for v in row) for row in matrix)
    return None


# ------------------------------------------------------------------ synthetic


def is_synthetic(text: str) -> bool:
    """Whether the text looks like a synthetic description of hwloc: `pack:2 [numa] core:4 pu:2`, `node:8 2`."""
    return bool(re.fullmatch(r"[A-Za-z0-9:()\[\]=, _.-]{1,500}", text, re.ASCII)) and bool(
        re.match(r"\s*(\[|[A-Za-z0-9]+(\([^)]*\))?:[0-9]+|[0-9]+(\s|$))", text)
    )


def from_synthetic(description: str) -> Topology:
    """The topology of a synthetic description of hwloc, such as `pack:4 [numa] core:64 pu:2`.

    Raises:
        MachineError: hwloc rejects the description, or it has 65536 CPUs or more.
        AbsentError: lstopo of hwloc is not installed.
    """
    return from_hwloc_xml(synthetic_xml(description), origin="synthetic")


def synthetic_xml(description: str) -> bytes:
    """hwloc XML of a synthetic description; errors as for `from_synthetic`."""
    if not is_synthetic(description):
        raise UsageError(
            f"machine: found '{description[:80]}'; allowed: a file, or a synthetic description such as "
            "'pack:2 core:4 pu:2'",
            hint="meshmark machine show --help",
        )
    cpus = math.prod(int(n) for n in re.findall(r"(?:^|[:\s])([0-9]{1,9})(?=[\s(]|$)", description))
    if cpus >= MAX_CPUS:
        raise MachineError(f"machine '{description[:80]}': {cpus} CPUs, fewer than {MAX_CPUS} are allowed")
    return lstopo("-i", description, "--if", "synthetic")


def lstopo(*words: str) -> bytes:
    """XML output of lstopo with these options.

    Raises:
        AbsentError: lstopo is not installed.
        MachineError: lstopo failed or took more than 60 s.
    """
    program = shutil.which("lstopo-no-graphics") or shutil.which("lstopo") or shutil.which("hwloc-ls")
    if program is None:
        raise AbsentError("hwloc's lstopo is not installed", hint="Debian: apt install hwloc")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")} if words else dict(os.environ)
    try:
        completed = subprocess.run(
            [program, *words, "--of", "xml", "-f", "-"],
            capture_output=True,
            timeout=60,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise MachineError(f"lstopo {' '.join(words)}: {why}") from None
    if completed.returncode != 0 or not completed.stdout.lstrip().startswith(b"<"):
        message = " ".join(completed.stderr.decode("utf-8", "replace").split())[:200]
        raise MachineError(f"machine '{' '.join(words)[:80]}': hwloc rejects it ({message or 'no message'})")
    return completed.stdout
