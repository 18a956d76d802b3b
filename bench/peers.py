"""Compares other tools with Meshmark side by side in one run: `make bench-peers`, see bench/README.md.

Machines drift and neighbours come and go, so a figure from another day proves little. Each row runs its peers and
Meshmark in alternation (A B A B …) and compares pairs that are adjacent in time; the result is the median of the
ratios of the pairs. Packaged peers are installed if that is allowed, others run if a binary is found or given;
missing ones are reported absent.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peer_tools import (
    DGEMM_N,
    PROBE,
    ROOT,
    TRIAD_BYTES,
    WORK,
    Absent,
    Measure,
    SameLibrary,
    core_to_core,
    cpu_flags,
    fio_read,
    hpcc_gups,
    likwid,
    meshmark,
    multichase,
    pingpong,
    run,
    stream,
)

START_MARK, END_MARK = "<!-- measured -->", "<!-- /measured -->"


@dataclass(slots=True)
class Row:
    """One quantity that Meshmark and its peers measure.

    `low` and `high` bound the intended ratio Meshmark / peer; None is unbounded.
    """

    name: str
    unit: str
    scale: float  # value of the displayed unit in SI
    ours: Measure
    peers: dict[str, Measure]
    low: float | None = None
    high: float | None = None


@dataclass(slots=True)
class Result:
    row: str
    unit: str
    peer: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    low: float | None = None
    high: float | None = None
    flags: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    absent: str = ""

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.theirs, strict=True)]

    @property
    def verdict(self) -> str:
        if self.absent or not self.ratios:
            return "absent"
        ratio = statistics.median(self.ratios)
        if self.low is None and self.high is None:
            return ""
        reached = (self.low is None or ratio >= self.low) and (self.high is None or ratio <= self.high)
        return "yes" if reached else "no"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- What is compared ----------------------------------------------------------------------------


def rows(options: argparse.Namespace, cpus: Sequence[int]) -> list[Row]:
    """Return all rows. Targets come from the plan of the project; `low` = `high` = None is for information."""
    every = len(cpus)
    counts = [1] if every == 1 else [1, every]
    one_cpu = ["--cpus", str(cpus[0])]
    table: list[Row] = []
    for threads in counts:
        label = "1 thread" if threads == 1 else f"{threads} threads"
        triad = [
            "bandwidth",
            "--kernel",
            "triad",
            "--store",
            "ordinary,streaming",
            "--threads",
            str(threads),
            "--footprint",
            f"{TRIAD_BYTES // 1_000_000}MB",
            "--pages",
            "thp",
            "--budget",
            "6s",
        ]
        kernels = ["stream_mem_avx512", "stream_mem_avx_fma", "stream_mem_avx", "stream_mem_sse"]
        kernels += ["stream_avx512_fma", "stream_avx_fma", "stream_sse"]
        table.append(
            Row(
                f"triad, {label}",
                "GB/s",
                1e9,
                meshmark("bandwidth_net", *triad, note="store"),
                {
                    "STREAM": stream(options.stream, threads),
                    "likwid-bench": likwid(kernels, f"{TRIAD_BYTES // 1_000_000}MB", threads, "MByte/s", 1e6),
                },
                low=1.0,
            )
        )
    for pages in ("4KiB", "thp"):
        for ours_size, peer_size in (("16KiB", "16k"), ("512KiB", "512k"), ("32MiB", "32m"), ("1GiB", "1g")):
            chase = ["latency", "--footprint", ours_size, "--pages", pages, "--budget", "4s", *one_cpu]
            table.append(
                Row(
                    f"dependent loads, {ours_size}, {'huge' if pages == 'thp' else '4 KiB'} pages",
                    "ns",
                    1e-9,
                    meshmark("load_latency", *chase, best=min),
                    {"multichase": multichase(options.multichase, peer_size, pages == "thp")},
                    low=0.97,
                    high=1.03,
                )
            )
    for pages in ("4KiB", "thp"):
        gups = ["gups", "--table", "256MiB", "--threads", "1", "--pages", pages, "--budget", "8s", *one_cpu]
        table.append(
            Row(
                f"random updates, 1 thread, {'huge' if pages == 'thp' else '4 KiB'} pages",
                "GUP/s",
                1e9,
                meshmark("update_rate", *gups),
                {"hpcc SingleRandomAccess": hpcc_gups},
                low=1.2,
            )
        )
    if every > 1:
        pair = ["lines", "--cpus", f"{cpus[0]},{cpus[1]}", "--budget", "5s"]
        table.append(
            Row(
                "core to core by compare-and-swap, one way",
                "ns",
                1e-9,
                meshmark("line_latency", *pair, "--state", "swap", best=min, state="swap", trip="one_way"),
                {
                    "core-to-core-latency": core_to_core(options.core_to_core, cpus),
                    "multichase pingpong": pingpong(options.pingpong, "-l", "-r", "0"),
                },
                low=0.95,
                high=1.05,
            )
        )
        table.append(
            Row(
                "core to core by flag, round trip",
                "ns",
                1e-9,
                meshmark("line_latency", *pair, "--state", "flag", best=min, state="flag", trip="round"),
                {"multichase pingpong": pingpong(options.pingpong, "-u", "-r", "1", trips=2)},
            )
        )
    for threads in counts:
        label = "1 thread" if threads == 1 else f"{threads} threads"
        fma = ["peak", "--type", "fp64", "--threads", str(threads), "--budget", "5s"]
        kernels = ["peakflops_avx512_fma", "peakflops_avx_fma", "peakflops_avx", "peakflops_sse"]
        table.append(
            Row(
                f"multiply-add fp64, {label}",
                "GFLOP/s",
                1e9,
                meshmark("flop_rate", *fma, note="isa"),
                {"likwid-bench": likwid(kernels, f"{24 * threads}kB", threads, "MFlops/s", 1e6)},
                low=0.98,
            )
        )
        dgemm = SameLibrary("dgemm", "--n", str(DGEMM_N), threads)
        table.append(
            Row(
                f"dgemm N = {DGEMM_N}, {label}",
                "GFLOP/s",
                1e9,
                dgemm.ours,
                {"bare loop, same library": dgemm.bare},
                low=0.98,
            )
        )
        table.append(
            Row(
                f"dgemm N = {DGEMM_N} against our peak, {label}",
                "GFLOP/s",
                1e9,
                dgemm.ours,
                {"meshmark peak": meshmark("flop_rate", *fma, note="isa")},
                low=0.90,
            )
        )
        eigen = SameLibrary("mod2d", "--n", "1000", threads)
        bare = {"bare loop, same library": eigen.bare}
        table.append(Row(f"mod2d N = 1000, {label}", "GFLOP/s", 1e9, eigen.ours, bare, low=0.97))
    for shape in ("1048576", "1024x1024"):
        fft = SameLibrary("fft", "--shape", shape, 1)
        bare = {"bare loop, same library": fft.bare}
        table.append(Row(f"fft {shape}, 1 thread", "GFLOP/s", 1e9, fft.ours, bare, low=0.97))
    target = WORK / "io.bin"
    io = [
        "io",
        "--target",
        str(WORK),
        "--direction",
        "read",
        "--block",
        "128KiB",
        "--depth",
        "16",
        "--jobs",
        "1",
        "--budget",
        "6s",
    ]
    table.append(
        Row(
            "128 KiB direct reads, queue 16",
            "GB/s",
            1e9,
            meshmark("bandwidth_net", *io),
            {"fio": fio_read(target, 4)},
        )
    )
    return table


def compare(row: Row, rounds: int) -> list[Result]:
    """Run Meshmark and each peer in alternation, `rounds` times, and return one result per peer."""
    results = {name: Result(row.name, row.unit, name, low=row.low, high=row.high, notes=set()) for name in row.peers}
    for number_ in range(1, rounds + 1):
        for name, peer in row.peers.items():
            result = results[name]
            if result.absent:
                continue
            try:
                value = row.ours()
                peer_value = peer()
            except Absent as error:
                if not result.ours:  # a later failure only loses its pair
                    result.absent = str(error)
                say(f"  round {number_}/{rounds}: {name}: absent: {error}")
                continue
            result.ours.append(value.value)
            result.theirs.append(peer_value.value)
            result.flags |= value.flags
            result.notes |= {note for note in (value.note, peer_value.note) if note}
            say(
                f"  round {number_}/{rounds}: ours {value.value / row.scale:.4g}, "
                f"{name} {peer_value.value / row.scale:.4g} {row.unit}, "
                f"ratio {value.value / peer_value.value:.3f} {' '.join(sorted(value.flags))}"
            )
    return list(results.values())


# --- Saying it -----------------------------------------------------------------------------------


def spread(values: Sequence[float], scale: float) -> str:
    scaled = [v / scale for v in (statistics.median(values), min(values), max(values))]
    return "{:.4g} [{:.4g}–{:.4g}]".format(*scaled)


def aim(result: Result) -> str:
    if result.low is not None and result.high is not None:
        return f"{result.low:g}–{result.high:g}"
    if result.low is not None:
        return f"≥ {result.low:g}"
    return f"≤ {result.high:g}" if result.high is not None else "–"


def machine_line(cpus: Sequence[int]) -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = match[1] if match else model
    guest = ", virtual machine" if "hypervisor" in cpu_flags() else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(cpus)} CPUs{guest}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"


def markdown(results: Sequence[Result], scales: dict[str, float], about: dict[str, str]) -> str:
    lines = [
        f"Measured {about['date']} on {about['machine']}; meshmark {about['build']}; "
        f"`{about['command']}`; {about['rounds']} rounds. Load at the start {about['load']}.",
        "",
        "| what | unit | ours, median [range] | peer | peer, median [range] | ratio, median [range] "
        "| aim | reached | notes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        if r.verdict == "absent":
            lines.append(f"| {r.row} | {r.unit} | – | {r.peer} | – | – | {aim(r)} | absent | {r.absent} |")
            continue
        scale = scales[r.row]
        notes = ", ".join(sorted(r.notes) + [f"flag `{flag}`" for flag in sorted(r.flags)])
        lines.append(
            f"| {r.row} | {r.unit} | {spread(r.ours, scale)} | {r.peer} | {spread(r.theirs, scale)} "
            f"| {spread(r.ratios, 1)} | {aim(r)} | {r.verdict or '–'} | {notes} |"
        )
    return "\n".join(lines) + "\n"


def record_in_readme(table: str) -> None:
    path = ROOT / "bench" / "README.md"
    text = path.read_text()
    before, other_words = text.split(START_MARK)
    after = other_words.split(END_MARK)[1]
    path.write_text(f"{before}{START_MARK}\n\n{table}\n{END_MARK}{after}")


# --- Installing ----------------------------------------------------------------------------------


def install() -> None:
    """Install packaged peers that are missing, if that is allowed; failures only leave a peer absent."""
    expected = {"likwid-bench": "likwid", "hpcc": "hpcc", "fio": "fio"}
    packages = [package for command, package in expected.items() if not shutil.which(command)]
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if packages and shutil.which("apt-get"):
        say(f"installing {' '.join(packages)}")
        with contextlib.suppress(Absent):
            run([*root, "apt-get", "-qq", "update"], timeout_s=300)
        for package in packages:
            try:
                run(
                    [*root, "apt-get", "-qq", "install", "-y", "--no-install-recommends", package],
                    timeout_s=600,
                    set_to={"DEBIAN_FRONTEND": "noninteractive"},
                )
            except Absent as error:
                say(f"could not install {package}: {error}")
    crate = WORK / "crate" / "bin" / "core-to-core-latency"
    if shutil.which("cargo") and not crate.exists() and not shutil.which(crate.name):
        say("installing the crate core-to-core-latency")
        try:
            run(["cargo", "install", "--quiet", "--root", WORK / "crate", crate.name], timeout_s=900)
        except Absent as error:
            say(f"could not install core-to-core-latency: {error}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row [5]")
    parser.add_argument("--only", metavar="REGEX", default="", help="only rows whose name matches")
    parser.add_argument("--stream", metavar="PATH", help="a STREAM binary, arrays of 4 x the last cache")
    parser.add_argument("--multichase", metavar="PATH")
    parser.add_argument("--pingpong", metavar="PATH", help="multichase's pingpong")
    parser.add_argument("--core-to-core", metavar="PATH", help="the crate's binary [installed with cargo]")
    parser.add_argument("--no-install", action="store_true", help="only what is there already")
    parser.add_argument("--record", action="store_true", help="put the table into bench/README.md")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only: {error}")
    for name in ("stream", "multichase", "pingpong", "core_to_core"):
        selection = getattr(options, name)
        if selection and not shutil.which(selection):
            parser.error(f"--{name.replace('_', '-')}: {selection} is no program")
    return options


def main() -> int:
    options = arguments()
    cpus = sorted(os.sched_getaffinity(0))
    if not PROBE.exists():
        say("bench-peers: error: meshmark-probe is not built")
        say("hint: make setup")
        return 1
    WORK.mkdir(parents=True, exist_ok=True)
    if not (options.no_install or options.list):
        install()
    crate = WORK / "crate" / "bin" / "core-to-core-latency"
    options.stream = options.stream or shutil.which("stream") or shutil.which("stream_c.exe")
    options.multichase = options.multichase or shutil.which("multichase")
    options.pingpong = options.pingpong or shutil.which("pingpong")
    options.core_to_core = options.core_to_core or shutil.which(crate.name) or shutil.which(crate)

    selected = [row for row in rows(options, cpus) if re.search(options.only, row.name)]
    if options.list:
        print("\n".join(f"{row.name}: {', '.join(row.peers)}" for row in selected))
        return 0
    if not selected:
        say(f"bench-peers: error: --only {options.only!r} matches no row")
        say("hint: bench/peers.py --list")
        return 2
    words = ["make bench-peers"] if not options.only else [f"bench/peers.py --only '{options.only}'"]
    provenance = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine_line(cpus),
        "command": " ".join(words),  # not sys.argv: it may hold private paths
        "rounds": str(options.rounds),
        "load": f"{os.getloadavg()[0]:.1f}",
        "build": "unknown",
    }
    with contextlib.suppress(Absent, ValueError, KeyError, IndexError):
        header = json.loads(run([PROBE, "clock", "--budget", "1s"]).splitlines()[0])
        provenance["build"] = header["provenance"]["build"]

    results: list[Result] = []
    for index, row in enumerate(selected, 1):
        say(f"[{index}/{len(selected)}] {row.name}")
        results += compare(row, options.rounds)
        document = {
            "about": provenance,
            "results": [
                {
                    "what": r.row,
                    "unit": r.unit,
                    "peer": r.peer,
                    "ours": r.ours,
                    "peer_values": r.theirs,
                    "ratios": r.ratios,
                    "low": r.low,
                    "high": r.high,
                    "verdict": r.verdict,
                    "flags": sorted(r.flags),
                    "notes": sorted(r.notes),
                    "absent": r.absent,
                }
                for r in results
            ],
        }
        partial_file = WORK / "results.json.part"
        partial_file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        partial_file.replace(WORK / "results.json")
    table = markdown(results, {row.name: row.scale for row in selected}, provenance)
    (WORK / "results.md").write_text(table)
    if options.record:
        record_in_readme(table)
    print(table, end="")
    say(f"written: {WORK.relative_to(ROOT)}/results.json and results.md")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("bench-peers: interrupted; finished rows are in build/peers/results.json")
        sys.exit(130)
