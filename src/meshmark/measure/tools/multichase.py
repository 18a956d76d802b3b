"""The text of multichase, multiload and pingpong (google/multichase).

multichase prints one number, the time per load in ns: the best of its samples, or with `-a` the mean, which the output
does not state. With `-v` it prints the samples, which are imported. multiload prints one line of results below a head.
pingpong prints the times of one way between CPUs, in ns, as an upper triangle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import Cursor, Line, ToolOutput, unexpected
from meshmark.store.record import Record, Scalar

_TIME: Final = r"(?:\d{3,15}\.\d|\d{1,2}\.\d{3})"  # three decimals below 100 ns
_STAMP: Final = r"(?:\d{9,}\.\d{6} )?"  # with -T
_SINGLE: Final = re.compile(rf"{_STAMP}[ \t]*({_TIME})")
_SAMPLE: Final = re.compile(rf"{_STAMP}((?:[ \t]+{_TIME})+)  avg=({_TIME})")
_SAMPLES: Final = "samples (one column per thread, one row per sample):"
_PINGPONG: Final = "avg latency to communicate a modified line from one core to another"
_HEAD: Final = (
    "Samples",
    "Byte/thd",
    "ChaseThds",
    "ChaseNS",
    "ChaseMibs",
    "ChDeviate",
    "LoadThds",
    "LdMaxMibs",
    "LdAvgMibs",
    "LdDeviate",
    "ChaseArg",
    "MemLdArg",
)
_LOADS: Final = {"stream-copy": "copy", "stream-sum": "read", "stream-triad": "triad"}
_NONE: Final = "--------"


def _cells(line: str) -> tuple[str, ...]:
    return tuple(c.strip() for c in line.split(","))


def recognises(start: str) -> bool:
    lines = [line for line in start.split("\n", 2000) if line.strip()]
    return (
        (0 < len(lines) < 2000 and all(_SINGLE.fullmatch(line) for line in lines))
        or f"\n{_SAMPLES}\n" in start
        or f"{_PINGPONG}\ntimes are in ns\n" in start
        or any(_cells(line) == _HEAD for line in lines)
    )


def read(output: ToolOutput) -> None:
    """The latencies, and multiload's rates."""
    about = About(output.machine, "multichase")
    if all(_SINGLE.fullmatch(line.text) for line in output.lines if line.text.strip()):
        for line in output.lines:
            if single := _SINGLE.fullmatch(line.text):
                with output.item(line.number):
                    time = 1e-9 * number(single[1], "time", above_zero=True)
                    output.add(ours(about, "latency", "load_latency", [time], pattern="random"))
        return
    before = 0
    for at, line in enumerate(output.lines):
        if line.text == _SAMPLES:
            _read_samples(output, about, output.lines[before:at], output.lines[at + 1 :])
            before = at + 1
        elif line.text.strip() == _PINGPONG:
            _read_pingpong(output, about, output.lines[at + 1 :])
        elif _cells(line.text) == _HEAD:
            _read_multiload(output, about, line, output.lines[at + 1 : at + 2])


def _read_samples(output: ToolOutput, about: About, above: Sequence[Line], below: Sequence[Line]) -> None:
    """The samples of `multichase -v`, each the mean of its threads."""
    with output.item(above[-1].number if above else 1):
        stated = dict(re.findall(r"^(\w+) = (\S+)", "\n".join(line.text for line in above), re.MULTILINE))
        counts = {}
        for key in ("nr_threads", "total_memory", "stride", "tlb_locality"):
            if not re.fullmatch(r"\d{1,18}", stated.get(key, "")):
                raise FormatError(f"{key}: {unexpected(stated.get(key, ''), 'a count')}")
            counts[key] = int(stated[key])
        if "chase" not in stated:
            raise FormatError("'chase = simple' is required above the samples")
        samples: list[float] = []
        final: float | None = None
        for line in below:
            if line.text.startswith("timed out: ") or not line.text.strip():
                continue
            if single := _SINGLE.fullmatch(line.text):
                final = 1e-9 * float(single[1])
                break
            sample = _SAMPLE.fullmatch(line.text)
            if sample is None or len(sample[1].split()) != counts["nr_threads"]:
                if not re.match(r"[ \t]*[\d.]", line.text):
                    break
                output.leave_out(line.number, str(unexpected(line.text, f"{counts['nr_threads']} times and 'avg='")))
                continue
            samples.append(1e-9 * number(sample[2], f"line {line.number}: avg", above_zero=True))
        if not samples:
            raise FormatError("no samples; the run is not complete")
        if final is not None and not 0.999 * min(samples) <= final <= 1.001 * max(samples):
            raise FormatError(f"the result {1e9 * final:g} is outside of its samples; a number is damaged")
        output.add(_chase(about, stated, counts, samples))


def _chase(about: About, stated: dict[str, str], counts: dict[str, int], samples: list[float]) -> Record:
    conditions: dict[str, Scalar] = {
        "footprint_bytes": counts["total_memory"],
        "stride_bytes": counts["stride"],
        "locality_bytes": counts["tlb_locality"],
        "processes": counts["nr_threads"],
        "pattern": "random",
        "chase": stated["chase"],
    }
    if re.fullmatch(r"\d{1,12}", stated.get("page_size", "")):
        conditions["page_bytes"] = int(stated["page_size"])
    if stated["chase"] != "simple":  # several loads at once, or work between them
        return theirs(about, "chase_time", "s", "lower", samples, **conditions)
    return ours(about, "latency", "load_latency", samples, **conditions)


def _read_multiload(output: ToolOutput, about: About, head: Line, below: Sequence[Line]) -> None:
    """The line of results below the names of the columns."""
    with output.item(below[0].number if below else head.number):
        cells = _cells(below[0].text) if below else ()
        if len(cells) != len(_HEAD) or not all(0 < len(c) <= 60 for c in cells) or output.is_cut(below[0]):
            raise FormatError(f"found {len(cells)} whole columns, {len(_HEAD)} are required")
        values = dict(zip(_HEAD, cells, strict=True))
        counts = {}
        for key in ("Samples", "Byte/thd", "ChaseThds", "LoadThds"):
            if not re.fullmatch(r"\d{1,18}", values[key]):
                raise FormatError(f"{key}: {unexpected(values[key], 'a count')}")
            counts[key] = int(values[key])
        output.add(*_multiload(about, values, counts))


def _multiload(about: About, values: dict[str, str], counts: dict[str, int]) -> list[Record]:
    made: list[Record] = []
    loaded = counts["LoadThds"] > 0
    chased = counts["ChaseThds"] > 0
    if loaded == (values["MemLdArg"] == _NONE) or chased == (values["ChaseArg"] == _NONE):
        raise FormatError("found threads that ChaseArg and MemLdArg do not give; a cell is damaged")
    same: dict[str, Scalar] = {"chase": values["ChaseArg"], "repetitions": counts["Samples"]}
    if loaded:
        same |= {"load": values["MemLdArg"], "threads": counts["LoadThds"]}
    if chased:
        time = 1e-9 * number(values["ChaseNS"], "ChaseNS", above_zero=True)
        instrument = "loaded" if loaded else "latency"
        made.append(ours(about, instrument, "load_latency", [time], footprint_bytes=counts["Byte/thd"], **same))
    if loaded:
        rates = (("mean", "LdAvgMibs"), ("best", "LdMaxMibs"))
        for statistic, key in rates:
            rate = 2**20 * number(values[key], key, above_zero=True)
            if chased:
                made.append(
                    ours(
                        about,
                        "loaded",
                        "bandwidth_net",
                        [rate],
                        footprint_bytes=counts["Byte/thd"],
                        **same,
                        statistic=statistic,
                    )
                )
                continue
            kernel = _LOADS.get(values["MemLdArg"], values["MemLdArg"])
            total = counts["Byte/thd"] * counts["LoadThds"]
            conditions: dict[str, Scalar] = {
                "kernel": kernel,
                "threads": counts["LoadThds"],
                "footprint_bytes": total,
                "repetitions": counts["Samples"],
                "statistic": statistic,
            }
            made.append(ours(about, "bandwidth", "bandwidth_net", [rate], **conditions))
    return made


def _read_pingpong(output: ToolOutput, about: About, below: Sequence[Line]) -> None:
    lines = Cursor(below)
    lines.skip(lambda text: not text.strip() or text.strip() == "times are in ns")
    head = lines.take()
    if head is None or not re.fullmatch(r"(?:\s+\d{1,9})+", head.text):
        output.leave_out(below[0].number if below else 1, "the numbers of the CPUs are required above the times")
        return
    columns = [int(cell) for cell in head.text.split()]
    rows = 0
    for line in lines.skip(lambda text: re.match(r"\s*\d", text)):
        with output.item(line.number):
            name, _, rest = line.text.partition(":")
            cpu = name.strip()
            later = [column for column in columns if cpu.isdecimal() and column > int(cpu)]
            times = rest.split()
            if not later or len(times) != len(later):
                raise unexpected(line.text, f"a CPU and {len(later)} times")
            for to_cpu, cell in zip(later, times, strict=True):
                if not re.fullmatch(r"\d{1,15}\.\d", cell):
                    raise FormatError(f"CPU {to_cpu}: {unexpected(cell, 'a time with one decimal')}")
                time = [1e-9 * number(cell, f"CPU {to_cpu}", above_zero=True)]
                output.add(ours(about, "lines", "line_latency", time, from_cpu=int(cpu), to_cpu=to_cpu, trip="one_way"))
            rows += 1
    if rows < len(columns):
        output.leave_out(head.number, f"the matrix has {rows} of {len(columns)} whole rows")


READERS: Final = [Reader("multichase", "multichase, multiload and pingpong, text", recognises, read, version=2)]
