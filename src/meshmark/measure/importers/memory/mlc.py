"""Reader of the text of Intel Memory Latency Checker (3.0 to 3.12, Linux and Windows), complete runs or single tests.

MLC counts memory traffic: in its mixes of reads and writes, a store reads a line and writes a line. Therefore the rates
of the mixes are `bandwidth_gross`. The rates of reads and of non-temporal stores are `bandwidth_net`, because their net
and gross rates are equal. Cells are imported as printed, even if they are implausible. Options of the command line that
have no condition of their own are in the condition `options`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, UnknownMeaningError, has, matched, unexpected
from meshmark.measure.importers.output import ToolOutput, matrix_row
from meshmark.measure.importers.quantities import ToolQuantity
from meshmark.store.record import Scalar

_TITLE: Final = re.compile(r"^[ \t]*Intel\(R\) Memory Latency Checker - v(\d+\.\d+\w*)", re.MULTILINE)
_RATE: Final = re.compile(r"(.*?)\s*:\s*(\S*)$")
_MIX: Final = re.compile(r"(\d{1,3}):(\d{1,3}) Reads?-(NT )?writes?", re.IGNORECASE)
_OPTIONS: Final = {"2": 2 / 3, "3": 0.75, "5": 0.5}  # -W: share of reads
_SECTIONS: Final = (
    (re.compile(r"Measuring idle latencies"), "idle"),
    (re.compile(r"Measuring Peak Injection Memory Bandwidths"), "peak"),
    (re.compile(r"Measuring Maximum Memory Bandwidths"), "maximum"),
    (re.compile(r"Measuring Memory Bandwidths between nodes"), "between"),
    (re.compile(r"Measuring Loaded Latencies"), "loaded"),
    (re.compile(r"Measuring cache-to-cache transfer latency"), "transfers"),
)
_BUFFER: Final = re.compile(r"Using buffer size of (\d{1,12}\.\d+)Mi?B(/thread)?")
_HEAD: Final = re.compile(r"(?:Numa node|Writer Numa Node|Writer Socket|Socket)((?:\s+\d{1,6})+)", re.IGNORECASE)
_LOCAL: Final = re.compile(r"Local Socket (L\d|LLC)->(?:L\d|LLC) (HITM?)\s+latency\s+(\d+\.\d)")
_REMOTE: Final = re.compile(r"Remote Socket (L\d|LLC)->(?:L\d|LLC) HITM latency \(data address homed in (\w+) socket\)")
_ITERATION: Final = re.compile(r"Each iteration took .*\(\s*(\S+)\s+(\w+)\s*\)")
# Rows of numbers, and rates with a name; they also occur in a table whose title is damaged.
_ROW: Final = re.compile(
    r"\d+\s+[\d.-]|ALL Reads|\d+:\d+ Read|Stream-triad|All NT|Local Socket|Each iteration took .*\("
)
_POINT: Final = re.compile(r"(\d{1,9})\s+(\d{1,12}\.\d\d)\s+(\d{1,12}\.\d)")
_COMMAND: Final = {"c": "cpu", "j": "memory_node", "i": "initializing_cpu", "l": "stride_bytes"}
_LATENCY: Final = ToolQuantity("latency.load_latency", "ns")
_TRANSFER: Final = ToolQuantity("lines.line_latency", "ns", {"trip": "round"})
_RATES: Final = {net: ToolQuantity(f"bandwidth.bandwidth_{net}", "MB/s") for net in ("net", "gross")}
_MIXES: Final[dict[str, dict[str, Scalar]]] = {
    "all reads": {"kernel": "read", "read_share": 1.0},
    "stream-triad like": {"kernel": "triad"},
    "all nt writes": {"kernel": "write", "read_share": 0.0, "store": "streaming"},
}


@dataclass(slots=True)
class _MlcSection:
    """One test of a run.

    Attributes:
        stated: Conditions of the test.
        traffic: Access pattern of idle latencies; `reads` for a table of rates of reads only.
        columns: Nodes of the columns of the current matrix.
        rows: Names of the rows that were read.
        home: Node of the data, `writer` or `reader`, in a matrix of transfers.
    """

    kind: str
    stated: dict[str, Scalar]
    traffic: str = ""
    columns: list[int] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    home: str = ""

    def matrix_row(self, text: str) -> tuple[int, dict[int, str]]:
        """Return the number of a row of the current matrix, and its cells by column without cells `-`."""
        row, cells = matrix_row(text, self.columns)
        if str(row) in self.rows or row not in self.columns:
            raise FormatError(f"found node {row}, another one of the columns is required")
        for cell in cells.values():
            matched(r"-|\d{1,12}\.\d", cell, "a number with one decimal")
        self.rows.add(str(row))
        return row, {column: cell for column, cell in cells.items() if cell != "-"}


@dataclass(slots=True)
class _MlcRun:
    """The facts that the lines above a section state."""

    stated: dict[str, Scalar] = field(default_factory=dict)
    pattern: str | None = None
    buffer: int | None = None  # buffer of the latency thread, bytes
    buffer_each: int | None = None  # buffer of each reading thread, bytes


def read(output: ToolOutput) -> None:
    """Read the cells of all sections."""
    run = _MlcRun()
    section: _MlcSection | None = None
    has_title = False
    for line in output.lines:
        text = line.text.strip()
        if title := _TITLE.match(line.text):
            output.set_source(title[1])
            run, section, has_title = _MlcRun(), None, True
        elif not has_title or not text:
            continue
        elif kind := next((kind for pattern, kind in _SECTIONS if pattern.match(text)), ""):
            unit = re.search(r"\(in (\w+)\)", text)
            if unit is not None and unit[1] != "ns":
                raise UnknownMeaningError(f"line {line.number}: found times in '{quoted(unit[1], 20)}', ns is required")
            pattern = re.search(r"(random|sequential) access", text)
            section = _MlcSection(kind, {}, pattern[1] if pattern else "")
        elif not _header(output, run, section, text):
            with output.item(line.number):
                _row(output, run, section, text)


def _header(output: ToolOutput, run: _MlcRun, section: _MlcSection | None, text: str) -> bool:
    """Read a line that is not a row of numbers; return False if it is a row of numbers."""
    if command := re.match(r"Command line parameters:\s*(.*)", text):
        output.set_source(output.about.version, f"mlc {command[1]}".strip())
        run.stated = _options(command[1])
        run.pattern = "random" if "-r" in command[1].split() else None
    elif "enabling random access" in text:  # MLC cannot switch the prefetchers off
        run.pattern = "random"
    elif size := _BUFFER.match(text):
        value = round(float(size[1]) * 2**20)
        run.buffer, run.buffer_each = (run.buffer, value) if size[2] else (value, run.buffer_each)
    elif text.startswith("Using small pages"):
        (section or run).stated["pages"] = "small"
    elif text.startswith(("Bandwidths are in", "Delay")):
        if "MB/sec" not in text or (text.startswith("Delay") and "(ns)" not in text):
            raise UnknownMeaningError(f"'{quoted(text, 60)}': MB/sec are required, and (ns) of a delay")
    elif section is None:
        return not _ROW.match(text)
    elif text.startswith("Using only one thread"):
        section.stated["core_threads"] = "one"
    elif "Read-only traffic" in text:
        section.traffic = "reads"
    elif head := _HEAD.fullmatch(text):
        section.columns = [int(column) for column in head[1].split()]
        if section.rows and section.kind != "transfers":
            section.columns = []  # a second matrix, whose title is damaged
        section.rows.clear()
    else:
        is_rate = section.kind in {"peak", "maximum"} and ":" in text and _RATE.fullmatch(text)
        return not (re.match(r"\d", text) or _ROW.match(text) or _REMOTE.match(text) or is_rate)
    return True


def _options(command: str) -> dict[str, Scalar]:
    """Return the conditions that the options of the command state."""
    conditions: dict[str, Scalar] = {}
    other_options: list[str] = []
    for word in command.split():
        if (option := re.fullmatch(r"-([cjil])(\d{1,9})", word)) is not None:
            conditions[_COMMAND[option[1]]] = int(option[2])
        elif not word.startswith("--") and not re.fullmatch(r"-(?:b|t|W|d|g|v)\S*|-r", word):
            other_options.append(word)
    if other_options:
        conditions["options"] = quoted(" ".join(sorted(other_options)), 100)
    return conditions


def _row(output: ToolOutput, run: _MlcRun, section: _MlcSection | None, text: str) -> None:
    if iteration := _ITERATION.match(text):
        if iteration[2] != "ns":
            raise unexpected(iteration[2], "ns", "idle latency")
        conditions = {**run.stated, "footprint_bytes": run.buffer, "pattern": run.pattern}
        output.take(_LATENCY, iteration[1], "idle latency", **conditions)
    elif section is None or (section.kind in {"idle", "between"} and not section.columns):
        raise FormatError("the title of a section is required above")
    else:
        _ROWS[section.kind](output, run, section, text)


def _peak(output: ToolOutput, run: _MlcRun, section: _MlcSection, text: str) -> None:
    required = "a mix of reads and writes with its rate in MB/s"
    name, cell = matched(_RATE, text, required).groups()
    matched(r"\d{1,12}\.\d" if section.kind == "peak" else r"\d{1,12}\.\d\d", cell, required)
    conditions = dict(_MIXES.get(name.lower(), {}))
    mix = _MIX.fullmatch(name)
    if mix is not None:
        share = int(mix[1]) / (int(mix[1]) + int(mix[2]))
        conditions = {"kernel": "mix", "read_share": share, "store": "streaming" if mix[3] else None}
    elif not conditions:
        raise unexpected(name, "a known mix of reads and writes")
    if name in section.rows:
        raise FormatError(f"{name}: a second rate in one section")
    section.rows.add(name)
    if section.kind == "maximum":
        conditions["statistic"] = "best"  # the best of several injection rates
    common = {**run.stated, **section.stated, "test": section.kind, "thread_buffer_bytes": run.buffer_each}
    output.take(_RATES["gross" if mix and not mix[3] else "net"], cell, name, **common, **conditions)


def _traffic(output: ToolOutput, run: _MlcRun, section: _MlcSection) -> tuple[str, dict[str, Scalar]]:
    """Return `net` or `gross`, and the conditions of the kind of traffic.

    The traffic is reads, or the kind that the option -W selected, which MLC does not print.
    """
    common = {**run.stated, **section.stated, "thread_buffer_bytes": run.buffer_each}
    if section.traffic == "reads":
        return "net", {**common, "read_share": 1.0}
    option = re.search(r"-W(\d{1,2})\b", output.about.command)
    if option is None:
        raise FormatError("'Using Read-only traffic type' above the numbers, or -W in the command, is required")
    return "gross", {**common, "traffic": f"W{option[1]}", "read_share": _OPTIONS.get(option[1]), "kernel": "mix"}


def _idle(output: ToolOutput, run: _MlcRun, section: _MlcSection, text: str) -> None:
    pattern = {"random": "random", "sequential": "stride"}.get(section.traffic, run.pattern)
    conditions = {**run.stated, **section.stated, "pattern": pattern, "footprint_bytes": run.buffer}
    row, cells = section.matrix_row(text)
    for column, cell in cells.items():
        output.take(_LATENCY, cell, "latency", **{**conditions, "cpu_node": row, "memory_node": column})


def _between(output: ToolOutput, run: _MlcRun, section: _MlcSection, text: str) -> None:
    row, cells = section.matrix_row(text)
    net, conditions = _traffic(output, run, section)
    for column, cell in cells.items():
        output.take(
            _RATES[net], cell, "rate", **{"kernel": "read", **conditions, "cpu_node": row, "memory_node": column}
        )


def _loaded(output: ToolOutput, run: _MlcRun, section: _MlcSection, text: str) -> None:
    net, conditions = _traffic(output, run, section)
    delay, time, rate = matched(_POINT, text, "a delay, its latency in ns and its rate in MB/s").groups()
    if delay in section.rows:
        raise unexpected(text, "another delay")
    section.rows.add(delay)
    conditions |= {"mode": "paced", "inject_delay": int(delay)}
    output.take(ToolQuantity("loaded.load_latency", "ns"), time, "latency", **{**conditions, "kernel": None})
    output.take(
        ToolQuantity("loaded.bandwidth_net", "MB/s") if net == "net" else _RATES[net], rate, "rate", **conditions
    )


def _transfer(output: ToolOutput, run: _MlcRun, section: _MlcSection, text: str) -> None:
    common = {**run.stated, **section.stated}
    if remote := _REMOTE.match(text):
        section.home, section.columns = remote[2], []
        section.rows.clear()
    elif text.startswith("Local Socket"):
        level, kind, cell = matched(_LOCAL, text, "'Local Socket L2->L2 HIT latency' with a time in ns").groups()
        common |= {"cache": level if level != "L2" else None, "state": "clean" if kind == "HIT" else "dirty"}
        output.take(_TRANSFER, cell, "latency", **common, same_socket=True)
    elif not section.home or not section.columns:
        raise FormatError("the line that states where the data are, and the nodes, are required above")
    else:
        writer, cells = section.matrix_row(text)
        for reader, cell in cells.items():
            nodes = {
                "from_node": writer,
                "to_node": reader,
                "home_node": writer if section.home == "writer" else reader,
            }
            output.take(_TRANSFER, cell, "latency", **common, state="dirty", **nodes)


_ROWS: Final = {
    "idle": _idle,
    "peak": _peak,
    "maximum": _peak,
    "between": _between,
    "loaded": _loaded,
    "transfers": _transfer,
}
READERS: Final = [FormatReader("mlc", "Intel Memory Latency Checker, text", has(_TITLE), read, version=3)]
