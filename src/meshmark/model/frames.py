"""A simulated machine as a source of frames: the same header, the same ticks as a live one's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from meshmark.model.engine import Answer, ask
from meshmark.model.layout import layout
from meshmark.model.machine import MachineFile
from meshmark.model.patterns import Request, points_of


def header_line(machine: MachineFile, window_s: float) -> dict[str, Any]:
    """The header of a model's frames (docs/reference/frames.md), with a place for every router."""
    shape = ask(machine, [{"kind": "describe"}], threads=1)[0]
    topology = str(machine.data["topology"]["kind"])
    places = layout(shape, topology)
    routers = [
        {"name": f"router {r['router']}", "place": list(places[r["router"]]), "bus": r["bus"]} for r in shape["routers"]
    ]
    nodes = [{"name": f"node {n['node']}", "number": n["node"], "router": n["router"]} for n in shape["nodes"]]

    def at(key: str, word: str) -> list[dict[str, Any]]:
        seen: dict[int, int] = {}
        count: Counter[int] = Counter(shape[key])
        made = []
        for i, node in enumerate(shape[key]):
            which = seen[node] = seen.get(node, -1) + 1
            several = count[node] > 1 and word != "CPU"
            name = f"{word} {i}" if word == "CPU" else f"{word} {node}.{which}" if several else f"{word} {node}"
            made.append({"name": name, "node": node, **({"number": i} if word == "CPU" else {})})
        return made

    links = [
        {
            "name": f"{link['from']} to {link['to']}",
            "from_router": link["from"],
            "to_router": link["to"],
            "kind": link["kind"],
        }
        for link in shape["links"]
    ]
    uses = (
        ("cpu.busy", "miss buffers in use", "the core's miss buffers"),
        ("memory.busy", "time that the controller's channels are busy", "the window"),
        ("link.busy", "time that the link is busy", "the window"),
        ("io.busy", "time that the port is busy", "the window"),
    )
    components = {
        "node": nodes,
        "router": routers,
        "cpu": at("cpu_nodes", "CPU"),
        "memory": at("memory_nodes", "memory"),
        "link": links,
        "io": at("io_nodes", "I/O"),
    }
    return {
        "type": "header",
        "format": 1,
        "source": "model",
        "machine": machine.label,
        "title": machine.title,
        "started": "",
        "period_s": window_s,
        "topology": topology,
        "components": components,
        "metrics": [{"name": n, "unit": "1", "what": w, "of": o} for n, w, o in uses],
        "absent": [],
    }


def busiest(machine: MachineFile, workload: str) -> Mapping[str, Any]:
    """The run of a workload (see `meshmark model measure`) that keeps most reads on their way.

    Raises:
        UsageError: there is no such workload.
    """
    points = points_of(machine, Request(workload))
    return next(p.run for p in reversed(points) if p.run is not None)


def frame_lines(machine: MachineFile, run: Mapping[str, Any], window_ns: float, frames: int) -> Iterator[Answer]:
    """So many frames of a run, from its very beginning: it goes on for that long, whatever it was made for."""
    lines: list[Answer] = []
    endless = [{**a, "accesses": 0} if "trace" not in a else a for a in run["actors"]]
    longer = {**run, "actors": endless, "warm_ns": 0, "measure_ns": window_ns * (frames + 0.5), "window_ns": window_ns}
    ask(machine, [longer], threads=1, on_line=lines.append)
    yield from (line for line in lines if line.get("type") == "frame")
