"""Intel Memory Latency Checker's text (versions 3.5 to 3.12), of a complete run or of single tests.

MLC counts memory traffic: in its mixes of reads and writes, a store is a line read and a line written. Therefore the
rates of the mixes are `bandwidth_gross`, and those of reads and of `Stream-triad like` (non-temporal stores), whose net
and gross rates are equal, `bandwidth_net`. Its cells are imported as published, however odd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_TITLE: Final = re.compile(r"^\s*Intel\(R\) Memory Latency Checker - v(\d+\.\d+\w*)\s*$", re.MULTILINE)
_MIXES: Final = {"ALL Reads": 1.0, "3:1 Reads-Writes": 0.75, "2:1 Reads-Writes": 2 / 3, "1:1 Reads-Writes": 0.5}
_TRIAD: Final = "Stream-triad like"
_OPTIONS: Final = {"2": 2 / 3, "3": 0.75, "5": 0.5}  # -W: share of reads
_DELAYS: Final = 19  # points of the list of delays, unless -d or -g gives others
# A line of numbers that belongs to no section: the section's title is damaged.
_STRAY: Final = re.compile(
    r"\s*(\d+\s+[\d.]+|ALL Reads|\d:\d Reads-|Stream-triad|Local Socket|Remote Socket|Numa node|Inject\s|Writer)"
)
_CELL: Final = re.compile(r"\d{1,12}\.\d|-")
_POINT: Final = re.compile(r"(\d{1,9})\s+(\d{1,12}\.\d\d)\s+(\d{1,12}\.\d)")


@dataclass(slots=True)
class _Run:
    """What the lines above a section state."""

    about: About
    buffer: int | None = None  # bytes, of the latency thread
    buffer_each: int | None = None  # bytes, of each thread that reads
    shapes: set[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=set)


class _Lines:
    """The lines of the text, with a position."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.open_end = bool(text) and not text.endswith(("\n", "\r"))
        self.at = 0

    def peek(self) -> str | None:
        return self.lines[self.at].strip() if self.at < len(self.lines) else None

    def take(self) -> str:
        """The next line; empty at the end, so that what is required there is reported as missing."""
        line = self.peek()
        if line is not None and self.open_end and self.at == len(self.lines) - 1 and line[-1:].isdigit():
            self.fail(line, "the end of the line; the output is cut off")
        self.at += 1
        return line or ""

    def fail(self, found: str, required: str) -> NoReturn:
        raise FormatError(f"MLC: line {self.at + 1}: found '{quoted(found, 40)}'; required: {required}")


def recognises(start: str) -> bool:
    return _TITLE.search(start) is not None


def read(text: str, machine: str) -> list[Record]:
    """The cells of all sections: idle and loaded latencies, peak rates, rates between nodes, transfers of lines."""
    lines = _Lines(text)
    run: _Run | None = None
    made: list[Record] = []
    while (line := lines.peek()) is not None:
        if title := _TITLE.match(line):
            run = _Run(About(machine, "mlc", title[1]))
        elif run is None:
            pass
        elif command := re.match(r"Command line parameters:\s*(.*)", line):
            run.about = About(machine, "mlc", run.about.version, f"mlc {command[1]}".strip())
        elif line.startswith("Using buffer size of"):
            _buffers(lines, run)
        elif line.startswith("Measuring "):
            made += _section(lines, run)
            continue
        elif took := re.match(r"Each iteration took .*\(\s*(\S+)\s+ns\s*\)", line):
            value = 1e-9 * number(took[1], f"MLC: line {lines.at + 1}: idle latency")
            made.append(ours(run.about, "latency", "load_latency", [value], **_known(footprint_bytes=run.buffer)))
        elif line.startswith("Each iteration") or _STRAY.match(line):
            lines.fail(line, "the title of a section above its numbers")
        lines.at += 1
    if not made:
        raise FormatError("MLC: found no section with numbers; required: 'Measuring idle latencies' or another test")
    return made


def _known(**conditions: Scalar) -> dict[str, Scalar]:
    return {k: v for k, v in conditions.items() if v is not None}


def _buffers(lines: _Lines, run: _Run) -> None:
    line = lines.peek() or ""
    size = re.match(r"Using buffer size of (\d{1,12}\.\d+)Mi?B(/thread)?", line)
    if size is None:
        lines.fail(line, "'Using buffer size of 100.000MiB'")
    value = round(float(size[1]) * 2**20)
    if size[2]:
        run.buffer_each = value
    else:
        run.buffer = value


def _section(lines: _Lines, run: _Run) -> list[Record]:
    title = lines.take()
    if "idle latencies" in title:
        return _idle(lines, run, title)
    if re.match(r"Measuring (Peak Injection|Maximum) Memory Bandwidths", title):
        return _peaks(lines, run, "peak" if "Peak" in title else "maximum")
    if title.startswith("Measuring Memory Bandwidths between nodes"):
        return _between(lines, run)
    if title.startswith("Measuring Loaded Latencies"):
        return _loaded(lines, run)
    if not title.startswith("Measuring cache-to-cache transfer latency"):
        lines.at -= 1
        lines.fail(title, "a section of MLC 3.5 to 3.12")
    return _transfers(lines, run)


def _idle(lines: _Lines, run: _Run, title: str) -> list[Record]:
    pattern = "random" if "random access" in title else "stride" if "sequential access" in title else None
    cells = _matrix(lines, run, "Numa node")
    return [
        ours(
            run.about,
            "latency",
            "load_latency",
            [1e-9 * value],
            **_known(cpu_node=row, memory_node=column, pattern=pattern, footprint_bytes=run.buffer),
        )
        for (row, column), value in cells.items()
    ]


def _peaks(lines: _Lines, run: _Run, test: str) -> list[Record]:
    _skip(lines, ("Bandwidths are", "Using ", "Will take", "***", ""))
    cell = r"\d{1,12}\.\d" if test == "peak" else r"\d{1,12}\.\d\d"
    rates: dict[str, float] = {}
    while ":" in (line := lines.peek() or "") and _STRAY.match(line):
        name, _, rest = lines.take().partition(":")
        if line.startswith(tuple("0123456789")):  # 3:1 Reads-Writes :
            name, _, rest = line.rpartition(":")
        name = name.strip()
        if name in rates or (name not in _MIXES and name != _TRIAD) or not re.fullmatch(cell, rest.strip()):
            lines.at -= 1
            lines.fail(line, "a read-write mix once, with its rate in MB/s")
        rates[name] = 1e6 * number(rest, f"MLC: line {lines.at}: {name}")
    if missing := [m for m in (*_MIXES, _TRIAD) if m not in rates]:
        lines.fail(lines.peek() or "the end", f"the rate of '{missing[0]}'")
    made = []
    for name, rate in rates.items():
        mixed = name in _MIXES and name != "ALL Reads"
        kernel = "mix" if mixed else "triad" if name == _TRIAD else "read"
        conditions = _known(
            kernel=kernel,
            read_share=_MIXES.get(name),
            test=test,
            statistic="best" if test == "maximum" else None,  # of several injection rates
            thread_buffer_bytes=run.buffer_each,
        )
        metric = "bandwidth_gross" if mixed else "bandwidth_net"
        made.append(ours(run.about, "bandwidth", metric, [rate], **conditions))
    return made


def _traffic(lines: _Lines, run: _Run, seen: list[str]) -> tuple[str, dict[str, Scalar]]:
    """The metric and the conditions of the kind of traffic: reads, or that of the option -W, which MLC does not print.

    Args:
        seen: The lines above the numbers.
    """
    if any("Read-only traffic" in line for line in seen):
        return "bandwidth_net", {"read_share": 1.0}
    option = re.search(r"-W(\d{1,2})\b", run.about.command)
    if option is None:
        lines.fail(lines.peek() or "the end", "'Using Read-only traffic type' above the numbers, or -W in the command")
    return "bandwidth_gross", _known(traffic=f"W{option[1]}", read_share=_OPTIONS.get(option[1]))


def _between(lines: _Lines, run: _Run) -> list[Record]:
    metric, kind = _traffic(lines, run, _skip(lines, ("Bandwidths are", "Using ", "***", "")))
    kernel = "mix" if "traffic" in kind else "read"
    cells = _matrix(lines, run, "Numa node")
    return [
        ours(
            run.about,
            "bandwidth",
            metric,
            [1e6 * value],
            **_known(kernel=kernel, cpu_node=row, memory_node=column, thread_buffer_bytes=run.buffer_each, **kind),
        )
        for (row, column), value in cells.items()
    ]


def _loaded(lines: _Lines, run: _Run) -> list[Record]:
    metric, kind = _traffic(lines, run, _skip(lines, ("Using ", "***", "")))
    for required in ("Inject", "Delay", "==="):
        if not (line := lines.take()).startswith(required):
            lines.at -= 1
            lines.fail(line, f"the line '{required}' above the list of delays")
    made: list[Record] = []
    delays: list[int] = []
    while (line := lines.peek() or "")[:1].isdigit():
        point = _POINT.fullmatch(lines.take())
        if point is None or int(point[1]) in delays:
            lines.at -= 1
            lines.fail(line, "another delay, its latency in ns and its rate in MB/s")
        delays.append(int(point[1]))
        same = _known(mode="paced", inject_delay=delays[-1], thread_buffer_bytes=run.buffer_each, **kind)
        where = f"MLC: line {lines.at}"
        made.append(ours(run.about, "loaded", "load_latency", [1e-9 * number(point[2], where)], **same))
        if metric == "bandwidth_net":
            made.append(ours(run.about, "loaded", metric, [1e6 * number(point[3], where)], **same))
        else:
            made.append(ours(run.about, "bandwidth", metric, [1e6 * number(point[3], where)], kernel="mix", **same))
    chosen = re.search(r"\s-[dg]", run.about.command)
    if not delays or (not chosen and len(delays) != _DELAYS):
        lines.fail(lines.peek() or "the end", f"{1 if chosen else _DELAYS} delays; the list has {len(delays)}")
    return made


def _transfers(lines: _Lines, run: _Run) -> list[Record]:
    made = []
    for name, state in (("HIT", "clean"), ("HITM", "dirty")):
        local = re.fullmatch(rf"Local Socket L2->L2 {name}\s+latency\s+(\d+\.\d)", line := lines.take())
        if local is None:
            lines.at -= 1
            lines.fail(line, f"'Local Socket L2->L2 {name} latency' in ns")
        value = 1e-9 * number(local[1], f"MLC: line {lines.at}")
        made.append(ours(run.about, "lines", "line_latency", [value], state=state, trip="round", same_socket=True))
    homes = ("writer", "reader") if (lines.peek() or "").startswith("Remote") else ()
    for home in homes:
        remote = f"Remote Socket L2->L2 HITM latency (data address homed in {home} socket)"
        if (line := lines.take()) != remote:
            lines.at -= 1
            lines.fail(line, f"'{remote}'")
        cells = _matrix(lines, None, "Reader")
        for (writer, reader), value in cells.items():
            made.append(
                ours(
                    run.about,
                    "lines",
                    "line_latency",
                    [1e-9 * value],
                    state="dirty",
                    trip="round",
                    from_node=writer,
                    to_node=reader,
                    home_node=writer if home == "writer" else reader,
                )
            )
    return made


def _skip(lines: _Lines, beginnings: tuple[str, ...]) -> list[str]:
    """Takes explanations, up to the first line that begins otherwise (`""`: also empty lines)."""
    seen = []
    while (line := lines.peek()) is not None:
        if not (line.startswith(tuple(b for b in beginnings if b)) or (not line and "" in beginnings)):
            break
        seen.append(lines.take())
    return seen


def _matrix(lines: _Lines, run: _Run | None, corner: str) -> dict[tuple[int, int], float]:
    """The cells of a matrix by row and column, without those printed as `-`.

    Nodes without CPUs have a column and no row. Other matrices of the run must have the same rows and columns.

    Args:
        corner: Beginning of the line above the columns.
    """
    _skip(lines, ("***", ""))
    if not (line := lines.take()).startswith((corner, "Memory node", "Reader")):
        lines.at -= 1
        lines.fail(line, f"'{corner}' above a matrix")
    head = re.fullmatch(r"(?:Numa node|Writer Numa Node|Writer Socket|Socket)((?:\s+\d{1,6})+)", line := lines.take())
    columns = [int(c) for c in head[1].split()] if head else []
    if not columns or columns != sorted(set(columns)):
        lines.at -= 1
        lines.fail(line, "the numbers of the nodes above a matrix")
    cells: dict[tuple[int, int], float] = {}
    rows: list[int] = []
    while (line := lines.peek() or "")[:1].isdigit() and len(rows) < len(columns):
        row, *values = lines.take().split()
        if len(values) != len(columns) or not re.fullmatch(r"\d{1,6}", row) or int(row) not in columns[len(rows) :]:
            lines.at -= 1
            lines.fail(line, f"a node of the columns and {len(columns)} numbers")
        rows.append(int(row))
        for column, cell in zip(columns, values, strict=True):
            if not _CELL.fullmatch(cell) or (cell == "-") != (run is None and int(row) == column):
                lines.at -= 1
                lines.fail(cell, f"a number with one decimal for nodes {row} and {column}")
            if cell != "-":
                cells[int(row), column] = number(cell, f"MLC: line {lines.at}")
    square = run is None
    if not rows or (square and rows != columns):
        lines.fail(lines.peek() or "the end", f"rows of a matrix with {len(columns)} columns; it has {len(rows)}")
    if run is not None:
        run.shapes.add((tuple(rows), tuple(columns)))
        if len(run.shapes) > 1:
            lines.fail(lines.peek() or "the end", "the same rows and columns in all matrices of a run")
    return cells


READERS: Final = [Reader("mlc", "Intel Memory Latency Checker, text", recognises, whole(read))]
