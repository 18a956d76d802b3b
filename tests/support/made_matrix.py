"""Simulated latency and bandwidth between the nodes of a machine, for tests of exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.compare.exports.base import ExportMaterial
from meshmark.compare.sides import ResultSide
from meshmark.machine.capture import OpenedMachine, open_machine
from meshmark.machine.topology import Topology
from meshmark.machine.tree import format_list
from meshmark.store.record import Record
from support.made_run import record
from support.paths import ROOT

MACHINES = ROOT / "tests" / "machines"
START = "2026-11-20T10:00:00Z"


def machine(name: str) -> Path:
    """Return the path of a machine of tests/machines."""
    return next(p for p in MACHINES.iterdir() if p.name.partition(".")[0] == name)


def latency(
    topology: Topology, ns: Mapping[tuple[int, int], float], flags: Iterable[str] = (), **more: Any
) -> list[Record]:
    """Return the idle latency of pairs of nodes, in ns, measured from the first CPU of the first node of the pair."""
    first = {n.os_index: n.cpus[0] for n in topology.nodes if n.cpus}
    c = {"footprint_bytes": 2**30, "stride_bytes": 64, "pattern": "random", "pages": "thp", "processes": 1, **more}
    return [
        record("latency", "load_latency", 1e-9 * v, flags, cpu=first[a], memory_node=b, **c) for (a, b), v in ns.items()
    ]


def bandwidth(
    topology: Topology, gb: Mapping[tuple[int, int], float], flags: Iterable[str] = (), **more: Any
) -> list[Record]:
    """Return the bandwidth of pairs of nodes, in GB/s, measured from all CPUs of the first node of the pair."""
    cpus = {n.os_index: n.cpus for n in topology.nodes if n.cpus}
    c = {"kernel": "read", "store": "ordinary", "isa": "avx2", "pages": "thp", "mode": "threads", "fill": "cores"}
    c |= {"footprint_bytes": 2**31, **more}
    return [
        record(
            "bandwidth",
            "bandwidth_net",
            1e9 * v,
            flags,
            cpus=format_list(cpus[a]),
            threads=len(cpus[a]),
            memory_node=b,
            **c,
        )
        for (a, b), v in gb.items()
    ]


def lines(topology: Topology, **more: Any) -> list[Record]:
    """Return transfers of lines: 40 ns within a node, 140 ns between nodes."""
    c = {"state": "swap", "trip": "one_way", "home_node": 0, "pages": "thp", **more}
    cpus = [x.os_index for x in topology.cpus]
    return [
        record(
            "lines",
            "line_latency",
            40e-9 if topology.node_of(a) == topology.node_of(b) else 140e-9,
            from_cpu=a,
            to_cpu=b,
            **c,
        )
        for a in cpus
        for b in cpus
        if a != b
    ]


def material(what: str, records: Iterable[Record], **more: Any) -> ExportMaterial:
    """Return these results as results of a machine of tests/machines; for "", its topology is unknown."""
    recording = replace(opened_once(what), facts=dict(opened_once(what).facts)) if what else None
    own_records = [replace(r, machine="n042", provenance={**r.provenance, "start": START}) for r in records]
    side = ResultSide(name="n042", what="file n042.jsonl", machine="n042", start=START, records=own_records)
    return ExportMaterial(side=side, opened=recording, **more)


def topology(name: str) -> Topology:
    return opened_once(name).topology


@cache
def opened_once(name: str) -> OpenedMachine:
    """Return a machine of tests/machines, which is unpacked only once."""
    return open_machine(str(machine(name)))
