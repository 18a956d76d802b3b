"""Measures the cost of making a program: `--record` writes the figures.

    .venv/bin/python bench/load.py [PART …] [--brief]

    synthesis   CPU time to solve and to explain over random targets on simulated base data   (1 min)
    achieved    programs of random targets, made from the base data of this machine, run twice: the achieved values,
                and the difference of the same program between runs   (20 min; needs meshmark load base)
    paced       the same with pace = 0.1: programs that keep a schedule, on one CPU and on two   (15 min)
    predict     errors of the interference curves of random programs for neighbours that were held out, in percentage
                points, beside the interval of the measurement   (20 min; needs meshmark load base, 2 CPUs)
    memrate     the same read and write rates requested from stress-ng and from a program, in turns   (3 min; needs
    stress-ng)

Without a part, all parts run. Nobody else should use the machine: waits for a CPU are subtracted and printed.
`--brief` shows in seconds that all parts work; its figures mean nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from results import Figure, add_row, bench_parser, recording

from meshmark.errors import MeshmarkError
from meshmark.load.calibration.base import base_run, variants_of
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.synthesis import explain, synthesize
from meshmark.load.synthesis.make import ProgramTrial, calibrate, run_program
from meshmark.load.synthesis.problem import ImpossibleError
from meshmark.machine.facts import host_id
from meshmark.measure.survey import load_run
from meshmark.values.paths import data_home

# The tests are not a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
support = importlib.import_module("support.made_base")


def _line(part: str, what: str, values: list[float], unit: str, scale: float = 1.0) -> None:
    ranked = sorted(v * scale for v in values)
    add_row(
        f"{part}: {what}", unit, Figure(statistics.median(ranked), math.nan, ranked[-1]), notes=f"{len(values)} values"
    )
    print(f"  {what:34} median {statistics.median(ranked):9.4g}  worst {ranked[-1]:9.4g} {unit}")


def synthesis(repeats: int) -> None:
    """Print the time and the precision of the synthesis of random possible target profiles."""
    for counts in ((1,), (1, 2, 4)):
        variants = support.made_base(seed=1, thread_counts=counts, most=4500)
        usable = sum(v.threads == 1 for v in variants)
        print(
            f"{len(variants)} variants, {usable} of them with the program's threads; {repeats} random possible wishes"
        )
        rng = random.Random(7)
        solve, explained, errors, deviations, windows, kernels, short, impossible = [], [], [], [], [], [], 0, []
        synthesize(variants, TargetProfile(run_time_s=10.0))  # imports the solvers
        for i in range(repeats):
            target = support.random_wish(variants, rng, run_time_s=rng.choice((3.0, 10.0, 30.0, 100.0)), seed=i)
            cpu_start_s = time.process_time()
            try:
                program = synthesize(variants, target)
            except MeshmarkError as error:
                print("  refused:", error, error.hint)
                continue
            solve.append(time.process_time() - cpu_start_s)
            errors.append(max(abs(e) for e in program.errors().values()))
            deviations.append(program.uniformity.worst)
            windows.append(max(program.uniformity.window_cov.values()))
            kernels.append(float(len(program.kernels)))
            short += len(program.kernels) < 20
            cpu_start_s = time.process_time()
            explain(variants, target)
            explained.append(time.process_time() - cpu_start_s)
            scaled_metrics = {k: v * 50 for k, v in target.metrics.items() if k != "write_fraction"}
            cpu_start_s = time.process_time()
            try:
                synthesize(variants, TargetProfile(run_time_s=10.0, metrics={**target.metrics, **scaled_metrics}))
            except ImpossibleError:
                impossible.append(time.process_time() - cpu_start_s)
        _line("synthesis", "solve, order and proof", solve, "s")
        _line("synthesis", "ranges of a possible wish", explained, "s")
        _line("synthesis", "refusal of an impossible one", impossible, "s")
        _line("synthesis", "largest error of a sum on paper", errors, "%", 100)
        _line("synthesis", "deviation from the straight line", deviations, "% of the total", 100)
        _line("synthesis", "variation of 1 s windows", windows, "%", 100)
        print(
            f"  {'kernels a program':34} fewest {min(kernels):g}, median {statistics.median(kernels):g}; "
            f"below 20 in {short}"
        )
        add_row("synthesis: kernels a program, fewest", "", min(kernels), limits=(20, None))


def _base() -> list[Variant]:
    folder = base_run(data_home() / "runs", host_id())
    if folder is None:
        sys.exit("no base data of this machine: meshmark load base")
    records, _, info = load_run(folder)
    print(f"  base data: {folder.name} ({info.spec_name})")
    return variants_of(records)


def _windows(trial: ProgramTrial, seconds: float = 1.0) -> float:
    """Return the coefficient of variation of the memory traffic in windows of CPU time.

    The incomplete last window is left out.
    """
    sums, busy, moved_bytes = [], 0.0, 0.0
    for w in trial.windows:
        busy += w["cpu_s"]
        moved_bytes += w["memory_read_bytes"] + w["memory_write_bytes"]
        if busy >= seconds:
            sums.append(moved_bytes / busy)
            busy = moved_bytes = 0.0
    return statistics.pstdev(sums) / statistics.fmean(sums) if len(sums) > 1 and any(sums) else 0.0


def achieved(programs: int, run_time_s: float = 5.0, trial_s: float = 3.0) -> None:
    """Print how closely calibrated programs meet their profiles on this machine."""
    variants = _base()
    cpu = max(os.sched_getaffinity(0))
    rng = random.Random(2)
    errors_by_metric: list[list[float]] = [[] for _ in range(7)]
    time_errors, rate_errors, mix_errors, floors, windows, kernels, waits = errors_by_metric
    inside = 0
    while len(time_errors) < programs:
        target = support.random_wish(
            variants, rng, run_time_s=run_time_s, seed=len(time_errors), mixed=rng.randint(4, 30)
        )
        try:
            program = synthesize(variants, target)
            program, _ = calibrate(program, trial_s, 2, [cpu])
            runs = [run_program(program, [cpu]) for _ in range(2)]
        except MeshmarkError as error:
            print("  refused:", error)
            continue
        run = runs[0]
        floor = abs(runs[1].dedicated_s / run.dedicated_s - 1)
        time_error = run.dedicated_s / run_time_s - 1
        rates = {k: run.metrics[k] / v - 1 for k, v in target.metrics.items() if k != "write_fraction" and v > 0}
        worst = max((abs(e) for e in rates.values()), default=0.0)
        mix = abs(run.metrics.get("write_fraction", 0.0) - target.metrics.get("write_fraction", 0.0))
        time_errors.append(abs(time_error))
        rate_errors.append(worst)
        mix_errors.append(mix)
        floors.append(floor)
        windows.append(_windows(run))
        kernels.append(float(len(program.kernels)))
        waits.append(run.waiting_s / run.wall_s)
        inside += abs(time_error) <= max(0.02, floor) and worst <= max(0.03, floor)
        label = "{memory_gb_per_s:6.2f} GB/s {gflop_per_s:6.2f} GFLOP/s {write_fraction:.3f} writes".format(
            **target.metrics
        )
        print(
            f"  {len(time_errors):3}: {label}: time {100 * time_error:+.1f} %, rates {100 * worst:.1f} %, "
            f"again {100 * floor:.1f} %, waited {100 * waits[-1]:.1f} %",
            flush=True,
        )
    floor95 = sorted(floors)[int(0.95 * len(floors))]
    _line("achieved", "error of the run time", time_errors, "%", 100)
    _line("achieved", "error of the worse rate", rate_errors, "%", 100)
    _line("achieved", "error of the write fraction", mix_errors, "")
    _line("achieved", "the same program again", floors, "%", 100)
    _line("achieved", "variation of 1 s windows", windows, "%", 100)
    _line("achieved", "waiting for a CPU", waits, "% of the time", 100)
    pairs = zip(time_errors, rate_errors, strict=True)
    within = sum(time_error <= max(0.02, floor95) and rate <= max(0.03, floor95) for time_error, rate in pairs)
    print(
        f"  within 2 % and 3 %, or the pair's difference: {inside} of {programs}; or the 95th percentile of those, "
        f"{100 * floor95:.1f} %: {within}; kernels: fewest {min(kernels):g}"
    )
    add_row("achieved: programs within 2 % and 3 %, or the pair's difference", f"of {programs}", inside)


def paced(programs: int, run_time_s: float = 5.0, trial_s: float = 3.0, pace: float = 0.1) -> None:
    """Print how closely programs that keep a pace meet their profiles on this machine."""
    variants = _base()
    allowed = sorted(os.sched_getaffinity(0))
    rng = random.Random(3)
    errors: dict[str, list[float]] = {"run time": [], "worse rate": []}
    mix_errors: list[float] = []
    spun: list[float] = []
    late = 0
    inside_count = 0
    for number in range(10 * programs):
        if len(spun) == programs:
            break
        threads = 2 if number % 3 == 2 and len(allowed) > 1 else 1
        target = support.random_wish(
            variants, rng, run_time_s=run_time_s, seed=number, mixed=rng.randint(4, 30), threads=threads
        )
        slower = {k: v if k == "write_fraction" else v * (1 - pace) for k, v in target.metrics.items()}
        target = dataclasses.replace(target, pace=pace, metrics=slower)
        try:
            program, _ = calibrate(synthesize(variants, target), trial_s, 2, allowed[-threads:])
            run = run_program(program, allowed[-threads:])
        except MeshmarkError as error:
            print("  refused:", error)
            continue
        time_error = run.wall_s / run_time_s - 1
        rates = {k: run.metrics[k] / v - 1 for k, v in target.metrics.items() if k != "write_fraction" and v > 0}
        worst = max((abs(e) for e in rates.values()), default=0.0)
        errors["run time"].append(abs(time_error))
        errors["worse rate"].append(worst)
        mix_errors.append(abs(run.metrics.get("write_fraction", 0.0) - target.metrics.get("write_fraction", 0.0)))
        spun.append(run.spun_s / run.wall_s)
        late += run.late_s > 0.002 * run_time_s
        inside_count += abs(time_error) <= 0.02 and worst <= 0.03
        print(
            f"  {len(spun):3}: {threads} threads: time {100 * time_error:+.3f} %, rates {100 * worst:.3f} %, spun "
            f"{100 * spun[-1]:.1f} %, late {run.late_s:.2f} s, waited {run.waiting_s:.2f} s",
            flush=True,
        )
    for name, values in errors.items():
        _line("paced", f"error of the {name}", values, "%", 100)
    _line("paced", "error of the write fraction", mix_errors, "")
    _line("paced", "spun", spun, "% of the time", 100)
    print(f"  within 2 % and 3 %: {inside_count} of {len(spun)}; late at the end: {late}")
    limits = (len(spun), None)
    add_row("paced: programs within 2 % and 3 %", f"of {len(spun)}", inside_count, limits=limits, notes=f"late: {late}")


def memrate(repeats: int, seconds: float = 10.0) -> None:
    """Print MB/s as stress-ng counts them: bytes read and written by the instructions, and from and to memory."""
    variants = _base()
    cpu = max(os.sched_getaffinity(0))
    for read, write in ((1000, 500), (2000, 1000), (500, 100)):
        target = TargetProfile(
            run_time_s=seconds,
            name="memrate",
            metrics={"memory_gb_per_s": (read + write) / 1000, "write_fraction": write / (read + write)},
            pace=0.1,
        )
        program, _ = calibrate(synthesize(variants, target), seconds / 2, 2, [cpu])
        for _ in range(repeats):
            words = [
                "stress-ng",
                "--memrate",
                "1",
                "--memrate-rd-mbs",
                str(read),
                "--memrate-wr-mbs",
                str(write),
                "--taskset",
                str(cpu),
                "--timeout",
                f"{seconds:g}s",
                "--metrics",
            ]
            start_s, times_before = time.monotonic(), os.times()
            completed = subprocess.run(words, capture_output=True, text=True, check=True)
            after, took_s = os.times(), time.monotonic() - start_s
            cpu_time_s = (
                after.children_user + after.children_system - times_before.children_user - times_before.children_system
            )
            values = re.findall(r"([0-9.]+) (read|write)\w+ MB per sec", completed.stdout + completed.stderr)
            errors = [abs(float(v) / (read if k == "read" else write) - 1) for v, k in values] or [float("nan")]
            run = run_program(program, [cpu])
            deviations = [
                100 * (run.totals[f"memory_{k}_bytes"] / run.wall_s / 1e6 / v - 1)
                for k, v in (("read", read), ("write", write))
            ]
            busy = (run.user_s + run.system_s) / run.wall_s
            cpu_share = 100 * cpu_time_s / took_s
            add_row(
                f"memrate, {read} + {write} MB/s: largest error of the rates",
                "%",
                max(map(abs, deviations)),
                peer="stress-ng",
                theirs=100 * statistics.median(errors),
                notes=f"{100 * busy:.0f} % of a CPU, stress-ng {cpu_share:.0f} %",
            )
            print(
                f"  asked {read} + {write} MB/s: stress-ng off by {100 * statistics.median(errors):.3f} % (worst "
                f"of {len(errors)} ways {100 * max(errors):.3f} %), {cpu_share:.0f} % CPU; program off by "
                f"{deviations[0]:+.3f} and {deviations[1]:+.3f} %, {100 * busy:.0f} % CPU",
                flush=True,
            )


def predict(programs: int) -> None:
    """Print how closely the slowdown of programs is predicted."""
    from meshmark.load.studies.cells import ProgramMaker
    from meshmark.load.studies.curve import CurveStudy
    from meshmark.load.studies.study import StudyOptions

    variants = _base()
    cpus = sorted(os.sched_getaffinity(0))[-2:]
    rng = random.Random(5)
    errors, widths, flagged_count = [], [], 0
    brief = programs < PARTS["predict"][1]
    programs, repetitions, rates = (1, 1, (1.0, 2.0)) if brief else (programs, 6, ())
    with tempfile.TemporaryDirectory(prefix="meshmark-predict-") as scratch:
        for number in range(programs):
            target = support.random_wish(variants, rng, run_time_s=2.0, seed=number, mixed=rng.randint(4, 30))
            folder = Path(scratch) / f"{number}"
            try:
                work = ProgramMaker(folder=folder / "work", variants=variants, machine="", cpus=cpus).file(
                    "measured", target
                )
                # The dedicated clock: what the neighbour does to caches and memory, not what others do to the CPUs.
                options = StudyOptions(repetitions=repetitions, seed=number, clock="dedicated")
                curve = CurveStudy(
                    folder / "study", work=work, variants=variants, cpus=cpus, rates_gb_per_s=rates, options=options
                ).run()
            except MeshmarkError as error:
                print("  refused:", error)
                continue
            for run in curve.predictions:
                low, high = run.measured.slowdown.interval or (float("nan"), float("nan"))
                errors.append(run.error_points)
                widths.append(50 * (high - low))
                flagged_count += bool(run.measured.flags)
                print(
                    f"  {number + 1:3}: beside {run.measured.label}: predicted {run.predicted:.3f}, measured "
                    f"{run.measured.slowdown.ratio:.3f} ± {widths[-1]:.1f} points",
                    flush=True,
                )
    _line("predict", "error of the prediction", errors, "points")
    _line("predict", "half the interval of the measured", widths, "points")
    close_count = sum(e <= 5 for e in errors)
    limits = (len(errors), None)
    add_row("predict: held-out neighbours within 5 points", f"of {len(errors)}", close_count, limits=limits)
    print(f"  within 5 points: {close_count} of {len(errors)}; {flagged_count} of them flagged")


PARTS: dict[str, tuple[Callable[[int], None], int]] = {
    "synthesis": (synthesis, 100),
    "achieved": (achieved, 50),
    "paced": (paced, 50),
    "memrate": (memrate, 3),
    "predict": (predict, 10),
}


def main() -> int:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--brief", action="store_true")
    args = parser.parse_args()
    with recording("Loading", args):
        for name in args.part or PARTS:
            run, repeats = PARTS[name]
            print(name)
            run(min(repeats, 5) if args.brief else repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
