"""Results of SPEC's suites of programs (CPU 2006 and 2017, OMP 2012, MPI 2007): the CSV and the raw result file.

The samples of a record are all runs of a program, not only the one that SPEC selected for the score. Runs that failed
or did not validate are left out. A number that SPEC marks as an estimate has the condition `estimated`, and those of a
file that SPEC's tools marked as not valid have the condition `valid`.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import Line, ToolOutput
from meshmark.measure.tools.quantities import named
from meshmark.store.record import Scalar

_FULL: Final = "Full Results Table"
_SELECTED: Final = "Selected Results Table"
_TUNES: Final = ("base", "peak")
_COUNTS: Final = {"Copies": "copies", "Threads": "threads", "Ranks": "ranks", "Proc": "processors"}
_SCORE: Final = re.compile(r"(Est\. )?(SPEC\w+?)_?(base|peak)(\d{4})?")
_HEADER: Final = re.compile(r"^Benchmark,\"(?:Est\. )?Base (?:# \w+|Ref\b[^\"]*|Run Time)\"", re.MULTILINE)
_PROGRAM: Final = re.compile(r"\d{3}\.\w+")
_LINE: Final = re.compile(r"spec\.(\w+)\.results\.(\w+)\.(base|peak)\.(\d{3})\.(\w+):[ \t]*(.*)")
_REFERENCE: Final = {"", "ref", "refrate", "refspeed", "mref", "lref"}  # workloads of a score


@dataclass
class _Program:
    """The valid runs of one program with one tuning: times in s, and SPEC's ratios."""

    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    conditions: dict[str, Scalar] = field(default_factory=dict)

    def add_to(self, output: ToolOutput, about: About, common: Mapping[str, Scalar]) -> None:
        conditions = named({**self.conditions, **common})
        if self.times:
            output.add(theirs(about, "elapsed", "s", "lower", self.times, **conditions))
        if self.ratios and len(self.ratios) == len(self.times):
            output.add(theirs(about, "ratio", "1", "higher", self.ratios, **conditions))


# ------------------------------------------------------------------ CSV


def recognises(start: str) -> bool:
    return _FULL in start and _HEADER.search(start) is not None


def read(output: ToolOutput) -> None:
    """Times and ratios of each program, and the scores."""
    about = About(output.machine, "spec")
    lines = [line for line in output.lines if line.text.strip()]
    texts = [line.text.strip().strip('"') for line in lines]
    title = next((text for text in texts[:10] if re.match(r"SPEC\b.* (?:Result|Summary)", text)), "")
    suite = quoted(re.sub(r"^SPEC(?:\(R\))?\s*|\s*(?:Result|Summary).*$", "", title), 60)
    common: dict[str, Scalar] = {"suite": suite} if suite else {}
    if "valid,0" in texts[:10]:
        common["valid"] = False
    full, selected = (
        {text: at for at, text in reversed([*enumerate(texts)])}.get(name, -1) for name in (_FULL, _SELECTED)
    )
    if full < 0:
        raise FormatError(f'SPEC: found no "{_FULL}"')
    programs, end, is_estimate = _table(output, lines, full + 1)
    if selected < 0:
        output.leave_out(f'"{_SELECTED}"', "found none; the file is cut off")
    else:
        others, end, _ = _table(ToolOutput("", output.machine, []), lines, selected + 1)
        for name, tune in sorted(others.keys() ^ programs.keys()):
            output.leave_out(f"{quoted(name, 40)}: {tune}", "found in one of the tables, both are required")
    for key, program in programs.items():
        with output.item(f"{quoted(key[0], 40)}: {key[1]}"):
            program.add_to(output, about, common)
    for line in lines[end:]:
        if (match := _SCORE.match(line.text.lstrip('"'))) is not None:
            with output.item(line.number):
                _score(output, about, _row(line.text), match, common, is_estimate=is_estimate or bool(match[1]))


def _row(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise FormatError(f"not CSV: {quoted(error, 60)}") from None


def _table(output: ToolOutput, lines: Sequence[Line], at: int) -> tuple[dict[tuple[str, str], _Program], int, bool]:
    """The valid runs by program and tuning of one of the two tables, the index of its end, and whether it is one of
    estimates."""
    header = _row(lines[at].text) if at < len(lines) else []
    columns = {tune: _columns(header, tune) for tune in _TUNES}
    if header[:1] != ["Benchmark"] or columns["base"] is None:
        raise FormatError('SPEC: found no header \'Benchmark,"Base # Copies","Base Run Time",…\' of a table')
    programs: dict[tuple[str, str], _Program] = {}
    is_estimate = any(name.startswith("Est.") for name in header)
    for end in range(at + 1, len(lines)):
        line = lines[end]
        if _PROGRAM.match(line.text.lstrip('"')) is None and line.text.strip('"') == _SELECTED:
            return programs, end, is_estimate
        if _SCORE.match(line.text.lstrip('"')):
            return programs, end, is_estimate
        with output.item(line.number):
            cells = _row(line.text)
            if len(cells) != len(header):
                raise FormatError(f"found {len(cells)} cells, {len(header)} are required by the header")
            for tune in _TUNES:
                with output.item(line.number):
                    if (at_columns := columns[tune]) is not None:
                        _run(programs, cells, tune, header, at_columns)
    return programs, len(lines), is_estimate


def _columns(header: list[str], tune: str) -> tuple[int, int, int, int] | None:
    """The columns of the count (-1: none), the time, the ratio and the status; None if they are missing."""
    prefix = tune.capitalize()
    patterns = (rf"{prefix} # \w+", rf"(?:Est\. )?{prefix} Run Time", rf"(?:Est\. )?{prefix} (?:Rate|Ratio)")
    count, time, ratio = (next((i for i, h in enumerate(header) if re.fullmatch(p, h)), -1) for p in patterns)
    status = header.index(f"{prefix} Status") if f"{prefix} Status" in header else -1
    return None if -1 in {time, ratio, status} else (count, time, ratio, status)


def _run(
    programs: dict[tuple[str, str], _Program],
    cells: list[str],
    tune: str,
    header: list[str],
    columns: tuple[int, int, int, int],
) -> None:
    """Add one run of one tuning."""
    count, time, ratio, status = columns
    if cells[status] in {"NR", ""}:  # not run
        return
    if cells[status] != "S":
        if not re.fullmatch(r"[A-Z]{1,3}", cells[status]):
            raise FormatError(f"{tune}: status: found '{quoted(cells[status], 20)}'; allowed: S, NR, CE, RE, VE, …")
        raise FormatError(f"{quoted(cells[0], 40)}: {tune}: status {cells[status]}; the run is not valid")
    if not _PROGRAM.fullmatch(cells[0]):
        raise FormatError(f"found '{quoted(cells[0], 40)}', a program such as 505.mcf_r is required")
    seconds = number(cells[time], f"{tune}: run time", above_zero=True)
    quotient = number(cells[ratio], f"{tune}: ratio", above_zero=True) if cells[ratio] else None
    conditions: dict[str, Scalar] = {"benchmark": cells[0], "tune": tune}
    if count >= 0 and cells[count]:
        kind = header[count].rpartition(" ")[2]
        conditions[_COUNTS.get(kind, kind.lower())] = _count(cells[count], tune)
    if header[time].startswith("Est."):
        conditions["estimated"] = True
    program = programs.setdefault((cells[0], tune), _Program())
    program.times.append(seconds)
    if quotient is not None:
        program.ratios.append(quotient)
    program.conditions = conditions


def _count(text: str, where: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise FormatError(f"{where}: found '{quoted(text, 20)}', a count of copies, threads or ranks is required")
    return int(text)


def _score(
    output: ToolOutput,
    about: About,
    cells: list[str],
    match: re.Match[str],
    common: Mapping[str, Scalar],
    *,
    is_estimate: bool,
) -> None:
    """A score that is stated after the second table: `SPECrate2017_int_base,26.9,,26.9`."""
    values = [cell for cell in cells[1:] if cell]
    if not values or values[0] in {"Not Run", "NR", "--"}:
        return
    value = number(values[0], "score", above_zero=True)
    if len({*values}) > 1:
        raise FormatError(f"score: found {quoted(' and '.join(values), 60)}, one is required")
    conditions = {**common, "suite": match[2] + (match[4] or ""), "tune": match[3]}
    if is_estimate:
        conditions["estimated"] = True
    output.add(theirs(about, "score", "1", "higher", [value], **named(conditions)))


# ------------------------------------------------------------------ raw result file


def recognises_raw(start: str) -> bool:
    return (
        re.search(r"^spec\.(?:cpu|omp|mpi)\w*\.results\.\w+\.(?:base|peak)\.\d{3}\.", start, re.MULTILINE) is not None
    )


def read_raw(output: ToolOutput) -> None:
    """Times and ratios of each program, and the means that are stated."""
    about = About(output.machine, "spec")
    runs: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    means: list[tuple[Line, re.Match[str]]] = []
    for line in output.lines:
        if (match := _LINE.fullmatch(line.text)) is not None and not output.is_cut(line):
            runs[match[2], match[3]][match[4]][match[5]] = match[6].strip()
        elif ".results." in line.text and line.text.startswith("spec."):
            output.leave_out(line.number, f"found '{quoted(line.text, 60)}', spec.….results.….KEY: VALUE is required")
        elif (mean := re.fullmatch(r"spec\.(\w+)\.(base|peak)mean:[ \t]*(\S+)", line.text)) is not None:
            means.append((line, mean))
    count = max(map(len, runs.values()), default=0)
    for (name, tune), iterations in runs.items():
        if len(iterations) < count:
            output.leave_out(f"{quoted(name, 40)}: {tune}", f"found {len(iterations)} of {count} runs of a program")
        program = _Program()
        for iteration, values in iterations.items():
            with output.item(f"{quoted(name, 40)}: {tune}: {iteration}"):
                _raw_run(program, name, tune, values)
        with output.item(f"{quoted(name, 40)}: {tune}"):
            program.add_to(output, about, {})
    for line, mean in means:
        if mean[3] in {"--", "0"}:
            continue
        with output.item(line.number):
            value = number(mean[3], "mean", above_zero=True)
            output.add(theirs(about, "score", "1", "higher", [value], **named({"suite": mean[1], "tune": mean[2]})))


def _raw_run(program: _Program, name: str, tune: str, values: Mapping[str, str]) -> None:
    if missing := {"benchmark", "reported_time", "ratio", "valid"} - values.keys():
        raise FormatError(f"found no {min(missing)}; the file is incomplete")
    if values["valid"] in {"NR", ""}:
        return
    if values["valid"] != "S":
        raise FormatError(f"status {quoted(values['valid'], 10)}; the run is not valid")
    if values["benchmark"].replace(".", "_") != name:
        raise FormatError(f"benchmark: found '{quoted(values['benchmark'], 40)}', {name} is required")
    seconds = number(values["reported_time"], "reported_time", above_zero=True)
    quotient = number(values["ratio"], "ratio", above_zero=True) if values["ratio"] not in {"", "--"} else None
    conditions: dict[str, Scalar] = {"benchmark": values["benchmark"], "tune": tune}
    for count in ("copies", "threads", "ranks"):
        if values.get(count):
            conditions[count] = _count(values[count], count)
    if values.get("size", "") not in _REFERENCE:
        conditions["workload"] = values["size"]
    program.times.append(seconds)
    if quotient is not None:
        program.ratios.append(quotient)
    program.conditions = conditions


READERS: Final = [
    Reader("spec", "SPEC CPU, OMP and MPI, CSV", recognises, read, version=2),
    Reader("spec_raw", "SPEC CPU, OMP and MPI, raw file (.rsf)", recognises_raw, read_raw, version=2),
]
