"""Simulated runs for tests of the views: every instrument, on any topology, with chosen flags."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.store.record import Metric, Record
from meshmark.store.run import Absence, RunInfo


def record(
    instrument: str, metric: str, value: float, flags: Iterable[str] = (), count: int = 9, **conditions: Any
) -> Record:
    """Return a record with samples within 2 % of `value`, the same for the same conditions."""
    rng = random.Random(f"{instrument}{metric}{sorted(conditions.items())}")
    samples = tuple(value * rng.uniform(0.99, 1.01) for _ in range(count))
    return Record.from_samples(
        descriptions()[instrument].metric(metric),
        samples,
        source="host",
        machine="made-up",
        instrument=instrument,
        conditions=conditions,
        flags=frozenset(flags),
        provenance={"command": f"{instrument} --seed 1", "build": "0", "compiler": "none"},
    )


def repeated(records: Iterable[Record]) -> list[Record]:
    """Return the records as if two runs had been pooled, so that they have verdicts."""
    return [replace(r, conditions={**r.conditions, "runs": 2}) for r in records]


def latency(nodes: int = 1, flags: Iterable[str] = ()) -> list[Record]:
    pooled = []
    steps = {"1": (1.2e-9, 2**15), "2": (4e-9, 2**19), "3": (20e-9, 2**25), "4": (120e-9, 2**40)}
    for node, pages in itertools.product(range(nodes), ("4KiB", "thp")):
        conditions = {
            "pages": pages,
            "memory_node": node,
            "cpu": 0,
            "stride_bytes": 64,
            "pattern": "random",
            "locality_bytes": 0,
        }
        factor = (1 + 0.5 * node) * (1.2 if pages == "4KiB" else 1)
        for footprint in (2**k for k in range(11, 31)):
            value = next(v for v, limit in steps.values() if footprint <= limit) * (factor if footprint > 2**25 else 1)
            pooled.append(
                record("latency", "load_latency", value, flags, footprint_bytes=footprint, processes=1, **conditions)
            )
        pooled.append(record("latency", "load_latency", 140e-9, footprint_bytes=2**28, processes=2, **conditions))
        pooled.append(
            record(
                "latency",
                "level_latency",
                120e-9 * factor,
                level=4,
                kind="memory",
                from_bytes=2**26,
                to_bytes=2**30,
                **conditions,
            )
        )
        pooled.append(
            record(
                "latency",
                "level_latency",
                1.2e-9,
                level=1,
                kind="cache",
                from_bytes=2**11,
                to_bytes=2**15,
                **conditions,
            )
        )
        pooled.append(
            record(
                "latency",
                "level_capacity",
                2**15,
                count=1,
                level=1,
                kind="cache",
                from_bytes=2**11,
                to_bytes=2**15,
                **conditions,
            )
        )
    return pooled


def strides() -> list[Record]:
    conditions = {"footprint_bytes": 2**28, "processes": 1, "cpu": 0, "memory_node": 0, "pages": "thp"}
    even = [
        record(
            "latency",
            "load_latency",
            1e-9 * (3 + k),
            stride_bytes=2**k,
            pattern="stride",
            locality_bytes=0,
            **conditions,
        )
        for k in range(6, 17, 2)
    ]
    blocks = record(
        "latency", "load_latency", 4e-8, stride_bytes=64, pattern="random", locality_bytes=8192, **conditions
    )
    return [*even, blocks]


def bandwidth(threads: int = 2) -> list[Record]:
    records = []
    for kernel, store, t in itertools.product(("copy", "triad", "read"), ("ordinary", "streaming"), (1, threads)):
        if kernel == "read" and store == "streaming":
            continue
        sizes = (2**14, 2**18, 2**22, 2**29) if kernel == "triad" else (2**29,)
        for size in sizes:
            value = 2e10 * t**0.8 * (2 if size < 2**20 else 1) * (1.3 if store == "streaming" else 1)
            c = {
                "kernel": kernel,
                "store": store,
                "threads": t,
                "isa": "avx2",
                "footprint_bytes": size,
                "pages": "thp",
                "memory_node": "local",
                "fill": "cores",
                "mode": "threads",
                "cpus": "0",
            }
            records.append(record("bandwidth", "bandwidth_net", value, **c))
            records.append(record("bandwidth", "bandwidth_gross", 1.3 * value, **c))
    return records


def lines(cpus: int, states: Iterable[str] = ("swap", "flag", "dirty", "clean")) -> list[Record]:
    return [
        record(
            "lines",
            "line_latency",
            25e-9 + (a // 8 != b // 8) * 60e-9 + (a // 64 != b // 64) * 90e-9,
            from_cpu=a,
            to_cpu=b,
            state=state,
            trip="one_way",
            home_node=0,
            pages="thp",
        )
        for state in states
        for a in range(cpus)
        for b in range(cpus)
        if a != b
    ]


LOOP: Final[Mapping[str, Any]] = {"kernel": "axpy", "isa": "avx2", "cpu": 0}


def the_rest(threads: int = 2) -> list[Record]:
    records = [
        record("clock", "core_frequency", 3.1e9, cpu=0, clock="tsc"),
        record("clock", "clock_overhead", 2e-8, cpu=0, clock="tsc"),
        record("loaded", "memory_parallelism", 12.0, threads=1, mode="chains", best_chains=16),
        record("linpack", "flop_rate", 4e10, n=1000, threads=threads, library="openblas", library_kernel="Zen"),
        record("dgemm", "flop_rate", 9e10, n=2000, threads=threads, library="openblas", library_kernel="Zen"),
        record("dgemm", "peak_share", 0.9, n=2000, threads=threads, library="openblas", library_kernel="Zen"),
        record("linpack", "peak_share", 0.4, n=1000, threads=threads, library="openblas", library_kernel="Zen"),
        *(record("loops", "loop_time", 2e-9 + 1e-10 * n, **LOOP, length=n) for n in (1, 4, 16, 64)),
        *(record("loops", "element_rate", n / (2e-9 + 1e-10 * n), **LOOP, length=n) for n in (1, 4, 16, 64)),
        record("io", "bandwidth_net", 1e9, target=".", direction="read", block_bytes=2**17, queue_depth=16, jobs=1),
    ]
    for t in (1, threads):
        c = {
            "mode": "chains",
            "threads": t,
            "read_share": 1.0,
            "pause": 0,
            "pages": "thp",
            "memory_node": "local",
            "footprint_bytes": 2**28,
        }
        for chains in (1, 4, 16):
            records.append(record("loaded", "load_latency", 1e-7 * (1 + chains / 20), chains=chains, **c))
            records.append(record("loaded", "bandwidth_net", 64e7 * chains * t / (1 + chains / 20), chains=chains, **c))
        records.append(
            record("gups", "update_rate", 8e7 * t, table_bytes=2**29, kernel="plain", threads=t, pages="thp")
        )
        records.append(record("peak", "flop_rate", 5e10 * t, type="fp64", isa="avx2", threads=t, cpus="0"))
        records.append(record("fft", "flop_rate", 9e9 * t, shape="64x64", planner="measure", threads=t, pages="thp"))
        records.append(
            record("mod2d", "flop_rate", 2e10 * t, n=500, threads=t, library="openblas", library_kernel="Zen")
        )
        c = {"numbering": "grid", "eigenvalues": 8, "basis": 40, "pages": "thp", "memory_node": "local", "threads": t}
        records += [
            record("mod2e", "solve_time", 0.4 / t, edge=40, solver=library, **c) for library in ("lanczos", "arpack")
        ]
        c = {"truncation": "T42", "test_case": "6", "levels": 18, "steps": 4, "pages": "thp", "memory_node": "local"}
        records += [
            record("pstswm", "step_time", 4e-2 / t, variant=variant, threads=t, **c)
            for variant in ("plain", "vector", "fixed")
        ]
        c = {"footprint_bytes": 2**29, "pages": "thp", "memory_node": "local", "threads": t}
        records += [record("prefetch", "access_time", 5e-8 / (1 + d), access="gather", distance=d, **c) for d in (0, 8)]
        records.append(
            record("lj", "step_time", 2e-2 / t, edge=20, steps=50, threads=t, pages="thp", memory_node="local")
        )
        records.append(
            record("llm", "token_rate", 7.0 * t, weights_bytes=2**30, layers=32, placement="local", threads=t)
        )
        records.append(application(6.0 * t, threads=t))
        records += swim_threads(t)
    words = {"composite": "both", "reference": "old"}
    records += [application(v, "ratio", "1", member=name, **words) for name, v in (("x", 2.0), ("y", 8.0))]
    return [*records, application(4.0, "composite", "1", program="both", **words)]


def application(figure: float, metric: str = "figure_of_merit", unit: str = "op/s", **conditions: Any) -> Record:
    """Return a record of a program of the user, which no instrument describes."""
    return Record.from_samples(
        Metric(metric, unit, "higher", ""),
        [figure * (1 + 0.01 * i) for i in range(7)],
        source="host",
        machine="made-up",
        instrument="app",
        conditions={"program": "a.out", "command": "a.out", "observed_cpus": "0", **conditions},
        provenance={"command": "measure app a.toml", "build": "0"},
    )


def kernels(threads: int = 2) -> list[Record]:
    """Return load kernels that stream, compute and do neither, with one thread and several."""
    return [
        record(
            "kernels",
            "unit_time",
            base_s / n**0.9,
            kernel=kernel,
            kind=kind,
            volume_bytes=volume,
            stride=1,
            threads=n,
            served_by=level,
            flops=flops,
            line_read_bytes=0.75 * lines,
            line_write_bytes=0.25 * lines,
        )
        for kernel, kind, flops, lines in (
            ("triad", "stream", 128, 2048),
            ("gemm", "dense", 8192, 64),
            ("idle", "idle", 0, 0),
        )
        for volume, level, base_s in ((1 << 18, "L2", 1e-8), (1 << 27, "memory", 4e-8))
        for n in sorted({1, threads})
    ]


# Protocols of the simulated halo: time of a word and of each further word, s.
HALOS = {
    "neighbour": (5e-7, 3e-9),
    "irecv_isend": (7e-7, 1e-9),
    "persistent_irecv_isend": (7.01e-7, 1e-9),
    "shmem_put": (3e-6, 4e-9),
    "caf_sync": (2e-6, 2e-9),
}
LIBRARIES = {"openmpi": ("Open MPI 4.1.4", 1.0), "mpich": ("MPICH 4.0.2", 1.5)}


def ranks(mpi: str = "openmpi", count: int = 2) -> dict[str, Any]:
    """Return the conditions of every result of ranks."""
    return {
        "mpi": mpi,
        "library": LIBRARIES[mpi][0],
        "ranks": count,
        "hosts": 1,
        "transport": "shared memory",
        "memory_groups": 1,
        "host_names": "made-up",
        "rank_cpus": ",".join(map(str, range(count))),
        "clock_offset_uncertainty": 2e-7,
        "fastest_rank": 1e-6,
        "slowest_rank": 2e-6,
        "block_iterations": 100,
        "blocks": 9,
        "disturbed_share": 0.0,
    }


def halo(mpis: Iterable[str] = ("openmpi",), flags: Iterable[str] = ()) -> list[Record]:
    """Return results in which `neighbour` is best up to 64 words; from 128 on, two protocols are inconclusive."""
    records = []
    for mpi, (protocol, (start_s, word_s)), words in itertools.product(
        mpis, HALOS.items(), (2**k for k in range(0, 15, 2))
    ):
        paradigm = protocol.partition("_")[0] if protocol.startswith(("shmem", "caf")) else "mpi"
        if paradigm == "shmem" and mpi == "mpich":
            continue
        c = {
            "paradigm": paradigm,
            "protocol": protocol,
            "words": words,
            "word_bytes": 8,
            "dimensions": 2,
            "grid": "2x1",
            **ranks(mpi),
        }
        value = LIBRARIES[mpi][1] * (start_s + word_s * words)
        records.append(record("halo", "exchange_time", value, flags, **c))
        records.append(record("halo", "bandwidth_net", 64 * words / value, flags, **c))
    return records


def pingpong(mpis: Iterable[str] = ("openmpi",)) -> list[Record]:
    records = []
    for mpi, protocol, message in itertools.product(mpis, ("send", "put"), (0, *(2**k for k in range(3, 23)))):
        if protocol == "put" and not message:
            continue
        c = {"protocol": protocol, "message_bytes": message, "from_rank": 0, "to_rank": 1, **ranks(mpi)}
        value = 3e-7 + message / 1e10
        records.append(record("pingpong", "message_latency", value, **c))
        if message:
            records.append(record("pingpong", "bandwidth_net", message / value, **c))
    return records


def swap(
    count: int = 4, sizes: Iterable[int] = (8, 2**16), node: int = 0, mpi: str = "openmpi", flags: Iterable[str] = ()
) -> list[Record]:
    """Return results in which all pairs slow each other down by 1.4.

    If a node has `node` CPUs, only pairs that cross it do so, from 64 KiB on."""
    records = []
    for message, distance in itertools.product(sizes, range(1, count)):
        c = {"message_bytes": message, "distance": distance, **ranks(mpi, count)}
        crossing_pairs = [bool(node) and i // node != (i + distance) // node for i in range(count - distance)]
        times = [(1.1e-6 if f else 4e-7) + message / (6e9 if f else 1.5e10) for f in crossing_pairs]
        for i, value in enumerate(times):
            conditions = {"mode": "alone", "from_rank": i, "to_rank": i + distance, "pairs_at_once": 1, **c}
            records.append(record("swap", "exchange_time", value, flags, **conditions))
            records.append(record("swap", "bandwidth_net", 2 * message / value, flags, **conditions))
        pairs = [i for i in range(count - distance) if i // distance % 2 == 0]
        if len(pairs) > 1:
            crossing = sum(crossing_pairs[i] for i in pairs)
            factor = 1.4 if not node else 1 + 0.2 * crossing if message >= 2**16 else 1.02
            value = factor * max(times[i] for i in pairs)
            conditions = {"mode": "together", "pairs_at_once": len(pairs), **c}
            records.append(record("swap", "exchange_time", value, flags, **conditions))
            records.append(record("swap", "contention", factor, flags, count=1, **conditions))
    return records


def collectives(mpis: Iterable[str] = ("openmpi",)) -> list[Record]:
    records = []
    for mpi in mpis:
        factor, conditions = LIBRARIES[mpi][1], ranks(mpi)
        zero = {"operation": "barrier", "algorithm": "library", "message_bytes": 0}
        records.append(record("barrier", "collective_time", 5e-7 * factor, **zero, **conditions))
        for name, algorithm in (("bcast", "library"), ("allreduce", "library"), ("allreduce", "tree")):
            for message in (2**k for k in range(3, 21)):
                c = {"operation": name, "algorithm": algorithm, "message_bytes": message, **conditions}
                records.append(record(name, "collective_time", 6e-7 * factor + message / 4e9, **c))
    return records


def defects() -> list[Record]:
    """Return results in which MPICH puts one message at a wrong address."""
    return [
        record(
            "defects",
            "wrong_words",
            wrong_count,
            count=1,
            trial="window",
            protocol="put",
            words=words,
            window_bytes=8 * words + 8,
            **ranks("mpich"),
            **({"shifted_bytes": 8} if wrong_count else {}),
        )
        for words, wrong_count in ((16, 0), (4096, 4096))
    ]


def programs(mpi: str = "openmpi", seed: int = 1) -> list[Record]:
    """Return programs among ranks with their results; another run (`seed`) has slightly different results."""
    deviation = seed * 1e-12
    drift = {"mass_drift": deviation, "energy_drift": 2 * deviation, "enstrophy_drift": 3 * deviation}
    npb = {
        "cg": {"zeta": 8.6 + deviation, "residual_norm": deviation},
        "mg": {"residual_norm": deviation, "first_norm": 0.5 + deviation},
        "ep": {"sum_x": -3247.8 + deviation, "sum_y": -6958.4 + deviation, "deviates": 13176389},
        "ft": {"checksum_real": 5e2 + deviation, "checksum_imaginary": 4e2 + deviation, "fft": "own"},
    }
    conditions = {
        **ranks(mpi),
        "clock_offset_uncertainty": deviation,
        "disturbed_share": deviation,
        "blocks": 8 + seed,
        "fastest_rank": 1e-6 + deviation,
        "slowest_rank": 2e-6 + deviation,
        "block_iterations": 99 + seed,
    }
    records = []
    for kernel, values in npb.items():
        c = {"kernel": kernel, "class": "S", "size": "made up", **values, **conditions}
        records += [
            record("npb", "elapsed", 0.1, **c),
            record("npb", "operation_rate", 1e9, **c),
            record("npb", "communication_share", 0.25, **c),
        ]
    values = conditions | {"solution_error": deviation}
    return [
        *records,
        *pop([mpi], **values),
        *gyro([mpi], **conditions),
        *swim([mpi], **conditions, **drift),
        *anatomy([mpi], **conditions),
    ]


def _stepped(instrument: str, metric: str, parts: dict[str, float], **conditions: Any) -> list[Record]:
    """Return a step whose slowest rank takes 1 % longer than the parts, which are means."""
    records = [record(instrument, name, value, **conditions) for name, value in parts.items()]
    return [record(instrument, metric, 1.01 * sum(parts.values()), **conditions), *records]


def pop(mpis: Iterable[str] = ("openmpi",), count: int = 2, **more: Any) -> list[Record]:
    """Return results in which the most square grid and `neighbour` are the best; a second sum costs as much as the
    first."""
    records = []
    rows = [n for n in range(1, count + 1) if count % n == 0]
    protocols = {"irecv_isend": 3e-6, "neighbour": 2e-6, "sendrecv": 5e-6}
    for mpi, high, (protocol, start_s), sums in itertools.product(mpis, rows, protocols.items(), (1, 2)):
        wide = count // high
        c = {
            "paradigm": "mpi",
            "protocol": protocol,
            "grid": f"{high}x{wide}",
            "reductions": sums,
            "iterations": 242,
            "halo_words": 320 // wide + 384 // high,
            **(ranks(mpi, count) | more),
        }
        factor = LIBRARIES[mpi][1]
        parts = {
            "compute_time": 4e-4 / count,
            "halo_time": factor * (start_s + 1e-6 * abs(high - wide)),
            "reduce_time": factor * 4e-6 * sums * math.log2(count),
        }
        records += [*_stepped("pop", "iteration_time", parts, **c), record("pop", "residual", 1e-13, **c)]
    return records


def gyro(mpis: Iterable[str] = ("openmpi",), count: int = 2, **more: Any) -> list[Record]:
    records = []
    for mpi, modes in itertools.product(mpis, (16, 64)):
        c = {"modes": modes, "radii": 32, "flops_per_point": 128, "grid": f"1x{count}", **(ranks(mpi, count) | more)}
        parts = {"compute_time": 4e-4 * modes / count, "transpose_time": 1e-4 * LIBRARIES[mpi][1] * modes / count}
        records += [*_stepped("gyro", "step_time", parts, **c), record("gyro", "transpose_share", 0.2, **c)]
    return records


def swim(mpis: Iterable[str] = ("openmpi",), count: int = 2, **more: Any) -> list[Record]:
    records = []
    for mpi, (protocol, start_s) in itertools.product(mpis, {"irecv_isend": 9e-6, "shared": 4e-6}.items()):
        c = {
            "paradigm": "mpi",
            "protocol": protocol,
            "cells": 256,
            "steps": 50,
            "grid": f"{count}",
            "halo_words": 768,
            **(ranks(mpi, count) | more),
        }
        parts = {"compute_time": 4e-4 / count, "halo_time": LIBRARIES[mpi][1] * start_s}
        records += _stepped("swim", "step_time", parts, **c)
    return records


def swim_threads(threads: int, **more: Any) -> list[Record]:
    """Return results in which two threads that share rows are faster than ranks with messages, and huge pages are
    faster."""
    records = []
    for (cells, step_s), (pages, factor) in itertools.product(
        {256: 4e-4, 2048: 4e-2}.items(), {"4KiB": 1.1, "thp": 1.0}.items()
    ):
        c: dict[str, Any] = {
            "paradigm": "threads",
            "cells": cells,
            "steps": 50,
            "threads": threads,
            "cpus": f"0-{threads - 1}",
        }
        c |= {"pages": pages, "memory_node": "local", "triad_store": "streaming", **more}
        value = factor * step_s / threads
        rate = 72 * cells**2 / value
        records += [
            record("swim_threads", "step_time", value, **c),
            record("swim_threads", "bandwidth", rate, **c),
            record("swim_threads", "triad_bandwidth", 1.1 * rate, **c),
            record("swim_threads", "bandwidth_share", 1 / 1.1, **c),
        ]
    return records


# Parts of the time of a step of a program: computing, latency, bandwidth, imbalance and other, s.
TAKEN_APART = {
    "pop": (25e-6, 14e-6, 2e-6, 3e-6, 4e-6),
    "gyro": (1.6e-3, 3e-5, 5e-4, 1e-4, -2e-4),
    "swim": (25e-6, 3e-6, 4e-6, 2e-6, 1e-6),
}


def anatomy(mpis: Iterable[str] = ("openmpi",), count: int = 2, flags: Iterable[str] = (), **more: Any) -> list[Record]:
    """Return results in which the prediction for twice the latency is 2 % too low; for gyro, curves explain more than
    all."""
    records = []
    for mpi, (program, (computing, *rest)) in itertools.product(mpis, TAKEN_APART.items()):
        c: dict[str, Any] = {"program": program, **(ranks(mpi, count) | more)}
        c |= {"protocol": "irecv_isend"} if program != "gyro" else {}
        c |= {"reductions": 2} if program == "pop" else {}
        factor = LIBRARIES[mpi][1]
        total, latency = computing + factor * sum(rest), factor * rest[0]
        for k, step in ((1, total), (2, 1.02 * (total + latency))):
            records += [
                record("anatomy", "step_time", step, flags, latency_factor=k, **c),
                record("anatomy", "compute_time", computing, flags, latency_factor=k, **c),
            ]
        c["derived_from"] = "operation_time, step_time"
        for name, value in zip(("latency", "bandwidth", "imbalance", "other"), rest, strict=True):
            records.append(record("anatomy", f"{name}_time", factor * value, flags, 1, latency_factor=1, **c))
        for k in (0.5, 2):
            records.append(
                record("anatomy", "predicted_time", total + (k - 1) * latency, flags, 1, latency_factor=k, **c)
            )
        records.append(record("anatomy", "prediction_error", 1 / 1.02 - 1, flags, 1, latency_factor=2, **c))
    return records


def communication() -> list[Record]:
    return [*halo(LIBRARIES), *pingpong(LIBRARIES), *swap(), *collectives(LIBRARIES), *defects(), *programs()]


def experiment(*samples: float, **conditions: Any) -> Record:
    """Return the ratios of the pairs of an experiment, which no instrument describes."""
    return Record.from_samples(
        Metric("ratio", "1", "none", "B over A"),
        samples,
        source="host",
        machine="made-up",
        instrument="experiment",
        conditions={"setting_a": "N=1", "setting_b": "N=2", **conditions},
        provenance={"command": "experiment N=1 N=2 -- a.out", "build": "0"},
    )


def everything(threads: int = 2) -> list[Record]:
    return [
        *latency(),
        *strides(),
        *bandwidth(threads),
        *lines(min(threads, 8)),
        *the_rest(threads),
        *kernels(threads),
        *communication(),
    ]


def run_info(host: dict[str, Any] | None = None, machine: str = "made-up") -> RunInfo:
    return RunInfo(
        run_id="run-1",
        machine=machine,
        started="2026-11-21T07:15:28.3+00:00",
        elapsed_s=93.0,
        spec_name="quick",
        command="meshmark survey --quick",
        version="0",
        host=host or {},
        steps=[{"id": "01-latency", "status": "ok", "elapsed_s": 3.0, "argv": ["latency", "--seed", "1"]}],
    )


def absences() -> list[Absence]:
    return [
        Absence(
            instrument="gups",
            metric="update_rate",
            reason="no 2MiB pages in the pool",
            enable="vm.nr_hugepages",
            conditions={"pages": "2MiB"},
        ),
        Absence(instrument="io", reason="fio died (SIGSEGV)", kind="error", step="13-io"),
    ]
