"""Results of SPEC's suites of programs (CPU 2006 and 2017, OMP 2012, MPI 2007): the CSV and the raw result file.

The samples of a record are all runs of a program, not only the one that SPEC selected for the score. Runs that failed
or did not validate are left out. A number that SPEC marks as an estimate has the condition `estimated`.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.measure.tools.quantities import named
from meshmark.store.record import Record, Scalar

_CSV: Final = "SPEC CSV"
_RAW: Final = "SPEC raw file"
_FULL: Final = '"Full Results Table"'
_SELECTED: Final = '"Selected Results Table"'
_TUNES: Final = ("base", "peak")
_COUNTS: Final = {"Copies": "copies", "Threads": "threads", "Ranks": "ranks", "Proc": "processors"}
_SCORE: Final = re.compile(r"(?:Est\. )?(SPEC\w+?)_?(base|peak)(\d{4})?")
_LINE: Final = re.compile(r"spec\.(\w+)\.results\.(\w+)\.(base|peak)\.(\d{3})\.(\w+):[ \t]*(.*)")


@dataclass
class _Program:
    """The valid runs of one program with one tuning: times in s, and SPEC's ratios."""

    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    conditions: dict[str, Scalar] = field(default_factory=dict)

    def records(self, about: About) -> list[Record]:
        if not self.times:
            return []
        conditions = named(self.conditions)
        made = [theirs(about, "elapsed", "s", "lower", self.times, **conditions)]
        if len(self.ratios) == len(self.times):
            made.append(theirs(about, "ratio", "1", "higher", self.ratios, **conditions))
        return made


def recognises(start: str) -> bool:
    return _FULL in start and re.search(r"^Benchmark,\"Base # \w+\",", start, re.MULTILINE) is not None


def read(text: str, machine: str) -> list[Record]:
    """Times and ratios of each program, and the scores."""
    lines = text.splitlines()
    title = next((line.strip('"') for line in lines[:10] if re.match(r'"SPEC\b.* Result"?', line)), "")
    about = About(machine, "spec", "")
    programs = _table(lines, _FULL)
    selected = _table(lines, _SELECTED)
    if selected.keys() != programs.keys():
        missing = min(selected.keys() ^ programs.keys())
        raise FormatError(f"{_CSV}: found {quoted(' '.join(missing), 60)} in one of the tables, both are required")
    suite = _suite(title)
    made = []
    for program in programs.values():
        if suite:
            program.conditions["suite"] = suite
        made += program.records(about)
    scores = _scores(lines, about)
    if not made or not scores:
        raise FormatError(f"{_CSV}: found {'no valid run' if not made else 'no score'}, at least 1 is required")
    return made + scores


def _suite(title: str) -> str:
    """The suite's name from the title of the file, as `CPU2017 Integer Rate`."""
    return quoted(re.sub(r"^SPEC(?:\(R\))?\s*|\s*(?:Result|Summary).*$", "", title), 60)


def _row(line: str, at: int) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error as why:
        raise FormatError(f"{_CSV}: line {at}: {quoted(why, 60)}") from None


def _table(lines: list[str], title: str) -> dict[tuple[str, str], _Program]:
    """The valid runs by program and tuning of one of the two tables."""
    if title not in lines:
        raise FormatError(f"{_CSV}: found no {title}; the file is incomplete")
    at = lines.index(title) + 1
    while at < len(lines) and not lines[at].strip():
        at += 1
    header = _row(lines[at], at + 1) if at < len(lines) else []
    columns = {tune: _columns(header, tune) for tune in _TUNES}
    if header[:1] != ["Benchmark"] or columns["base"] is None:
        raise FormatError(f'{_CSV}: line {at + 1}: found no header \'Benchmark,"Base # Copies","Base Run Time",…\'')
    found: dict[tuple[str, str], _Program] = defaultdict(_Program)
    for line_number, line in enumerate(lines[at + 1 :], at + 2):
        if not line.strip() or _SCORE.match(line):
            return found
        cells = _row(line, line_number)
        if len(cells) != len(header):
            raise FormatError(
                f"{_CSV}: line {line_number}: found {len(cells)} cells, {len(header)} are required by the header"
            )
        for tune in _TUNES:
            if (at_columns := columns[tune]) is not None:
                _run(found, cells, tune, header, at_columns, f"{_CSV}: line {line_number}: {tune}")
    raise FormatError(f"{_CSV}: found no end of the {title}; the file is cut off")


def _columns(header: list[str], tune: str) -> tuple[int, int, int, int] | None:
    """The columns of the count, the time, the ratio and the status; None if there are none."""
    prefix = tune.capitalize()
    patterns = (rf"{prefix} # \w+", rf"(?:Est\. )?{prefix} Run Time", rf"(?:Est\. )?{prefix} (?:Rate|Ratio)")
    found = [next((i for i, h in enumerate(header) if re.fullmatch(p, h)), -1) for p in patterns]
    status = header.index(f"{prefix} Status") if f"{prefix} Status" in header else -1
    return None if -1 in {*found, status} else (found[0], found[1], found[2], status)


def _run(
    found: dict[tuple[str, str], _Program],
    cells: list[str],
    tune: str,
    header: list[str],
    columns: tuple[int, int, int, int],
    where: str,
) -> None:
    count, time, ratio, status = columns
    if cells[status] != "S":  # NR: not run; others: failed to compile, run or validate
        if not re.fullmatch(r"[A-Z]{0,3}", cells[status]):
            raise FormatError(f"{where}: status: found '{quoted(cells[status], 20)}'; allowed: S, NR, CE, RE, VE, …")
        return
    if not re.fullmatch(r"\d{3}\.\w+", cells[0]):
        raise FormatError(f"{where}: found '{quoted(cells[0], 40)}', a program such as 505.mcf_r is required")
    program = found[cells[0], tune]
    program.times.append(number(cells[time], f"{where}: run time", above_zero=True))
    if cells[ratio].strip():
        program.ratios.append(number(cells[ratio], f"{where}: ratio"))
    program.conditions = {"benchmark": cells[0], "tune": tune}
    if cells[count].strip():
        kind = header[count].rpartition(" ")[2]
        program.conditions[_COUNTS.get(kind, kind.lower())] = _count(cells[count], where)
    if header[time].startswith("Est."):
        program.conditions["estimated"] = True


def _count(text: str, where: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise FormatError(f"{where}: found '{quoted(text, 20)}', a count of copies, threads or ranks is required")
    return int(text)


def _scores(lines: list[str], about: About) -> list[Record]:
    """The scores that are stated after the second table: `SPECrate2017_int_base,26.9,,26.9`."""
    made = []
    for at, line in enumerate(lines[lines.index(_SELECTED) :], lines.index(_SELECTED) + 1):
        if (match := re.match(r"\"?" + _SCORE.pattern + r"\"?,(.*)", line)) is None:
            continue
        cells = [cell for cell in _row(line, at)[1:] if cell.strip()]
        if not cells or cells[0] in {"Not Run", "NR", "--"}:
            continue
        value = number(cells[0], f"{_CSV}: line {at}: score", above_zero=True)
        if len({*cells}) > 1:
            raise FormatError(f"{_CSV}: line {at}: score: found {quoted(' and '.join(cells), 60)}, one is required")
        kinds = named({"suite": match[1] + (match[3] or ""), "tune": match[2]})
        made.append(theirs(about, "score", "1", "higher", [value], **kinds))
    return made


def recognises_raw(start: str) -> bool:
    return (
        re.search(r"^spec\.(?:cpu|omp|mpi)\w*\.results\.\w+\.(?:base|peak)\.\d{3}\.", start, re.MULTILINE) is not None
    )


def read_raw(text: str, machine: str) -> list[Record]:
    """Times and ratios of each program, and the means that are stated."""
    runs: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    means: list[tuple[str, str, float]] = []
    for at, line in enumerate(text.splitlines(), 1):
        if (match := _LINE.fullmatch(line)) is not None:
            runs[match[2], match[3]][match[4]][match[5]] = match[6].strip()
        elif ".results." in line and line.startswith("spec."):
            raise FormatError(f"{_RAW}: line {at}: found '{quoted(line, 60)}', spec.….results.….KEY: VALUE is required")
        elif (mean := re.fullmatch(r"spec\.(\w+)\.(base|peak)mean:[ \t]*(\S+)", line)) and mean[3] not in {"--", "0"}:
            means.append((mean[1], mean[2], number(mean[3], f"{_RAW}: line {at}: mean", above_zero=True)))
    about = About(machine, "spec")
    made = []
    for (name, tune), iterations in runs.items():
        made += _raw_program(name, tune, iterations).records(about)  # none if no run is valid
    if not made:
        raise FormatError(f"{_RAW}: found no valid run, at least 1 is required")
    lengths = {len(iterations) for iterations in runs.values()}
    if len(lengths) > 1:
        raise FormatError(f"{_RAW}: found {min(lengths)} to {max(lengths)} runs a program; the file is incomplete")
    return made + [
        theirs(about, "score", "1", "higher", [value], **named({"suite": suite, "tune": tune}))
        for suite, tune, value in means
    ]


def _raw_program(name: str, tune: str, iterations: dict[str, dict[str, str]]) -> _Program:
    program = _Program()
    for iteration, values in iterations.items():
        where = f"{_RAW}: {quoted(name, 40)}: {tune}: {iteration}"
        if missing := {"benchmark", "reported_time", "ratio", "valid"} - values.keys():
            raise FormatError(f"{where}: found no {min(missing)}; the file is incomplete")
        if values["valid"] != "S":
            continue
        if values["benchmark"].replace(".", "_") != name:
            raise FormatError(f"{where}: benchmark: found '{quoted(values['benchmark'], 40)}', {name} is required")
        program.times.append(number(values["reported_time"], f"{where}: reported_time", above_zero=True))
        program.ratios.append(number(values["ratio"], f"{where}: ratio"))
        program.conditions = {"benchmark": values["benchmark"], "tune": tune}
        for count in ("copies", "threads", "ranks"):
            if values.get(count):
                program.conditions[count] = _count(values[count], f"{where}: {count}")
    return program


READERS: Final = [
    Reader("spec", "SPEC CPU, OMP and MPI, CSV", recognises, whole(read)),
    Reader("spec_raw", "SPEC CPU, OMP and MPI, raw file (.rsf)", recognises_raw, whole(read_raw)),
]
