"""HPC Challenge's output file `hpccoutf.txt`, to which HPCC appends: its summary sections (version 1.4 and 1.5).

Numbers that begin with `Star` are means over all processes, which run the same at once; `Single` is one process while
the others wait. A test that was not run has the value -1 and gives no record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import Line, ToolOutput, sections
from meshmark.store.record import Better, Scalar

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
    """The keys of a section with their lines and values, and the records of them; a value of -1 makes none."""

    def __init__(self, output: ToolOutput, lines: Sequence[Line]) -> None:
        self.output = output
        self.about = About(output.machine, "hpcc")
        self.values: dict[str, tuple[int, str]] = {}
        for line in lines[1:]:
            if line.text.strip() == _END:
                return
            key, equals, value = line.text.partition("=")
            with output.item(line.number):
                if not equals or not re.fullmatch(r"\w+", key) or not value.strip() or key in self.values:
                    raise FormatError(f"found '{quoted(line.text, 40)}', another key=value is required")
                self.values[key] = line.number, value.strip()
        raise FormatError(f"found no '{_END}'; the run is not complete")

    def number(self, key: str) -> float:
        """The value of a key.

        Raises:
            FormatError: It is missing, not a number or too large.
        """
        if key not in self.values:
            raise FormatError(f"found no '{key}=' in the summary")
        line, text = self.values[key]
        value = number(text, f"line {line}: {key}")
        if abs(value) > _LARGEST:
            raise FormatError(f"line {line}: {key}: found {value:g}; the cell is damaged")
        return value

    def count(self, key: str) -> int:
        """The value of a key that is a count."""
        value = self.number(key)
        if value != int(value) or value < 0:
            raise FormatError(f"line {self.values[key][0]}: {key}: found {value:g}, a count is required")
        return int(value)

    def ours(self, key: str, factor: float, instrument: str, metric: str, **conditions: Scalar) -> None:
        """Add a record of a metric of an instrument of ours."""
        with self.output.item(""):
            if (value := self.number(key)) != -1:
                self.output.add(ours(self.about, instrument, metric, [factor * value], **conditions))

    def theirs(self, key: str, factor: float, metric: str, unit: str, **conditions: Scalar) -> None:
        """Add a record of a metric of HPCC."""
        with self.output.item(""):
            if (value := self.number(key)) != -1:
                better: Better = "lower" if unit == "s" else "higher"
                self.output.add(theirs(self.about, metric, unit, better, [factor * value], **conditions))


def read(output: ToolOutput) -> None:
    """The results of all tests of each summary."""
    for section in sections(output.lines, lambda text: text.strip() == _BEGIN):
        with output.item(section[0].number):
            summary = _Summary(output, section)
            if summary.number("Success") != 1:
                raise FormatError("found 'Success=0'; only results that validate are taken")
            sizes = {key: summary.count(key) for key in _SIZES}
            release = summary.values.get("VersionRelease", (0, ""))[1]
            version = f"{sizes['VersionMajor']}.{sizes['VersionMinor']}.{summary.count('VersionMicro')}{release}"
            summary.about = About(output.machine, "hpcc", version)
            _linear_algebra(summary, sizes)
            _memory(summary, sizes)
            _transforms(summary, sizes)
            _messages(summary, sizes["CommWorldProcs"])
    if not output.lines or _BEGIN not in output.text:
        raise FormatError(f"found no '{_BEGIN}'; the run is not complete")


def _linear_algebra(summary: _Summary, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    grid = f"{sizes['HPL_nprow']}x{sizes['HPL_npcol']}"
    summary.ours(
        "HPL_Tflops", 1e12, "linpack", "flop_rate", n=sizes["HPL_N"], block=sizes["HPL_NB"], grid=grid, ranks=ranks
    )
    for beginning, running in _RUNNING.items():
        key = f"{beginning}DGEMM_Gflops"
        summary.ours(key, 1e9, "dgemm", "flop_rate", n=sizes["DGEMM_N"], running=running, ranks=ranks)
    summary.theirs("PTRANS_GBs", 1e9, "transpose_rate", "B/s", n=sizes["PTRANS_n"], ranks=ranks)


def _memory(summary: _Summary, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    for beginning, running in _RUNNING.items():
        for kernel, arrays in _ARRAYS.items():
            summary.ours(
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
        summary.ours(key, 1e9, "gups", "update_rate", table_bytes=table, running=running, ranks=ranks)
    table = 8 * sizes["MPIRandomAccess_N"]
    summary.theirs("MPIRandomAccess_GUPs", 1e9, "distributed_update_rate", "op/s", table_bytes=table, ranks=ranks)


def _transforms(summary: _Summary, sizes: dict[str, int]) -> None:
    ranks = sizes["CommWorldProcs"]
    for beginning, running in _RUNNING.items():
        key = f"{beginning}FFT_Gflops"
        summary.theirs(key, 1e9, "fft_rate", "flop/s", n=sizes["FFT_N"], running=running, ranks=ranks)
    summary.theirs("MPIFFT_Gflops", 1e9, "distributed_fft_rate", "flop/s", n=sizes["MPIFFT_N"], ranks=ranks)


def _messages(summary: _Summary, ranks: int) -> None:
    for beginning, statistic in (("Min", "minimum"), ("Avg", "mean"), ("Max", "maximum")):
        same: dict[str, Scalar] = {"ranks": ranks, "protocol": "send", "statistic": statistic}
        key = f"{beginning}PingPong"
        summary.ours(f"{key}Latency_usec", 1e-6, "pingpong", "message_latency", message_bytes=_SHORT, **same)
        summary.ours(f"{key}Bandwidth_GBytes", 1e9, "pingpong", "bandwidth_net", message_bytes=_LONG, **same)
    for beginning, order in (("NaturallyOrdered", "natural"), ("RandomlyOrdered", "random")):
        key = f"{beginning}Ring"
        ring: dict[str, Scalar] = {"ranks": ranks, "order": order}
        summary.theirs(f"{key}Latency_usec", 1e-6, "ring_latency", "s", message_bytes=_SHORT, **ring)
        summary.theirs(f"{key}Bandwidth_GBytes", 1e9, "ring_bandwidth", "B/s", message_bytes=_LONG, **ring)


READERS: Final = [Reader("hpcc", "HPC Challenge, summary of hpccoutf.txt", recognises, read, version=2)]
