"""Simulated base data of a machine with plausible kernels, and load targets that are possible on it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np

from meshmark.load.calibration.metrics import all_metrics
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant, VariantColumns, served_by

KIB, MIB = 1 << 10, 1 << 20
L1, L2, L3 = 32 * KIB, 1 * MIB, 8 * MIB
VOLUMES = (16 * KIB, 240 * KIB, 512 * KIB, 2500 * KIB, 12 * MIB, 25 * MIB, 128 * MIB)
STRIDES = (1, 2, 4, 8, 16, 32)

# Kind: kernels, flops and integer operations per 8-byte element, reads and writes of lines per line, ns per element in
# L1 and per line from memory.
KINDS = {
    "stream": (14, (0, 3), 0, (1, 4), (0, 1), 0.3, 6),
    "irregular": (8, (0, 1), 2, (1, 2), (0, 1), 1.5, 60),
    "dense": (8, (8, 64), 0, (1, 2), (0, 1), 4, 8),
    "spectral": (4, (5, 20), 1, (1, 2), (1, 1), 3, 10),
    "solver": (10, (4, 12), 0, (1, 4), (0, 1), 1.5, 9),
    "compute": (6, (10, 60), 2, (1, 1), (0, 1), 8, 8),
    "integer": (7, (0, 0), 8, (1, 2), (0, 1), 3, 15),
    "system": (3, (0, 0), 1, (1, 1), (1, 1), 50, 50),
    "idle": (1, (0, 0), 0, (0, 0), (0, 0), 0, 0),
}


def made_base(seed: int = 0, thread_counts: Sequence[int] = (1, 2, 4), most: int = 4500) -> list[Variant]:
    """Return at most `most` variants of 61 kernels, the same for the same seed."""
    rng = random.Random(seed)
    out: list[Variant] = []
    for kind, (kernels, flops_range, ints, reads_range, writes_range, near_ns, far_ns) in KINDS.items():
        for number in range(kernels):
            kernel = f"{kind}_{number}"
            flops, reads, writes = rng.randint(*flops_range), rng.randint(*reads_range), rng.randint(*writes_range)
            speed = rng.uniform(0.7, 1.5)
            does_io = kind == "system" and number == 0
            has_footprint = kind not in ("system", "idle")
            volumes = (
                [int(v * rng.uniform(0.7, 1.0)) for v in VOLUMES for _ in range(2)] if has_footprint else [64 * KIB]
            )
            for volume in volumes:
                for stride in STRIDES if kind in ("stream", "irregular", "solver", "dense", "compute") else (1,):
                    for threads in thread_counts:
                        level = served_by(volume, L1, L2, L3, threads)
                        level_share = {"L1": 0.02, "L2": 0.2, "L3": 0.5, "memory": 1.0}[level]
                        per_line = 8 / min(stride, 8)  # elements of a line that are used
                        ns = (
                            speed
                            * (near_ns * per_line + level_share * far_ns * (reads + writes))
                            * rng.uniform(0.9, 1.1)
                        )
                        wall_s = rng.uniform(0.08e-3, 0.9e-3)
                        lines = wall_s * threads**0.9 / (max(ns, 1) * 1e-9)
                        elements = lines * per_line
                        system = {"system": 0.7, "idle": 0.0}.get(kind, 1e-4) * rng.uniform(0.5, 1.2)
                        cpu = wall_s * threads * rng.uniform(0.93, 1.0) if kind != "idle" else 1e-6
                        out.append(
                            Variant(
                                name=f"{kernel}/{volume}/s{stride}/t{threads}",
                                kernel=kernel,
                                kind=kind,
                                volume_bytes=volume,
                                stride=stride,
                                threads=threads,
                                window=max(1, int(lines / 8)),
                                team=kind == "spectral" and number == 0,
                                served_by=level,
                                wall_s=wall_s,
                                cpu_s=cpu,
                                system_s=cpu * system,
                                flops=round(flops * elements),
                                int_ops=round(ints * elements),
                                load_bytes=8 * round(reads * elements),
                                store_bytes=8 * round(writes * elements),
                                line_read_bytes=64 * round(reads * lines) if kind != "system" else 0,
                                line_write_bytes=64 * round(writes * lines) if kind != "system" else 0,
                                io_read_bytes=65536 if does_io else 0,
                                io_write_bytes=65536 if does_io else 0,
                                system_calls=round(lines) if kind == "system" else 0,
                            )
                        )
    if len(out) > most:
        retained = [i for i, v in enumerate(out) if v.kind in ("system", "idle")]
        other_indices = [i for i, v in enumerate(out) if v.kind not in ("system", "idle")]
        out = [out[i] for i in sorted(retained + rng.sample(other_indices, most - len(retained)))]
    return out


def random_wish(
    variants: Sequence[Variant],
    rng: random.Random,
    *,
    run_time_s: float = 10.0,
    threads: int = 1,
    seed: int = 0,
    names: Sequence[str] = ("memory_gb_per_s", "gflop_per_s", "write_fraction"),
    load_balance: float = 1.0,
    memory_mib: float = 2048,
    kinds: Sequence[str] = ("idle", "system"),
    mixed: int = 30,
) -> TargetProfile:
    """Return the metrics of a random mix of variants, which are therefore possible; `kinds` are left out of the mix."""
    fit: list[Variant] = []
    free_bytes = 0.8 * memory_mib * MIB
    for v in rng.sample(list(variants), len(variants)):
        usable = v.threads == threads and v.kind not in kinds and not (v.team and load_balance < 1)
        if usable and v.volume_bytes <= free_bytes:
            fit.append(v)
            free_bytes -= v.volume_bytes
        if len(fit) == mixed:
            break
    table = VariantColumns(fit, load_balance)
    parts = np.array([rng.expovariate(1.0) for _ in fit])
    calls = parts / parts.sum() * run_time_s / table.columns["wall_s"]
    totals = {k: np.array([float(v @ calls)]) for k, v in table.columns.items() if k != "serial_s"}
    metrics = all_metrics()
    return TargetProfile(
        run_time_s=run_time_s,
        threads=threads,
        load_balance=load_balance,
        memory_mib=memory_mib,
        seed=seed,
        metrics={k: float(metrics[k].evaluate(totals)[0]) for k in names},
    )


@cache
def base(threads: tuple[int, ...] = (1, 2)) -> tuple[Variant, ...]:
    """Return 1,500 variants of one to two threads, the same for all tests."""
    return tuple(made_base(seed=3, thread_counts=threads, most=1500))
