"""Measures how well a fleet is judged, and how fast its report is.

    bench/fleets.py noise FILE        checks of this host, one after the other, as the noise of the next parts
    bench/fleets.py judge [FILE]      false names and faults found over days, in simulated fleets
    bench/fleets.py peers [FILE]      the same faults found by single limits, Mahalanobis distances and MCD
    bench/fleets.py year FOLDER       reports of a day and of a year of 10,000 nodes
    bench/fleets.py ingest FOLDER     checks of this host as 10,000 nodes of 128 CPUs, ingested and compacted

Nodes differ by 0.5 %, correlated by 0.5. The noise of a value comes from FILE: one whole check drawn at random per
value, so that it has the tails and correlations of this host; without FILE, it is 1 % with the tails of Student's
t with 4 degrees of freedom, correlated by 0.3. MCD needs scikit-learn, on which the project does not depend.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import add_row, bench_parser, recording

from meshmark.fleet.campaigns.campaign import NodeSelection, begin
from meshmark.fleet.data.results import SUFFIX, read_result
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.baseline import DRAWS, Baseline, fit, locate
from meshmark.fleet.health.p_values import evidence
from meshmark.fleet.health.screening import CONTROLS, SCREEN_DRAWS, Discoveries, fresh_evidence, suspected
from meshmark.fleet.plan import node_plan
from meshmark.measure.repetitions import point_key
from meshmark.measure.runs.spec import load_spec
from meshmark.native import find_native
from meshmark.statistics.estimates import deviation

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.made_fleet import PLAN, MadeEngine  # type: ignore[import-not-found]
from support.many_nodes import ManyNodes, points  # type: ignore[import-not-found]

Array = NDArray[np.float64]
WINDOW, VALUES, WEEK = 7, 28, 8
REFIT = 84  # days for which the tails of a class are kept; `meshmark fleet judge` fits them every day
BETWEEN = 0.005
PART = 10  # number of fleets after which the results so far are printed
FAULTS = {"5 % in one metric": (1, 0.05), "2 % in five metrics": (5, 0.02)}


@dataclass(frozen=True)
class Noise:
    """Deviations of values from their median.

    Attributes:
        rows: Whole checks, shape (checks, metrics); None if simulated.
        groups: Metrics of each instrument, shape (metrics, groups).
    """

    rows: Array | None
    groups: NDArray[Any]

    def draw(self, dice: np.random.Generator, *shape: int) -> Array:
        """Return noise of shape (*shape, metrics): recorded rows, or correlated values with heavy tails."""
        if self.rows is not None:
            return self.rows[dice.integers(len(self.rows), size=shape)]
        p = len(self.groups)
        return dice.standard_t(4, (*shape, p)) * 0.01 @ correlated(p, 0.3).T


def correlated(p: int, by: float) -> Array:
    """Return a factor of the (p, p) matrix of correlations in which all pairs have the correlation `by`."""
    return np.asarray(np.linalg.cholesky(by * np.ones((p, p)) + (1 - by) * np.eye(p)))


def load_noise(path: Path | None) -> Noise:
    """Return the noise in a file; without a file, simulated noise of 30 metrics in three groups."""
    if path is None:
        return Noise(None, np.repeat(np.eye(3, dtype=bool), 10, axis=0))
    raw = json.loads(path.read_text())
    values = np.array(raw["values"], float)
    names = [key[0] for key in raw["points"]]
    unique = [n for n in sorted(set(names)) if names.count(n) > 1]
    return Noise(values - np.median(values, axis=0), np.array([[n == k for k in unique] for n in names], bool))


def measure_noise(path: Path, count: int) -> None:
    """Run the check of a node repeatedly; points that are missing or flagged in any run are left out."""
    runs: list[dict[str, tuple[str, float]]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.json").write_bytes(node_plan(load_spec("node-check"), "check").to_bytes())
        for i in range(count):
            words = [
                str(w)
                for w in (
                    find_native("meshmark-node"),
                    folder / "plan.json",
                    "--out",
                    folder,
                    "--name",
                    "n",
                    "--beside",
                )
            ]
            subprocess.run(words, check=True, capture_output=True)
            run = {}
            for step in read_result(folder / "n.jsonl.gz").steps:
                for r in step.reading.records:
                    if r.value > 0 and r.better != "none" and "derived_from" not in r.conditions:
                        run[point_key(r)] = r.instrument, float(np.log(r.value)) * (1 if r.better == "lower" else -1)
            runs.append(run)
            print(f"{i + 1} of {count} checks: {len(run)} values", flush=True)
    counts = Counter(key for run in runs for key in run)
    keys = [key for key, times in counts.items() if times == count]
    values = [[run[key][1] for key in keys] for run in runs]
    path.write_text(json.dumps({"points": [(runs[0][key][0], key) for key in keys], "values": values}))
    spread = deviation(np.array(values) - np.median(values, axis=0))
    print(
        f"{len(keys)} metrics, standard deviations {100 * np.median(spread):.2f} % (median), {100 * spread.max():.2f} %"
    )


# ------------------------------------------------------------------ days


@dataclass
class Tally:
    """The outcomes of the names and faults of one fleet."""

    named: int = 0
    false: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    detected: Counter[str] = field(default_factory=Counter)
    measured_again: int = 0


def days_of(job: tuple[Noise, int, int, int, float]) -> Tally:
    """Simulate a fleet over days, judged each day as `meshmark fleet judge` does."""
    noise, seed, n, days, rate = job
    rng = np.random.default_rng(seed)
    p = len(noise.groups)
    node_effects = rng.normal(size=(n, p)) @ correlated(p, 0.5).T * BETWEEN
    shift = np.zeros((n, p))
    faults: dict[int, tuple[str, int]] = {}
    day_by_node: dict[int, int] = {}
    tally = Tally()
    past: list[Array] = []
    discoveries = Discoveries()
    for day in range(days):
        for _ in range(rng.poisson(rate * n)):
            i = int(rng.integers(n))
            if i not in faults:
                kind = list(FAULTS)[int(rng.integers(2))]
                count, factor = FAULTS[kind]
                group = np.flatnonzero(noise.groups[:, int(rng.integers(noise.groups.shape[1]))])
                members = rng.permutation(group if len(group) >= count else p)[:count]
                shift[i, members] += factor
                faults[i] = kind, day
        past = [*past, (node_effects + shift)[:, None] + noise.draw(rng, n, 1)][-VALUES:]
        window = np.concatenate(past, axis=1)
        if day < WINDOW or day in {2 * WINDOW, VALUES} or day % REFIT == 0:
            fitted = [
                fit(window[:, -k:], noise.groups, draws, seed=day)
                for k, draws in ((1, SCREEN_DRAWS), (WINDOW, SCREEN_DRAWS), (VALUES, DRAWS))
            ]
        today, week, month = (
            moved(model, window[:, -k:]) for model, k in zip(fitted, (1, WINDOW, VALUES), strict=True)
        )
        unlikely = np.minimum(1.0, 2 * np.minimum(evidence(week.own, week).node, evidence(today.own, today).node))
        suspects = suspected(unlikely, set(day_by_node))
        tests: list[float] = []
        if suspects:
            healthy = np.argsort(-unlikely)[: n // 2]
            controls = list(rng.choice(healthy, min(CONTROLS, n // 4), replace=False))
            measured_again, fresh = [*suspects, *controls], max(5, window.shape[1])
            values = (node_effects + shift)[measured_again][:, None] + noise.draw(rng, len(measured_again), fresh)
            count = len(suspects)
            tests = list(fresh_evidence(month, values[:count], values[count:], controls).node)
            tally.measured_again += count
        for i, is_faulty in zip(suspects, discoveries.decide(tests, n), strict=True):
            if is_faulty:
                day_by_node[i] = day
    old = {i: entry for i, entry in faults.items() if entry[1] + WEEK <= days}
    tally.named, tally.false = len(day_by_node), sum(i not in faults for i in day_by_node)
    tally.faults = Counter(kind for kind, _ in old.values())
    tally.detected = Counter(kind for i, (kind, start) in old.items() if day_by_node.get(i, days) < start + WEEK)
    return tally


def moved(baseline: Baseline, values: Array) -> Baseline:
    """Return the class with other values and the same tails."""
    location = locate(values)
    return replace(baseline, own=location.own, centre=location.centre, scale=location.scale, level=location.level)


def judge(noise: Noise, fleets: list[tuple[int, int, int]]) -> None:
    """Print the verdicts on simulated fleets, each given by nodes, days and number of fleets."""
    for n, days, count in fleets:
        start_s = time.monotonic()
        rate = max(0.0005, 0.1 / n)
        tallies: list[Tally] = []
        with multiprocessing.Pool(2) as pool:
            jobs = [(noise, seed, n, days, rate) for seed in range(count)]
            for tally in pool.imap_unordered(days_of, jobs, chunksize=1):
                tallies.append(tally)
                if len(tallies) % PART == 0 or len(tallies) == count:
                    title = f"{n} nodes, {len(noise.groups)} metrics, {len(tallies)} fleets of {days} days"
                    print(f"{title}: {told(tallies, days)} ({time.monotonic() - start_s:.0f} s)", flush=True)
        label = f"{n:,} nodes, {'noise of 1 %' if noise.rows is None else 'noise of this guest'}"
        named = sum(t.named for t in tallies)
        notes = f"{count} fleets × {days} days"
        add_row(f"{label}: names that are false", f"of {named:,}", sum(t.false for t in tallies), notes=notes)
        for kind in FAULTS:
            faults, detected_count = (
                sum(c[kind] for c in x) for x in zip(*((t.faults, t.detected) for t in tallies), strict=True)
            )
            add_row(
                f"{label}: {kind}: found within {WEEK} days",
                "%",
                100 * detected_count / max(1, faults),
                limits=(95 if kind.startswith("5") else 90, None),
                notes=f"{detected_count:,} of {faults:,}; {notes}",
            )


def told(tallies: list[Tally], days: int) -> str:
    """Return the outcomes of the names and faults of several fleets as text."""
    named, false_count = sum(t.named for t in tallies), sum(t.false for t in tallies)
    share = np.mean([t.false / max(t.named, 1) for t in tallies])
    names = ", ".join(
        f"{kind} {sum(t.detected[kind] for t in tallies)} of {sum(t.faults[kind] for t in tallies)}" for kind in FAULTS
    )
    again_per_day = sum(t.measured_again for t in tallies) / len(tallies) / days
    return (
        f"{false_count} of {named} names false (mean share {100 * share:.1f} %); found within {WEEK} days: {names}; "
        f"{again_per_day:.1f} suspects a day"
    )


# ------------------------------------------------------------------ peers


def peers(noise: Noise, n: int, fleets: int) -> None:
    """Print which nodes each method names from seven values of each, at a level of 5 % for the whole fleet."""
    from scipy.stats import chi2, norm

    p = len(noise.groups)

    def ours(values: Array) -> Array:
        model = fit(values, noise.groups)
        return np.asarray(evidence(model.own, model).node)

    def single(values: Array) -> Array:
        median = np.median(values, axis=1)
        return np.asarray(
            norm.sf((median - np.median(median, axis=0)) / deviation(median - np.median(median, axis=0))).min(1) * p
        )

    def mahalanobis(values: Array) -> Array:
        medians = np.median(values, axis=1)
        deviations = medians - medians.mean(axis=0)
        return np.asarray(chi2.sf((deviations @ np.linalg.inv(np.cov(medians.T)) * deviations).sum(1), p))

    methods = {"ours, before confirmation": ours, "limits of single metrics": single, "Mahalanobis": mahalanobis}
    try:
        from sklearn.covariance import MinCovDet  # type: ignore[import-not-found]

        def mcd(values: Array) -> Array:
            medians = np.median(values, axis=1)
            return np.asarray(chi2.sf(MinCovDet(random_state=0).fit(medians).mahalanobis(medians), p))

        methods["minimum covariance determinant"] = mcd
    except ImportError:
        print("scikit-learn is not installed: no MCD")
    false, detected = Counter[str](), Counter[tuple[str, str]]()
    for seed in range(fleets):
        rng = np.random.default_rng(seed)
        node_effects = rng.normal(size=(n, p)) @ correlated(p, 0.5).T * BETWEEN
        faulty = rng.permutation(n)[: 2 * max(1, n // 100)]
        for index, i in enumerate(faulty):
            count, factor = list(FAULTS.values())[index % 2]
            group = np.flatnonzero(noise.groups[:, int(rng.integers(noise.groups.shape[1]))])
            node_effects[i, rng.permutation(group if len(group) >= count else p)[:count]] += factor
        values = node_effects[:, None] + noise.draw(rng, n, WINDOW)
        for name, method in methods.items():
            rejected = method(values) * n <= 0.05
            false[name] += int(rejected.sum() - rejected[faulty].sum())
            for index, kind in enumerate(FAULTS):
                detected[name, kind] += int(rejected[faulty[index::2]].sum())
    faults_per_kind = fleets * max(1, n // 100)
    print(f"{n} nodes, {p} metrics, {fleets} fleets, each with {2 * faults_per_kind // fleets} faults")
    for name in methods:
        shares = ", ".join(f"{kind} {100 * detected[name, kind] / faults_per_kind:.0f} %" for kind in FAULTS)
        print(f"  {name}: {false[name] / fleets:.2f} false names a fleet; found {shares}", flush=True)
        add_row(f"{n:,} nodes, {name}: false names a fleet", "", false[name] / fleets, notes=f"found {shares}")


# ------------------------------------------------------------------ speed


def year(folder: Path, nodes: int, metrics: int, days: int) -> None:
    """Write the campaigns of a year to a folder unless it has some, and print how long judgements take."""
    fleet = Fleet(folder)
    names = [f"n{i:05d}" for i in range(1, nodes + 1)]
    if not fleet.campaigns():
        start_s = time.monotonic()
        slow, facts, levels = (
            {names[6]: (days // 2, 0.08, 3)},
            {days // 3: {"kernel": "6.1.0-31"}},
            {days // 3: {1: 0.96}},
        )
        ManyNodes(fleet, names, points(metrics), slow=slow, facts=facts, levels=levels).write(days)
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        elapsed_s = time.monotonic() - start_s
        print(f"{nodes} nodes × {metrics} values × {days} days: made in {elapsed_s:.0f} s, {size / 1e9:.2f} GB")
    for span in (1, days):
        page = folder / f"{span}.html"
        _timed(f"report of {span} days", "report", str(folder), "--days", str(span), "-o", str(page))
        print(f"  page of {page.stat().st_size / 1e6:.1f} MB")


def ingestion(folder: Path, nodes: int) -> None:
    """Print how long the files of many nodes take to be ingested."""
    fleet, name = Fleet(folder), "check-20261126T060000-0001"
    inbox = fleet.campaign(name) / "inbox"
    names = [f"n{i:05d}" for i in range(1, nodes + 1)]
    fleet.site.parent.mkdir(parents=True, exist_ok=True)
    fleet.site.write_text('cluster = "cluster"\n')
    settings = {"cluster": "cluster", "beside": False}
    begin(fleet, name, PLAN, MadeEngine.of(names, lambda *_: None), NodeSelection(), settings)
    first, *check_lines = _check_of_many_cpus(folder)
    inbox.mkdir(parents=True, exist_ok=True)
    for node in names:
        head = {**json.loads(first), "name": node, "hostname": node, "boot": node, "started": ""}
        (inbox / f"{node}{SUFFIX}").write_bytes(
            gzip.compress("\n".join([json.dumps(head), *check_lines, ""]).encode(), 1)
        )
    _timed(f"ingestion of {nodes} nodes", "ingest", str(folder))
    _timed("compaction", "compact", str(folder))


def _check_of_many_cpus(folder: Path, cpus: int = 128) -> list[str]:
    """Return the lines of a check of this host, with the recorded files of a node of many CPUs."""
    (folder / "plan.json").write_bytes(node_plan(load_spec("node-check"), "check").to_bytes())
    words = [find_native("meshmark-node"), folder / "plan.json", "--out", folder, "--name", "n", "--beside"]
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    lines = [json.loads(line) for line in gzip.decompress((folder / f"n{SUFFIX}").read_bytes()).splitlines()]
    for line in lines:
        if line.get("path") == "proc/cpuinfo":
            line["content"] = line["content"].partition("\n\n")[0].join(["\n\n"] * cpus)
    index = next(i for i, line in enumerate(lines) if line["type"] == "step")
    governor = {"type": "file", "content": "performance\n"}
    frequency = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    lines[index:index] = [{**governor, "path": frequency.format(i)} for i in range(cpus)]
    return [json.dumps(line, separators=(",", ":")) for line in lines]


def _timed(what: str, *words: str) -> None:
    """Run `meshmark fleet` and print its time, and the memory of its largest process."""
    program = shutil.which("meshmark") or str(Path(sys.executable).with_name("meshmark"))
    start_s = time.monotonic()
    child = subprocess.Popen([program, "fleet", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{program} fleet {' '.join(words)}: status {status}")
    cpu_s = usage.ru_utime + usage.ru_stime
    elapsed_s = time.monotonic() - start_s
    notes = f"{cpu_s:.1f} s of CPU time, {usage.ru_maxrss / 1e6:.2f} GB in the largest process"
    add_row(what, "s", elapsed_s, notes=notes)
    print(
        f"{what}: {elapsed_s:.1f} s, {cpu_s:.1f} s of CPU, peak of a process {usage.ru_maxrss / 1e6:.2f} GB",
        flush=True,
    )


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("what", choices=["noise", "judge", "peers", "year", "ingest"])
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=40, help="checks of this host")
    parser.add_argument("--fleets", default="100,365,40 1000,365,6 10000,30,1", help="nodes,days,fleets …")
    parser.add_argument("--size", default="10000,100,365", help="nodes,values,days of the year")
    parser.add_argument("--nodes", type=int, default=10_000, help="whose files are ingested")
    args = parser.parse_args()
    if args.what in {"noise", "year", "ingest"} and args.path is None:
        parser.error(f"{args.what}: needs a path")
    with recording("Fleets", args):
        if args.what == "noise":
            measure_noise(args.path, args.count)
        elif args.what == "judge":
            fleets: list[Any] = [tuple(map(int, text.split(","))) for text in args.fleets.split()]
            judge(load_noise(args.path), fleets)
        elif args.what == "peers":
            for n, fleets_ in ((100, 100), (1000, 20)):
                peers(load_noise(args.path), n, fleets_)
        elif args.what == "ingest":
            ingestion(args.path, args.nodes)
        else:
            year(args.path, *map(int, args.size.split(",")))


if __name__ == "__main__":
    main()
