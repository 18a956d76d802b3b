"""Measures the speed of a large store: creates one of many machines and days, and times the queries of users.

    .venv/bin/python bench/store.py --machines 1000 --days 30 --records 333 FOLDER

The records come from a survey in the given store or from `--like RUN`, with other values. The files have the form that
`meshmark store compact` writes: the runs of a machine in a month in one file. `--surveys N` writes N runs of one
machine in the form before that instead.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from arro3.core import Table
from results import add_row, bench_parser, recording

from meshmark.compare.join import compare
from meshmark.compare.sides import Sides
from meshmark.measure.importers.importing import read_output
from meshmark.store.columns import COLUMN_TYPES, row_of
from meshmark.store.compaction import write_index
from meshmark.store.layout import file_name
from meshmark.store.parquet import COMPACTED
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.values.arrow import array_of, listed, table_of

FIRST = datetime(2026, 10, 1, tzinfo=UTC)


def template(like: Path, count: int) -> Table:
    """Return `count` records of a survey as rows of a run `RUN` of machine `MACHINE`."""
    matching = [r for part in read_output(like).parts for r in part.records]
    records: list[Record] = [replace(matching[i % len(matching)], machine="MACHINE") for i in range(count)]
    return table_of([row_of(r, "RUN", f"step-{i % 30}") for i, r in enumerate(records)], COLUMN_TYPES)


def run_of(rows: Table, machine: str, when: datetime, dice: random.Random) -> Table:
    """Return the template as a run of a machine, with values around the original ones."""
    factor = dice.uniform(0.97, 1.03)
    texts = {
        "run": f"{machine}-{when:%Y%m%dT%H%M%SZ}-0000",
        "machine": machine,
        "start": f"{when:%Y-%m-%dT%H:%M:%SZ}",
    }
    columns: dict[str, list[Any]] = {name: [text] * rows.num_rows for name, text in texts.items()}
    for name in ("value", "low", "high"):
        columns[name] = [None if v is None else v * factor for v in listed(rows[name])]
    columns["samples"] = [[v * factor for v in samples] for samples in listed(rows["samples"])]
    for name, values in columns.items():
        i = rows.column_names.index(name)
        rows = rows.set_column(i, rows.field(i), array_of(values, COLUMN_TYPES[name]))
    return rows


def fill(store: Store, rows: Table, machines: int, days: int) -> None:
    """Write compacted files of many machines with one run per day."""
    rng = random.Random(1)
    for m in range(machines):
        machine = f"n{m:04d}"
        runs = [run_of(rows, machine, FIRST + timedelta(days=d, seconds=m), rng) for d in range(days)]
        folder = store.folder / f"date={FIRST:%Y-%m-%d}" / f"machine={file_name(machine)}"
        store.write(folder / f"{COMPACTED}{m:012x}.parquet", *runs)
    write_index(store.folder / f"date={FIRST:%Y-%m-%d}")


def fill_runs(store: Store, rows: Table, count: int) -> None:
    """Write `count` runs of one machine, an hour apart, each to a file of its own."""
    rng = random.Random(1)
    for d in range(count):
        time = FIRST + timedelta(hours=d)
        run = run_of(rows, "n0000", time, rng)
        folder = store.folder / f"date={time:%Y-%m-%d}" / "machine=n0000"
        store.write(folder / f"{file_name(run['run'][0].as_py())}.parquet", run)


def timed(size: str, name: str, ask: Callable[[], Any], times: int = 3) -> None:
    """Print the shortest elapsed and CPU time of several calls, s, and the number of results."""
    elapsed, cpu = [], []
    for _ in range(times):
        start_s, cpu_start_s = time.perf_counter(), time.process_time()
        response = ask()
        elapsed.append(time.perf_counter() - start_s)
        cpu.append(time.process_time() - cpu_start_s)
    add_row(
        f"{size}: {name}",
        "s",
        min(elapsed),
        notes=f"{min(cpu):.3g} s of CPU, {len(response)} found; shortest of {times}",
    )
    print(json.dumps({"what": name, "s": round(min(elapsed), 3), "cpu_s": round(min(cpu), 3), "found": len(response)}))


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path, help="new folder of the store")
    parser.add_argument("--like", type=Path, required=True, help="a survey as `meshmark store export` prints it")
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--records", type=int, default=333, help="per run")
    parser.add_argument("--surveys", type=int, default=0)
    options = parser.parse_args()
    with recording("The store", options):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Fill the store if it is new, and print the times of queries."""
    store = Store(options.folder)
    if not options.folder.exists():
        rows = template(options.like, options.records)
        start_s = time.perf_counter()
        if options.surveys:
            fill_runs(store, rows, options.surveys)
        else:
            fill(store, rows, options.machines, options.days)
        print(f"made in {time.perf_counter() - start_s:.0f} s")
    import duckdb  # its import is not timed

    duckdb.connect().close()
    runs = store.runs()
    run = runs[len(runs) // 2]["run"]
    size = f"{options.surveys} surveys" if options.surveys else f"{options.machines} machines for {options.days} days"
    size += f" of {options.records} records"
    timed(size, "one run", lambda: store.rows(run=run))
    if not options.surveys:
        sides = Sides(store, options.folder, "")
        timed(size, "two machines", lambda: compare(sides.find("n0001"), sides.find("n0002")).pairs)
    timed(size, "outline", store.runs, 2)
    if options.surveys:
        timed(size, "verify", lambda: list(store.verify()), 1)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    add_row(f"{size}: memory", "GiB", peak_gib)
    print(f"peak memory {peak_gib:.2f} GiB")


if __name__ == "__main__":
    main()
