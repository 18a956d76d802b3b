"""Measures the cost, speed and accuracy of watching: `--record` writes the figures.

    .venv/bin/python bench/watch.py [PART …] [--brief] [--units N] [--cases N] [--rate HZ]

    recording   size of a recording                                          (5 s)
    browser     frames per second, long tasks, sample to screen; needs Chromium  (1 min)
    costs       CPU time of the sampler and of a recorder at 1 and 10 Hz     (14 min)
    sweep       the same from 0.1 to 100 Hz, and the delay of ticks              (13 min)
    many        the same on a tree of 256 CPUs and 4 nodes at 1 Hz           (2 min)
    slowdown    effect on programs: short blocks in random order                 (60 min with 400 units)
    hotspots    hot spots made with stress-ng (apt-get install stress-ng)    (8 min with 20 + 20 cases)
    canary      its estimate against a load of known bandwidth                   (4 min)

Without a part, all parts run. Costs are CPU time between two moments while it runs, by the clock of the scheduler, so
neither the start nor the creation of the Parquet file at the end counts. The browser itself reports long tasks.
`--brief` shows that all parts work; its figures mean nothing. Slowdown and hot spots need a quiet machine.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from results import Figure, add_row, bench_parser
from results import recording as recording_results
from scipy.stats import trim_mean
from watch_hotspots import CPUS, hotspots
from watch_page import browser, recording_rate

from meshmark.native import find_native
from meshmark.watch.live import LiveSampler

ROOT: Final = Path(__file__).resolve().parent.parent


def cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU time of processes, s, to the nanosecond."""
    tasks = (t for pid in pids for t in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(c) for t in tasks.iterdir() for c in (t / "children").read_text().split()]


def sampling(rate: float, seconds: float, root: Path | None = None) -> list[str]:
    """Return the words of a command that only samples."""
    words = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--rate", f"{rate:g}", "--duration", f"{seconds:g}"]
    return words + (["--root", str(root)] if root is not None else [])


def recording(rate: float, seconds: float, out: Path, root: Path | None = None) -> list[str]:
    """Return the words of a command that samples and records; 0 s: until it is stopped."""
    line = "from meshmark.cli.app import main; main()"
    words = [sys.executable, "-c", line, "record", "--rate", f"{rate:g}", "--duration", f"{seconds:g}"]
    return [*words, "--out", str(out), *(["--root", str(root)] if root is not None else [])]


def share_of(rate: float, seconds: float, record: bool, root: Path | None = None, canary: bool = True) -> float:
    """Return the share of one CPU that watching uses while it runs, without its start and its end."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "r.parquet"
        words = recording(rate, 0, out, root) if record else sampling(rate, 0, root)
        if not canary:
            words += ["--no-canary"] if record else ["--without", "canary"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(max(4.0, 2 / rate))
            pids = [process.pid, *children(process.pid)]
            begin_s, cpu_before_s = time.monotonic(), cpu_s(pids)
            time.sleep(seconds)
            share = (cpu_s(pids) - cpu_before_s) / (time.monotonic() - begin_s)
            process.terminate()
            process.wait()
        return share


def costs(seconds: float) -> None:
    """Print the median of three measurements, and their range."""
    cpus = len(CPUS)
    for rate in (1, 10):
        for name, record, canary in (
            ("sampler", False, True),
            ("with recording", True, True),
            ("kernel sources", True, False),
        ):
            intervals = sorted(share_of(rate, seconds, record, canary=canary) for _ in range(3))
            low, middle, high = (100 * look / cpus for look in intervals)
            print(f"{rate:3} Hz {name:15} {middle:6.3f} % of {cpus} CPUs [{low:.3f} to {high:.3f}]", flush=True)
            limits = (None, 0.1 if rate == 1 else 0.3) if name == "kernel sources" else (None, None)
            add_row(f"{name} at {rate} Hz, of {cpus} CPUs", "%", Figure(middle, low, high), limits=limits)
    print("kernel sources: recorded too, without the canary")


def sweep(seconds: float, rates: Sequence[float] = (0.1, 0.5, 1, 2, 5, 10, 20, 50, 100)) -> None:
    """Print the cost, the delay and the missed frames of the sampler at each rate in Hz."""
    print(f"{'rate':>8} {'sampler':>10} {'recording':>10} {'a frame':>10} {'late, 95 %':>11} {'missed':>7}")
    for rate in rates:
        span = max(seconds, 4 / rate)
        alone, recorded_share = (share_of(rate, span, record) for record in (False, True))
        with LiveSampler(rate, min(span, 20) if rate >= 1 else span) as live:
            frames = list(live.frames())
        late = sorted(f.late_s for f in frames)[int(0.95 * (len(frames) - 1))]
        missed_frames = frames[-1].seq - len(frames)
        print(
            f"{rate:5g} Hz {100 * alone:8.3f} % {100 * recorded_share:8.3f} % {1e6 * alone / rate:7.0f} µs "
            f"{1e6 * late:8.0f} µs {missed_frames:7}"
        )
        notes = f"sampler alone {100 * alone:.3f} %; late by {1e6 * late:.0f} µs (95 %), {missed_frames} ticks missed"
        add_row(f"recording at {rate:g} Hz, of one CPU", "%", 100 * recorded_share, notes=notes)
    print("shares of one CPU; missed: ticks that were skipped because the host held the sampler")


# ------------------------------------------------------------------ a large machine


class Ticking(threading.Thread):
    """Increases the counters of the /proc/stat of a tree in place, since the sampler keeps it open."""

    def __init__(self, root: Path, cpus: int) -> None:
        super().__init__(daemon=True)
        self.file = os.open(root / "proc" / "stat", os.O_RDWR)
        self.lines = (root / "proc" / "stat").read_text().splitlines()
        self.cpus, self.over = cpus, threading.Event()
        os.ftruncate(self.file, len(self.text(0)))
        os.pwrite(self.file, self.text(0), 0)

    def text(self, n: int) -> bytes:
        """Return the content of `/proc/stat` at step `n`."""
        draws = random.Random(n)
        lines = [f"cpu  {0:012} {0:012} {0:012} {0:012} {0:012} {0:012} {0:012} {0:012} 0 0"]
        for cpu in range(self.cpus):
            user = 50 * n + draws.randrange(25)
            lines.append(f"cpu{cpu} {user:012} {0:012} {10 * n:012} {40 * n:012} {0:012} {0:012} {n:012} {0:012} 0 0")
        return "\n".join([*lines, *(x for x in self.lines if not x.startswith("cpu"))]).encode() + b"\n"

    def run(self) -> None:
        """Write the next step every half second until the end."""
        for n in itertools.count(1):
            if self.over.wait(0.5):
                return
            os.pwrite(self.file, self.text(n), 0)


def reading_time(path: Path, again: bool) -> float:
    """Return the median time to read a file, s. `again`: the file stays open; otherwise it is reopened each time."""
    durations_s = []
    descriptors = os.open(path, os.O_RDONLY)
    for _ in range(200):
        start_s = time.perf_counter()
        file = descriptors if again else os.open(path, os.O_RDONLY)
        size_read = 0
        while size := len(os.pread(file, 1 << 16, size_read)):
            size_read += size
        if not again:
            os.close(file)
        durations_s.append(time.perf_counter() - start_s)
    os.close(descriptors)
    return statistics.median(durations_s)


def many(seconds: float, cpus: int = 256, nodes: int = 4, processes: int = 3000) -> None:
    """Measure on a tree, which is in the page cache: the time of the kernel to generate the texts is extrapolated."""
    sys.path.insert(0, str(ROOT / "tests"))
    trees: Any = importlib.import_module("machines.trees")
    with tempfile.TemporaryDirectory() as folder:
        root: Path = trees.many(Path(folder), cpus, nodes)
        for pid in range(1, processes + 1):
            (root / "proc" / str(pid)).mkdir()
            fields = " ".join(["0"] * 49)
            (root / "proc" / str(pid) / "stat").write_text(f"{pid} (worker/{pid}) S {fields}\n")
        ticking = Ticking(root, cpus)
        ticking.start()
        with LiveSampler(4, 2, root=root) as live:
            frames = list(live.frames())
        known_values = sum(v is not None for v in frames[-1].values["cpu.busy"])
        print(
            f"tree of {cpus} CPUs ({known_values} known), {nodes} nodes, {processes} processes; "
            f"{len(live.header.metrics)} metrics"
        )
        parsed: list[float] = []
        for name, record in (("sampler", False), ("with recording", True)):
            share = share_of(1, seconds, record, root)
            parsed.append(share)
            print(f"  1 Hz {name:15} {100 * share:6.3f} % of one CPU: reading cached files, parsing, writing frames")
        cached = reading_time(root / "proc" / "stat", True), reading_time(root / "proc" / "1" / "stat", False)
        ticking.over.set()
        ticking.join()
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    read_s = reading_time(Path("/proc/stat"), True), reading_time(Path("/proc/self/stat"), False)
    line = read_s[0] / online
    node = sum(reading_time(Path("/sys/devices/system/node/node0") / f, True) for f in ("meminfo", "numastat"))
    print(
        f"  /proc/stat here {1e6 * read_s[0]:.0f} µs for {online} CPUs, at most {1e6 * line:.1f} µs a CPU; "
        f"the tree's, cached, {1e6 * cached[0]:.0f} µs for {cpus}\n"
        f"  meminfo and numastat of a node here {1e6 * node:.0f} µs; a process's stat here {1e6 * read_s[1]:.1f} µs, "
        f"in the tree {1e6 * cached[1]:.1f} µs"
    )
    # Processes are scanned every two seconds at most, and never for more than half a per cent of a CPU.
    scan = min(0.005, processes * max(0.0, read_s[1] - cached[1]) / 2)
    added = max(0.0, cpus * line - cached[0]) + nodes * node + scan
    add_row(
        f"tree of {cpus} CPUs, {nodes} nodes, {processes:,} processes, at 1 Hz, recorded, of one CPU",
        "%",
        100 * (parsed[1] + added),
        limits=(None, 2),
        notes=f"{100 * parsed[1]:.2f} % on files; a real kernel needs {1e3 * added:.2f} ms more a second, extrapolated",
    )
    print(
        f"  extrapolated, not measured: a kernel adds {1e3 * added:.2f} ms a second ({100 * added:.3f} %): in all "
        f"{100 * (parsed[0] + added):.2f} % of one CPU, {100 * (parsed[1] + added):.2f} % with recording (aim: 2 %)"
    )


# ------------------------------------------------------------------ what programs feel


class Watcher:
    """A recorder and its sampler, stopped and continued as a group, so that an arm does not include a start-up."""

    def __init__(self, rate: float, out: Path) -> None:
        self.process = subprocess.Popen(
            recording(rate, 0, out), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        self.process.stderr.readline()  # "recording …": the sampler runs
        time.sleep(1.5)
        self.pids = [self.process.pid, *children(self.process.pid)]
        self.hold()

    def cpu_s(self) -> float:
        """Return the CPU time of its processes in s."""
        return cpu_s(self.pids)

    def hold(self) -> None:
        """Stop its processes."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go(self) -> None:
        """Let its processes continue."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill its processes."""
        self.go()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class FixedWork:
    """A process whose threads, one per CPU, do the same work in every call."""

    def __init__(self, program: Path, kind: str, seconds: float) -> None:
        free = next(int(x.split()[1]) for x in Path("/proc/meminfo").read_text().splitlines() if "MemAvail" in x)
        size = min(64 << 20, 1024 * free // (8 * len(CPUS)))
        words = [str(program), kind, str(size), *map(str, CPUS)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rounds = 1
        wall_s = self.block()["wall_s"]
        for _ in range(6):
            self.rounds = max(1, round(self.rounds * min(20.0, seconds / wall_s)))
            wall_s = self.block()["wall_s"]

    def block(self) -> dict[str, Any]:
        """Return the times of one block of work."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{self.rounds}\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        """Let the process end."""
        self.process.communicate("0\n")


def steal_s() -> float:
    """Return the time that the hypervisor gave to others, summed over all CPUs."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(words[8]) / os.sysconf("SC_CLK_TCK")


def steal_is_out() -> bool | None:
    """Return whether this kernel excludes steal from the CPU time of a thread; None if it does not say."""
    with contextlib.suppress(OSError):
        import gzip

        release = Path(f"/boot/config-{os.uname().release}")
        text = (
            release.read_text() if release.exists() else gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
        )
        return "CONFIG_PARAVIRT_TIME_ACCOUNTING=y" in text
    return None


def interval(values: Sequence[float], cut: float = 0.2, draws: int = 4000) -> tuple[float, float, float]:
    """Return the mean without the outer `cut` of each side, and its 95 % bootstrap interval (percentiles)."""
    rng = np.random.default_rng(2026)
    all_values = np.asarray(values)
    means = [float(trim_mean(rng.choice(all_values, len(all_values)), cut)) for _ in range(draws)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(trim_mean(all_values, cut)), float(low), float(high)


def told(kind: str, name: str, values: Sequence[float], aim: float | None) -> str:
    """Record the mean slowdown of a program, and return it as text with its interval and its aim."""
    mean, low, high = interval(values)
    limits = (None, None if aim is None else 100 * aim)
    figure = Figure(100 * mean, 100 * low, 100 * high)
    add_row(f"slowdown of {kind}, {name}", "%", figure, limits=limits, notes=f"{len(values)} units")
    text = f"    {name:34} {100 * mean:+7.3f} % [{100 * low:+.3f}, {100 * high:+.3f}]"
    if aim is None:
        return text
    # An interval that is wider than the aim proves nothing by being below it.
    if low <= aim and (high - low > aim or high > aim):
        return f"{text}  not resolved, bound {100 * max(high, high - low):.2f} %: aim {100 * aim:g} %"
    return f"{text}  {'above' if low > aim else 'within'} {100 * aim:g} %"


ARMS: Final = ("A", "10 Hz", "1 Hz", "A'")


def slowdown(units: int, seconds: float, aim: float = 0.003) -> None:
    """Run fixed work on all CPUs: unwatched (A and A'), recorded at 10 Hz, recorded at 1 Hz.

    A unit is one short block of each in random order, so that slow drifts cancel. A block contains several ticks of the
    watcher. The outer fifth of the units, which neighbours of this machine disturb, is left out of the mean. The floor
    is A' against A by the same computation. Wall time to the last thread decides. The second line is CPU time of the
    work and of the watcher, without what the hypervisor took; it would miss a thread that waits for another.
    """
    rng = random.Random(1)
    out = steal_is_out()
    texts = {
        True: "left out by the kernel",
        False: "subtracted, in ticks",
        None: "subtracted, in ticks (if it is in it)",
    }
    print(f"fixed work on {len(CPUS)} CPUs, {units} units of {seconds:g} s blocks; steal: {texts[out]}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fixed_work"
        source = ROOT / "bench" / "fixed_work.cpp"
        include = [f"-I{ROOT / 'native' / 'kernels'}", f"-I{ROOT / 'native'}"]
        words = [
            os.environ.get("CXX", "g++"),
            "-std=c++20",
            "-O2",
            *include,
            "-o",
            str(program),
            str(source),
            "-pthread",
        ]
        subprocess.run(words, check=True)
        watchers: dict[str, Watcher] = {}
        try:
            for rate in (10, 1):
                watchers[f"{rate} Hz"] = Watcher(rate, Path(folder) / f"{rate}.parquet")
            for kind in ("triad", "chase", "gups"):
                compare(FixedWork(program, kind, seconds), kind, watchers, units, rng, out is True, aim)
        finally:
            for watcher in watchers.values():
                watcher.end()


def compare(
    work: FixedWork,
    kind: str,
    watchers: dict[str, Watcher],
    units: int,
    dice: random.Random,
    steal_out: bool,
    aim: float,
) -> None:
    """Print the slowdown of fixed work by each watcher, and whether it is within the share `aim`."""
    wall: dict[str, list[float]] = {arm: [] for arm in ARMS}
    cpu: dict[str, list[float]] = {arm: [] for arm in ARMS}
    watcher_s: dict[str, list[float]] = {arm: [] for arm in watchers}
    stolen: list[float] = []
    try:
        for _ in range(units):
            for arm in dice.sample(ARMS, len(ARMS)):
                watcher = watchers.get(arm)
                if watcher is not None:
                    watcher.go()
                # The tick that was missed meanwhile comes now; the next ones are anywhere in a block, as in normal use.
                time.sleep(0.1 + 0.1 * dice.random())
                cpu_time_s = watcher.cpu_s() if watcher is not None else 0.0
                before = steal_s()
                block = work.block()
                stolen_s = steal_s() - before
                cpu_time_s = watcher.cpu_s() - cpu_time_s if watcher is not None else 0.0
                if watcher is not None:
                    watcher.hold()
                    watcher_s[arm].append(cpu_time_s / (block["wall_s"] * len(CPUS)))
                wall[arm].append(block["wall_s"])
                cpu[arm].append(sum(block["cpu_s"]) + cpu_time_s - (0.0 if steal_out else stolen_s))
                stolen.append(stolen_s / (block["wall_s"] * len(CPUS)))
    finally:
        work.end()

    def units_of(times: dict[str, list[float]], arm: str, base: Sequence[str]) -> list[float]:
        return [times[arm][u] / statistics.fmean(times[b][u] for b in base) - 1 for u in range(units)]

    print(
        f"  {kind}: block {statistics.median(wall['A']):.2f} s; "
        f"steal {100 * statistics.fmean(stolen):.2f} % of the CPUs"
    )
    for name, times in (("wall", wall), ("CPU time, watcher included", cpu)):
        print(told(kind, f"{name}: A' against A, the floor", units_of(times, "A'", ["A"]), None))
        for arm in watchers:
            print(told(kind, f"{name}: {arm}", units_of(times, arm, ["A", "A'"]), aim))
    for arm, shares in watcher_s.items():
        print(f"    the watcher's own CPU time, {arm:7}   {100 * statistics.fmean(shares):7.3f} % of {len(CPUS)} CPUs")


# ------------------------------------------------------------------ canary


def stream(cpu: int, rate: float, stop: Any, moved: Any) -> None:
    """Read memory on one CPU at a given rate, spinning in between: a load unknown to the calibration of the canary."""
    import numpy as np

    os.sched_setaffinity(0, {cpu})
    data, chunk = np.ones(32 << 20), 1 << 16
    start_s, i = time.perf_counter(), 0
    while not stop.is_set():
        if 8 * chunk * i < rate * (time.perf_counter() - start_s):
            data[i * chunk % data.size : i * chunk % data.size + chunk].sum()
            i += 1
    moved.value = 8 * chunk * i / (time.perf_counter() - start_s)


def canary(seconds: float) -> None:
    """Compare the estimate of the canary with a load of known bandwidth, after a calibration of 20 s."""
    cpu = CPUS[-1]
    words = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--calibrate", "20"]
    curve = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    errors, inside_count = [], 0
    rates = (0, 4, 8, 12, 16, 14, 10, 6, 18, 2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "curve.json"
        file.write_text(curve)
        for rate in rates:
            stop, bytes_moved = multiprocessing.Event(), multiprocessing.Value("d", 0.0)
            load = multiprocessing.Process(target=stream, args=(cpu, 1e9 * rate, stop, bytes_moved))
            load.start()
            time.sleep(1)
            with LiveSampler(4.0, seconds, sources=["canary", "cpu"], canary=file) as live:
                late = [f.values for f in live.frames()][-24:]
            stop.set()
            load.join()
            if "memory.moved" not in late[0]:
                print(f"  {rate:2} GB/s: no estimate: {live.header.why_unknown('memory.pressure', 0)}")
                continue
            low, middle, high = (
                statistics.median(v for x in late if (v := x[f"memory.moved{end}"][0]) is not None)
                for end in ("_low", "", "_high")
            )
            truth = bytes_moved.value
            inside_count += low <= truth <= high
            if truth > 1e9:
                errors.append(abs(middle / truth - 1))
            print(f"  {truth / 1e9:4.1f} GB/s: estimated {middle / 1e9:4.1f} [{low / 1e9:.1f} to {high / 1e9:.1f}]")
    if errors:
        add_row(
            "canary's estimate against a load of known bandwidth, median error",
            "%",
            Figure(100 * statistics.median(errors), 100 * min(errors), 100 * max(errors)),
            limits=(None, 15),
            notes=f"the interval contains the true value in {inside_count} of {len(rates)}",
        )
        print(
            f"canary: error {100 * statistics.median(errors):.0f} % (worst {100 * max(errors):.0f} %), aim 15 %; the "
            f"interval held the truth in {inside_count} of {len(rates)}"
        )


def main() -> None:
    """Run the parts that the command line names."""
    names = ("recording", "browser", "costs", "sweep", "many", "slowdown", "hotspots", "canary")
    parser = bench_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names) + " [all]")
    parser.add_argument("--brief", action="store_true", help="only to see that all works")
    parser.add_argument("--units", type=int, default=400, help="of slowdown [400]")
    parser.add_argument("--cases", type=int, default=20, help="of hotspots: so many injected, and as many quiet [20]")
    parser.add_argument("--rate", type=float, default=10.0, help="of hotspots, Hz [10]")
    options = parser.parse_args()
    if unknown_names := [p for p in options.parts if p not in names]:
        parser.error(f"found {unknown_names[0]!r}, a part is one of {', '.join(names)}")
    if options.units < 2 or options.cases < 1 or not 0.1 <= options.rate <= 100:
        parser.error("units must be at least 2, cases 1, the rate 0.1 to 100 Hz")
    brief = options.brief

    def pages() -> None:
        browser("gs1280-64", [], 10)
        browser("gs1280-64", ["topology.shape=[12,12]"], 2)

    parts: dict[str, Callable[[], None]] = {
        "recording": recording_rate,
        "browser": pages,
        "costs": lambda: costs(4 if brief else 40),
        "sweep": lambda: sweep(2, (1, 10, 100)) if brief else sweep(20),
        "many": lambda: many(4 if brief else 40),
        "slowdown": lambda: slowdown(4 if brief else options.units, 0.3 if brief else 0.5),
        "canary": lambda: canary(4 if brief else 16),
        "hotspots": lambda: hotspots(2 if brief else options.cases, 8.0, options.rate),
    }
    with recording_results("Watching", options):
        for name in options.parts or names:
            parts[name]()


if __name__ == "__main__":
    main()
