"""Compares the NAS benchmarks of `npb` with the reference programs, in alternation: `--record` writes the ratios.

    .venv/bin/python bench/npb.py FOLDER [KERNEL …] [--class A] [--ranks 1] [--turns 2] [--mpi openmpi]

FOLDER has the reference programs, KERNEL.CLASS.x (NPB 3.4, MPI), which you build with the compiler and optimisation
of this build. Both run with the same number of ranks and the same launcher, and both must verify. Nobody else should
use the machine: the load is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from comm import ranks, results, started
from results import add_row, bench_parser, recording

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.measure.runs import launch
from meshmark.store.record import median

KERNELS: Final = ("ep", "cg", "mg", "ft", "is", "lu", "bt", "sp")


def ours(with_: launch.Launcher, kernel: str, of: str, count: int) -> float:
    """Return the seconds of a solution, with the Fourier transforms of Meshmark, as the reference has built-in ones.

    Raises:
        MeshmarkError: The program failed.
        AbsentError: It is not available, or its result is not verified.
    """
    words = ["npb", "--kernel", kernel, "--class", of, "--fft", "own", "--budget", "1s"]
    lines = ranks(with_, count, words, 3600)
    by_metric = results(lines, "elapsed")
    if not by_metric:
        raise AbsentError(next((line["reason"] for line in lines if line["type"] == "absent"), "no result"))
    return float(by_metric[0]["value"])


def reference(with_: launch.Launcher, program: Path, count: int) -> float:
    """Return the seconds that the program reports.

    Raises:
        MeshmarkError: The program failed, or its result is not verified.
        AbsentError: It does not exist.
    """
    if not program.exists():
        raise AbsentError(f"{program} is not there")
    completed = started(with_, count, [str(program)], 3600)
    match = re.search(r"Time in seconds\s*=\s*([\d.]+)", completed.stdout)
    if match is None or not re.search(r"Verification\s*=\s*SUCCESSFUL", completed.stdout):
        raise MeshmarkError(f"{program.name}: status {completed.returncode}, and no verified time in seconds")
    return float(match[1])


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*", choices=[[], *KERNELS], metavar="KERNEL")
    parser.add_argument("--class", dest="of", default="A", choices=list("SWABC"))
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--mpi", default="openmpi")
    options = parser.parse_args()
    try:
        launcher = launch.launcher(options.mpi)
    except MeshmarkError as error:
        sys.exit(f"bench/npb.py: {error}")
    with recording("Applications", options):
        failed = compare(launcher, options)
    sys.exit(failed)


def compare(launcher: launch.Launcher, options: argparse.Namespace) -> bool:
    """Run both programs in alternation, print their times, and return whether any failed."""
    print(f"class {options.of}, {options.ranks} rank(s), {options.mpi} (load {os.getloadavg()[0]:.2f} before)")
    print(f"{'':4} {'ours, s':24} {'reference, s':24} speed, times the reference: median [range]")
    failed = False
    for kernel in options.kernels or KERNELS:
        a, b = [], []
        try:
            for _ in range(options.turns):
                b.append(reference(launcher, options.folder / f"{kernel}.{options.of}.x", options.ranks))
                a.append(ours(launcher, kernel, options.of, options.ranks))
        except AbsentError as error:
            print(f"{kernel:4} absent: {error}", flush=True)
            continue
        except (MeshmarkError, subprocess.TimeoutExpired) as error:
            print(f"{kernel:4} failed: {error}", flush=True)
            failed = True
            continue
        ratios = [peer_s / own_s for own_s, peer_s in zip(a, b, strict=True)]
        texts = (", ".join(f"{x:.4g}" for x in values) for values in (a, b))
        print(
            f"{kernel:4} " + " ".join(f"{text:24}" for text in texts),
            f"{median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]",
            flush=True,
        )
        what = f"npb {kernel}, class {options.of}, {options.ranks} rank{'s' * (options.ranks > 1)} (ratio of speeds)"
        add_row(what, "s", a, peer="reference, NPB 3.4", theirs=b, of_speeds=True, limits=(0.95, None))
    return failed


if __name__ == "__main__":
    main()
