"""Intel Memory Latency Checker's text (versions 3.0 to 3.12, Linux and Windows), of complete runs or of single tests.

MLC counts memory traffic: in its mixes of reads and writes, a store is a line read and a line written. Therefore the
rates of the mixes are `bandwidth_gross`, and those of reads and of non-temporal stores, whose net and gross rates are
equal, `bandwidth_net`. Its cells are imported as published, however odd. Options of the command line that have no
condition of their own are in the condition `options`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, UnknownMeaning, number, ours
from meshmark.measure.tools.output import Line, ToolOutput, unexpected
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
_LOCAL: Final = re.compile(r"Local Socket (L\d|LLC)->(?:L\d|LLC) (HITM?)\s+latency\s+(\S*)")
_REMOTE: Final = re.compile(r"Remote Socket (L\d|LLC)->(?:L\d|LLC) HITM latency \(data address homed in (\w+) socket\)")
_ITERATION: Final = re.compile(r"Each iteration took .*\(\s*(\S+)\s+(\w+)\s*\)")
# Rows of numbers, and rates with a name; a table whose title is damaged has them, too.
_ROW: Final = re.compile(r"\d+\s+[\d.-]|ALL Reads|\d+:\d+ Read|Stream-triad|All NT|Local Socket")
_POINT: Final = re.compile(r"(\d{1,9})\s+(\d{1,12}\.\d\d)\s+(\d{1,12}\.\d)")
_COMMAND: Final = {"c": "cpu", "j": "memory_node", "i": "initializing_cpu", "l": "stride_bytes"}


@dataclass(slots=True)
class _Section:
    """A test. `stated` are its conditions; `columns` those of the current matrix; `rows` what was read of it."""

    kind: str
    title: str
    stated: dict[str, Scalar] = field(default_factory=dict)
    reads_only: bool = False
    columns: list[int] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    home: str = ""


@dataclass(slots=True)
class _Run:
    """The facts that the lines above a section state."""

    about: About
    stated: dict[str, Scalar] = field(default_factory=dict)
    buffer: int | None = None  # bytes, of the latency thread
    buffer_each: int | None = None  # bytes, of each thread that reads


def recognises(start: str) -> bool:
    return _TITLE.search(start) is not None


def read(output: ToolOutput) -> None:
    """The cells of all sections: idle and loaded latencies, peak rates, rates between nodes, transfers of lines."""
    run = _Run(About(output.machine, "mlc"))
    section: _Section | None = None
    begun = False
    for line in output.lines:
        text = line.text.strip()
        if title := _TITLE.match(line.text):
            run, section, begun = _Run(About(output.machine, "mlc", title[1])), None, True
        elif not begun or not text:
            continue
        elif kind := next((kind for pattern, kind in _SECTIONS if pattern.match(text)), ""):
            section = _Section(kind, text)
            _check_unit(section, line)
        elif not _header(run, section, text):
            with output.item(line.number):
                section = _row(output, run, section, line)


def _check_unit(section: _Section, line: Line) -> None:
    unit = re.search(r"\(in (\w+)\)", section.title)
    if unit is not None and unit[1] != "ns":
        raise UnknownMeaning(f"line {line.number}: found times in '{quoted(unit[1], 20)}', ns is required")


def _header(run: _Run, section: _Section | None, text: str) -> bool:
    """Take a line that states something about the run or the section; False if it is not one."""
    if command := re.match(r"Command line parameters:\s*(.*)", text):
        run.about = About(run.about.machine, "mlc", run.about.version, f"mlc {command[1]}".strip())
        run.stated = _options(command[1])
    elif size := _BUFFER.match(text):
        value = round(float(size[1]) * 2**20)
        run.buffer, run.buffer_each = (run.buffer, value) if size[2] else (value, run.buffer_each)
    elif text.startswith("Using small pages"):
        (run.stated if section is None else section.stated)["pages"] = "small"
    elif text.startswith("Bandwidths are in"):
        if "MB/sec" not in text:
            raise UnknownMeaning(f"'{quoted(text, 60)}': MB/sec are required")
    elif section is None:
        return not (_ROW.match(text) or _ITERATION.match(text))
    elif text.startswith("Using only one thread"):
        section.stated["core_threads"] = "one"
    elif "Read-only traffic" in text:
        section.reads_only = True
    elif text.startswith("Delay"):
        if "(ns)" not in text or "MB/sec" not in text:
            raise UnknownMeaning(f"'{quoted(text, 60)}': (ns) and MB/sec are required")
    elif head := _HEAD.fullmatch(text):
        section.columns = [int(c) for c in head[1].split()]
        if section.rows and section.kind != "transfers":
            section.columns = []  # a second matrix, whose title is damaged
        section.rows.clear()
    else:
        return not (
            re.match(r"\d", text)
            or _ROW.match(text)
            or _REMOTE.match(text)
            or _ITERATION.match(text)
            or (":" in text and section.kind in {"peak", "maximum"} and _RATE.fullmatch(text))
        )
    return True


def _options(command: str) -> dict[str, Scalar]:
    """The conditions that the options of the command state."""
    stated: dict[str, Scalar] = {}
    others: list[str] = []
    for word in command.split():
        if (option := re.fullmatch(r"-([cjil])(\d{1,9})", word)) is not None:
            stated[_COMMAND[option[1]]] = int(option[2])
        elif not word.startswith("--") and not re.fullmatch(r"-(?:b|t|W|d|g|v)\S*|-r", word):
            others.append(word)
    if others:
        stated["options"] = quoted(" ".join(sorted(others)), 100)
    return stated


def _row(output: ToolOutput, run: _Run, section: _Section | None, line: Line) -> _Section | None:
    text = line.text.strip()
    if took := _ITERATION.match(text):
        if took[2] != "ns":
            raise FormatError(f"idle latency: {unexpected(took[2], 'ns')}")
        pattern = "random" if re.search(r"(?:^| )-r\b", run.about.command) else None
        value = 1e-9 * number(took[1], "idle latency")
        stated = _known(**run.stated, footprint_bytes=run.buffer, pattern=pattern)
        output.add(ours(run.about, "latency", "load_latency", [value], **stated))
    elif section is None or (section.kind in {"idle", "between"} and not section.columns):
        raise FormatError("the title of a section is required above")
    elif section.kind in {"peak", "maximum"}:
        _peak(output, run, section, text)
    elif section.kind == "loaded":
        _loaded(output, run, section, text)
    elif section.kind == "transfers":
        _transfer(output, run, section, text)
    else:
        _node(output, run, section, text)
    return section


def _known(**conditions: Scalar) -> dict[str, Scalar]:
    return {k: v for k, v in conditions.items() if v is not None}


def _peak(output: ToolOutput, run: _Run, section: _Section, text: str) -> None:
    rate = _RATE.fullmatch(text)
    if rate is None or not re.fullmatch(r"\d{1,12}\.\d" if section.kind == "peak" else r"\d{1,12}\.\d\d", rate[2]):
        raise unexpected(text, "a mix of reads and writes with its rate in MB/s")
    name = rate[1]
    mix = _MIX.fullmatch(name)
    share: float | None = None
    metric, store = "bandwidth_net", None
    if name == "ALL Reads":
        kernel, share = "read", 1.0
    elif name == "Stream-triad like":
        kernel = "triad"
    elif name.lower() == "all nt writes":
        kernel, share, store = "write", 0.0, "streaming"
    elif mix is not None:
        kernel, share = "mix", int(mix[1]) / (int(mix[1]) + int(mix[2]))
        metric, store = ("bandwidth_net", "streaming") if mix[3] else ("bandwidth_gross", None)
    else:
        raise unexpected(name, "a known mix of reads and writes")
    if name in section.rows:
        raise FormatError(f"{name}: a second rate in one section")
    section.rows.add(name)
    stated = _known(
        **run.stated,
        **section.stated,
        kernel=kernel,
        read_share=share,
        store=store,
        test=section.kind,
        statistic="best" if section.kind == "maximum" else None,  # of several injection rates
        thread_buffer_bytes=run.buffer_each,
    )
    output.add(ours(run.about, "bandwidth", metric, [1e6 * number(rate[2], name)], **stated))


def _traffic(run: _Run, section: _Section) -> tuple[str, dict[str, Scalar]]:
    """The metric and the conditions of the kind of traffic: reads, or that of the option -W, which MLC does not
    print."""
    if section.reads_only:
        return "bandwidth_net", {"read_share": 1.0}
    option = re.search(r"-W(\d{1,2})\b", run.about.command)
    if option is None:
        raise FormatError("'Using Read-only traffic type' above the numbers, or -W in the command, is required")
    return "bandwidth_gross", _known(traffic=f"W{option[1]}", read_share=_OPTIONS.get(option[1]))


def _cells(section: _Section, text: str) -> tuple[int, list[tuple[int, float]]]:
    """The row of a matrix: its number, and each column with its value, without those printed as `-`."""
    row, *cells = text.split()
    if not re.fullmatch(r"\d{1,6}", row) or len(cells) != len(section.columns):
        raise FormatError(f"found '{quoted(text, 40)}', a node and {len(section.columns)} numbers are required")
    if row in section.rows or int(row) not in section.columns:
        raise FormatError(f"found node {row}, another one of the columns is required")
    values = []
    for column, cell in zip(section.columns, cells, strict=True):
        if cell == "-":
            continue
        if not re.fullmatch(r"\d{1,12}\.\d", cell):
            raise FormatError(f"nodes {row} and {column}: {unexpected(cell, 'a number with one decimal')}")
        values.append((column, float(cell)))
    section.rows.add(row)
    return int(row), values


def _node(output: ToolOutput, run: _Run, section: _Section, text: str) -> None:
    row, values = _cells(section, text)
    same = {**run.stated, **section.stated, "cpu_node": row}
    if section.kind == "idle":
        title = section.title
        pattern = "random" if "random access" in title else "stride" if "sequential access" in title else None
        for column, value in values:
            stated = _known(**{**same, "memory_node": column}, pattern=pattern, footprint_bytes=run.buffer)
            output.add(ours(run.about, "latency", "load_latency", [1e-9 * value], **stated))
        return
    metric, kind = _traffic(run, section)
    kernel = "mix" if "traffic" in kind else "read"
    for column, value in values:
        conditions = {**same, "memory_node": column, **kind}
        stated = _known(**conditions, kernel=kernel, thread_buffer_bytes=run.buffer_each)
        output.add(ours(run.about, "bandwidth", metric, [1e6 * value], **stated))


def _loaded(output: ToolOutput, run: _Run, section: _Section, text: str) -> None:
    metric, kind = _traffic(run, section)
    point = _POINT.fullmatch(text)
    if point is None or point[1] in section.rows:
        raise unexpected(text, "another delay, its latency in ns and its rate in MB/s")
    section.rows.add(point[1])
    conditions = {**run.stated, **section.stated, **kind, "mode": "paced", "inject_delay": int(point[1])}
    same = _known(**conditions, thread_buffer_bytes=run.buffer_each)
    output.add(ours(run.about, "loaded", "load_latency", [1e-9 * number(point[2], "latency")], **same))
    instrument = "loaded" if metric == "bandwidth_net" else "bandwidth"
    kernel = {} if metric == "bandwidth_net" else {"kernel": "mix"}
    output.add(ours(run.about, instrument, metric, [1e6 * number(point[3], "rate")], **same, **kernel))


def _transfer(output: ToolOutput, run: _Run, section: _Section, text: str) -> None:
    if remote := _REMOTE.match(text):
        section.home, section.columns = remote[2], []
        section.rows.clear()
        return
    conditions: dict[str, Scalar] = {**run.stated, **section.stated, "trip": "round"}
    if text.startswith("Local Socket"):
        local = _LOCAL.fullmatch(text)
        if local is None or not re.fullmatch(r"\d+\.\d", local[3]):
            raise unexpected(text, "'Local Socket L2->L2 HIT latency' with a time in ns")
        state = "clean" if local[2] == "HIT" else "dirty"
        level = {} if local[1] == "L2" else {"cache": local[1]}
        stated = {**conditions, **level, "state": state, "same_socket": True}
        output.add(ours(run.about, "lines", "line_latency", [1e-9 * float(local[3])], **stated))
        return
    if not section.home or not section.columns:
        raise FormatError("the line that says where the data are, and the nodes, are required above")
    writer, values = _cells(section, text)
    for reader, value in values:
        home = writer if section.home == "writer" else reader
        stated = {**conditions, "state": "dirty", "from_node": writer, "to_node": reader, "home_node": home}
        output.add(ours(run.about, "lines", "line_latency", [1e-9 * value], **stated))


READERS: Final = [Reader("mlc", "Intel Memory Latency Checker, text", recognises, read, version=2)]
