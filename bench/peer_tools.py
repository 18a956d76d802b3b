"""The measurements of bench/peers.py: by the probe of Meshmark, and by each tool that it is compared with."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / "build" / "peers"
PROBE: Final = ROOT / "build" / "release" / "bin" / "meshmark-probe"
HPCC_INPUT: Final = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
HPCC_N: Final = 5800  # HPCC sizes its table by the memory of HPL: this gives 2^25 words, 256 MiB
DGEMM_N: Final = 3000
TRIAD_BYTES: Final = 900_000_000


class Absent(Exception):
    """A measurement is not available; the text says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: the value in the unit of the row, and a note for readers."""

    value: float
    flags: frozenset[str] = frozenset()
    note: str = ""


Measure = Callable[[], Figure]


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float = 300,
    cwd: Path | None = None,
    set_to: dict[str, str] | None = None,
) -> str:
    """Return the standard output of a command. Raises Absent, with its last line of output, if it fails."""
    words = [str(word) for word in command]
    try:
        completed = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=cwd,
            env={**os.environ, **(set_to or {})},
        )
    except FileNotFoundError:
        raise Absent(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Absent(f"{Path(words[0]).name} did not end in {timeout_s:g} s") from None
    if completed.returncode:
        last = (completed.stderr or completed.stdout).strip().splitlines()[-1:] or ["nothing said"]
        raise Absent(f"{Path(words[0]).name} failed (status {completed.returncode}): {last[0]}")
    return completed.stdout


def number(pattern: str, text: str, what: str) -> float:
    """Return the first group of a pattern as a number.

    Raises:
        Absent: The text does not match.
    """
    match = re.search(pattern, text)
    if not match:
        raise Absent(f"{what} printed no figure we know how to read")
    return float(match[1])


# --- Ours ----------------------------------------------------------------------------------------


def records(*words: str, probe: Path = PROBE) -> list[dict[str, Any]]:
    """Return the results of one run of the probe."""
    lines = run([probe, *words], timeout_s=180).splitlines()
    documents = [json.loads(line) for line in lines if line.startswith("{")]
    results = [line for line in documents if line["type"] == "result"]
    if not results:
        reasons = [line["reason"] for line in documents if line["type"] == "absent"]
        raise Absent(f"meshmark-probe {words[0]}: {reasons[0] if reasons else 'no result'}")
    return results


def meshmark(
    metric: str,
    *words: str,
    note: str = "",
    best: Callable[..., Any] = max,
    probe: Path = PROBE,
    **conditions: object,
) -> Measure:
    """Return a measurement by `probe`. If several results match `conditions`, it takes the best median.

    The figure is the median of the record, never its best sample, although some peers print their best.
    """

    def measure() -> Figure:
        fitting = [
            r
            for r in records(*words, probe=probe)
            if r["metric"] == metric and all(r["conditions"].get(k) == v for k, v in conditions.items())
        ]
        if not fitting:
            raise Absent(f"meshmark-probe {words[0]} gave no {metric} with {conditions}")
        record = best(fitting, key=lambda r: r["value"])
        note_text = str(record["conditions"].get(note, "")) if note else ""
        return Figure(record["value"], frozenset(record["flags"]), note_text)

    return measure


# --- Peers ---------------------------------------------------------------------------------------


_PACKAGES: Final = {"likwid-bench": "likwid", "hpcc SingleRandomAccess": "hpcc", "fio": "fio"}


def version_of(peer: str) -> str:
    """Return the version of the package of a peer, or an empty text if it comes from elsewhere."""
    with contextlib.suppress(Absent, KeyError):
        return run(["dpkg-query", "--show", "--showformat", "${Version}", _PACKAGES[peer]])
    return ""


def cpu_flags() -> set[str]:
    """Return the flags of the processor; empty if they are unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.split(":")[1].split())
    return set()


def likwid(kernels: Sequence[str], footprint: str, threads: int, field_name: str, scale: float) -> Measure:
    """Return a measurement by likwid-bench with the best of `kernels`: the first call tries all."""
    records: list[str] = []
    needs = {"avx512": "avx512f", "fma": "fma", "avx": "avx", "sse": "sse2"}
    flags = cpu_flags()

    def one(kernel: str) -> float:
        text = run(["likwid-bench", "-t", kernel, "-w", f"N:{footprint}:{threads}"], timeout_s=120)
        return number(rf"{field_name}:\s+([\d.e+]+)", text, "likwid-bench") * scale

    def measure() -> Figure:
        if records:
            return Figure(one(records[0]), note=records[0])
        possible = [k for k in kernels if all(needs[p] in flags for p in k.split("_") if p in needs)]
        rates: dict[str, float] = {}
        reason = "likwid-bench has no kernel for this processor"
        for kernel in possible:
            try:
                rates[kernel] = one(kernel)
            except Absent as error:
                reason = str(error)
        if not rates:
            raise Absent(reason)
        records.append(max(rates, key=lambda k: rates[k]))
        return Figure(one(records[0]), note=records[0])

    return measure


def stream(binary: str | None, threads: int) -> Measure:
    """Return a measurement by a STREAM binary: the rate of its triad in B/s."""

    def measure() -> Figure:
        if not binary:
            raise Absent("no STREAM binary found; give one with --stream PATH")
        text = run(
            [binary],
            set_to={"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "close", "OMP_PLACES": "cores"},
        )
        if "Solution Validates" not in text:
            raise Absent("STREAM did not validate its solution")
        return Figure(number(r"Triad:\s+([\d.]+)", text, "STREAM") * 1e6)

    return measure


def multichase(binary: str | None, footprint: str, huge: bool) -> Measure:
    """Return a measurement by a multichase binary: the latency of a random cycle in s."""

    def measure() -> Figure:
        if not binary:
            raise Absent("no multichase binary found; give one with --multichase PATH")
        # -T as large as the memory: one random cycle over all of it. The default stays within blocks that the TLB
        # covers, which measures something else.
        words = [binary, "-m", footprint, "-T", footprint, "-s", "64", "-n", "4"]
        return Figure(number(r"([\d.]+)\s*$", run(words + ["-H"] * huge), "multichase") * 1e-9)

    return measure


def pingpong(binary: str | None, *words: str, trips: int = 1) -> Measure:
    """Return a measurement by pingpong of multichase, which prints the time of one hand-over.

    The time is its best sample of several.

    Its default of ten pauses after every try (-r 10) measures the pauses on processors on which they are long.
    """

    def measure() -> Figure:
        if not binary:
            raise Absent("no multichase pingpong binary found; give one with --pingpong PATH")
        text = run([binary, *words, "-c", "2"], timeout_s=60)
        return Figure(number(r"\n\s*0:\s+([\d.]+)", text, "pingpong") * trips * 1e-9, note=" ".join(words))

    return measure


def core_to_core(binary: str | None, cpus: Sequence[int]) -> Measure:
    """Return a measurement by the crate core-to-core-latency: the latency of two CPUs in s."""

    def measure() -> Figure:
        if not binary:
            raise Absent("no core-to-core-latency binary; `cargo install core-to-core-latency` makes one")
        pair = f"{cpus[0]},{cpus[1]}"
        text = run([binary, "5000", "200", "--csv", "--cores", pair], timeout_s=120)
        return Figure(number(r"\n\s*([\d.]+)", text, "core-to-core-latency") * 1e-9)

    return measure


def hpcc_gups() -> Figure:
    """Run all of HPCC, which has no selection: one process, small HPL; only SingleRandomAccess is used."""
    if not shutil.which("hpcc"):
        raise Absent("hpcc is not installed")
    if not HPCC_INPUT.exists():
        raise Absent(f"hpcc's example input is missing: {HPCC_INPUT}")
    lines = HPCC_INPUT.read_text().splitlines()
    for line_number, value in ((5, HPCC_N), (7, 128), (10, 1), (11, 1)):  # N, NB, P, Q
        lines[line_number] = re.sub(r"^\S+", str(value), lines[line_number])
    with tempfile.TemporaryDirectory(prefix="hpcc-") as folder:
        (Path(folder) / "hpccinf.txt").write_text("\n".join(lines) + "\n")
        mpirun = ["mpirun", "-np", "1"] if shutil.which("mpirun") else []
        run(
            [*mpirun, "hpcc"],
            timeout_s=600,
            cwd=Path(folder),
            set_to={
                "OPENBLAS_NUM_THREADS": "1",
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
        )
        text = (Path(folder) / "hpccoutf.txt").read_text()
    words = int(number(r"\nRandomAccess_N=(\d+)", text, "hpcc"))
    return Figure(
        number(r"\nSingleRandomAccess_GUPs=([\d.e+-]+)", text, "hpcc") * 1e9,
        note=f"table of {words * 8 >> 20} MiB",
    )


# A bare loop of the library of argument 1 with arguments 2 …; it prints the median rate. `timed` is a call.
_BARE: Final = """
import ctypes, math, statistics, sys, time
import numpy as np
library, words = ctypes.CDLL(sys.argv[1]), sys.argv[2:]
p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
def timed(call, flops, before=lambda: None):
    before()
    call()
    rates, end = [], time.perf_counter() + 5
    while len(rates) < 3 or time.perf_counter() < end:
        before()
        start = time.perf_counter()
        call()
        rates.append(flops / (time.perf_counter() - start))
    print(statistics.median(rates))
"""
_BARE_DGEMM: Final = """
n = int(words[0])
a, b, c = np.random.default_rng(1).random((n, n)), np.random.default_rng(2).random((n, n)), np.zeros((n, n))
one, zero = ctypes.c_double(1), ctypes.c_double(0)
timed(lambda: library.cblas_dgemm(102, 111, 111, n, n, n, one, p(a), n, p(b), n, zero, p(c), n), 2.0 * n**3)
"""
_BARE_MOD2D: Final = """
n = int(words[0])
v = np.cos((3.0 * np.arange(1, n + 1)) % 1009)  # the problem of ours: the time depends on the spectrum
h = np.eye(n) - 2 * np.outer(v, v) / (v @ v)
m = h @ (2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) @ h
a, values, work = m.copy(), np.zeros(n), np.zeros(1 + 6 * n + 2 * n * n)
integers = np.zeros(3 + 5 * n, np.int32)
of = lambda x: ctypes.byref(ctypes.c_int(x))
info = ctypes.c_int()
def solve():
    library.dsyevd_(b"V", b"L", of(n), p(a), of(n), p(values), p(work), of(len(work)), p(integers),
                    of(len(integers)), ctypes.byref(info), 1, 1)
timed(solve, 10 / 3 * n**3, lambda: np.copyto(a, m))
"""
_BARE_FFT: Final = """
shape = [int(n) for n in words[0].split("x")]
x, y = np.zeros(shape, complex), np.zeros(shape, complex)
library.fftw_plan_dft.restype = ctypes.c_void_p
plan = ctypes.c_void_p(library.fftw_plan_dft(len(shape), (ctypes.c_int * len(shape))(*shape), p(x), p(y), -1, 0))
x[...] = np.random.default_rng(1).random(shape)  # pages of zeros that nobody wrote would all be the same one
timed(lambda: library.fftw_execute(plan), 5.0 * x.size * math.log2(x.size))
"""


class SameLibrary:
    """Meshmark, and a bare loop of the library and kernel that it chose: the difference is the overhead."""

    def __init__(self, instrument: str, option: str, size: str, threads: int) -> None:
        self.instrument, self.option, self.size, self.threads = instrument, option, size, threads
        self.library = self.core = ""

    def ours(self) -> Figure:
        """Return the rate of the instrument in flop/s, and remember the library that it used."""
        # FFTW plans by trials for half of the budget at most; the planning of the bare loop has no limit.
        budget = "40s" if self.instrument == "fft" else "8s"
        words = (self.option, self.size, "--threads", str(self.threads), "--budget", budget)
        record = next((r for r in records(self.instrument, *words) if r["metric"] == "flop_rate"), None)
        if record is None:
            raise Absent(f"meshmark-probe {self.instrument} gave no flop_rate")
        conditions = record["conditions"]
        if conditions.get("planning") == "cut short":
            raise Absent("FFTW's planning was cut short here, but not in the bare loop")
        self.library = str(conditions.get("library_path") or conditions.get("library") or "")
        self.core = str(conditions.get("library_kernel") or "")
        return Figure(record["value"], frozenset(record["flags"]), self.core)

    def bare(self) -> Figure:
        """Return the rate of a bare loop around the same library in flop/s."""
        if not self.library.startswith("/") and ".so" not in self.library:
            raise Absent(f"the record names no library file (it says {self.library!r})")
        threads = str(self.threads)
        environment = {"OPENBLAS_CORETYPE": self.core} if self.core else {}
        script = _BARE + {"dgemm": _BARE_DGEMM, "mod2d": _BARE_MOD2D, "fft": _BARE_FFT}[self.instrument]
        text = run(
            [sys.executable, "-c", script, self.library, self.size],
            set_to={
                "OPENBLAS_NUM_THREADS": threads,
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
                **environment,
            },
        )
        return Figure(float(text))


def fio_read(target: Path, seconds: float) -> Measure:
    """Return a measurement by fio: the rate of direct reads of a file in B/s."""

    def measure() -> Figure:
        if not shutil.which("fio"):
            raise Absent("fio is not installed")
        text = run(
            [
                "fio",
                "--name=read",
                f"--filename={target}",
                "--rw=read",
                "--bs=128k",
                "--direct=1",
                "--ioengine=libaio",
                "--iodepth=16",
                "--numjobs=1",
                "--time_based",
                f"--runtime={seconds:g}",
                "--size=256M",
                "--output-format=json",
            ]
        )
        report = json.loads(text[text.index("{") :])
        return Figure(float(report["jobs"][0]["read"]["bw_bytes"]))

    return measure
