"""What making a program costs: figures for bench/README.md.

    .venv/bin/python bench/load.py [PART …] [--brief]

    synthesis   CPU time to solve and to explain over random wishes on made-up base data   (1 min)

Without a part, all of them. `--brief` shows in seconds that all parts work; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import sys
import time
from pathlib import Path

from meshmark.errors import MeshmarkError
from meshmark.load.prescription import Prescription
from meshmark.load.synthesis import ImpossibleError, explain, synthesize

# Of the tests, which are no package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "unit"))
made = importlib.import_module("made_base")


def _line(what: str, values: list[float], unit: str, scale: float = 1.0) -> None:
    ranked = sorted(v * scale for v in values)
    print(f"  {what:34} median {statistics.median(ranked):9.4g}  worst {ranked[-1]:9.4g} {unit}")


def synthesis(repeats: int) -> None:
    for counts in ((1,), (1, 2, 4)):
        variants = made.made_base(seed=1, thread_counts=counts, most=4500)
        usable = sum(v.threads == 1 for v in variants)
        print(
            f"{len(variants)} variants, {usable} of them with the program's threads; {repeats} random possible wishes"
        )
        rng = random.Random(7)
        solve, explained, errors, deviations, windows, kernels, short, impossible = [], [], [], [], [], [], 0, []
        synthesize(variants, Prescription(run_time_s=10.0))  # imports the solvers
        for i in range(repeats):
            wish = made.random_wish(variants, rng, run_time_s=rng.choice((3.0, 10.0, 30.0, 100.0)), seed=i)
            began = time.process_time()
            try:
                program = synthesize(variants, wish)
            except MeshmarkError as why:
                print("  refused:", why, why.hint)
                continue
            solve.append(time.process_time() - began)
            errors.append(max(abs(e) for e in program.errors().values()))
            deviations.append(program.uniformity.worst)
            windows.append(max(program.uniformity.window_cov.values()))
            kernels.append(float(len(program.kernels)))
            short += len(program.kernels) < 20
            began = time.process_time()
            explain(variants, wish)
            explained.append(time.process_time() - began)
            far = {k: v * 50 for k, v in wish.metrics.items() if k != "write_fraction"}
            began = time.process_time()
            try:
                synthesize(variants, Prescription(run_time_s=10.0, metrics={**wish.metrics, **far}))
            except ImpossibleError:
                impossible.append(time.process_time() - began)
        _line("solve, order and proof", solve, "s")
        _line("ranges of a possible wish", explained, "s")
        _line("refusal of an impossible one", impossible, "s")
        _line("largest error of a sum on paper", errors, "%", 100)
        _line("deviation from the straight line", deviations, "% of the total", 100)
        _line("variation of 1 s windows", windows, "%", 100)
        print(f"  {'kernels a program':34} fewest {min(kernels):g}, median {statistics.median(kernels):g}; "
              f"below 20 in {short}")  # fmt: skip


PARTS = {"synthesis": (synthesis, 100)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--brief", action="store_true")
    args = parser.parse_args()
    for name in args.part or PARTS:
        run, repeats = PARTS[name]
        print(name)
        run(5 if args.brief else repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
