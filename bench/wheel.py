"""Compares the probe of a wheel with the probe of this clone, which measure the same if their kernels are the same.

    make wheel && bench/wheel.py [WHEEL] [--rounds 5] [--record]

Both alternate, as in bench/peers.py. The aim of 5 % holds for code that is written by hand: dependent loads, reads,
triads, streaming copies and multiply-adds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

from peer_tools import ROOT, meshmark
from peers import Row, compare, say
from results import ResultRow, add_rows, bench_parser, recording, rows_table

LOW, HIGH = 0.95, 1.05


def rows(probe: Path) -> list[Row]:
    """Return what is measured by both, on the first CPU."""
    cpu = ["--cpus", str(min(os.sched_getaffinity(0))), "--budget", "3s"]
    table = []
    for footprint in ("16KiB", "512KiB", "64MiB"):
        words = ["latency", "--footprint", footprint, "--pages", "thp", *cpu]
        table.append(_row(f"dependent loads, {footprint}", "ns", 1e-9, "load_latency", words, probe))
    streams = (("read", "ordinary"), ("triad", "ordinary"), ("copy", "streaming"))
    for footprint in ("16KiB", "256MiB"):
        for kernel, store in streams:
            words = ["bandwidth", "--kernel", kernel, "--store", store, "--threads", "1", "--footprint", footprint]
            name = f"{kernel}, {store} stores, {footprint}"
            table.append(_row(name, "GB/s", 1e9, "bandwidth_net", [*words, "--pages", "thp", *cpu], probe))
    for kind in ("fp64", "fp32"):
        words = ["peak", "--type", kind, "--threads", "1", *cpu]
        table.append(_row(f"multiply-add {kind}", "GFLOP/s", 1e9, "flop_rate", words, probe))
    return table


def _row(name: str, unit: str, scale: float, metric: str, words: list[str], probe: Path) -> Row:
    ours = meshmark(metric, *words, note="chosen_isa")
    return Row(name, unit, scale, ours, {"wheel": meshmark(metric, *words, probe=probe)}, LOW, HIGH)


def main() -> int:
    """Measure the rows in pairs, print the table, and return the exit status."""
    parser = bench_parser(__doc__)
    parser.add_argument("wheel", nargs="?", type=Path, help="[the only wheel for this machine in dist]")
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row [5]")
    options = parser.parse_args()
    wheels = [options.wheel] if options.wheel else [*(ROOT / "dist").glob(f"meshmark-*_{os.uname().machine}.whl")]
    if len(wheels) != 1:
        say(f"wheel: error: found {len(wheels)} wheels for this machine in dist, one is required")
        say("hint: make wheel")
        return 1
    with tempfile.TemporaryDirectory() as folder, recording("The wheel", options):
        with zipfile.ZipFile(wheels[0]) as archive:
            probe = Path(archive.extract("meshmark/bin/meshmark-probe", folder))
        probe.chmod(0o755)
        results: list[ResultRow] = []
        for row in rows(probe):
            say(row.name)
            results += [result.summary() for result in compare(row, options.rounds)]
        add_rows(results)
        print(rows_table(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
