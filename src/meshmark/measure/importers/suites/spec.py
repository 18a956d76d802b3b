"""Reader of results of SPEC's suites (CPU 2006 and 2017, OMP 2012, MPI 2007): CSV and raw result files.

The samples of a record are all runs of a program, not only the run that SPEC selected for the score. Runs that failed
or did not validate are left out. A number that SPEC marks as an estimate has the condition `estimated`, and the numbers
of a file that SPEC's tools marked as not valid have the condition `valid`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, count, has, matched, number, unexpected
from meshmark.measure.importers.documents import csv_cells, row_of
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.quantities import named
from meshmark.store.record import Scalar

_FULL: Final = "Full Results Table"
_SELECTED: Final = "Selected Results Table"
_TUNES: Final = ("base", "peak")
_COUNTS: Final = {"Copies": "copies", "Threads": "threads", "Ranks": "ranks", "Proc": "processors"}
_SCORE: Final = re.compile(r"(Est\. )?(SPEC\w+?)_?(base|peak)(\d{4})?")
_END: Final = re.compile(rf'"?(?:{_SELECTED}"?$|{_SCORE.pattern})')  # first line after a table
_HEADER: Final = re.compile(r"^Benchmark,\"(?:Est\. )?Base (?:# \w+|Ref\b[^\"]*|Run Time)\"", re.MULTILINE)
_RAW: Final = re.compile(r"^spec\.(?:cpu|omp|mpi)\w*\.results\.\w+\.(?:base|peak)\.\d{3}\.", re.MULTILINE)
_PROGRAM: Final = re.compile(r"\d{3}\.\w+")
_LINE: Final = re.compile(r"spec\.(\w+)\.results\.(\w+)\.(base|peak)\.(\d{3})\.(\w+):[ \t]*(.*)")
_REFERENCE: Final = {"", "ref", "refrate", "refspeed", "mref", "lref"}  # workloads that count for a score


@dataclass
class _SpecProgram:
    """The valid runs of one program with one tuning: times in s, and SPEC's ratios."""

    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    conditions: dict[str, Scalar] = field(default_factory=dict)

    def add(self, tune: str, run: Mapping[str, str], counts: Mapping[str, str]) -> None:
        """Add a run from its facts, with names as in the raw file, and its counts of copies, threads or ranks."""
        if missing := {"benchmark", "reported_time", "ratio", "valid"} - run.keys():
            raise FormatError(f"found no {min(missing)}; the file is incomplete")
        if run["valid"] in {"NR", ""}:  # not run
            return
        if run["valid"] != "S":
            status = matched(r"[A-Z]{1,3}", run["valid"], "a status such as S, NR, CE, RE or VE", "status")[0]
            raise FormatError(f"{quoted(run['benchmark'], 40)}: {tune}: status {status}; the run is not valid")
        benchmark = matched(_PROGRAM, run["benchmark"], "a program such as 505.mcf_r")[0]
        seconds = number(run["reported_time"], f"{tune}: reported_time", above_zero=True)
        has_ratio = run["ratio"] not in {"", "--"}
        ratios = [number(run["ratio"], f"{tune}: ratio", above_zero=True)] if has_ratio else []
        self.conditions = {"benchmark": benchmark, "tune": tune}
        for key, text in counts.items():
            if text:
                self.conditions[key] = count(text, f"{tune}: {key}")
        self.times.append(seconds)
        self.ratios += ratios

    def add_to(self, output: ToolOutput, common: Mapping[str, Scalar]) -> None:
        conditions = named({**self.conditions, **common})
        if self.times:
            output.add_tool_metric("elapsed", "s", self.times, **conditions)
        if self.ratios and len(self.ratios) == len(self.times):
            output.add_tool_metric("ratio", "1", self.ratios, "higher", **conditions)


# ------------------------------------------------------------------ CSV


def recognises(start: str) -> bool:
    """Return whether the start of a file is a result of a SPEC suite, as CSV or raw."""
    return _FULL in start and _HEADER.search(start) is not None


def read(output: ToolOutput) -> None:
    """Read times and ratios of each program, and the scores."""
    lines = [line for line in output.lines if line.text.strip()]
    texts = [line.text.strip().strip('"') for line in lines]
    title = next((text for text in texts[:10] if re.match(r"SPEC\b.* (?:Result|Summary)", text)), "")
    suite = quoted(re.sub(r"^SPEC(?:\(R\))?\s*|\s*(?:Result|Summary).*$", "", title), 60)
    common: dict[str, Scalar] = {"suite": suite} if suite else {}
    if "valid,0" in texts[:10]:
        common["valid"] = False
    if _FULL not in texts:
        raise FormatError(f'SPEC: found no "{_FULL}"')
    programs, end, is_estimate = _table(output, lines, texts.index(_FULL) + 1)
    if _SELECTED not in texts:
        output.leave_out(f'"{_SELECTED}"', "found none; the file is cut off")
    else:
        selected, end, _ = _table(ToolOutput("", output.machine, []), lines, texts.index(_SELECTED) + 1)
        for name, tune in sorted(selected.keys() ^ programs.keys()):
            output.leave_out(f"{quoted(name, 40)}: {tune}", "found in one of the tables, both are required")
    for (name, tune), program in programs.items():
        with output.item(f"{quoted(name, 40)}: {tune}"):
            program.add_to(output, {**common, "estimated": True if is_estimate else None})
    for line in lines[end:]:
        if (match := _SCORE.match(line.text.lstrip('"'))) is not None:
            with output.item(line.number):
                estimated = True if is_estimate or match[1] else None
                conditions = {**common, "suite": match[2] + (match[4] or ""), "tune": match[3], "estimated": estimated}
                _score(output, csv_cells(line.text)[1:], conditions)


def _table(
    output: ToolOutput, lines: Sequence[OutputLine], start: int
) -> tuple[dict[tuple[str, str], _SpecProgram], int, bool]:
    """Read one of the two tables.

    Returns:
        The valid runs by program and tuning, the index of the end of the table, and whether its numbers are estimates.
    """
    header = [name.removeprefix("Est. ") for name in csv_cells(lines[start].text)] if start < len(lines) else []
    if header[:1] != ["Benchmark"] or not _is_complete(header, "Base"):
        raise FormatError('SPEC: found no header \'Benchmark,"Base # Copies","Base Run Time",…\' of a table')
    ends = (index for index in range(start + 1, len(lines)) if _END.match(lines[index].text))
    end = next(ends, len(lines))
    programs: dict[tuple[str, str], _SpecProgram] = {}
    for line in lines[start + 1 : end]:
        with output.item(line.number):
            row = row_of(header, csv_cells(line.text))
            for tune in (tune for tune in _TUNES if _is_complete(header, tune.capitalize())):
                with output.item(line.number):
                    program = programs.setdefault((row["Benchmark"], tune), _SpecProgram())
                    program.add(tune, _facts(row, tune.capitalize()), _counts(row, tune.capitalize()))
    valid = {key: program for key, program in programs.items() if program.times}
    return valid, end, "Est. " in lines[start].text


def _is_complete(header: Sequence[str], tune: str) -> bool:
    """Return whether a table has columns for the time, the ratio and the status of a tuning."""
    ratios = {f"{tune} Rate", f"{tune} Ratio"}
    return {f"{tune} Run Time", f"{tune} Status"} <= {*header} and not ratios.isdisjoint(header)


def _facts(row: Mapping[str, str], tune: str) -> dict[str, str]:
    """Return the facts of the run in a row, with their names in the raw file."""
    return {
        "benchmark": row["Benchmark"],
        "reported_time": row[f"{tune} Run Time"],
        "ratio": row.get(f"{tune} Rate", row.get(f"{tune} Ratio", "")),
        "valid": row[f"{tune} Status"],
    }


def _counts(row: Mapping[str, str], tune: str) -> dict[str, str]:
    """Return the counts of a row, such as `Base # Copies`."""
    kinds = {column.removeprefix(f"{tune} # "): cell for column, cell in row.items() if column.startswith(f"{tune} # ")}
    return {_COUNTS.get(kind, kind.lower()): cell for kind, cell in kinds.items()}


def _score(output: ToolOutput, cells: Sequence[str], conditions: dict[str, Scalar]) -> None:
    """Add a score that follows the second table, such as `SPECrate2017_int_base,26.9,,26.9`."""
    values = [cell for cell in cells if cell]
    if not values or values[0] in {"Not Run", "NR", "--"}:
        return
    value = number(values[0], "score", above_zero=True)
    if len({*values}) > 1:
        raise FormatError(f"score: found {quoted(' and '.join(values), 60)}, one is required")
    output.add_tool_metric("score", "1", value, "higher", **named(conditions))


# ------------------------------------------------------------------ raw result file


def read_raw(output: ToolOutput) -> None:
    """Read times and ratios of each program, and the means that the file states."""
    runs: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    means: list[tuple[OutputLine, re.Match[str]]] = []
    for line in output.lines:
        if (match := _LINE.fullmatch(line.text)) is not None and not output.is_cut(line):
            runs[match[2], match[3]][match[4]][match[5]] = match[6].strip()
        elif ".results." in line.text and line.text.startswith("spec."):
            output.leave_out(line.number, f"found '{quoted(line.text, 60)}', spec.….results.….KEY: VALUE is required")
        elif (mean := re.fullmatch(r"spec\.(\w+)\.(base|peak)mean:[ \t]*(\S+)", line.text)) is not None:
            means.append((line, mean))
    count = max(map(len, runs.values()), default=0)
    for (name, tune), iterations in runs.items():
        where = f"{quoted(name, 40)}: {tune}"
        if len(iterations) < count:
            output.leave_out(where, f"found {len(iterations)} of {count} runs of a program")
        program = _SpecProgram()
        sizes: dict[str, Scalar] = {}
        for iteration, run in iterations.items():
            with output.item(f"{where}: {iteration}"):
                if run.get("benchmark", name).replace(".", "_") != name:
                    raise unexpected(run["benchmark"], name, "benchmark")
                program.add(tune, run, {key: run.get(key, "") for key in ("copies", "threads", "ranks")})
                sizes = {"workload": run["size"]} if run.get("size", "") not in _REFERENCE else {}
        with output.item(where):
            program.add_to(output, sizes)
    for line, mean in means:
        with output.item(line.number):
            _score(output, [mean[3]] if mean[3] != "0" else [], {"suite": mean[1], "tune": mean[2]})


READERS: Final = [
    FormatReader("spec", "SPEC CPU, OMP and MPI, CSV", recognises, read, version=2),
    FormatReader("spec_raw", "SPEC CPU, OMP and MPI, raw file (.rsf)", has(_RAW), read_raw, version=2, tool="spec"),
]
