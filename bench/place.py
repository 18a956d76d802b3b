"""Measures the cost and the gain of placement: `--record` writes the figures.

    .venv/bin/python bench/place.py [PART …] [--brief]

    search      time of `meshmark place` for compact sets, exact and heuristic        (5 min)
    startup     time of `meshmark run` against taskset, numactl and hwloc-bind        (1 min)
    disturbed   spread of a triad beside a disturbing program, placed and free        (1 min)
    advise      statistics of the adviser on simulated machines                       (5 min)

Without a part, all parts run. `--brief` shows in a minute that all parts work; its figures mean nothing. `startup`
and `disturbed` need a machine that nobody else uses.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from results import Figure, add_row, bench_parser, recording

from meshmark.doctor.starts import TriadStart, spread_of, summary, triad
from meshmark.experiments.halving import EXHAUSTIVE, MINIMUM_EFFECT, trial
from meshmark.machine.sources import from_sysfs
from meshmark.place.native import answer, find_place
from meshmark.statistics.shift import shift
from meshmark.store.record import median, median_interval

CPUS: Final = sorted(os.sched_getaffinity(0))

# ------------------------------------------------------------------ search


def random_matrix(n: int, seed: int) -> list[list[float]]:
    """Return a symmetric matrix, 10 on the diagonal, without a structure that a search could use."""
    rng = random.Random(seed)
    rows = [[10.0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            rows[a][b] = rows[b][a] = rng.uniform(11, 40)
    return rows


def tree_matrix(lengths: Sequence[int], noise: float) -> list[list[float]]:
    """Return a measured tree: a latency per level at which two leaves part, with errors of each pair up to `noise`."""
    rng = random.Random(2)
    levels = (25.0, 50.0, 110.0, 200.0)
    n = math.prod(lengths)
    rows = [[10.0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            x, y, part = a, b, 0
            for level, length in enumerate(reversed(lengths)):
                if x % length != y % length:
                    part = level
                x, y = x // length, y // length
            rows[a][b] = rows[b][a] = levels[part] * rng.uniform(1 - noise, 1 + noise)
    return rows


def torus_matrix(lengths: Sequence[int], noise: float, closed: bool = True) -> list[list[float]]:
    """Return 10, and 6 more per hop, with errors of each pair up to `noise`. A mesh if it is not `closed`."""
    rng = random.Random(3)
    n = math.prod(lengths)
    rows = [[10.0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            x, y, hops = a, b, 0
            for length in reversed(lengths):
                d = abs(x % length - y % length)
                hops += min(d, length - d) if closed else d
                x, y = x // length, y // length
            rows[a][b] = rows[b][a] = (10 + 6 * hops) * rng.uniform(1 - noise, 1 + noise)
    return rows


Matrix = Callable[[], list[list[float]]]


def search(repeats: int) -> None:
    """Print how long searches for compact sets take, and how close they come to the bound."""
    print("time: of the whole program; search: its CPU time less that of policy `any`, which reads the matrix too")
    print(f"{'machine':34} {'set':>12} {'median':>9} {'slowest':>9} {'search':>9}  proven  over the bound")
    rows: tuple[tuple[str, Matrix, tuple[int, ...]], ...] = (
        ("4 x 8 x 8 cores, measured +-3 %", lambda: tree_matrix((4, 8, 8), 0.03), (2, 8, 16, 32, 64, 100, 128)),
        ("4 x 8 x 8 cores", lambda: tree_matrix((4, 8, 8), 0), (32, 100)),
        ("4 x 16 x 16 cores, measured +-3 %", lambda: tree_matrix((4, 16, 16), 0.03), (2, 8, 64, 100, 200, 300, 512)),
        ("torus 32 x 32", lambda: torus_matrix((32, 32), 0), (64, 100, 200, 500)),
        ("torus 32 x 32, measured +-3 %", lambda: torus_matrix((32, 32), 0.03), (100, 500)),
        ("torus 8 x 8 x 16", lambda: torus_matrix((8, 8, 16), 0), (100, 200, 500)),
        ("hypercube of 1024", lambda: torus_matrix((2,) * 10, 0), (200,)),
        ("mesh 32 x 32", lambda: torus_matrix((32, 32), 0, closed=False), (200, 500)),
        ("mesh 8 x 8 x 16", lambda: torus_matrix((8, 8, 16), 0, closed=False), (100, 400)),
        ("random, 32", lambda: random_matrix(32, 1), (8,)),
        ("random, 64", lambda: random_matrix(64, 1), (16,)),
        ("random, 256", lambda: random_matrix(256, 1), (32,)),
        ("random, 1024", lambda: random_matrix(1024, 1), (64, 500)),
    )
    for name, make, sets in rows:
        matrix = make()
        n = len(matrix)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"nodes": list(range(n)), "unit": "1", "what": name, "values": matrix}, file)
            file.flush()
            for count in sets:
                times: dict[str, list[float]] = {"any": [], "compact": []}
                cpu_times: dict[str, list[float]] = {"any": [], "compact": []}
                for _ in range(repeats):
                    for policy in ("any", "compact"):
                        before, start_s = os.times(), time.perf_counter()
                        job = answer(
                            [
                                "plan",
                                "--topology",
                                f"pack:{n} [numa] core:1 pu:1",
                                "--policy",
                                policy,
                                "--jobs",
                                str(count),
                                "--matrix",
                                file.name,
                            ]
                        )["jobs"][0]
                        times[policy].append(time.perf_counter() - start_s)
                        cpu_times[policy].append(os.times().children_user - before.children_user)
                over = job["mean_distance"] / job["bound"] - 1 if job.get("bound") else math.nan
                print(
                    f"{name:34} {count:4} of {n:4} {median(times['compact']):7.3f} s {max(times['compact']):7.3f} s "
                    f"{median(cpu_times['compact']) - median(cpu_times['any']):7.3f} s  "
                    f"{'yes' if job['optimal'] else 'no':>6}  {100 * over:+.2f} %",
                    flush=True,
                )
                search_s = median(cpu_times["compact"]) - median(cpu_times["any"])
                notes = f"search {search_s:.3f} s, the whole program at most {max(times['compact']):.3f} s"
                add_row(f"{name}, {count} of {n}: above the bound", "%", 100 * over, limits=(None, 5), notes=notes)


# ------------------------------------------------------------------ startup


def took(words: Sequence[str]) -> float:
    """Return the wall time of a command in s; a failed command ends the program."""
    start_s = time.perf_counter()
    child = os.posix_spawn(words[0], list(words), os.environ)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise SystemExit(f"{words[0]} ended with status {status}")
    return time.perf_counter() - start_s


def startup(turns: int) -> None:
    """Print the start-up time of placers and of other launchers, measured in alternation."""
    cpu, true = str(CPUS[0]), shutil.which("true") or "/bin/true"
    meshmark = str(Path(sys.executable).parent / "meshmark")
    tools = {
        "taskset": ["taskset", "-c", cpu, true],
        "meshmark-place run": [str(find_place()), "run", "--bind", f"list={cpu}", "--", true],
        "meshmark run": [meshmark, "run", "--bind", f"list={cpu}", "--", true],
        "meshmark run --no-claim": [meshmark, "run", "--no-claim", "--bind", f"list={cpu}", "--", true],
        "numactl": ["numactl", "-C", cpu, true],
        "hwloc-bind": ["hwloc-bind", "--physical", f"pu:{cpu}", "--", true],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    present = {}
    for name, words in tools.items():
        if program := shutil.which(words[0]):
            present[name] = [program, *words[1:]]
        else:
            print(f"{name}: absent: not installed")
    times: dict[str, list[float]] = {name: [] for name in present}
    rng = random.Random(1)
    for _ in range(turns):
        for name in rng.sample(list(present), len(present)):
            times[name].append(took(present[name]))
    print(f"{turns} turns in random order; ms; over taskset: of the same turn")
    for name, values in times.items():
        over, bounds = shift([a - b for a, b in zip(values[:200], times["taskset"][:200], strict=True)])
        low, high = median_interval(values) or (math.nan, math.nan)
        interval = f"[{1e3 * bounds[0]:+.2f}, {1e3 * bounds[1]:+.2f}]" if bounds else ""
        print(
            f"{name:26} {1e3 * median(values):7.2f} [{1e3 * low:.2f}, {1e3 * high:.2f}]   {1e3 * over:+7.2f} {interval}"
        )
        if name != "taskset":
            figure = Figure(1e3 * over, *(1e3 * b for b in bounds or (math.nan, math.nan)))
            limits = (None, 60) if name == "meshmark run" else (None, None)
            add_row(f"start-up over `taskset -c 0 true`: {name}", "ms", figure, limits=limits, notes=f"{turns} turns")


# ------------------------------------------------------------------ disturbed

# Number of processes that never sleep.
SPIN: Final = """
import os, sys
for _ in range(int(sys.argv[1]) - 1):
    if os.fork() == 0: break
while True: pass
"""


def disturbed(starts: int) -> None:
    """Measure one triad thread beside spinning processes: all unbound, or each job placed by `meshmark run`.

    The disturber stays on the first CPU when it is placed, and the policy `balance` of the triad respects its claim.
    The arrays fit into the second-level cache, as memory varies by more than the effect on a machine with
    neighbours.
    """
    if len(CPUS) < 2:
        print("disturbed: absent: one CPU leaves no choice")
        return
    topology = from_sysfs()
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    for count in (1, len(CPUS)):
        spin = [sys.executable, "-c", SPIN, str(count)]
        command = [str(find_place()), "run", "--bind", f"list={CPUS[0]}", "--", *spin]
        disturbers = {
            bind: subprocess.Popen(words, start_new_session=True)
            for bind, words in (("none", spin), ("balance", command))
        }
        runs: dict[str, list[TriadStart]] = {bind: [] for bind in disturbers}
        try:
            time.sleep(0.5)
            for turn in range(starts):
                for bind in sorted(runs, reverse=turn % 2 == 0):
                    for other, disturber in disturbers.items():
                        os.killpg(disturber.pid, signal.SIGCONT if other == bind else signal.SIGSTOP)
                    time.sleep(0.05)
                    runs[bind].append(triad(bind, 1, 1 << 15, 6000, node_of))
        finally:
            for disturber in disturbers.values():
                os.killpg(disturber.pid, signal.SIGKILL)
                disturber.wait()
        spreads = {}
        for bind, times in runs.items():
            mean, cov, wide = spread_of([s.rate for s in times])
            spreads[bind] = wide, cov
            print(
                f"{count} spinning; {'free' if bind == 'none' else 'placed':6}: {starts} starts, mean "
                f"{mean / 1e9:.2f} GB/s, CoV {100 * cov:.2f} %, (max - min) / min {100 * wide:.1f} %; "
                f"{summary(times)}",
                flush=True,
            )
        (free, free_cov), (placed, placed_cov) = spreads["none"], spreads["balance"]
        add_row(
            f"one triad beside {count} spinning: (max - min) / min",
            "%",
            100 * placed,
            notes=f"free {100 * free:.1f} %; CoV {100 * free_cov:.1f} to {100 * placed_cov:.1f} %; {starts} starts",
        )
        print(f"  spread is {free / placed:.1f} times less when placed, CoV {free_cov / placed_cov:.1f} times")


# ------------------------------------------------------------------ advise

Noise = Callable[[float, int, random.Random], float]
Costs = Callable[[int, random.Random], list[float]]


def gaussian(percent: float) -> Noise:
    """Return noise that multiplies a cost by a log-normal factor."""
    return lambda cost, _, rng: cost * math.exp(rng.gauss(0, percent / 100))


def heavy(cost: float, _: int, rng: random.Random) -> float:
    """Return a time with 3 % of noise; one run in ten takes 30 % longer."""
    return cost * math.exp(rng.gauss(0, 0.03)) * (1.3 if rng.random() < 0.1 else 1)


def drift(cost: float, run: int, rng: random.Random) -> float:
    """Return the time on a machine that slows down by 0.2 % per run."""
    return cost * math.exp(rng.gauss(0, 0.015)) * (1 + 0.002 * run)


def two_modes(cost: float, _: int, rng: random.Random) -> float:
    """Return the time on a machine that runs a third of the runs on the wrong CPUs."""
    return cost * math.exp(rng.gauss(0, 0.01)) * (1.15 if rng.random() < 0.33 else 1)


def step(cost: float, run: int, rng: random.Random) -> float:
    """Return the time beside a neighbour that comes and goes: 10 % slower in every second group of 17 runs."""
    return cost * math.exp(rng.gauss(0, 0.02)) * (1.1 if run // 17 % 2 else 1)


def skewed(cost: float, _: int, rng: random.Random) -> float:
    """Return a time to which noise only adds: exponential, mean 4 %."""
    return cost * (1 + rng.expovariate(25))


def clear(k: int, rng: random.Random) -> list[float]:
    """Return the costs of `k` candidates, the last of which is clearly the best."""
    return [rng.uniform(1.0, 1.3) for _ in range(k - 1)] + [0.85]


def ties(k: int, rng: random.Random) -> list[float]:
    """Return the costs of `k` candidates that are nearly equal."""
    return [rng.uniform(1.0, 1.06) for _ in range(k)]


def none(k: int, _: random.Random) -> list[float]:
    """Return equal costs of `k` candidates."""
    return [1.0] * k


def worse(k: int, rng: random.Random) -> list[float]:
    """Return the costs of `k` candidates, none of which is better than the first."""
    return [1.0] + [rng.uniform(1.0, 1.5) for _ in range(k - 1)]


def graded(k: int, rng: random.Random) -> list[float]:
    """Return evenly spaced costs of `k` candidates in random order."""
    steps = [1 + 0.025 * i for i in range(k)]
    rng.shuffle(steps)
    return steps


def pairs(k: int, rng: random.Random) -> list[float]:
    """Return costs of which half are 8 % better, and almost equal."""
    samples = [rng.uniform(0.92, 0.94) if i % 2 else rng.uniform(1.0, 1.02) for i in range(1, k)]
    return [1.0, *samples]


TUNED: Final[tuple[tuple[str, Costs, Noise], ...]] = (
    ("clear winner, 1 %", clear, gaussian(1)),
    ("near ties, 1 %", ties, gaussian(1)),
    ("near ties, 3 %", ties, gaussian(3)),
    ("none better, 3 %", none, gaussian(3)),
    ("clear winner, heavy tails", clear, heavy),
    ("near ties, heavy tails", ties, heavy),
    ("none better, heavy tails", none, heavy),
    ("clear winner, drift", clear, drift),
    ("near ties, drift", ties, drift),
)
HELD_OUT: Final[tuple[tuple[str, Costs, Noise], ...]] = (
    ("graded by 2.5 %, 2 %", graded, gaussian(2)),
    ("graded by 2.5 %, skewed", graded, skewed),
    ("baseline best, heavy tails", worse, heavy),
    ("half 8 % better, steps", pairs, step),
    ("half 8 % better, skewed", pairs, skewed),
    ("clear winner, two modes", clear, two_modes),
    ("near ties, two modes", ties, two_modes),
    ("near ties, 0.2 %", ties, gaussian(0.2)),
    ("none better, steps", none, step),
)


def true_floor(noise: Noise, seed: int) -> float:
    """Return by how much two sets of ten equal runs differ at most in 95 of 100 cases, with this noise."""
    rng = random.Random(seed)
    differences = []
    for i in range(1000):
        logs = [math.log(noise(1.0, n + i % 34, rng)) for n in range(2 * EXHAUSTIVE)]
        differences.append(abs(shift([a - b for a, b in zip(logs[::2], logs[1::2], strict=True)])[0]))
    return math.expm1(sorted(differences)[949])


def advise(trials: int) -> None:
    """Print how often simulated advice is right, and how many runs it needs."""
    print(
        "within: the choice is within max(2 %, floor) of the true best; 2 %: within 2 %; runs: over those of trying\n"
        "all out, each as often as the last one ran, at least ten times; most: of one trial; of ten: over ten runs\n"
        "of each; claims: it said that something beats the baseline; covers: the interval holds the true gain"
    )
    for title, worlds, counts in (
        ("worlds it was tuned on", TUNED, (6, 12, 24)),
        ("held out", HELD_OUT, (7, 10, 16, 24)),
    ):
        print(
            f"\n{title}\n{'world':28} {'of':>3} {'floor':>7} {'within':>7} {'2 %':>7} {'runs':>7} {'most':>7} "
            f"{'of ten':>7} {'claims':>7} {'covers':>7}"
        )
        for name, costs, noise in worlds:
            limit = true_floor(noise, 1)
            for count in counts:
                rng = random.Random(f"{name} {count}")
                outcomes = [trial(costs(count, rng), noise, seed) for seed in range(trials)]
                covered = [t.covered for t in outcomes if t.covered is not None]
                shares = [t.share for t in outcomes]
                figures = (
                    limit,
                    statistics.fmean(t.loss <= max(MINIMUM_EFFECT, limit) for t in outcomes),
                    statistics.fmean(t.loss <= MINIMUM_EFFECT for t in outcomes),
                    statistics.fmean(shares),
                    max(shares),
                    statistics.fmean(t.of_ten for t in outcomes),
                    statistics.fmean(t.claimed for t in outcomes),
                    statistics.fmean(covered) if covered else math.nan,
                )
                print(f"{name:28} {count:3} " + " ".join(f"{100 * f:5.1f} %" for f in figures), flush=True)
                label = f"adviser, {title}, {name}, {count} candidates"
                _, within, _, share, most, of_ten, claims, covers = (100 * f for f in figures)
                notes = f"of ten runs {of_ten:.1f} %, most of a trial {most:.1f} %, claims {claims:.1f} %"
                add_row(f"{label}: choice within the limit", "%", within, limits=(95, None), notes=notes)
                add_row(f"{label}: runs of an exhaustive search", "%", share, limits=(None, 40))
                add_row(f"{label}: its interval contains the true value", "%", covers, limits=(95, None))


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    names = ("search", "startup", "disturbed", "advise")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names) + " [all]")
    parser.add_argument("--brief", action="store_true", help="only to see that all works")
    options = parser.parse_args()
    if unknown_names := [p for p in options.parts if p not in names]:
        parser.error(f"found {unknown_names[0]!r}, a part is one of {', '.join(names)}")
    brief = options.brief
    parts: dict[str, Callable[[], None]] = {
        "search": lambda: search(1 if brief else 5),
        "startup": lambda: startup(6 if brief else 200),
        "disturbed": lambda: disturbed(2 if brief else 40),
        "advise": lambda: advise(5 if brief else 400),
    }
    with recording("Placing", options):
        for name in options.parts or names:
            print(f"\n{name}")
            parts[name]()


if __name__ == "__main__":
    main()
