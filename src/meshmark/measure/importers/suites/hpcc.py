"""Reader of the summary sections of `hpccoutf.txt`, the file to which HPC Challenge appends (version 1.4 and 1.5).

Keys that begin with `Star` are means over all processes, which run the same test at the same time; keys that begin with
`Single` are results of one process while the others wait. A test that was not run has the value -1 and no record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, has, number, unexpected
from meshmark.measure.importers.output import OutputLine, ToolOutput, sections
from meshmark.measure.importers.quantities import ToolQuantity
from meshmark.store.record import Scalar

_BEGIN: Final = "Begin of Summary section."
_TITLE: Final = r"^This is the DARPA/DOE HPC Challenge Benchmark version"
_START: Final = rf"^{re.escape(_BEGIN)}\s*\nVersionMajor="
_END: Final = "End of Summary section."
_RUNNING: Final = (("Star", "all"), ("Single", "one"))
_ARRAYS: Final = {"Copy": 2, "Scale": 2, "Add": 3, "Triad": 3}
_STATISTICS: Final = (("Min", "minimum"), ("Avg", "mean"), ("Max", "maximum"))
_ORDERS: Final = (("NaturallyOrdered", "natural"), ("RandomlyOrdered", "random"))
_LARGEST: Final = 1e30


def read(output: ToolOutput) -> None:
    """Read the results of all tests in each summary."""
    for section in sections(output.lines, lambda text: text.strip() == _BEGIN):
        with output.item(section[0].number):
            values = _values(output, section)
            if _number(values, "Success") != 1:
                raise FormatError("found 'Success=0'; only results that validate are imported")
            version = ".".join(str(_count(values, f"Version{part}")) for part in ("Major", "Minor", "Micro"))
            output.set_source(version + values.get("VersionRelease", (0, ""))[1])
            ranks = _count(values, "CommWorldProcs")
            for key, quantity in _quantities(values).items():
                with output.item(""):
                    if _number(values, key) != -1:
                        output.take(quantity, values[key][1], key, ranks=ranks)
    if _BEGIN not in output.text:
        raise FormatError(f"found no '{_BEGIN}'; the run is not complete")


def _values(output: ToolOutput, section: Sequence[OutputLine]) -> dict[str, tuple[int, str]]:
    """Return the line and the value of each key of a section."""
    values: dict[str, tuple[int, str]] = {}
    for line in section[1:]:
        if line.text.strip() == _END:
            return values
        key, equals, value = line.text.partition("=")
        with output.item(line.number):
            if not equals or not re.fullmatch(r"\w+", key) or not value.strip() or key in values:
                raise unexpected(line.text, "another key=value")
            values[key] = line.number, value.strip()
    raise FormatError(f"found no '{_END}'; the run is not complete")


def _number(values: dict[str, tuple[int, str]], key: str) -> float:
    if key not in values:
        raise FormatError(f"found no '{key}=' in the summary")
    line, text = values[key]
    value = number(text, f"line {line}: {key}")
    if abs(value) > _LARGEST:
        raise FormatError(f"line {line}: {key}: found {value:g}; the cell is damaged")
    return value


def _count(values: dict[str, tuple[int, str]], key: str) -> int:
    value = _number(values, key)
    if value != int(value) or value < 0:
        raise FormatError(f"line {values[key][0]}: {key}: found {value:g}, a count is required")
    return int(value)


def _quantities(values: dict[str, tuple[int, str]]) -> dict[str, ToolQuantity]:
    """Return the meaning of all keys that have results."""

    def count(key: str) -> int:
        return _count(values, key)

    grid = f"{count('HPL_nprow')}x{count('HPL_npcol')}"
    hpl: dict[str, Scalar] = {"n": count("HPL_N"), "block": count("HPL_NB"), "grid": grid}
    table = {"table_bytes": 8 * count("MPIRandomAccess_N")}
    quantities = {
        "HPL_Tflops": ToolQuantity("linpack.flop_rate", "Tflop/s", hpl),
        "PTRANS_GBs": ToolQuantity("transpose_rate", "GB/s", {"n": count("PTRANS_n")}),
        "MPIRandomAccess_GUPs": ToolQuantity("distributed_update_rate", "GUP/s", table),
        "MPIFFT_Gflops": ToolQuantity("distributed_fft_rate", "Gflop/s", {"n": count("MPIFFT_N")}),
    }
    for beginning, running in _RUNNING:
        for kernel, arrays in _ARRAYS.items():
            stream: dict[str, Scalar] = {
                "kernel": kernel.lower(),
                "threads": count("STREAM_Threads"),
                "footprint_bytes": arrays * count("STREAM_VectorSize") * count("sizeof_double"),
                "running": running,
                "statistic": "mean" if beginning == "Star" else "best",
            }
            quantities[f"{beginning}STREAM_{kernel}"] = ToolQuantity("bandwidth.bandwidth_net", "GB/s", stream)
        dgemm: dict[str, Scalar] = {"n": count("DGEMM_N"), "running": running}
        access: dict[str, Scalar] = {"table_bytes": 8 * count("RandomAccess_N"), "running": running}
        quantities |= {
            f"{beginning}DGEMM_Gflops": ToolQuantity("dgemm.flop_rate", "Gflop/s", dgemm),
            f"{beginning}RandomAccess_GUPs": ToolQuantity("gups.update_rate", "GUP/s", access),
            f"{beginning}FFT_Gflops": ToolQuantity("fft_rate", "Gflop/s", {**dgemm, "n": count("FFT_N")}),
        }
    for key, statistic in _STATISTICS:
        pair: dict[str, Scalar] = {"protocol": "send", "statistic": statistic}
        quantities |= _messages(f"{key}PingPong", "pingpong.message_latency", "pingpong.bandwidth_net", pair)
    for key, order in _ORDERS:
        quantities |= _messages(f"{key}Ring", "ring_latency", "ring_bandwidth", {"order": order})
    return quantities


def _messages(key: str, latency: str, rate: str, stated: dict[str, Scalar]) -> dict[str, ToolQuantity]:
    return {
        f"{key}Latency_usec": ToolQuantity(latency, "us", {**stated, "message_bytes": 8}),
        f"{key}Bandwidth_GBytes": ToolQuantity(rate, "GB/s", {**stated, "message_bytes": 2_000_000}),
    }


READERS: Final = [FormatReader("hpcc", "HPC Challenge, summary of hpccoutf.txt", has(_TITLE, _START), read, version=2)]
