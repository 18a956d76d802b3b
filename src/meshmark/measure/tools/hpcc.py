"""HPC Challenge's output file `hpccoutf.txt`: its summary section (version 1.4 and 1.5).

Numbers that begin with `Star` are means over all processes, which run the same at once; `Single` is one process while
the others wait. A test that was not run has the value -1 and gives no record.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Better, Record, Scalar

_BEGIN: Final = "Begin of Summary section."
_END: Final = "End of Summary section."
_RUNNING: Final = {"Star": "all", "Single": "one"}
_ARRAYS: Final = {"Copy": 2, "Scale": 2, "Add": 3, "Triad": 3}
_SIZES: Final = (
    "VersionMajor",
    "VersionMinor",
    "CommWorldProcs",
    "sizeof_double",
    "HPL_N",
    "HPL_NB",
    "HPL_nprow",
    "HPL_npcol",
    "DGEMM_N",
    "PTRANS_n",
    "RandomAccess_N",
    "MPIRandomAccess_N",
    "STREAM_VectorSize",
    "STREAM_Threads",
    "FFT_N",
    "MPIFFT_N",
)
_LARGEST: Final = 1e30
_SHORT: Final = 8  # bytes of a message of the latency tests
_LONG: Final = 2_000_000  # bytes of a message of the bandwidth tests


def recognises(start: str) -> bool:
    return re.search(r"^This is the DARPA/DOE HPC Challenge Benchmark version", start, re.MULTILINE) is not None or (
        re.search(rf"^{re.escape(_BEGIN)}\s*\nVersionMajor=", start, re.MULTILINE) is not None
    )


class _Summary:
    """The keys of the section with their values."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        begins = [at for at, line in enumerate(lines) if line.strip() == _BEGIN]
        ends = [at for at, line in enumerate(lines) if line.strip() == _END]
        if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
            raise FormatError(f"HPCC: found no '{_BEGIN}' with '{_END}'; the output is incomplete")
        self.values: dict[str, tuple[int, str]] = {}
        for at in range(begins[0] + 1, ends[0]):
            key, equals, value = lines[at].partition("=")
            if not equals or not re.fullmatch(r"\w+", key) or not value.strip() or key in self.values:
                raise FormatError(f"HPCC: line {at + 1}: found '{quoted(lines[at], 40)}'; required: another key=value")
            self.values[key] = at + 1, value.strip()

    def __getitem__(self, key: str) -> float:
        if key not in self.values:
            raise FormatError(f"HPCC: found no '{key}=' in the summary; the output is incomplete")
        at, value = self.values[key]
        found = number(value, f"HPCC: line {at}: {key}")
        if abs(found) > _LARGEST:
            raise FormatError(f"HPCC: line {at}: {key}: found {found:g}; the cell is damaged")
        return found

    def count(self, key: str) -> int:
        value = self[key]
        if value != int(value) or value < 0:
            raise FormatError(f"HPCC: line {self.values[key][0]}: {key}: found {value:g}, a count is required")
        return int(value)


class _Results:
    """The records made so far; a value of -1 makes none."""

    def __init__(self, about: About, summary: _Summary) -> None:
        self.about = about
        self.summary = summary
        self.made: list[Record] = []

    def ours(self, key: str, factor: float, instrument: str, metric: str, **conditions: Scalar) -> None:
        if (value := self.summary[key]) != -1:
            self.made.append(ours(self.about, instrument, metric, [factor * value], **conditions))

    def theirs(self, key: str, factor: float, metric: str, unit: str, **conditions: Scalar) -> None:
        if (value := self.summary[key]) != -1:
            better: Better = "lower" if unit == "s" else "higher"
            self.made.append(theirs(self.about, metric, unit, better, [factor * value], **conditions))


def read(text: str, machine: str) -> list[Record]:
    """The results of all tests of the summary."""
    summary = _Summary(text)
    if summary["Success"] != 1:
        raise FormatError("HPCC: found 'Success=0'; results that do not validate are not imported")
    sizes = {key: summary.count(key) for key in _SIZES}
    release = summary.values.get("VersionRelease", (0, ""))[1]
    version = f"{sizes['VersionMajor']}.{sizes['VersionMinor']}.{summary.count('VersionMicro')}{release}"
    results = _Results(About(machine, "hpcc", version), summary)
    _linear_algebra(results, sizes)
    _memory(results, sizes)
    _transforms(results, sizes)
    _messages(results, sizes["CommWorldProcs"])
    if not results.made:
        raise FormatError("HPCC: found no test that was run; required: one whose value is not -1")
    return results.made


def _linear_algebra(results: _Results, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    grid = f"{sizes['HPL_nprow']}x{sizes['HPL_npcol']}"
    results.ours(
        "HPL_Tflops", 1e12, "linpack", "flop_rate", n=sizes["HPL_N"], block=sizes["HPL_NB"], grid=grid, ranks=ranks
    )
    for beginning, running in _RUNNING.items():
        key = f"{beginning}DGEMM_Gflops"
        results.ours(key, 1e9, "dgemm", "flop_rate", n=sizes["DGEMM_N"], running=running, ranks=ranks)
    results.theirs("PTRANS_GBs", 1e9, "transpose_rate", "B/s", n=sizes["PTRANS_n"], ranks=ranks)


def _memory(results: _Results, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    for beginning, running in _RUNNING.items():
        for kernel, arrays in _ARRAYS.items():
            results.ours(
                f"{beginning}STREAM_{kernel}",
                1e9,
                "bandwidth",
                "bandwidth_net",
                kernel=kernel.lower(),
                threads=sizes["STREAM_Threads"],
                footprint_bytes=arrays * sizes["STREAM_VectorSize"] * sizes["sizeof_double"],
                running=running,
                ranks=ranks,
                statistic="mean" if beginning == "Star" else "best",
            )
        table = 8 * sizes["RandomAccess_N"]
        key = f"{beginning}RandomAccess_GUPs"
        results.ours(key, 1e9, "gups", "update_rate", table_bytes=table, running=running, ranks=ranks)
    table = 8 * sizes["MPIRandomAccess_N"]
    results.theirs("MPIRandomAccess_GUPs", 1e9, "distributed_update_rate", "op/s", table_bytes=table, ranks=ranks)


def _transforms(results: _Results, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    for beginning, running in _RUNNING.items():
        key = f"{beginning}FFT_Gflops"
        results.theirs(key, 1e9, "fft_rate", "flop/s", n=sizes["FFT_N"], running=running, ranks=ranks)
    results.theirs("MPIFFT_Gflops", 1e9, "distributed_fft_rate", "flop/s", n=sizes["MPIFFT_N"], ranks=ranks)


def _messages(results: _Results, ranks: int) -> None:
    for beginning, statistic in (("Min", "minimum"), ("Avg", "mean"), ("Max", "maximum")):
        same: dict[str, Scalar] = {"ranks": ranks, "protocol": "send", "statistic": statistic}
        key = f"{beginning}PingPong"
        results.ours(f"{key}Latency_usec", 1e-6, "pingpong", "message_latency", message_bytes=_SHORT, **same)
        results.ours(f"{key}Bandwidth_GBytes", 1e9, "pingpong", "bandwidth_net", message_bytes=_LONG, **same)
    for beginning, order in (("NaturallyOrdered", "natural"), ("RandomlyOrdered", "random")):
        key = f"{beginning}Ring"
        ring: dict[str, Scalar] = {"ranks": ranks, "order": order}
        results.theirs(f"{key}Latency_usec", 1e-6, "ring_latency", "s", message_bytes=_SHORT, **ring)
        results.theirs(f"{key}Bandwidth_GBytes", 1e9, "ring_bandwidth", "B/s", message_bytes=_LONG, **ring)


READERS: Final = [Reader("hpcc", "HPC Challenge, summary of hpccoutf.txt", recognises, whole(read))]
