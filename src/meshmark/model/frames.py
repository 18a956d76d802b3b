"""Provides frames of a simulated machine in the format of a live one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from meshmark.model.engine import Answer, ask
from meshmark.model.layout import layout
from meshmark.model.machine import MachineFile
from meshmark.model.patterns import PatternRequest, points_of

MAX_PAIR_NODES: Final = 128  # nodes up to which traffic is counted by pair: a header with more pairs is too large
_AFTER_LAST_NS: Final = 0.001  # the smallest time after the last frame, so that both end together


def header_line(
    machine: MachineFile,
    window_s: float,
    pairs: Mapping[str, Any] | None = None,
    volumes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the header of the frames of a model (docs/reference/frames.md), with the position of every router.

    Args:
        machine: The modelled machine.
        window_s: Length of a frame.
        pairs: Traffic between nodes while the frames were simulated, as `frames_and_pairs` returns it.
        volumes: Volumes that the nodes send each other, if they are known (`model/traffic.py`).
    """
    shape = ask(machine, [{"kind": "describe"}], threads=1)[0]
    topology = str(machine.data["topology"]["kind"])
    places = layout(shape, topology)
    routers = [
        {"name": f"router {r['router']}", "place": list(places[r["router"]]), "bus": r["bus"]} for r in shape["routers"]
    ]
    nodes = [{"name": f"node {n['node']}", "number": n["node"], "router": n["router"]} for n in shape["nodes"]]

    def at(key: str, label: str) -> list[dict[str, Any]]:
        last_index: dict[int, int] = {}
        count: Counter[int] = Counter(shape[key])
        items = []
        for i, node in enumerate(shape[key]):
            index = last_index[node] = last_index.get(node, -1) + 1
            is_numbered = count[node] > 1 and label != "CPU"
            name = f"{label} {i}" if label == "CPU" else f"{label} {node}.{index}" if is_numbered else f"{label} {node}"
            items.append({"name": name, "node": node, **({"number": i} if label == "CPU" else {})})
        return items

    links = [
        {
            "name": f"{link['from']} to {link['to']}",
            "from_router": link["from"],
            "to_router": link["to"],
            "kind": link["kind"],
            "bytes_per_s": _bandwidth(machine, link["kind"]),
            **({"dimension": link["dimension"], "direction": link["direction"]} if link["dimension"] >= 0 else {}),
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
        "metrics": [
            {"name": n, "unit": "1", "what": description, "of": full_scale} for n, description, full_scale in uses
        ],
        "absent": [],
        **({"traffic": _traffic(shape, pairs)} if "memory_bytes_per_s" in shape else {}),
        **({"volumes": dict(volumes)} if volumes else {}),
    }


def _traffic(shape: Answer, pairs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what relates the use of memories and links to traffic between nodes."""
    return {
        "line_bytes": shape["line_bytes"],
        "packet_bytes": shape["packet_bytes"],
        "probes_all": shape["probes_all"],
        "memory_bytes_per_s": shape["memory_bytes_per_s"],
        "link_bytes_per_s": [link.get("bytes_per_s") for link in shape["links"]],
        **({"pairs": pairs} if pairs is not None else {}),
    }


def _bandwidth(machine: MachineFile, kind: str) -> float:
    """Return the bandwidth of a kind of link in B/s; a bus is a kind of link, too."""
    table = "node.bus" if kind == "bus" else f"links.{kind}"
    return machine.number(f"{table}.bandwidth_gb_per_s", 0.0) * 1e9


def recording_lines(
    machine: MachineFile, window_s: float, frames: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield a header and the frames of one or more points, one point after the other in time."""
    yield header_line(machine, window_s)
    offset_s = end_s = 0.0
    for number, frame in enumerate(frames, 1):
        if frame["t_s"] + offset_s <= end_s:  # the first frame of the next point
            offset_s = end_s
        end_s = frame["t_s"] + offset_s
        yield {**frame, "seq": number, "t_s": end_s}


def busiest(machine: MachineFile, workload: str) -> Mapping[str, Any]:
    """Return the run with the most outstanding reads of a workload (see `meshmark model measure`).

    Raises:
        UsageError: The workload is unknown.
    """
    points = points_of(machine, PatternRequest(workload))
    return next(p.run for p in reversed(points) if p.run is not None)


def frame_lines(machine: MachineFile, run: Mapping[str, Any], window_ns: float, frames: int) -> Iterator[Answer]:
    """Yield the first `frames` frames of a run, which lasts as long as needed."""
    yield from _simulated(machine, run, window_ns, frames)[0]


def frames_and_pairs(
    machine: MachineFile, run: Mapping[str, Any], window_ns: float, frames: int
) -> tuple[list[Answer], dict[str, Any] | None]:
    """Return the first `frames` frames of a run, and the traffic between nodes in this time.

    Returns:
        The frames, and `seconds`, `read` and `write`: the bytes that the CPUs and I/O ports of each node (row) read
        from and wrote to the memory of each node (column). None if the machine has more than `MAX_PAIR_NODES` nodes.
    """
    shape = ask(machine, [{"kind": "describe"}], threads=1)[0]
    if len(shape["nodes"]) > MAX_PAIR_NODES:
        return list(frame_lines(machine, run, window_ns, frames)), None
    lines, answer = _simulated(machine, {**run, "traffic": True}, window_ns, frames)
    line_bytes = shape["line_bytes"]
    read, write = (
        [[line_bytes * count for count in row] for row in answer["traffic"][key]] for key in ("reads", "writes")
    )
    return lines, {"seconds": answer["measured_s"], "read": read, "write": write}


def _simulated(
    machine: MachineFile, run: Mapping[str, Any], window_ns: float, frames: int
) -> tuple[list[Answer], Answer]:
    lines: list[Answer] = []
    endless_actors = [{**a, "accesses": 0} if "trace" not in a else a for a in run["actors"]]
    long_run = {
        **run,
        "actors": endless_actors,
        "warm_ns": 0,
        "measure_ns": window_ns * frames + _AFTER_LAST_NS,
        "window_ns": window_ns,
    }
    answers = ask(machine, [long_run], threads=1, on_line=lines.append)
    return [line for line in lines if line.get("type") == "frame"], answers[0]
