"""Builds workloads for the simulator: actors that access streams of lines.

The functions return runs (see docs/reference/model-protocol.md) and simulate nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark.describe import stream_kernels
from meshmark.model.machine import MachineFile

Run = dict[str, Any]
Homes = str | list[int]

WARM_NS: Final = 4_000.0
MEASURE_NS: Final = 30_000.0
BATCHES: Final = 11
# Streams need longer runs: at half of this length, the rates of saturated controllers differ from their values in a
# long run by half a per cent, which is as much as the effect of a clock.
STREAM_WARM_NS: Final = 8_000.0
STREAM_MEASURE_NS: Final = 60_000.0


def trial(
    actors: Sequence[Mapping[str, Any]], *, warm_ns: float = WARM_NS, measure_ns: float = MEASURE_NS, **more: Any
) -> Run:
    """Return a run of the given actors. With `measure_ns` 0, it lasts until all actors have ended."""
    return {
        "kind": "trial",
        "actors": list(actors),
        "warm_ns": warm_ns,
        "measure_ns": measure_ns,
        "batches": BATCHES,
        **more,
    }


def stream_trial(actors: Sequence[Mapping[str, Any]]) -> Run:
    """Return the run with which all commands determine the rates of streams, so that they print the same numbers."""
    return trial(actors, warm_ns=STREAM_WARM_NS, measure_ns=STREAM_MEASURE_NS)


def chase(
    cpu: int,
    homes: Homes,
    *,
    state: str = "clean",
    owner: int | None = None,
    random: bool = False,
    stride_bytes: int = 64,
    span_lines: int = 1 << 24,
) -> Run:
    """Return a run in which one CPU executes dependent loads."""
    stream: dict[str, Any] = {"homes": homes, "state": state, "random": random, "span_lines": span_lines}
    if not random:
        stream["stride_bytes"] = stride_bytes
    if owner is not None:
        stream["owner"] = owner
    return trial([{"cpus": [cpu], "chains": 1, "streams": [stream]}], warm_ns=2_000.0, measure_ns=20_000.0)


def _work(machine: MachineFile, key: str, default: float) -> float:
    """Return a time of the core in ns; the machine file states it in ns, in cycles or as a sum of both."""
    ns, cycles = machine.number(f"cpu.{key}_ns", 0.0), machine.number(f"cpu.{key}_cycles", 0.0)
    return ns + (cycles / machine.number("cpu.clock_ghz") if cycles else 0.0) or default


def stream_actor(
    machine: MachineFile,
    cpus: Sequence[int] | str,
    kernel: str,
    store: str,
    homes: Homes,
    *,
    cached_read_ns: float | None = None,
    **more: Any,
) -> Run:
    """Return an actor that runs a STREAM kernel.

    Ordinary (write-allocate) stores take ownership of a line and write it back; streaming (non-temporal) stores only
    write. Each line that is read, owned or stored non-temporally costs core time; a write-back from a cache does not.

    Args:
        machine: The modelled machine.
        cpus: The CPUs, or `all`.
        kernel: Name of the STREAM kernel.
        store: `ordinary` or `streaming` stores.
        homes: Nodes with the memory of the arrays.
        cached_read_ns: Core time per line of the arrays that are only read if a cache holds them; None if they are in
            memory. Applies to kernels with streaming stores, which write to memory even if a cache holds the operands.
        more: Further keys of the actor.
    """
    work = _work(machine, "line_work", 0.0)
    operands = stream_kernels()[kernel]
    read = {"op": "read", "homes": homes, "work_ns": work}
    # An array written in place is also read. An ordinary store takes ownership with this read.
    owned_reads = operands.writes - operands.allocates if store == "ordinary" else 0
    cached = operands.only_read if cached_read_ns is not None else 0
    streams: list[dict[str, Any]] = [dict(read) for _ in range(operands.reads - owned_reads - cached)]
    line_ns = (cached_read_ns or 0.0) / max(1, operands.writes)  # core time for a line of one operand, per store
    for _ in range(operands.writes):
        if store == "ordinary":
            streams += [{**read, "op": "own"}, {"op": "write", "homes": homes}]
        else:
            # The rate of the cache limits the core, whatever share of it the reads need.
            work_ns = max(_work(machine, "streaming_store", work) + cached * line_ns, operands.net * line_ns)
            streams.append({"op": "write", "homes": homes, "work_ns": work_ns})
    chains = int(machine.number("cpu.stream_outstanding", machine.number("cpu.outstanding")))
    actor: Run = {"cpus": cpus if isinstance(cpus, str) else list(cpus), "chains": chains, "streams": streams, **more}
    return actor


def random_reads(
    machine: MachineFile,
    chains: int,
    cpus: Sequence[int] | str = "all",
    homes: Homes = "others",
    random: bool = False,
    **more: Any,
) -> Run:
    """Return a run in which each CPU has `chains` outstanding reads to random nodes, limited by `cpu.outstanding`."""
    chains = min(chains, int(machine.number("cpu.outstanding")))
    return trial(
        [
            {
                "cpus": cpus if isinstance(cpus, str) else list(cpus),
                "chains": chains,
                "streams": [{"homes": homes, "random": random}],
            }
        ],
        **more,
    )


def gups(cpus: Sequence[int] | str, chains: int, **more: Any) -> Run:
    """Return a run of random updates of a table on all nodes: each line is read for ownership and written back."""
    streams = [{"op": "own", "homes": "uniform", "random": True}, {"op": "write", "homes": "uniform", "random": True}]
    return trial(
        [{"cpus": cpus if isinstance(cpus, str) else list(cpus), "chains": chains, "streams": streams}], **more
    )
