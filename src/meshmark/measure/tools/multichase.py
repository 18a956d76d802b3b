"""The text of multichase, multiload and pingpong (google/multichase).

multichase prints one number, the time per load in ns: the best of its samples, or with `-a` the mean, which the output
does not state. With `-v` it prints the samples, which are imported. multiload prints one line of results below a head.
pingpong prints the times of one way between CPUs, in ns, as an upper triangle.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_TIME: Final = r"(?:\d{3,15}\.\d|\d{1,2}\.\d{3})"  # three decimals below 100 ns
_STAMP: Final = r"(?:\d{9,}\.\d{6} )?"  # with -T
_SINGLE: Final = re.compile(rf"{_STAMP} *({_TIME})\n")
_SAMPLE: Final = re.compile(rf"{_STAMP}((?: +{_TIME})+)  avg=({_TIME})")
_SAMPLES: Final = "samples (one column per thread, one row per sample):"
_PINGPONG: Final = "avg latency to communicate a modified line from one core to another\ntimes are in ns\n"
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
    return (
        _SINGLE.fullmatch(start) is not None
        or f"\n{_SAMPLES}\n" in start
        or start.lstrip().startswith(_PINGPONG)
        or any(_cells(line) == _HEAD for line in start.splitlines())
    )


def read(text: str, machine: str) -> list[Record]:
    """The latencies, and multiload's rates."""
    about = About(machine, "multichase")
    if single := _SINGLE.fullmatch(text):
        time = 1e-9 * number(single[1], "multichase: line 1", above_zero=True)
        return [ours(about, "latency", "load_latency", [time], pattern="random")]
    if text.lstrip().startswith(_PINGPONG):
        return _read_pingpong(text, about)
    if f"\n{_SAMPLES}\n" in text:
        return _read_samples(text, about)
    return _read_multiload(text, about)


def _read_samples(text: str, about: About) -> list[Record]:
    """The samples of `multichase -v`, each the mean of its threads."""
    above, _, below = text.partition(f"\n{_SAMPLES}\n")
    stated = dict(re.findall(r"^(\w+) = (\S+)", above, re.MULTILINE))
    counts = {}
    for key in ("nr_threads", "total_memory", "stride", "tlb_locality"):
        if not re.fullmatch(r"\d{1,18}", stated.get(key, "")):
            raise FormatError(f"multichase: {key}: found '{quoted(stated.get(key, ''), 40)}', a count is required")
        counts[key] = int(stated[key])
    if "chase" not in stated:
        raise FormatError("multichase: found no 'chase = simple' above the samples")
    lines = below.splitlines()
    samples = []
    for at, line in enumerate(lines[:-1], above.count("\n") + 3):
        if line.startswith("timed out: "):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None or len(sample[1].split()) != counts["nr_threads"]:
            raise FormatError(
                f"multichase: line {at}: found '{quoted(line, 40)}'; required: {counts['nr_threads']} times and 'avg='"
            )
        samples.append(1e-9 * number(sample[2], f"multichase: line {at}: avg", above_zero=True))
    final = _SINGLE.fullmatch(lines[-1] + "\n") if samples and below.endswith("\n") else None
    if final is None:
        raise FormatError("multichase: found no samples with a result below them; the output is incomplete")
    if not 0.999 * min(samples) <= 1e-9 * float(final[1]) <= 1.001 * max(samples):
        raise FormatError(f"multichase: found the result {final[1][:20]} outside of its samples; a number is damaged")
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
        return [theirs(about, "chase_time", "s", "lower", samples, **conditions)]
    return [ours(about, "latency", "load_latency", samples, **conditions)]


def _read_multiload(text: str, about: About) -> list[Record]:
    lines = text.splitlines()
    made: list[Record] = []
    for at, line in enumerate(lines):
        if _cells(line) != _HEAD:
            continue
        where = f"multiload: line {at + 2}"
        cells = _cells(lines[at + 1]) if at + 1 < len(lines) else ()
        if (
            len(cells) != len(_HEAD)
            or not all(0 < len(c) <= 60 for c in cells)
            or (at + 2 == len(lines) and not text.endswith("\n"))
        ):
            raise FormatError(f"{where}: found {len(cells)} whole columns; required: {len(_HEAD)}")
        values = dict(zip(_HEAD, cells, strict=True))
        counts = {}
        for key in ("Samples", "Byte/thd", "ChaseThds", "LoadThds"):
            if not re.fullmatch(r"\d{1,18}", values[key]):
                raise FormatError(f"{where}: {key}: found '{quoted(values[key], 40)}', a count is required")
            counts[key] = int(values[key])
        made += _multiload(about, values, counts, where)
    if not made:
        raise FormatError("multiload: found no results below 'Samples, Byte/thd, …'; the output is incomplete")
    return made


def _multiload(about: About, values: dict[str, str], counts: dict[str, int], where: str) -> list[Record]:
    made: list[Record] = []
    loaded = counts["LoadThds"] > 0
    chased = counts["ChaseThds"] > 0
    if loaded == (values["MemLdArg"] == _NONE) or chased == (values["ChaseArg"] == _NONE):
        raise FormatError(f"{where}: found threads that ChaseArg and MemLdArg do not give; a cell is damaged")
    same: dict[str, Scalar] = {"chase": values["ChaseArg"], "repetitions": counts["Samples"]}
    if loaded:
        same |= {"load": values["MemLdArg"], "threads": counts["LoadThds"]}
    if chased:
        time = 1e-9 * number(values["ChaseNS"], f"{where}: ChaseNS", above_zero=True)
        instrument = "loaded" if loaded else "latency"
        made.append(ours(about, instrument, "load_latency", [time], footprint_bytes=counts["Byte/thd"], **same))
    if loaded:
        rates = (("mean", "LdAvgMibs"), ("best", "LdMaxMibs"))
        for statistic, key in rates:
            rate = 2**20 * number(values[key], f"{where}: {key}", above_zero=True)
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


def _read_pingpong(text: str, about: About) -> list[Record]:
    lines = text.lstrip().splitlines()[2:]
    skipped = len(text.splitlines()) - len(lines)
    table = [line for line in lines if line.strip()]
    if len(table) < 2 or not text.endswith("\n\n") or not re.fullmatch(r"(?:\s+\d+)+", table[0]):
        raise FormatError("pingpong: found no CPUs with times and an empty line below them; the output is incomplete")
    columns = [int(c[:9]) for c in table[0].split()]
    if columns != sorted(set(columns)):
        raise FormatError(f"pingpong: line {skipped + 2}: found '{quoted(table[0], 40)}'; required: ascending CPUs")
    made = []
    for row, line in enumerate(table[1:]):
        where = f"pingpong: line {skipped + 3 + row}"
        name, _, rest = line.partition(":")
        times = rest.split()
        expected = len(columns) - row
        if not name.strip().isdecimal() or len(name) > 9 or len(times) != expected or not expected:
            raise FormatError(f"{where}: found '{quoted(line, 40)}'; required: a CPU and {expected} times")
        cpu = int(name)
        if (row and cpu != columns[row - 1]) or cpu >= columns[row]:
            raise FormatError(f"{where}: found CPU {cpu}; required: one of the columns, in order")
        for to_cpu, cell in zip(columns[row:], times, strict=True):
            if not re.fullmatch(r"\d{1,15}\.\d", cell):
                raise FormatError(
                    f"{where}: CPU {to_cpu}: found '{quoted(cell, 40)}', a time with one decimal is required"
                )
            time = 1e-9 * number(cell, f"{where}: CPU {to_cpu}", above_zero=True)
            made.append(ours(about, "lines", "line_latency", [time], from_cpu=cpu, to_cpu=to_cpu, trip="one_way"))
    return made


READERS: Final = [Reader("multichase", "multichase, multiload and pingpong, text", recognises, whole(read))]
