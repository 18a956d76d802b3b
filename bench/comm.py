"""Measures the cost of measuring among ranks, and what is detected: `--record` writes them.

    .venv/bin/python bench/comm.py [PART …] [--mpi KIND] [--osu FOLDER] [--brief]

    sentinel    blocks that a busy process on the CPU of a rank disturbs at known times, and quiet ones: how many are
                marked   (1 min)
    bare        ping-pong, put and allreduce against a loop of the same calls without instrumentation, in alternation
                of 0.1 s   (5 min)
    all         the whole halo, every protocol, 1 to 1,000,000 words: time, and points that are narrow enough   (2 min)
    predict     steps of programs with more latency, as anatomy predicts them from those without, against the measured
                steps   (5 min)
    peers       medians against the benchmarks of OSU or Intel, if a folder with their binaries is given   (2 min)

Without a part, all parts run, with each available MPI library. `--brief` shows in seconds that all parts work; its
figures mean nothing. Nobody else should use the machine: the load is printed.
"""

from __future__ import annotations

import bisect
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from results import Figure, add_row, bench_parser, recording

from meshmark.errors import MeshmarkError
from meshmark.measure.runs import launch
from meshmark.store.record import median, median_interval

CPUS: Final = sorted(os.sched_getaffinity(0))
MARKS: Final = {1: "moved", 2: "waited", 4: "slow", 8: "late", 16: "stolen"}


def ranks(with_: launch.Launcher, count: int, words: Sequence[str], within_s: float) -> list[dict[str, Any]]:
    """Return the lines that meshmark-comm writes.

    Raises:
        MeshmarkError: The program failed.
    """
    with tempfile.TemporaryFile() as out:  # no reader that would use a CPU during the measurement
        completed = subprocess.run(
            [*launch.launch_argv(with_, count, len(CPUS)), *words],
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=within_s,
            stdin=subprocess.DEVNULL,
            env=launch.environment(with_.kind),
            check=False,
        )
        out.seek(0)
        lines = [json.loads(line) for line in out.read().splitlines()]
    if completed.returncode not in (0, 77):
        raise MeshmarkError(
            launch.failure_message(completed.stderr.decode(errors="replace")) or f"status {completed.returncode}"
        )
    return lines


def started(
    with_: launch.Launcher, count: int, words: Sequence[str], within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program and its arguments as `count` ranks; it may fail."""
    return subprocess.run(
        [*launch.launch_argv(with_, count, len(CPUS))[:-1], *words],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        stdin=subprocess.DEVNULL,
        env=launch.environment(with_.kind),
    )


def results(lines: Iterable[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return the result lines of a metric."""
    return [line for line in lines if line["type"] == "result" and line["metric"] == metric]


# ------------------------------------------------------------------ sentinel


def _hog(cpu: int, bursts: Sequence[tuple[float, float]], stop: Any, said: Any) -> None:
    """Keep one CPU busy during each of the intervals, and report when it really ran there."""
    os.sched_setaffinity(0, {cpu})
    periods: list[tuple[float, float]] = []
    for start_s, end in bursts:
        if stop.wait(max(0.0, start_s - time.monotonic())):  # it sleeps until then, since polling would disturb
            break
        start = last = time.monotonic()
        while last < end:
            time_s = time.monotonic()
            if time_s - last > 50e-6:  # it did not run meanwhile
                periods.append((start, last))
                start = time_s
            last = time_s
        periods.append((start, last))
    said.put(periods)


def _overlap(ran: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    index = max(0, bisect.bisect_left(ran, (begin, begin)) - 1)
    shared = 0.0
    while index < len(ran) and ran[index][0] < end:
        shared += max(0.0, min(end, ran[index][1]) - max(begin, ran[index][0]))
        index += 1
    return shared


def sentinel(with_: launch.Launcher, brief: bool, _: str | None) -> None:
    """Print how many disturbed and how many quiet blocks are marked."""
    if len(CPUS) < 2:
        print("  absent: needs two CPUs")
        return
    seconds = 4.0 if brief else 24.0
    rng = random.Random(1)
    start_s = time.monotonic() + seconds / 2
    bursts = []
    time_s = start_s
    while time_s < start_s + seconds:
        bursts.append((time_s, time_s + rng.uniform(0.5e-3, 10e-3)))
        time_s = bursts[-1][1] + rng.uniform(10e-3, 60e-3)
    fork = get_context("fork")
    stop, queue = fork.Event(), fork.Queue()
    hog = fork.Process(target=_hog, args=(CPUS[-1], bursts, stop, queue))
    hog.start()
    try:
        lines = ranks(
            with_,
            2,
            [
                "halo",
                "--protocol",
                "sendrecv,isend_irecv,irecv_isend,persistent_isend_irecv,"
                "persistent_irecv_isend,neighbour,datatype,packed",
                "--words",
                "1..65536",
                "--interval",
                "0.01",
                "--budget",
                f"{seconds:g}s",
            ],
            4 * seconds + 60,
        )
    finally:
        stop.set()
        outcome = queue.get(timeout=60)
        hog.join(timeout=60)
    first = outcome[0][0] if outcome else start_s
    iterations = {r["point"]: r["conditions"]["block_iterations"] for r in results(lines, "exchange_time")}
    tally: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    kinds: dict[str, int] = defaultdict(int)
    for line in lines:
        if line["type"] != "sample":
            continue
        length = line["values"][0] * iterations[line["point"]]
        shared = _overlap(outcome, line["begun_s"], line["begun_s"] + length)
        phase = "quiet" if line["begun_s"] + length < first else "between"
        if shared > 0:
            phase = "disturbed" if shared > max(10e-6, 0.02 * length) else "touched"
        tally[phase][0] += 1
        tally[phase][1] += line["marks"] != 0
        if phase == "quiet":
            for bit, name in MARKS.items():
                kinds[name] += bool(line["marks"] & bit)
    for phase, aim in (("disturbed", ">= 95 %"), ("quiet", "<= 2 %"), ("between", ""), ("touched", "")):
        count, marks = tally[phase]
        share = f"{100 * marks / count:6.2f} %" if count else "      –"
        print(f"  {phase:10} {count:6} blocks, marked {share}   {'aim ' + aim if aim else ''}")
        if aim and count:
            limits = (95, None) if phase == "disturbed" else (None, 2)
            what = f"marked blocks among {phase} ones, {with_.kind}"
            add_row(what, "%", 100 * marks / count, limits=limits, notes=f"of {count:,}")
    print("  marks of quiet blocks: " + (", ".join(f"{k} {n}" for k, n in kinds.items() if n) or "none"))


# ------------------------------------------------------------------ bare


def _compiler(kind: str) -> str | None:
    for name in (f"mpicxx.{kind}", "mpicxx"):
        if path := shutil.which(name):
            return path
    return None


def bare(with_: launch.Launcher, brief: bool, _: str | None) -> None:
    """Compare both on the same CPUs, and the bare loop twice, each stopped while another runs.

    Influences of the machine (a hypervisor moves the CPUs of a guest, and a message takes three times as long)
    affect all of them. The comparison is started seven times, since the location of the memory of a process changes
    the result by some per cent.
    """
    compiler = _compiler(with_.kind)
    if compiler is None:
        print("  absent: no mpicxx")
        return
    kinds = {
        "send": ("pingpong", "--protocol", "send"),
        "put": ("pingpong", "--protocol", "put"),
        "allreduce": ("allreduce", "--algorithm", "library"),
    }
    starts, turns = (2, 3) if brief else (7, 4)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "comm_bare"
        source = Path(__file__).with_name("comm_bare.cpp")
        subprocess.run([compiler, "-O2", "-std=c++20", "-w", str(source), "-o", str(program)], check=True)
        print(f"  {'call':10} {'bytes':>8}   {'ours over bare, %':26} {'bare over bare, %':26} ours less bare, ns")
        for kind, call in kinds.items():
            metric = "collective_time" if kind == "allreduce" else "message_latency"
            share = 0.5 if kind == "send" else 1.0
            for size in (8, 1024, 65536, 1 << 20):
                first = results(ranks(with_, 2, [*call, "--bytes", str(size)], 60), metric)[0]
                iterations = first["conditions"]["block_iterations"]
                start = launch.launch_argv(with_, 2, len(CPUS))
                sizes = ",".join([str(size)] * 400)  # enough points for all turns
                lines = (
                    [*start[:-1], str(program), "1000000", f"{kind}:{size}:{iterations}"],
                    [*start, *call, "--bytes", sizes, "--budget", "300s", "--interval", "0.5"],
                )
                ratio, noise, extra = [], [], []
                for _start in range(starts):
                    jobs = [Job(with_, lines[index]) for index in (0, 1, 0)]
                    try:
                        windows = [[job.turn(0.1) for job in jobs] for _turn in range(turns)]
                    finally:
                        reports = [job.end() for job in jobs]
                    blocks = (_theirs(reports[0]), _ours(reports[1]), _theirs(reports[2]))
                    times = [_medians(b, [w[k] for w in windows]) for k, b in enumerate(blocks)]
                    complete = [(a, m, b) for a, m, b in zip(*times, strict=True) if math.isfinite(a + m + b)]
                    if len(complete) < turns / 2:
                        continue
                    ratio.append(median([100 * (2 * m / (a + b) - 1) for a, m, b in complete]))
                    noise.append(median([100 * (a / b - 1) for a, _m, b in complete]))
                    extra.append(median([1e9 * share * (m - (a + b) / 2) for a, m, b in complete]))
                if not ratio:
                    print(f"  {kind:10} {size:8}   absent: too few blocks that nobody disturbed")
                    continue
                print(f"  {kind:10} {size:8}   {_spread(ratio):26} {_spread(noise):26} {_spread(extra)}", flush=True)
                call_text = f"{kind} of {size} B, {with_.kind}"
                what = f"time of a point over a bare loop of the same calls: {call_text}"
                add_row(
                    what,
                    "%",
                    _figure(ratio),
                    peer="bare loop",
                    limits=(None, 2),
                    notes=f"bare over bare {_spread(noise)} %; {len(ratio)} starts",
                )
                what = f"overhead of the harness per call: {call_text}"
                add_row(what, "ns", _figure(extra), peer="bare loop", limits=(None, 20))


class Job:
    """Ranks that are stopped outside of their turns."""

    def __init__(self, with_: launch.Launcher, words: Sequence[str]) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end
        self._child = subprocess.Popen(
            words,
            stdout=self._out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=launch.environment(with_.kind),
        )
        self._pids: list[int] = []
        deadline_s = time.monotonic() + 30
        while not self._pids:
            for line in self._lines():
                if line.get("processes"):
                    self._pids = [p["pid"] for p in line["processes"]]
            if time.monotonic() > deadline_s or self._child.poll() is not None:
                raise MeshmarkError(f"{words[-1][:40]}: did not start")
            time.sleep(0.01)
        self._signal(signal.SIGSTOP)

    def _lines(self) -> list[dict[str, Any]]:
        size = os.fstat(self._out.fileno()).st_size
        text = os.pread(self._out.fileno(), size, 0)
        complete = text[: text.rfind(b"\n") + 1].splitlines()
        return [
            json.loads(line) for line in complete if line.startswith(b"{")
        ]  # some libraries print text between the lines

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def turn(self, seconds: float) -> tuple[float, float]:
        """Let the ranks run for so long, and return the begin and end by the monotonic clock."""
        self._signal(signal.SIGCONT)
        start_s = time.monotonic()
        time.sleep(seconds)
        end = time.monotonic()
        self._signal(signal.SIGSTOP)
        return start_s, end

    def end(self) -> list[dict[str, Any]]:
        """Let the job continue, end it, and return its lines."""
        self._signal(signal.SIGCONT)
        self._child.terminate()  # the launcher ends its ranks, and removes their shared memory
        self._child.wait(timeout=30)
        return self._lines()


def _ours(lines: Iterable[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """Return the begin, length and time per iteration of undisturbed blocks."""
    lines = list(lines)
    iterations = {line["point"]: line["conditions"]["block_iterations"] for line in lines if line["type"] == "result"}
    return [
        (line["begun_s"], line["values"][0] * iterations[line["point"]], line["values"][0])
        for line in lines
        if line["type"] == "sample" and line["marks"] == 0 and line["point"] in iterations
    ]


def _theirs(lines: Iterable[dict[str, Any]]) -> list[tuple[float, float, float]]:
    return [(line["begun_s"], line["block_s"], line["iteration_s"]) for line in lines if "block_s" in line]


def _medians(blocks: list[tuple[float, float, float]], windows: Sequence[tuple[float, float]]) -> list[float]:
    """Return the median of the blocks within each window; NaN for fewer than five blocks."""
    blocks.sort()
    medians = []
    for start_s, end in windows:
        first = bisect.bisect_left(blocks, (start_s + 1e-3, 0.0, 0.0))
        in_window = []
        for start, length, time_s in blocks[first:]:
            if start + length > end:
                break
            in_window.append(time_s)
        medians.append(median(in_window) if len(in_window) >= 5 else math.nan)
    return medians


def _figure(values: Sequence[float]) -> Figure:
    return Figure(median(values), *(median_interval(values) or (math.nan, math.nan)))


def _spread(values: Sequence[float]) -> str:
    interval = median_interval(values)
    width = f" [{interval[0]:+.2f}, {interval[1]:+.2f}]" if interval else ""
    return f"{median(values):+.2f}{width}"


# ------------------------------------------------------------------ all


def everything(with_: launch.Launcher, brief: bool, _: str | None) -> None:
    """Print the time of all halo protocols, how many points are narrow enough, and the flags."""
    words_limit = "1000" if brief else "1000000"
    start_s = time.monotonic()
    lines = ranks(
        with_,
        2,
        ["halo", "--protocol", "all", "--words", f"1..{words_limit}", "--interval", "5", "--budget", "60s"],
        900,
    )
    elapsed_s = time.monotonic() - start_s
    by_metric = results(lines, "exchange_time")
    narrow = [r for r in by_metric if r["interval"] and (r["interval"][1] - r["interval"][0]) / 2 <= 0.05 * r["value"]]
    flags: dict[str, int] = defaultdict(int)
    for r in by_metric:
        for flag in r["flags"]:
            flags[flag] += 1
    protocols = len({r["conditions"]["protocol"] for r in by_metric})
    absent_protocols = sorted({line["reason"][:150] for line in lines if line["type"] == "absent"})
    print(
        f"  {elapsed_s:.1f} s (aim 60) for {len(by_metric)} points of {protocols} protocols;"
        f" interval within 5 %: {100 * len(narrow) / max(1, len(by_metric)):.1f} %; flags: {dict(flags) or 'none'}"
    )
    add_row(
        f"{protocols} halo protocols, 1 to {int(words_limit):,} words, 2 ranks, {with_.kind}",
        "s",
        elapsed_s,
        limits=(None, 60),
        flags=flags,
        notes=f"{100 * len(narrow) / max(1, len(by_metric)):.1f} % of {len(by_metric)} intervals within 5 %",
    )
    for reason in absent_protocols:
        print(f"  absent: {reason}")


# ------------------------------------------------------------------ predict


def predict(with_: launch.Launcher, brief: bool, _: str | None) -> None:
    """Compare three starts, since restarted ranks have other memory locations."""
    for program, factors in {"pop": (2, 10), "swim": (2, 10), "gyro": (2, 1000)}.items():
        for factor in factors:
            texts, rises, errors = [], [], []
            for start in range(1 if brief else 3):
                words = ["anatomy", "--program", program, "--factor", str(factor), "--budget", "1s" if brief else "8s"]
                lines = ranks(with_, 2, [*words, "--seed", str(start + 1)], 120)
                steps = {r["conditions"]["latency_factor"]: r["value"] for r in results(lines, "step_time")}
                rises.append(100 * (steps[factor] / steps[1] - 1))
                for r in results(lines, "prediction_error"):
                    low, high = r["interval"] or (float("nan"),) * 2
                    errors.append(100 * r["value"])
                    texts.append(f"{100 * r['value']:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]")
            print(
                f"  {program}, latency x {factor}: takes {median(rises):+.1f} %; prediction off by {', '.join(texts)} %"
            )
            what = f"prediction of `anatomy` over the measured time: {program}, latency x {factor}, {with_.kind}"
            add_row(what, "%", errors, notes=f"the step takes {median(rises):+.1f} % longer")


# ------------------------------------------------------------------ peers


def read_osu(text: str) -> dict[int, float]:
    """Return s by bytes from the output of an OSU latency test: size and µs per line."""
    rows = re.findall(r"^(\d+)\s+([0-9.]+)(?:\s|$)", text, re.MULTILINE)
    return {int(size): float(us) * 1e-6 for size, us in rows}


def read_imb(text: str) -> dict[int, float]:
    """Return s by bytes from IMB-MPI1 PingPong: bytes, repetitions, µs, MB/s."""
    rows = re.findall(r"^\s*(\d+)\s+\d+\s+([0-9.]+)\s+[0-9.]+", text, re.MULTILINE)
    return {int(size): float(us) * 1e-6 for size, us in rows}


def peers(with_: launch.Launcher, brief: bool, folder: str | None) -> None:
    """Print medians of Meshmark beside medians of the benchmarks in a folder."""
    if folder is None:
        print("  absent: no --osu FOLDER was given")
        return
    files = {p.name: p for p in Path(folder).rglob("*") if p.is_file() and os.access(p, os.X_OK)}
    tests: list[tuple[str, list[str], Callable[[str], dict[int, float]], str]] = []
    if "osu_latency" in files:
        tests.append(("osu_latency", [], read_osu, "send"))
    if "osu_put_latency" in files:
        tests.append(("osu_put_latency", ["-w", "allocate", "-s", "flush"], read_osu, "put"))
    if "IMB-MPI1" in files:
        tests.append(("IMB-MPI1", ["PingPong", "-npmin", "2", "-msglog", "3:22"], read_imb, "send"))
    if not tests:
        print(f"  absent: neither osu_latency nor IMB-MPI1 is in {folder}")
        return
    turns = 2 if brief else 12
    for name, options, read, protocol in tests:

        def ours(protocol: str = protocol) -> tuple[dict[int, float], dict[int, float]]:
            """Return the medians of undisturbed blocks, and the means of all blocks, which peers print."""
            words = ["pingpong", "--protocol", protocol, "--bytes", "8..4MiB", "--budget", "10s"]
            lines = ranks(with_, 2, words, 120)
            sizes = {r["point"]: r["conditions"]["message_bytes"] for r in results(lines, "message_latency")}
            blocks: dict[int, list[float]] = defaultdict(list)
            for line in lines:
                if line["type"] == "sample":
                    blocks[sizes[line["point"]]].append(line["values"][0] * (0.5 if protocol == "send" else 1.0))
            medians = {r["conditions"]["message_bytes"]: r["value"] for r in results(lines, "message_latency")}
            return medians, {size: statistics.fmean(values) for size, values in blocks.items()}

        def theirs(
            name: str = name, more: Sequence[str] = options, read: Callable[[str], dict[int, float]] = read
        ) -> dict[int, float]:
            completed = started(with_, 2, [str(files[name]), *more], 600)
            completed.check_returncode()
            return read(completed.stdout)

        ratios: dict[int, list[float]] = defaultdict(list)
        means: dict[int, list[float]] = defaultdict(list)
        noise: dict[int, list[float]] = defaultdict(list)
        for _turn in range(turns):
            (a, a_mean), b, c, (d, d_mean) = ours(), theirs(), theirs(), ours()
            for size in a.keys() & b.keys():
                if b[size] > 0 and c[size] > 0:
                    noise[size].append(100 * (b[size] / c[size] - 1))
                    # A hypervisor may move the CPUs of a guest: such a turn says nothing about either.
                    if abs(noise[size][-1]) <= 5:
                        ratios[size].append(100 * ((a[size] + d[size]) / (b[size] + c[size]) - 1))
                        means[size].append(100 * ((a_mean[size] + d_mean[size]) / (b[size] + c[size]) - 1))
        close = [sum(abs(median(v)) <= 3 for v in kind.values()) for kind in (ratios, means)]
        print(
            f"  {name}: {close[0]} of {len(ratios)} sizes within 3 %, {close[1]} by means; {turns} turns of ours,"
            " theirs, theirs, ours, less those in which theirs differ by more than 5 %"
        )
        add_row(
            f"sizes of 8 B to 4 MiB whose medians are within 3 % of the peer's: {name}, {with_.kind}",
            f"of {len(ratios)}",
            close[0],
            peer=name,
            limits=(len(ratios), None),
            notes=f"{close[1]} by means; {turns} turns",
        )
        print(f"    {'bytes':>8}  {'ours over theirs, %':26} {'by means, %':26} {'theirs over theirs, %':26} turns")
        for size in sorted(ratios):
            columns = (_spread(ratios_or_means[size]) for ratios_or_means in (ratios, means, noise))
            print(f"    {size:8}  " + " ".join(f"{text:26}" for text in columns), len(ratios[size]))


PARTS: Final[dict[str, Callable[[launch.Launcher, bool, str | None], None]]] = {
    "sentinel": sentinel,
    "bare": bare,
    "all": everything,
    "predict": predict,
    "peers": peers,
}


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--mpi", default="all", help="library: any, all or a kind")
    parser.add_argument("--osu", help="folder of osu_latency or IMB-MPI1")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    try:
        with recording("Communicating", options):
            for part in options.parts or PARTS:
                for kind in launch.chosen(options.mpi):
                    load = os.getloadavg()[0]
                    print(f"{part}, {kind} (load {load:.2f} before)", flush=True)
                    PARTS[part](launch.launcher(kind), options.brief, options.osu)
                    sys.stdout.flush()
    except MeshmarkError as error:
        sys.exit(f"bench/comm.py: {error}")


if __name__ == "__main__":
    main()
