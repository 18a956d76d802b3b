"""Sweeps parameters of a machine with one instrument and stores each point as soon as it completes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.model.instruments import measure
from meshmark.model.machine import MachineFile
from meshmark.store.record import Record
from meshmark.values.numbers import decimal, whole

SWEEP: Final = "sweep-"  # prefix of the names of runs

Progress = Callable[[int, int], None]
MAX_POINTS = 100_000


def values_of(text: str) -> list[str]:
    """Return the values of `A,B,C`, where a range `A..B/N` stands for N values including both ends.

    Raises:
        UsageError: A range is malformed.
    """
    values: list[str] = []
    for part in text.split(","):
        low, dots, end_and_steps = part.partition("..")
        if not dots:
            values.append(part.strip())
            continue
        high, slash, steps = end_and_steps.partition("/")
        a, b, n = decimal(low), decimal(high), whole(steps) if slash else 2
        if a is None or b is None or n is None:
            raise UsageError(f"--vary: found '{part}', a range such as 1..4/4 is needed")
        if not 2 <= n <= 1000:
            raise UsageError(f"--vary: found '{part}'; allowed: 2 to 1000 steps")
        values += [f"{a + (b - a) * i / (n - 1):.9g}" for i in range(n)]
    return values


def grid(vary: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of the `key=values` entries as settings.

    Raises:
        UsageError: An entry is not an assignment, or there are more than 100,000 points.
    """
    axes = []
    for assignment in vary:
        key, equals, text = assignment.partition("=")
        if not equals or not text:
            raise UsageError(f"--vary: found '{assignment}', table.key=values is needed")
        axes.append([f"{key.strip()}={v}" for v in values_of(text)])
    count = 1
    for axis in axes:
        count *= len(axis)
    if count > MAX_POINTS:
        raise UsageError(f"--vary: found {count} points; allowed: at most {MAX_POINTS}")
    return list(itertools.product(*axes))


def run_sweep(
    machine: MachineFile,
    vary: Sequence[str],
    instrument: str,
    options: Mapping[str, str],
    store: Path | None,
    resume: bool,
    progress: Progress | None,
    notify: Callable[[str], None],
) -> list[Record]:
    """Measure every point and return the records, with the varied parameters as conditions.

    Raises:
        UsageError: A range, key or option is invalid; in this case, nothing was simulated.
    """
    from meshmark.store.store import Store

    points = grid(vary)
    machines = [machine.with_settings(list(p)) for p in points]  # rejects invalid keys before any simulation
    for m in machines:
        m.resolved()
    archive = Store(store) if store is not None else None
    run = _run_name(machine, vary, instrument, options)
    stored: dict[str, list[Record]] = {}
    for r in archive.query(run=run) if archive is not None and resume else ():
        stored.setdefault(str(r.provenance.get("sweep_point")), []).append(r)
    labels = [" ".join(p) for p in points]
    records_by_point = dict(stored)

    def measure_point(number: int) -> list[Record]:
        label = labels[number]
        conditions = {key: _number(value) for key, _, value in (p.partition("=") for p in points[number])}
        return [
            replace(
                r,
                machine=machine.label,
                conditions={**conditions, **r.conditions},
                provenance={**r.provenance, "sweep_point": label},
            )
            for r in measure(instrument, machines[number], options, command=f"sweep {label}", threads=1)
        ]

    # One simulator per CPU. Points are stored in the order in which they finish.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        tasks = {pool.submit(measure_point, n): n for n, label in enumerate(labels) if label not in stored}
        try:
            for task in as_completed(tasks):
                number = tasks[task]
                records_by_point[labels[number]] = task.result()
                if archive is not None:
                    archive.add(run, f"point-{number:06d}", records_by_point[labels[number]], (), machine.label)
                if progress is not None:
                    progress(len(records_by_point), len(points))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if archive is not None:
        archive.finish(run)
    records = [r for label in labels for r in records_by_point[label]]
    if stored:
        notify(f"{len(stored)} of {len(points)} points were already in the store")
    return records


def _number(text: str) -> Any:
    value = decimal(text)
    return text if value is None else value


def _run_name(machine: MachineFile, vary: Sequence[str], instrument: str, options: Mapping[str, str]) -> str:
    """Return a name that depends on the content, so that only the same sweep of the same machine file is resumed."""
    import hashlib

    content = json.dumps([machine.label, machine.resolved(), list(vary), instrument, dict(options)], sort_keys=True)
    return f"{SWEEP}{machine.name}-{instrument}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
