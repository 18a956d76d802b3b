"""Methods of tests on this host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark import process
from meshmark.describe import find_probe
from meshmark.errors import AbsentError
from meshmark.machine.tree import parse_list
from meshmark.measure.repetitions import MIN_SAMPLES
from meshmark.store.files import make_folder
from meshmark.store.record import Record
from meshmark.validation.claims.bench import Bench, terms_of, value_of
from meshmark.validation.claims.judging import Effect, exact, product
from meshmark.validation.claims.registry import method

_SHORT: Final = ("--budget", "200ms")  # arguments of the process that is placed


@method("host")
def ratio(bench: Bench, test: str, *, what: str, factor: float = 1.0, **parameters: Any) -> Sequence[Effect]:
    """Return the value of one condition over the value of another, or a product of several values."""
    terms = terms_of(parameters)
    records = bench.take(test, terms)
    return [product(what, [(value_of(r), t.power) for r, t in zip(records, terms, strict=True)], factor)]


@method("host")
def count(bench: Bench, test: str, *, what: str, condition: str = "", **parameters: Any) -> Sequence[Effect]:
    """Return a value that is not a duration, of a metric or of an observed condition, or a product of several values.

    The interval contains the values of all samples, so that a single deviation counts.
    """
    terms = terms_of(parameters)
    value, low, high = 1.0, 1.0, 1.0
    for term, record in zip(terms, bench.take(test, terms), strict=True):
        observed = _observed(record, condition) if condition else (record.value, *sorted(record.ends))
        if term.power < 0 and min(observed) <= 0:
            return [Effect(what, 0.0, None, "the value that is divided by is not above 0")]
        factor, *ends = (v**term.power for v in observed)
        value, low, high = value * factor, low * min(ends), high * max(ends)
    return [Effect(what, value, (low, high))]


def _observed(record: Record, condition: str) -> tuple[float, float, float]:
    value = record.conditions.get(condition)
    if not isinstance(value, int | float):
        raise AbsentError(f"{record.instrument} gave no {condition}")
    return float(value), float(value), float(value)


@method("host")
def share_of_peak(bench: Bench, test: str, *, what: str, **parameters: Any) -> Sequence[Effect]:
    """Return a bandwidth over the theoretical peak of the memory, from channels and rate in the firmware tables."""
    peak = float(bench.fact("memory", "peak_bytes_per_s"))
    record = bench.take(test, terms_of(parameters))[0]
    return [product(what, [(value_of(record), 1.0)], 1 / peak)]


@method("host")
def beyond_samples(bench: Bench, test: str, *, what: str, **parameters: Any) -> Sequence[Effect]:
    """Return the range of the medians of fresh processes over the width of the intervals within the processes.

    The bounds of the effect use the widest and the narrowest of these intervals.
    """
    terms = terms_of(parameters)
    record = bench.take(test, terms)[0]
    runs = [r for r in bench.store.query(run=bench.run, metric=terms[0].metric) if _of(r, record.conditions)]
    medians = sorted(r.value for r in runs)
    widths = sorted(r.interval[1] - r.interval[0] for r in runs if r.interval is not None)
    if len(widths) < MIN_SAMPLES or not widths[0]:
        return [Effect(what, 0.0, None, f"{len(widths)} processes have enough samples, {MIN_SAMPLES} are needed")]
    median_range = medians[-1] - medians[0]
    return [
        Effect(what, median_range / widths[len(widths) // 2], (median_range / widths[-1], median_range / widths[0]))
    ]


def _of(record: Record, conditions: Mapping[str, Any]) -> bool:
    keys = ("footprint_bytes", "pages", "pattern", "kernel", "store", "threads", "cpu")
    return all(record.conditions.get(k) == conditions.get(k) for k in keys)


@method("host")
def other_cpus(bench: Bench, test: str, *, what: str, bind: str) -> Sequence[Effect]:
    """Return the number of CPUs, beyond one per thread, on which a process ran that `meshmark run` placed.

    The count of migrations in the kernel would include the move to the CPU to which the process is bound.
    """
    path = bench.folder / f"{test}.placed.jsonl"
    make_folder(path.parent)
    path.unlink(missing_ok=True)
    program = [str(find_probe()), "clock", "--clocks", "tsc", *_SHORT]
    argv = [sys.executable, "-m", "meshmark", "run", "--bind", bind, "--verify", "--record", str(path), "--", *program]
    try:
        result = process.run_text(argv, timeout_s=60 + bench.budget_s)
    except (OSError, subprocess.SubprocessError) as error:
        raise AbsentError(f"meshmark run cannot be started: {error}") from error
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        raise AbsentError(f"meshmark run: {lines[-1] if lines else f'status {result.returncode}'}")
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = json.loads(text)
        report = line.get("report")
        if line.get("kind") == "placement" and isinstance(report, dict) and report.get("threads"):
            ran_on = [parse_list(str(thread["ran_on"])) for thread in report["threads"]]
            return [exact(what, float(sum(len(cpus) - 1 for cpus in ran_on if cpus)))]
    raise AbsentError("meshmark run: its record has no threads")
