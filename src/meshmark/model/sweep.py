"""Sweeps parameters of a machine with one instrument, and stores every point as soon as it is done."""

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

SWEEP: Final = "sweep-"  # begins the names of runs

Progress = Callable[[int, int], None]
MAX_POINTS = 100_000


def values_of(text: str) -> list[str]:
    """Expand `A,B,C`, and `A..B/N` to N values including both ends.

    Raises:
        UsageError: A range is malformed.
    """
    found: list[str] = []
    for part in text.split(","):
        low, dots, rest = part.partition("..")
        if not dots:
            found.append(part.strip())
            continue
        high, slash, steps = rest.partition("/")
        a, b, n = decimal(low), decimal(high), whole(steps) if slash else 2
        if a is None or b is None or n is None:
            raise UsageError(f"--vary: found '{part}', a range such as 1..4/4 is needed")
        if not 2 <= n <= 1000:
            raise UsageError(f"--vary: found '{part}'; allowed: 2 to 1000 steps")
        found += [f"{a + (b - a) * i / (n - 1):.9g}" for i in range(n)]
    return found


def grid(vary: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all combinations of `key=values` as settings.

    Raises:
        UsageError: An entry is not an assignment, or there are more than 100,000 points.
    """
    axes = []
    for one in vary:
        key, equals, text = one.partition("=")
        if not equals or not text:
            raise UsageError(f"--vary: found '{one}', table.key=values is needed")
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
    """Measure every point. The varied parameters become conditions of the records.

    Raises:
        UsageError: A range, key or option is invalid; nothing has been simulated then.
    """
    from meshmark.store.store import Store

    points = grid(vary)
    machines = [machine.with_settings(list(p)) for p in points]  # rejects invalid keys before any simulation
    for m in machines:
        m.resolved()
    archive = Store(store) if store is not None else None
    run = _run_name(machine, vary, instrument, options)
    earlier: dict[str, list[Record]] = {}
    for r in archive.query(run=run) if archive is not None and resume else ():
        earlier.setdefault(str(r.provenance.get("sweep_point")), []).append(r)
    labels = [" ".join(p) for p in points]
    done = dict(earlier)

    def one(number: int) -> list[Record]:
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
        tasks = {pool.submit(one, n): n for n, label in enumerate(labels) if label not in earlier}
        try:
            for task in as_completed(tasks):
                number = tasks[task]
                done[labels[number]] = task.result()
                if archive is not None:
                    archive.add(run, f"point-{number:06d}", done[labels[number]], (), machine.label)
                if progress is not None:
                    progress(len(done), len(points))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if archive is not None:
        archive.finish(run)
    records = [r for label in labels for r in done[label]]
    if earlier:
        notify(f"{len(earlier)} of {len(points)} points were already in the store")
    return records


def _number(text: str) -> Any:
    value = decimal(text)
    return text if value is None else value


def _run_name(machine: MachineFile, vary: Sequence[str], instrument: str, options: Mapping[str, str]) -> str:
    """Name a sweep by its content, so that only the same sweep of the same machine file is resumed."""
    import hashlib

    content = json.dumps([machine.label, machine.resolved(), list(vary), instrument, dict(options)], sort_keys=True)
    return f"{SWEEP}{machine.name}-{instrument}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
