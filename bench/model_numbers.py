"""Measures how closely fitted machine files reproduce the few numbers that they are fitted to.

From outputs of MLC are the latencies, read, triad and loaded latency of the Xeon 8269CY, latencies and read of the EPYC
9224, and local and loaded latency and read of the Xeon 4110; a publication gives 74 ns for the X5570. All others are
typical figures without a source. The test is how well a model reproduces such numbers, not whether they are right.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from results import add_row, bench_parser, recording

from meshmark.model.fitting.from_numbers import fit_numbers
from meshmark.model.fitting.key_numbers import KeyNumber, KeyNumbers, check, show

NS, GB, GHZ = 1e-9, 1e9, 1e9
ORDER = (
    ("idle-local", NS),
    ("idle-remote", NS),
    ("read", GB),
    ("triad", GB),
    ("core-read", GB),
    ("link", GB),
    ("transfer", NS),
    ("loaded", NS),
)
# Sockets, cores, stores of the triad, then the numbers in the order above; None: unknown.
MACHINES = {
    "desktop, Ryzen 7 7700X": (1, 8, "ordinary", 75, None, 60, 42, 45, None, 40, 180),
    "2 Xeon X5570": (2, 8, "streaming", 74, 112, 38, 34, 12, 11, 80, None),
    "2 Xeon Silver 4110": (2, 16, "streaming", 82, 138, 136, 118, 11, 34, 125, 130),
    "2 EPYC 9224": (2, 48, "streaming", 112, 201, 399, 380, 35, 110, 190, None),
    "2 Xeon 8269CY": (2, 52, "streaming", 79.3, 133.6, 233, 194, 13, 68, 115, 250),
    "EPYC 7763": (1, 64, "streaming", 105, None, 185, 165, 38, None, 105, 420),
    "Graviton3": (1, 64, "ordinary", 118, None, 290, 205, 40, None, 55, 260),
    "2 Xeon 8480+": (2, 112, "streaming", 118, 190, 520, 470, 13, 140, 160, 320),
    "Altra Max M128-30": (1, 128, "ordinary", 112, None, 178, 128, 36, None, 50, 600),
    "2 EPYC 9654": (2, 192, "streaming", 120, 210, 740, 720, 48, 190, 200, 480),
    "2 Xeon 6980P": (2, 256, "ordinary", 130, 240, 1250, 820, 16, 330, 210, 400),
}


def main() -> None:
    """Measure what the command line requests."""
    with recording("Fitted machine files", bench_parser(__doc__).parse_args()):
        fit_all()


def fit_all() -> None:
    """Fit each machine and print its numbers with their errors."""
    names = [name for name, _ in ORDER]
    print(f"| machine | cores | {' | '.join(names)} | time |")
    print("|" + "---|" * (3 + len(ORDER)))
    for machine, (sockets, cores, store, *values) in MACHINES.items():
        given_numbers = {
            name: KeyNumber(value * unit, "")
            for (name, unit), value in zip(ORDER, values, strict=True)
            if value is not None
        }
        numbers = KeyNumbers(sockets, {"cores": KeyNumber(cores, ""), **given_numbers}, store)
        check(numbers)
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcomes = {o.name: o for o in fit_numbers(numbers, "machine", Path(folder)).outcomes}
        cells = []
        for name in names:
            o = outcomes.get(name)
            error = "–" if o is None or o.error is None else f"{show(name, o.given or 0)} {100 * o.error:+.1f} %"
            cells.append(error.replace(" +0.0 %", " 0.0 %").replace(" -0.0 %", " 0.0 %"))
        elapsed_s = time.monotonic() - start_s
        print(f"| {machine} | {cores} | {' | '.join(cells)} | {elapsed_s:.1f} s |")
        errors = [100 * o.error for o in outcomes.values() if o.error is not None]
        add_row(
            f"{machine}, {cores} cores: largest error of the fitted numbers",
            "%",
            max(errors, key=abs),
            notes=f"{len(errors)} numbers; fitted in {elapsed_s:.1f} s",
        )


if __name__ == "__main__":
    main()
