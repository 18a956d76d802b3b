"""Defines the tables and keys of machine files, with units and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from pydantic import AfterValidator, Field

from meshmark.values.inputs import LIST, Input

Kind = Literal["published", "derived", "fitted", "assumed"]
KINDS: Final = frozenset(get_args(Kind))


def _whole(value: float) -> float:
    if value != int(value):
        raise ValueError(f"allowed: a whole number from 1 to {_MOST:g}")
    return value


# Beyond these limits, a number overflows when it is converted to SI units, used as a count or as a divisor.
_LEAST: Final = 1e-6
_MOST: Final = 1e12


_DEEPEST: Final = 2  # levels of nested lists, as in `edges`


def _plain(value: object) -> object:
    _check_plain(value, 0)
    return value


def _check_plain(value: object, depth: int) -> None:
    if isinstance(value, list) and depth < _DEEPEST:
        for part in value:
            _check_plain(part, depth + 1)
    elif not isinstance(value, str | int | float):  # a date, a table or a list that is nested too deep
        raise ValueError(f"allowed: text, numbers, true, false, and lists of them, at most {_DEEPEST} deep")
    elif not isinstance(value, str) and not 0 <= value <= _MOST:
        raise ValueError(f"allowed: numbers from 0 to {_MOST:g}")


# Limits of the keys that Python reads or transforms. The simulator checks the rest.
Number = Annotated[float, Field(ge=0, le=_MOST)] | None
Above0 = Annotated[float, Field(ge=_LEAST, le=_MOST)] | None
Rate = Annotated[float, Field(ge=0.001, le=1000)] | None
Whole = (
    Annotated[float, Field(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST:g}"), AfterValidator(_whole)]
    | None
)
Other = Annotated[Any, AfterValidator(_plain)]  # not a single number; the simulator checks it


@dataclass(frozen=True, kw_only=True)
class BusTable(Input):
    """The bus that cores of a node share."""

    cpus_per_bus: Annotated[Number, "cores that share a bus"] = None
    bandwidth_gb_per_s: Annotated[Number, "of the bus (GB/s)"] = None
    latency_ns: Annotated[Number, "of a transfer (ns)"] = None
    turnaround_ns: Annotated[Number, "lost when another core starts to send (ns)"] = None
    gap_ns: Annotated[Number, "overhead per transfer (ns)"] = None


@dataclass(frozen=True, kw_only=True)
class TopologyTable(Input):
    """The network between nodes."""

    kind: Annotated[Other, "torus, mesh, ring, hypercube, fat_tree, crossbar, switches, single, graph"] = None
    shape: Annotated[Other, "torus, mesh, ring: nodes along each dimension"] = None
    links: Annotated[Other, "kind of link, or a list of kinds per dimension or level, repeated along it"] = None
    double_links_of_two: Annotated[Other, "torus: a dimension of two nodes has two links, not one"] = None
    dimensions: Annotated[Number, "hypercube: 2^dimensions nodes"] = None
    arity: Annotated[Number, "fat_tree: children of a switch"] = None
    levels: Annotated[Number, "fat_tree: levels of switches"] = None
    parents: Annotated[Number, "fat_tree: parents of a switch [arity]"] = None
    nodes: Annotated[Number, "crossbar, switches: number of nodes"] = None
    radix: Annotated[Other, "switches: children of a switch, one number per level"] = None
    routers: Annotated[Number, "graph: number of routers"] = None
    edges: Annotated[Other, "graph: [from, to] or [from, to, kind], bidirectional"] = None
    hosts: Annotated[Other, "graph: router of each node [all routers]"] = None


@dataclass(frozen=True, kw_only=True)
class LinkTable(Input):
    """A kind of link."""

    bandwidth_gb_per_s: Annotated[Number, "each way (GB/s)"] = None
    latency_ns: Annotated[Number, "one way, without the routers' pipelines (ns)"] = None


@dataclass(frozen=True, kw_only=True)
class RouterTable(Input):
    """The routers, with their virtual channels and buffers."""

    flit_bytes: Annotated[Number, "data of a flit (B)"] = None
    pipeline_ns: Annotated[Number, "from the arrival of a head flit to its first arbitration (ns)"] = None
    cycle_ns: Annotated[Number, "between arbitrations (ns)"] = None
    allocation_ns: Annotated[Number, "exclusive: from the grant of a virtual channel to the switch (ns)"] = None
    requeue_ns: Annotated[
        Number, "exclusive: from a packet's last flit until the next packet requests a channel (ns)"
    ] = None
    credit_ns: Annotated[Number, "from the freeing of space to its use upstream (ns)"] = None
    buffer_flits: Annotated[Number, "of each virtual channel (flits)"] = None
    adaptive_channels: Annotated[Number, "adaptively routed virtual channels per message class"] = None
    escape_channels: Annotated[Number, "classes of deadlock-free channels per message class: 0, 1 or 2"] = None
    channels_per_escape: Annotated[Number, "virtual channels per escape class"] = None
    message_classes: Annotated[Number, "1 to 4; a machine with memory needs 3"] = None
    local_arbiters: Annotated[Number, "packets in transfer per input port"] = None
    channel_sharing: Annotated[
        Other, "packets (virtual cut-through), or exclusive (a channel belongs to one packet; for traffic only)"
    ] = None
    routing: Annotated[Other, "adaptive or dimension_order"] = None
    deadlock_allowed: Annotated[Other, "true: simulate a routing that can deadlock"] = None
    routes: Annotated[
        Other,
        "[[router, next, …, last], …]: entries of the routing tables that differ from the shortest paths: each router "
        "of a route sends packets for the last router to the next one",
    ] = None


@dataclass(frozen=True, kw_only=True)
class PacketsTable(Input):
    """The sizes of packets."""

    request_flits: Annotated[Number, "of a request, forward or probe (flits)"] = None
    data_flits: Annotated[Number, "of a line with its header (flits)"] = None
    ack_flits: Annotated[Number, "of an acknowledgement (flits)"] = None


@dataclass(frozen=True, kw_only=True)
class NodeTable(Input):
    """A node: its cores, memory controllers, and connection to the network."""

    bus: BusTable | None = None
    cpus: Annotated[Number, "cores of a node"] = None
    controllers: Annotated[Number, "memory controllers of a node"] = None
    leave_ns: Annotated[Number, "for a packet to leave its endpoint (ns)"] = None
    arrive_ns: Annotated[Number, "for a packet to reach its endpoint from the router (ns)"] = None
    port_gb_per_s: Annotated[Number, "between an endpoint and its router, each way; 0: unlimited (GB/s)"] = None
    bypass: Annotated[Other, "true: a core reaches its own node's memory without the router"] = None
    outstanding: Annotated[Number, "maximum outstanding misses of a node; 0: unlimited"] = None


@dataclass(frozen=True, kw_only=True)
class CpuTable(Input):
    """The cores: clock, outstanding accesses, and the time of their work."""

    clock_ghz: Annotated[Rate, "(GHz)"] = None
    smt: Annotated[Whole, "threads of a core of the machine; the model has one [1]"] = None
    outstanding: Annotated[Whole, "maximum outstanding misses of a core"] = None
    stream_outstanding: Annotated[
        Whole, "maximum outstanding misses of a regular stream, including prefetches [outstanding]"
    ] = None
    write_buffers: Annotated[Number, "maximum outstanding writes of a core"] = None
    write_buffers_apart: Annotated[
        Other, "false: writes share the miss buffers with reads and count towards outstanding [true]"
    ] = None
    request_ns: Annotated[Number, "from a load until its request leaves the core (ns)"] = None
    request_cycles: Annotated[Number, "the same, in cycles of the core"] = None
    fill_ns: Annotated[Number, "from the arrival of the data to its use (ns)"] = None
    fill_cycles: Annotated[Number, "the same, in cycles of the core"] = None
    issue_ns: Annotated[Number, "between two misses of a core (ns)"] = None
    issue_cycles: Annotated[Number, "the same, in cycles of the core"] = None
    probe_ns: Annotated[Number, "from the arrival of a probe until the answer leaves (ns)"] = None
    critical_word_first: Annotated[Other, "false: a load completes with the last flit of its data"] = None
    line_work_ns: Annotated[Number, "core time per line that a STREAM kernel reads or owns (ns)"] = None
    line_work_cycles: Annotated[Number, "the same, in cycles of the core"] = None
    streaming_store_ns: Annotated[Number, "the same per line of a non-temporal store (ns) [line_work_ns]"] = None
    streaming_store_cycles: Annotated[Number, "the same, in cycles of the core"] = None
    flops_per_cycle: Annotated[Number, "fp64, of a core"] = None


@dataclass(frozen=True, kw_only=True)
class CacheTable(Input):
    """A level of the caches."""

    name: Annotated[Other, "L1, L2 …"] = None
    size_kib: Annotated[Above0, "(KiB)"] = None
    latency_ns: Annotated[Number, "load to use (ns)"] = None
    bandwidth_gb_per_s: Annotated[Number, "of one core, with the lines that ordinary stores read first (GB/s)"] = None
    copy_gb_per_s: Annotated[
        Number, "copy of one core with ordinary stores, as STREAM counts it; instead of bandwidth_gb_per_s (GB/s)"
    ] = None
    shared_by: Annotated[Whole, "cores that share one"] = None


@dataclass(frozen=True, kw_only=True)
class MemoryTable(Input):
    """The memory controllers and their channels."""

    channels: Annotated[Number, "channels of a controller; each stores whole lines"] = None
    channel_gb_per_s: Annotated[Number, "of a channel (GB/s)"] = None
    line_bytes: Annotated[Whole, "(B)"] = None
    access_ns: Annotated[Number, "controller and open page (ns)"] = None
    access_clocks: Annotated[Number, "the same, in clocks of the memory; with ratchet_mhz"] = None
    activate_ns: Annotated[Number, "additional time for a closed page (ns)"] = None
    page_bytes: Annotated[Number, "of a bank; 0: every page is open (B)"] = None
    banks: Annotated[Number, "of a channel"] = None
    turnaround_ns: Annotated[Number, "lost when a channel changes between reads and writes (ns)"] = None
    write_batch: Annotated[Number, "writes per change"] = None
    gap_ns: Annotated[Number, "overhead per line (ns)"] = None
    gap_cycles: Annotated[Number, "the same, in cycles of the core, for a controller at the core clock"] = None
    gap_clocks: Annotated[Number, "the same, in clocks of the memory; with ratchet_mhz"] = None
    queue: Annotated[Number, "queued requests of a controller"] = None
    node_share: Annotated[Other, "relative bandwidth of a channel, one number per node"] = None
    node_channels: Annotated[Other, "channels of a controller, one number per node"] = None
    ratchet_mhz: Annotated[Above0, "the channels run at 2 f / ceil(f / this), f the core's clock (MHz)"] = None
    channel_bytes: Annotated[Above0, "with ratchet_mhz: width of a channel (B)"] = None


@dataclass(frozen=True, kw_only=True)
class CoherenceTable(Input):
    """How the copies of a line in several caches are kept coherent."""

    kind: Annotated[Other, "directory, broadcast or snoop"] = None
    directory_ns: Annotated[Number, "from the arrival of a request at the home until its forward leaves (ns)"] = None


@dataclass(frozen=True, kw_only=True)
class PlacementTable(Input):
    """How lines are interleaved over memories."""

    striping: Annotated[Other, "none, pair or all: lines are interleaved over the memories of these nodes"] = None
    pair_dimension: Annotated[Number, "dimension of the pairs"] = None


@dataclass(frozen=True, kw_only=True)
class IoTable(Input):
    """I/O ports and their devices."""

    port_gb_per_s: Annotated[Number, "between an I/O port and its router (GB/s)"] = None
    device_gb_per_s: Annotated[Above0, "sustained bandwidth of the devices of a port (GB/s)"] = None
    nodes: Annotated[Other, "nodes that have a port"] = None
    ports_per_node: Annotated[Number, "ports per node, if all have any"] = None
    outstanding: Annotated[Whole, "maximum outstanding lines of a port"] = None


@dataclass(frozen=True, kw_only=True)
class TlbTable(Input):
    """The translation look-aside buffer of a core."""

    entries: Annotated[Whole, "of a core"] = None
    page_kib: Annotated[Above0, "(KiB)"] = None
    large_page_kib: Annotated[Above0, "largest page that one entry maps (KiB)"] = None


@dataclass(frozen=True, kw_only=True)
class MessagesTable(Input):
    """The overhead of messages in software."""

    overhead_us: Annotated[Number, "per message, both ends (µs)"] = None
    one_sided_overhead_us: Annotated[Number, "per put or get (µs)"] = None


@dataclass(frozen=True, kw_only=True)
class MachineTable(Input):
    """The content of a machine file."""

    format: Annotated[int, "1"] = 1
    title: Annotated[str, "free text"] = ""
    publication: Annotated[str, "name of the document that describes the machine"] = ""
    extends: Annotated[str, "another machine file of the same folder, which this one extends and overrides"] = ""
    note: Annotated[str, "free text"] = ""
    abstract: Annotated[bool, "true: only a base for other files"] = False
    topology: TopologyTable | None = None
    links: dict[str, LinkTable] | None = None
    router: RouterTable | None = None
    packets: PacketsTable | None = None
    node: NodeTable | None = None
    cpu: CpuTable | None = None
    cache: Annotated[tuple[CacheTable, ...], LIST] = ()
    memory: MemoryTable | None = None
    coherence: CoherenceTable | None = None
    placement: PlacementTable | None = None
    io: IoTable | None = None
    tlb: TlbTable | None = None
    messages: MessagesTable | None = None


_TABLES: Final[Mapping[str, type]] = {
    "": MachineTable,
    "topology": TopologyTable,
    "links.*": LinkTable,
    "router": RouterTable,
    "packets": PacketsTable,
    "node": NodeTable,
    "node.bus": BusTable,
    "cpu": CpuTable,
    "cache[]": CacheTable,
    "memory": MemoryTable,
    "coherence": CoherenceTable,
    "placement": PlacementTable,
    "io": IoTable,
    "tlb": TlbTable,
    "messages": MessagesTable,
}
# Description of each key, by table. `*` stands for any name.
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {
        key: hint.__metadata__[-1]
        for key, hint in get_type_hints(table, include_extras=True).items()
        if isinstance(getattr(hint, "__metadata__", [None])[-1], str)
    }
    for name, table in _TABLES.items()
}
# Tables whose numbers describe the structure. They do not need an origin.
COUNTS: Final = {"topology", "packets", "placement", "io.nodes"}
