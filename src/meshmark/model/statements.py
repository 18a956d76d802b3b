"""Statements of publications about modelled machines, and tables of numbers that they print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from meshmark.machine.published.reference import model_claims, publication

_XEON: Final = "xeon_5500_lsf_2009"


@dataclass(frozen=True, slots=True)
class MachineStatement:
    """One statement of `machine_facts.toml`."""

    id: str
    document: str
    place: str
    quantity: str
    value: Any
    unit: str
    tolerance: str
    role: str
    note: str


@cache
def claims() -> tuple[MachineStatement, ...]:
    """Return all statements in the order of the file."""
    return tuple(
        MachineStatement(
            c["id"],
            c["document"],
            c["place"],
            c["quantity"],
            c.get("value"),
            c.get("unit", ""),
            c["tolerance"],
            c["role"],
            c.get("note", ""),
        )
        for c in model_claims()
    )


def published_numbers(document: str, path: str) -> tuple[float, ...]:
    """Return the numbers that a publication prints under a key, in its unit."""
    return next(e.printed for e in publication(document).entries() if e.path == path)


@cache
def figure_13() -> tuple[float, ...]:
    """Return the latency from node 0 of a GS1280 to each node, ns."""
    rows = (f"latency.remote_clean_16_cpus.row_{i}_ns" for i in range(4))
    return tuple(v for row in rows for v in published_numbers("alphaserver_gs1280_2003", row))


@cache
def table_3(machine_name: str) -> Mapping[int, float]:
    """Return the latency of `xeon5400` or `xeon5500` by number of processes, ns."""
    titles = {"xeon5400": "Xeon 5400", "xeon5500": "XEON 5500"}
    rows = publication(_XEON).data["random_latency"]
    return {row["processes"]: row["latency_ns"] for row in rows if row["machine"] == titles[machine_name]}


@cache
def copy_5400() -> Mapping[str, float]:
    """Return the net streaming copy bandwidth of all processes on the Xeon 5400 by the CPUs that run them, GB/s."""
    table = publication(_XEON).data["stream_copy_processes"]["xeon_5400"]
    one_socket = dict.fromkeys(("0", "0-1", "0-3"), table["one_socket_gb_per_s"])
    return {**one_socket, "0-7": table["all_cores_gb_per_s"]}


@cache
def copy_5500_each() -> tuple[float, ...]:
    """Return the net streaming copy bandwidth per process on the Xeon 5500 with 1, 2, 4 and 8 processes, GB/s."""
    return published_numbers(_XEON, "stream_copy_processes.xeon_5500.per_core_gb_per_s")
