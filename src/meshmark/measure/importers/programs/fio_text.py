"""Reader of the text of fio (`--output-format=normal`), fio 2 and 3.

The text states fewer options than the JSON, and rounded rates; its records are like the records of `fio`. A run begins
with the lines that state the options of its jobs. If these lines are missing, as in an excerpt, only the number of
processes is known. If fio prints reports in intervals, the last report of each process is read.
"""

from __future__ import annotations

import re
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, ctime, matched, number
from meshmark.measure.importers.output import OutputLine, ToolOutput
from meshmark.measure.importers.programs.fio import read_job
from meshmark.measure.importers.quantities import unit_of

_OPTIONS: Final = re.compile(
    r"(?P<name>\S.{0,200}?): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w+), bs=(?P<sizes>.+), ioengine=(?P<engine>[\w-]+),"
    r" iodepth=(?P<depth>\d{1,9})"
)
_VERSION: Final = re.compile(r"fio-(\d[\w.+-]{0,58})")
_JOB: Final = re.compile(
    r"(?P<name>\S.{0,200}?): \(groupid=(?P<group>\d{1,9}), jobs=(?P<jobs>\d{1,9})\): err=\s*(?P<error>\d{1,9})\b[^\n]*?"
    r"pid=(?P<pid>\d{1,18})(?:: (?P<date>.*))?"
)
_RATE: Final = re.compile(
    r"\s+(?P<direction>read|write|trim|mixed)\s*: (?:io=\S+ )?(?:bw=(?P<old_rate>[\d.]+)(?P<old_unit>[KMGT]?)B/s, )?"
    r"(?:IOPS|iops)=\s*(?P<iops>[\d.]+)(?P<thousands>[kMG]?),? "
    r"(?:BW=(?P<rate>[\d.]+)(?P<unit>[KMGT]?i?B/s)\b.*?/(?P<runtime>\d{1,15})msec\).*|runtime=\s*(?P<old_runtime>\d{1,15})msec)"
)
_LATENCY: Final = re.compile(r"\s+(?P<name>[sc]?lat) \((?P<unit>[num]?sec)\)\s*:.*\bavg=\s*(?P<mean>[\d.]+),.*")
_PERCENTILES: Final = re.compile(r"\s+(?P<name>[sc]?lat) percentiles \((?P<unit>[num]?sec)\):")
_PERCENTILE: Final = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)th=\[\s*(\d{1,18})\]")
_DEPTHS: Final = re.compile(r"\s+IO depths\s+: (.*)")
_DIRECTIONS: Final = {"read", "write", "trim", "mixed"}


def read(output: ToolOutput) -> None:
    """Read the rates and latencies of each job of each run."""
    options: dict[tuple[str, str], dict[str, str]] = {}
    jobs: dict[tuple[str, str, str], dict[str, Any]] = {}
    current: dict[str, Any] | None = None
    for line in output.lines:
        if options_line := _OPTIONS.match(line.text):
            if jobs:
                _add(output, options, jobs)
                options, jobs, current = {}, {}, None
            options[options_line["name"], options_line["group"]] = _stated(options_line)
        elif (version := _VERSION.fullmatch(line.text)) and not jobs:
            output.set_source(version[1])
        elif job := _JOB.fullmatch(line.text):
            current = {"line": line.number, "count": int(job["jobs"]), "error": int(job["error"]), "part": {}}
            current["start"] = ctime(job["date"] or "")
            jobs[job["name"], job["group"], job["pid"]] = current
        elif current is not None and line.text.strip():
            _line(output, current, line)
    _add(output, options, jobs)


def _stated(line: re.Match[str]) -> dict[str, str]:
    """Return the options that the first line of a job states, with their names in the JSON."""
    options = {"rw": line["rw"], "ioengine": line["engine"], "iodepth": line["depth"]}
    ranges = re.findall(r"([\d.]+[KMGT]?i?B?)-([\d.]+[KMGT]?i?B?)", line["sizes"])
    if not ranges or any(low != high for low, high in ranges):
        return {**options, "bsrange": line["sizes"]}
    return {**options, "bs": ",".join(_bytes(low) for low, _ in ranges)}


def _bytes(text: str) -> str:
    """Return a size in bytes, as text; fio 2 writes K for KiB."""
    size = matched(r"([\d.]+)([KMGT]?)(?:i?B)?", text, "a size", "bs")
    return str(round(number(size[1], "bs") * 1024 ** " KMGT".index(size[2] or " ")))


def _line(output: ToolOutput, job: dict[str, Any], line: OutputLine) -> None:
    with output.item(line.number):
        if rate := _RATE.fullmatch(line.text):
            if output.is_cut(line):
                raise FormatError("the text ends within the line")
            job["part"] = job[rate["direction"]] = _rates(rate)
        elif re.match(r"\s+(?:fsync|fdatasync|sync_file_range)\b.*:$", line.text):
            job["part"] = {}
        elif latency := _LATENCY.fullmatch(line.text):
            second = unit_of(latency["unit"]).factor
            mean = 1e9 * second * number(latency["mean"], latency["name"])
            job["part"].setdefault(f"{latency['name']}_ns", {}).update(mean=mean, N=1)
        elif percentiles := _PERCENTILES.fullmatch(line.text):
            values = job["part"].setdefault(f"{percentiles['name']}_ns", {}).setdefault("percentile", {})
            job["percentiles"] = (values, 1e9 * unit_of(percentiles["unit"]).factor)
        elif line.text.lstrip().startswith("|") and "percentiles" in job:
            values, factor = job["percentiles"]
            values |= {name: factor * float(text) for name, text in _PERCENTILE.findall(line.text)}
        elif depths := _DEPTHS.fullmatch(line.text):
            levels = re.findall(r"((?:>=)?\d{1,6})=([\d.]{1,9})%", depths[1])
            job["iodepth_level"] = {level: number(share, "IO depths") for level, share in levels}
        elif re.match(r"\s+(?:read|write|trim|mixed)\s*:", line.text):
            raise FormatError(f"found '{quoted(line.text.strip(), 60)}', IOPS, a rate and a run time are required")


def _rates(line: re.Match[str]) -> dict[str, Any]:
    thousands = 1000.0 ** " kMG".index(line["thousands"] or " ")
    if line["rate"]:
        rate = number(line["rate"], "BW") * unit_of(line["unit"]).factor
    else:
        rate = number(line["old_rate"] or "", "bw") * 1024.0 ** " KMGT".index(line["old_unit"] or " ")
    operations = number(line["iops"], "IOPS") * thousands
    return {"bw_bytes": rate, "iops": operations, "runtime": int(line["runtime"] or line["old_runtime"])}


def _add(
    output: ToolOutput, options: dict[tuple[str, str], dict[str, str]], jobs: dict[tuple[str, str, str], dict[str, Any]]
) -> None:
    """Add the records of a run; processes of one job that fio reports one by one are one job."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for (name, group, pid), job in jobs.items():
        groups.setdefault((name, group) if (name, group) in options else (name, group, pid), []).append(job)
    for (name, group, *_), members in groups.items():
        place = f"line {members[0]['line']}"
        output.set_source(output.about.version, start=members[0]["start"])
        with output.item(f"{place} '{quoted(name, 40)}'"):
            if len(members) > 1 and any(job["count"] > 1 for job in members):
                raise FormatError("found several groups of processes with one name and one group")
            for job in members:
                if "iodepth_level" not in job and not job["error"]:
                    output.leave_out(
                        job["line"], "the report of the job ends before 'IO depths'; more of it is missing"
                    )
            processes = sum(job["count"] for job in members)
            job_options = options.get((name, group))
            fields: dict[str, Any] = {"job options": {**job_options, "numjobs": str(processes)}} if job_options else {}
            fields_of_json = {"error", "iodepth_level", *_DIRECTIONS}
            items = [(place, {**{k: v for k, v in job.items() if k in fields_of_json}, **fields}) for job in members]
            read_job(output, name, items, {}, processes=None if job_options else processes)


def recognises(start: str) -> bool:
    """Return whether a text contains the line of a job, and does not contain JSON of the same run as well."""
    return re.search(rf"^{_JOB.pattern}", start, re.MULTILINE) is not None and '"fio version"' not in start


READERS: Final = [FormatReader("fio_text", "fio, text", recognises, read, tool="fio")]
