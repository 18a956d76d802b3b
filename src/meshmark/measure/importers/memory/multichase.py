"""Reader of the text of multichase, multiload and pingpong (google/multichase).

multichase prints one number, the time per load in ns: the best of its samples, or with `-a` the mean; the output does
not state which. With `-v` it prints the samples, which are imported. multiload prints one line of results below a
header. pingpong prints the one-way times between CPUs, in ns, as an upper triangle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, count, matched, unexpected
from meshmark.measure.importers.documents import csv_cells, row_of
from meshmark.measure.importers.output import Cursor, OutputLine, ToolOutput, matrix_row
from meshmark.measure.importers.quantities import ToolQuantity, value
from meshmark.store.record import Scalar

_TIME: Final = r"(?:\d{3,15}\.\d|\d{1,2}\.\d{3})"  # three decimals below 100 ns
_STAMP: Final = r"(?:\d{9,}\.\d{6} )?"  # with -T
_SINGLE: Final = re.compile(rf"{_STAMP}[ \t]*({_TIME})")
_SAMPLE: Final = re.compile(rf"{_STAMP}((?:[ \t]+{_TIME})+)  avg=({_TIME})")
_SAMPLES: Final = "samples (one column per thread, one row per sample):"
_PINGPONG: Final = "avg latency to communicate a modified line from one core to another"
_HEAD: Final = (
    *("Samples", "Byte/thd", "ChaseThds", "ChaseNS", "ChaseMibs", "ChDeviate"),
    *("LoadThds", "LdMaxMibs", "LdAvgMibs", "LdDeviate", "ChaseArg", "MemLdArg"),
)
_LOADS: Final = {"stream-copy": "copy", "stream-sum": "read", "stream-triad": "triad"}
_NONE: Final = "--------"
_LATENCY: Final = ToolQuantity("latency.load_latency", "ns", above_zero=True)


def recognises(start: str) -> bool:
    """Return whether the start of a file is output of multichase, multiload or pingpong."""
    lines = [line for line in start.split("\n", 2000) if line.strip()]
    return (
        (0 < len(lines) < 2000 and all(_SINGLE.fullmatch(line) for line in lines))
        or f"\n{_SAMPLES}\n" in start
        or f"{_PINGPONG}\ntimes are in ns\n" in start
        or any(map(_is_head, lines))
    )


def _is_head(line: str) -> bool:
    return line.startswith(_HEAD[0]) and (*csv_cells(line),) == _HEAD


def read(output: ToolOutput) -> None:
    """Read the latencies, and the rates of multiload."""
    nonempty = [line for line in output.lines if line.text.strip()]
    if all(_SINGLE.fullmatch(line.text) for line in nonempty):
        for line in nonempty:
            with output.item(line.number):
                time = matched(_SINGLE, line.text, "a time")[1]
                output.take(_LATENCY, time, "time", pattern="random")
        return
    begin = 0
    for index, line in enumerate(output.lines, 1):
        if line.text == _SAMPLES:
            lines_above = output.lines[begin : index - 1]
            with output.item(lines_above[-1].number if lines_above else 1):
                _read_samples(output, lines_above, output.lines[index:])
            begin = index
        elif line.text.strip() == _PINGPONG:
            _read_pingpong(output, output.lines[index:])
        elif _is_head(line.text):
            lines_below = output.lines[index : index + 1]
            with output.item(lines_below[0].number if lines_below else line.number):
                if not lines_below or output.is_cut(lines_below[0]):
                    raise FormatError("a whole line of results is required below the head")
                _read_multiload(output, row_of(_HEAD, csv_cells(lines_below[0].text)))


def _read_samples(output: ToolOutput, above: Sequence[OutputLine], below: Sequence[OutputLine]) -> None:
    """Read the samples of `multichase -v`; each sample is the mean over the threads."""
    parameters = dict(re.findall(r"^(\w+) = (\S+)", "\n".join(line.text for line in above), re.MULTILINE))
    if "chase" not in parameters:
        raise FormatError("'chase = simple' is required above the samples")
    threads = count(parameters.get("nr_threads", ""), "nr_threads")
    conditions: dict[str, Scalar] = {
        "footprint_bytes": count(parameters.get("total_memory", ""), "total_memory"),
        "stride_bytes": count(parameters.get("stride", ""), "stride"),
        "locality_bytes": count(parameters.get("tlb_locality", ""), "tlb_locality"),
        "processes": threads,
        "pattern": "random",
        "chase": parameters["chase"],
    }
    if re.fullmatch(r"\d{1,12}", parameters.get("page_size", "")):
        conditions["page_bytes"] = int(parameters["page_size"])
    samples: list[float] = []
    for line in below:
        if line.text.startswith("timed out: ") or not line.text.strip():
            continue
        if single := _SINGLE.fullmatch(line.text):
            final = 1e-9 * float(single[1])
            if samples and not 0.999 * min(samples) <= final <= 1.001 * max(samples):
                raise FormatError(f"the result {single[1]} is outside of its samples; a number is damaged")
            break
        sample = _SAMPLE.fullmatch(line.text)
        if sample is not None and len(sample[1].split()) == threads:
            samples.append(value(sample[2], "ns", f"line {line.number}: avg", above_zero=True))
        elif re.match(r"[ \t]*[\d.]", line.text):
            output.leave_out(line.number, str(unexpected(line.text, f"{threads} times and 'avg='")))
        else:
            break
    if not samples:
        raise FormatError("no samples; the run is not complete")
    if parameters["chase"] == "simple":
        output.add_meshmark_metric("latency.load_latency", samples, **conditions)
    else:  # several loads at once, or work between them
        output.add_tool_metric("chase_time", "s", samples, **conditions)


def _read_multiload(output: ToolOutput, row: dict[str, str]) -> None:
    """Read the line of results: a latency, the rates of a load, or both, measured at the same time."""
    repetitions, size, chases, loads = (count(row[c], c) for c in ("Samples", "Byte/thd", "ChaseThds", "LoadThds"))
    if bool(loads) == (row["MemLdArg"] == _NONE) or bool(chases) == (row["ChaseArg"] == _NONE):
        raise FormatError("found threads that ChaseArg and MemLdArg do not give; a cell is damaged")
    common: dict[str, Scalar] = {"footprint_bytes": size, "repetitions": repetitions}
    if chases:
        common["chase"] = row["ChaseArg"]
        common |= {"load": row["MemLdArg"], "threads": loads} if loads else {}
        latency = replace(_LATENCY, metric="loaded.load_latency") if loads else _LATENCY
        output.take(latency, row["ChaseNS"], "ChaseNS", **common)
    else:
        kernel = _LOADS.get(row["MemLdArg"], row["MemLdArg"])
        common |= {"kernel": kernel, "threads": loads, "footprint_bytes": size * loads}
    rate = ToolQuantity("loaded.bandwidth_net" if chases else "bandwidth.bandwidth_net", "MiB/s", above_zero=True)
    for statistic, column in (("mean", "LdAvgMibs"), ("best", "LdMaxMibs")):
        if loads:
            output.take(rate, row[column], column, **common, statistic=statistic)


def _read_pingpong(output: ToolOutput, below: Sequence[OutputLine]) -> None:
    lines = Cursor(below)
    head = lines.next(lambda text: text.strip() not in {"", "times are in ns"})
    if head is None or not re.fullmatch(r"(?:\s+\d{1,9})+", head.text):
        output.leave_out(below[0].number if below else 1, "the numbers of the CPUs are required above the times")
        return
    columns = [int(cell) for cell in head.text.split()]
    rows = 0
    for line in lines.skip(lambda text: re.match(r"\s*\d", text)):
        with output.item(line.number):
            cpu = count(line.text.partition(":")[0].strip(), "CPU")
            later_cpus = [column for column in columns if column > cpu]
            if not later_cpus:
                raise unexpected(line.text, "a CPU and the times to later ones")
            for to_cpu, cell in matrix_row(line.text.replace(":", " ", 1), later_cpus)[1].items():
                time = value(
                    matched(r"\d{1,15}\.\d", cell, "a time with one decimal")[0], "ns", "time", above_zero=True
                )
                output.add_meshmark_metric("lines.line_latency", time, from_cpu=cpu, to_cpu=to_cpu, trip="one_way")
            rows += 1
    if rows < len(columns):
        output.leave_out(head.number, f"the matrix has {rows} of {len(columns)} whole rows")


READERS: Final = [FormatReader("multichase", "multichase, multiload and pingpong, text", recognises, read, version=2)]
