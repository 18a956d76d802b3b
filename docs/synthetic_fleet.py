"""Writes the folder of a fleet with synthetic data, for the gallery.

Twenty daily checks of a hundred nodes of two classes are written in the form in which nodes write their files, and
ingested and judged like files of nodes. The planted faults are in `SLOW`, `WRONG` and `SILENT`; on `KERNEL_DAY`, all
nodes get another kernel, with which one metric of the larger class is worse. The same random numbers are drawn at every
call.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.fleet.campaigns.campaign import NodeSelection, begin
from meshmark.fleet.data.ingest import ingest
from meshmark.fleet.data.panel import read_panel
from meshmark.fleet.engines.engine import EngineNode
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import Confirmation, controls, decide, fresh_values, look, reference
from meshmark.fleet.plan import NodePlan
from meshmark.native import VERSION
from meshmark.store.files import write_file, write_text
from meshmark.store.record import Record

CLUSTER: Final = "synthetic"
NODES: Final = tuple(f"n{i:03d}" for i in range(1, 101))
RACK: Final = 10  # nodes in a rack
OLDER: Final = frozenset(NODES[60:])  # nodes of the smaller class
DAYS: Final = 20
LAST: Final = datetime(2026, 11, 26, 6, tzinfo=UTC)
KERNEL_DAY: Final = 8
NODE_SPREAD, NOISE = 0.006, 0.004  # standard deviations between nodes, and between values of a node
SAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a node: the first day, the share by which it is worse, and the affected instruments."""

    day: int
    share: float
    instruments: tuple[str, ...]


SLOW: Final[Mapping[str, Fault]] = {
    "n017": Fault(12, 0.24, ("bandwidth", "gups")),
    "n042": Fault(0, 0.09, ("peak", "dgemm")),
    "n088": Fault(15, 0.07, ("latency",)),
}
WRONG: Final = "n063"
SILENT: Final = "n029"
OLD_MICROCODE: Final = "n042"


@dataclass(frozen=True, slots=True)
class Point:
    """A metric that each check measures: its value on the larger class, and its factor on the smaller one."""

    instrument: str
    metric: str
    value: float
    older: float
    conditions: Mapping[str, Any]


def _points() -> tuple[Point, ...]:
    latencies = {16 << 10: 1.25e-9, 512 << 10: 3.6e-9, 8 << 20: 17e-9, 96 << 20: 104e-9}
    chase = {"pattern": "random", "pages": "thp", "memory_node": 0, "cpu": 0, "processes": 1}
    triad = {"store": "streaming", "footprint_bytes": 96 << 20}
    return (
        *(
            Point("latency", "load_latency", value, 1.12, {"footprint_bytes": size, **chase})
            for size, value in latencies.items()
        ),
        *(
            Point("bandwidth", "bandwidth_net", value, 0.62, {"kernel": kernel, "threads": threads, **triad})
            for kernel, threads, value in (
                ("triad", 1, 14.2e9),
                ("triad", 64, 338e9),
                ("read", 1, 15.1e9),
                ("read", 64, 352e9),
            )
        ),
        Point("lines", "line_latency", 52e-9, 1.2, {"from_cpu": 0, "to_cpu": 1, "state": "swap", "home_node": 0}),
        Point("gups", "update_rate", 1.9e9, 0.7, {"kernel": "plain", "threads": 64, "table_bytes": 64 << 20}),
        *(
            Point("peak", "flop_rate", value, 0.55, {"type": "fp64", "isa": "avx512", "threads": threads})
            for threads, value in ((1, 92e9), (64, 5.1e12))
        ),
        Point("dgemm", "flop_rate", 4.4e12, 0.55, {"n": 1000, "threads": 64}),
    )


POINTS: Final = _points()


class SyntheticNodes:
    """The source of the names of the nodes."""

    name: Final = CLUSTER

    def nodes(self) -> list[EngineNode]:
        """Return all nodes."""
        return [EngineNode(node, "idle") for node in NODES]


def facts(node: str, day: int) -> dict[str, str]:
    """Return the files that a node records about itself, with their content."""
    older = node in OLDER
    microcode = "0x2b000" if node == OLD_MICROCODE else "0x2b0004"
    cpu = "Synthetic Processor A32" if older else "Synthetic Processor B64"
    return {
        "proc/cpuinfo": f"vendor_id\t: Synthetic\nmodel name\t: {cpu}\nmicrocode\t: {microcode}\n",
        "proc/meminfo": f"MemTotal: {(192 if older else 384) << 20} kB\n",
        "proc/sys/kernel/osrelease": "6.1.0-31\n" if day >= KERNEL_DAY else "6.1.0-30\n",
        "sys/class/dmi/id/bios_version": "1.4\n" if older else "2.1\n",
        "sys/class/dmi/id/product_name": "Blade 1\n" if older else "Blade 2\n",
        "sys/class/dmi/id/sys_vendor": "Synthetic\n",
    }


def result_lines(node: str, name: str, day: int, repetitions: int) -> list[dict[str, Any]]:
    """Return the lines of the file of a node.

    Args:
        node: Name of the node.
        name: Name of the campaign.
        day: Day of the check, from 0.
        repetitions: Number of values of each point.
    """
    machine, fault = f"{node}-0123abcd", SLOW.get(node)
    level = random.Random(node)
    of_node = {point: level.gauss(0, NODE_SPREAD) for point in range(len(POINTS))}
    noise = random.Random(f"{node} {name}")
    lines: list[dict[str, Any]] = [
        {
            "type": "node",
            "format": "meshmark node result",
            "version": 1,
            "plan": PLAN.id,
            "kind": PLAN.kind,
            "name": node,
            "hostname": node,
            "machine": machine,
            "hash": "0123abcd4567",
            "boot": f"boot of {node}",
            "started": "",
            "uptime_s": 1000.0,
            "build": VERSION,
        }
    ]
    lines += [{"type": "file", "path": path, "content": text} for path, text in facts(node, day).items()]
    for repetition in range(repetitions):
        suffix = f".r{repetition + 1}" if repetitions > 1 else ""
        step = f"{repetition + 1:02d}-check{suffix}"
        lines.append({"type": "step", "id": step, "argv": ["check"]})
        for index, point in enumerate(POINTS):
            worse = of_node[index] + noise.gauss(0, NOISE)
            if fault is not None and day >= fault.day and point.instrument in fault.instruments:
                worse += fault.share
            if day >= KERNEL_DAY and point.instrument == "gups" and node not in OLDER:
                worse += 0.045
            record = _record(point, worse, node, noise)
            lines.append({"type": "result", "schema": 1, **record.to_json(), "machine": machine})
        lines.append({"type": "step end", "id": step, "status": "ok", "reason": "", "elapsed_s": 20.0})
    problems = ["dgemm: a kernel computed a wrong result"] if node == WRONG and day >= DAYS - 1 else []
    end = {"type": "finished", "status": "ok", "elapsed_s": 21.0, "cpu_s": 20.0, "peak_bytes": 1 << 27}
    return [*lines, {**end, "problems": problems}]


def _record(point: Point, worse: float, node: str, noise: random.Random) -> Record:
    """Return a result that is worse than the typical one by a share."""
    metric = descriptions()[point.instrument].metric(point.metric)
    factor = (1 + worse if metric.better == "lower" else 1 / (1 + worse)) * (point.older if node in OLDER else 1)
    samples = tuple(point.value * factor * noise.uniform(0.998, 1.002) for _ in range(SAMPLES))
    return Record.from_samples(
        metric,
        samples,
        source="host",
        machine=node,
        instrument=point.instrument,
        conditions=dict(point.conditions),
        flags=frozenset(),
        provenance={"command": f"{point.instrument} --seed 1", "build": VERSION, "compiler": "none"},
    )


PLAN: Final = NodePlan("synthetic", "check", True, 60.0, [{"id": "01-check", "argv": ["check"], "limit_s": 30.0}])


def campaign(fleet: Fleet, name: str, day: int, nodes: Sequence[str], repetitions: int = 1) -> None:
    """Write and ingest the files of a campaign."""
    begin(fleet, name, PLAN, SyntheticNodes(), NodeSelection(), {"cluster": CLUSTER, "beside": False})
    for node in nodes:
        text = "".join(
            json.dumps(line, separators=(",", ":")) + "\n" for line in result_lines(node, name, day, repetitions)
        )
        write_file(fleet.campaign(name) / "inbox" / f"{node}.jsonl.gz", gzip.compress(text.encode(), mtime=0))
    ingest(fleet, name, CLUSTER)


def write(fleet: Fleet, days: int = DAYS) -> None:
    """Write the last days of the fleet, ingest them, confirm the suspects with new values, and name nodes.

    Raises:
        MeshmarkError: The folder cannot be written.
    """
    racks = "".join(
        f'r{first // RACK + 1:02d} = "n[{first + 1:03d}-{first + RACK:03d}]"\n' for first in range(0, len(NODES), RACK)
    )
    fleet.root.mkdir(parents=True, exist_ok=True)
    write_text(fleet.root / "fleet.toml", f'cluster = "{CLUSTER}"\n\n[racks]\n{racks}')
    for day in range(DAYS - days, DAYS):
        at = LAST - timedelta(days=DAYS - 1 - day)
        nodes = [node for node in NODES if node != SILENT or day < DAYS - 1]
        campaign(fleet, f"check-{at:%Y%m%dT%H%M%S}-{day:04x}", day, nodes)
    state = look(fleet, CLUSTER)
    against = reference(fleet, CLUSTER, state)
    name = f"confirm-{LAST + timedelta(hours=1):%Y%m%dT%H%M%S}-{DAYS:04x}"
    campaign(fleet, name, DAYS, sorted({*state.suspects(), *controls(state)}), fresh_values(against))
    decide(fleet, CLUSTER, state, Confirmation(read_panel(fleet, [name], CLUSTER), against))
