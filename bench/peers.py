"""Compares other tools with Meshmark side by side in one run: `make bench-peers`, see bench/README.md.

Machines drift and neighbours come and go, so a figure from another day proves little. Each row runs its peers and
Meshmark in alternation (A B A B …) and compares pairs that are adjacent in time; the result is the median of the
ratios of the pairs. Packaged peers are installed if that is allowed, others run if a binary is found or given;
missing ones are reported absent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from peer_tools import (
    DGEMM_N,
    PROBE,
    TRIAD_BYTES,
    WORK,
    Absent,
    Measure,
    SameLibrary,
    core_to_core,
    fio_read,
    hpcc_gups,
    likwid,
    meshmark,
    multichase,
    pingpong,
    run,
    stream,
    version_of,
)
from results import ResultRow, add_rows, bench_parser, recording, result_row, rows_table


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
    """The pairs of values of Meshmark and a peer, in SI units."""

    row: Row
    peer: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)
    absent: str = ""

    def summary(self) -> ResultRow:
        """Return the row of the table."""
        return result_row(
            self.row.name,
            self.row.unit,
            [v / self.row.scale for v in self.ours],
            peer=self.peer,
            version=version_of(self.peer),
            theirs=[v / self.row.scale for v in self.theirs],
            limits=(self.row.low, self.row.high),
            flags=self.flags,
            notes=", ".join(sorted(self.notes)),
            absent=self.absent,
        )


def say(text: str) -> None:
    """Print a line to standard error."""
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
    results = {name: Result(row, name) for name in row.peers}
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
    """Return the options of the command line."""
    parser = bench_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row [5]")
    parser.add_argument("--only", metavar="REGEX", default="", help="only rows whose name matches")
    parser.add_argument("--stream", metavar="PATH", help="a STREAM binary, arrays of 4 x the last cache")
    parser.add_argument("--multichase", metavar="PATH")
    parser.add_argument("--pingpong", metavar="PATH", help="multichase's pingpong")
    parser.add_argument("--core-to-core", metavar="PATH", help="the crate's binary [installed with cargo]")
    parser.add_argument("--no-install", action="store_true", help="only what is there already")
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
    """Measure the selected rows in pairs, print the table, and return the exit status."""
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
    with recording("Other tools", options):
        rows_of_results: list[ResultRow] = []
        for index, row in enumerate(selected, 1):
            say(f"[{index}/{len(selected)}] {row.name}")
            row_results = compare(row, options.rounds)
            summaries = [result.summary() for result in row_results]
            add_rows(summaries)
            rows_of_results += summaries
        print(rows_table(rows_of_results), end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("bench-peers: interrupted; with --record, finished rows are written")
        sys.exit(130)
