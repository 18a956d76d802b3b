"""Measures how reliable one measurement is: the share of fresh ones whose bounds contain the pooled median of all.

Each is a separate `meshmark measure`. A measurement that reports modes has stated that it is not reliable, and
counts as right; flagged ones are also counted separately.

    .venv/bin/python bench/coverage.py --count 20
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from results import add_row, bench_parser, recording

from meshmark.store.record import MODE_SUFFIX, Record

MEASUREMENTS: Final[dict[str, tuple[str, ...]]] = {
    "triad": ("bandwidth", "--kernel", "triad", "--threads", "all", "--footprint", "512MiB", "--pages", "thp"),
    "core to core": ("lines",),
}
MESHMARK: Final = str(Path(sys.executable).parent / "meshmark")


def measured(argv: Sequence[str], budget: str) -> list[Record]:
    """Return the results of one measurement, without the records of single modes."""
    completed = subprocess.run(
        [MESHMARK, "measure", *argv, "--budget", budget, "--no-store", "--json"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    records = [Record.from_json(json.loads(line)) for line in completed.stdout.splitlines()]
    return [r for r in records if r.interval and not r.metric.endswith(MODE_SUFFIX)]


def holds(interval: tuple[float, float] | None, value: float) -> bool:
    """Return whether a value lies in an interval; False without an interval."""
    return interval is not None and interval[0] <= value <= interval[1]


def point(r: Record) -> str:
    """Return the key by which repeated results are pooled: the metric and the conditions that vary."""
    keys = ("store", "state", "from_cpu", "to_cpu", "home_node")
    return json.dumps([r.metric, *(r.conditions.get(k) for k in keys)])


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("--count", type=int, default=20, help="measurements of each kind [20]")
    parser.add_argument("--budget", default="10s", help="of each measurement [10s]")
    options = parser.parse_args()
    with recording("Reliability", options):
        count_right(options.count, options.budget)


def count_right(count: int, budget: str) -> None:
    """Measure repeatedly and print how many results hold the pooled median of all, or report modes."""
    print(f"{'measured':14} {'results':>7} {'interval':>8} {'bounds':>7} {'modes':>6} {'right':>7}  unflagged; medians")
    for name, argv in MEASUREMENTS.items():
        runs: dict[str, list[Record]] = {}
        for _ in range(count):
            for r in measured(argv, budget):
                runs.setdefault(point(r), []).append(r)
        for key, repeated in runs.items():
            pooled = median([s for r in repeated for s in r.samples])
            contains = [holds(r.bounds, pooled) for r in repeated]
            narrow = [holds(r.interval, pooled) for r in repeated]
            modes = [bool(r.conditions.get("run_modes")) for r in repeated]
            right = [a or b for a, b in zip(contains, modes, strict=True)]
            plain = [ok for ok, r in zip(right, repeated, strict=True) if not r.flags]
            values = sorted(r.value for r in repeated)
            print(
                f"{name:14} {len(repeated):7d} {sum(narrow):8d} {sum(contains):7d} {sum(modes):6d} "
                f"{100 * sum(right) / len(repeated):5.0f} %  "
                f"{sum(plain)} of {len(plain)}; {values[0]:.3g} to {values[-1]:.3g} {repeated[0].unit}  {key}",
                flush=True,
            )
            add_row(
                f"{name}: fresh measurements that hold the median of all {count}, or report modes: {key}",
                "%",
                100 * sum(right) / len(repeated),
                limits=(95, None),
                notes=f"{sum(plain)} of the {len(plain)} without a flag",
            )


if __name__ == "__main__":
    main()
