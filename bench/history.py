"""Measures how well `meshmark history` finds changes, compared with other methods, and its run time.

    .venv/bin/python bench/history.py --count 1000 --peers FOLDER...

False alarms are counted in series without a change, detections in series with a shift of 5 % and noise of 2 %.
FOLDER has Apache Otava or ruptures, as `pip install --no-deps --target FOLDER apache-otava ruptures` installs them;
a library that cannot be imported is left out. ruptures only proposes candidates, which the tests of
`values.changepoints` judge here.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import add_row, bench_parser, recording

from meshmark.compare.history import over_time
from meshmark.statistics import changepoints
from meshmark.store.record import Metric, Record
from meshmark.store.series import RunValue, Series

NOISE, SHIFT, NEAR = 0.02, 1.05, 3
LENGTHS = (10, 30, 100)
SHIFTS = ((10, 5), (30, 15), (30, 25), (100, 50), (100, 95))  # length, and index of the first value after the shift
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
Values = NDArray[np.float64]
Method = Callable[[Values], list[int]]


def made(kind: str, n: int, dice: np.random.Generator) -> Values:
    """Return a series without a change, around 100."""
    normal = dice.normal(0, 1, n)
    if kind == "log-normal":
        return np.asarray(100 * np.exp(NOISE * normal + NOISE * np.exp(dice.normal(0, 1, n))))
    if kind == "bimodal":
        return np.asarray(100 * (1 + 0.005 * normal) * np.where(dice.random(n) < 0.5, 1, 1.1))
    values = 100 * (1 + NOISE * normal)
    if kind == "outlier":
        values[dice.integers(n)] *= dice.choice([0.6, 1.6])
    return np.asarray(values)


KINDS = ("normal", "log-normal", "bimodal", "outlier")


def of(values: Sequence[float], name: str = "0") -> Series:
    """Return a series with one run per day."""
    record = Record.from_samples(
        Metric("time", "s", "lower", ""),
        [1.0],
        source="tool",
        machine="m",
        instrument="bench",
        conditions={"point": name},
        provenance={},
    )
    runs = tuple(
        RunValue(run=f"r{i:04d}", start=(FIRST + timedelta(days=i)).isoformat(), value=v, low=v, high=v, made_by={})
        for i, v in enumerate(values)
    )
    return Series(record, runs)


def ours(values: Values) -> list[int]:
    """Return the indices at which `meshmark history` reports a change."""
    changes = over_time("m", [of(values.tolist())], (), datetime.now(UTC)).changes
    return sorted(int(c.after.runs[0].run[1:]) for c in changes)


def unjudged(values: Values) -> list[int]:
    """Return the indices at which the level changes significantly, whatever the size of the change."""
    return [s.at for s in changepoints.splits(values.tolist())]


def peers() -> dict[str, Method]:
    """Return the methods of other packages that are installed."""
    methods: dict[str, Method] = {}
    try:
        otava: Any = importlib.import_module("otava.analysis")
        methods["Apache Otava"] = lambda v: [int(c.index) for c in otava.compute_change_points(v.tolist())[0]]
        methods["Apache Otava, magnitude 2 %"] = lambda v: [
            int(c.index) for c in otava.compute_change_points(v.tolist(), min_magnitude=0.02)[0]
        ]
    except ImportError:
        print("otava: not found", file=sys.stderr)
    try:
        ruptures: Any = importlib.import_module("ruptures")
    except ImportError:
        print("ruptures: not found", file=sys.stderr)
        return methods

    def with_ruptures(values: Values) -> list[int]:
        x = np.log(values)
        noise = float(np.median(np.abs(np.diff(x)))) / 0.6745 / math.sqrt(2) or 1.0
        least = changepoints.MIN_SEGMENT
        fitted = ruptures.KernelCPD(kernel="linear", min_size=least).fit(x / noise)
        changes = [int(i) for i in fitted.predict(pen=2 * math.log(len(x)))[:-1]]
        return [s.at for s in changepoints.strongest(x, changes)]

    methods["ruptures KernelCPD, our tests"] = with_ruptures
    return methods


def rates(name: str, method: Method, count: int) -> None:
    """Print the false alarms of a method per 1000 series, and how many changes it detects."""
    out: dict[str, Any] = {"method": name, "count": count}
    for kind in KINDS:
        for n in LENGTHS:
            rng = np.random.default_rng([KINDS.index(kind), n])
            alarms = sum(bool(method(made(kind, n, rng))) for _ in range(count))
            out[f"false {kind} {n}"] = round(1000 * alarms / count, 1)
    for kind in ("normal", "outlier"):
        for n, shift_index in SHIFTS:
            rng = np.random.default_rng([n, shift_index])
            errors = []
            for _ in range(count):
                values = made(kind, n, rng)
                values[shift_index:] *= SHIFT
                errors += [min(abs(i - shift_index) for i in changes)] if (changes := method(values)) else []
            near_count = sum(e <= NEAR for e in errors) / count
            out[f"found {kind} {n}@{shift_index}"] = round(near_count, 3)
            out[f"error {kind} {n}@{shift_index}"] = round(float(np.mean(errors)), 2) if errors else None
    rng = np.random.default_rng(1)
    series = [made("normal", 100, rng) for _ in range(200)]
    cpu_start_s = time.process_time()
    for values in series:
        method(values)
    out["cpu_s of 1000 of length 100"] = round(5 * (time.process_time() - cpu_start_s), 2)
    print(json.dumps(out), flush=True)
    for what, value in out.items():
        if isinstance(value, float):
            add_row(f"{name}: {what}", "of 1000" if what.startswith("false") else "", value, notes=f"{count} series")


def together(points: int, times: int) -> None:
    """Print the false changes in `times` histories of many points without a change."""
    rng = np.random.default_rng(2)
    for n in (10, 30):
        histories = [
            over_time("m", [of(made("normal", n, rng).tolist(), str(i)) for i in range(points)], (), datetime.now(UTC))
            for _ in range(times)
        ]
        alarms = [len(h.changes) for h in histories]
        print(json.dumps({"points": points, "length": n, "histories": times, "false changes": sum(alarms)}), flush=True)
        what = f"histories of {points} points without a change, {n} runs, that list one"
        add_row(what, f"of {times}", sum(a > 0 for a in alarms))


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--count", type=int, default=1000, help="series of each kind")
    parser.add_argument("--peers", nargs="*", default=[], metavar="FOLDER", help="where to import the others from")
    options = parser.parse_args()
    sys.path += options.peers
    methods: dict[str, Method] = {"meshmark history": ours, "our changes, not judged": unjudged}
    with recording("Changes over time", options):
        for name, method in (methods | peers()).items():
            rates(name, method, options.count)
        together(300, 20)


if __name__ == "__main__":
    main()
