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
# Of streams: half of it leaves the rates of saturated controllers half a per cent off their value in a long run, which
# is as much as the effects of a clock.
STREAM_WARM_NS: Final = 8_000.0
STREAM_MEASURE_NS: Final = 60_000.0


def trial(
    actors: Sequence[Mapping[str, Any]], *, warm_ns: float = WARM_NS, measure_ns: float = MEASURE_NS, **more: Any
) -> Run:
    """Return a run of the given actors. measure_ns = 0: until all have ended."""
    return {
        "kind": "trial",
        "actors": list(actors),
        "warm_ns": warm_ns,
        "measure_ns": measure_ns,
        "batches": BATCHES,
        **more,
    }


def stream_trial(actors: Sequence[Mapping[str, Any]]) -> Run:
    """Return the run by which all commands find the rates of streams, so that they print the same numbers."""
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
    """Return a run of dependent loads on one CPU."""
    stream: dict[str, Any] = {"homes": homes, "state": state, "random": random, "span_lines": span_lines}
    if not random:
        stream["stride_bytes"] = stride_bytes
    if owner is not None:
        stream["owner"] = owner
    return trial([{"cpus": [cpu], "chains": 1, "streams": [stream]}], warm_ns=2_000.0, measure_ns=20_000.0)


def _work(machine: MachineFile, key: str, default: float) -> float:
    """Return a time of the core in ns, given in ns, in cycles or as the sum of both."""
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

    Ordinary stores own a line and write it back; streaming (non-temporal) stores only write. Each line that is read,
    owned or stored non-temporally costs core time; a write-back from a cache costs none.

    Args:
        cached_read_ns: Core time per line of the arrays that are only read, if a cache holds them; None: they are in
            memory. For kernels with streaming stores, which write to memory even if their operands are in a cache.
    """
    work = _work(machine, "line_work", 0.0)
    k = stream_kernels()[kernel]
    read = {"op": "read", "homes": homes, "work_ns": work}
    # An array written in place is also read. An ordinary store then takes ownership with that read.
    owned = k.writes - k.allocates if store == "ordinary" else 0
    cached = k.only_read if cached_read_ns is not None else 0
    streams: list[dict[str, Any]] = [dict(read) for _ in range(k.reads - owned - cached)]
    line_ns = (cached_read_ns or 0.0) / max(1, k.writes)  # of one operand, per store
    for _ in range(k.writes):
        if store == "ordinary":
            streams += [{**read, "op": "own"}, {"op": "write", "homes": homes}]
        else:
            # The rate of the cache limits the core, whatever part of it the reads take.
            work_ns = max(_work(machine, "streaming_store", work) + cached * line_ns, k.net * line_ns)
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
    """Return random updates of a table on all nodes: each line is read for ownership, changed and written back."""
    streams = [{"op": "own", "homes": "uniform", "random": True}, {"op": "write", "homes": "uniform", "random": True}]
    return trial(
        [{"cpus": cpus if isinstance(cpus, str) else list(cpus), "chains": chains, "streams": streams}], **more
    )
