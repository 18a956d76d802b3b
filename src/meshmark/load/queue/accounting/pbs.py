"""Reads accounting files of PBS and TORQUE: lines of `time;type;job;key=value key=value …`.

A job that ran has a record of type E. Records of other types are only counted for jobs that never ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from meshmark.load.queue.jobs import JobCollector

_LINE: Final = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(?:\.\d+)?;([A-Za-z]);([^;]*);(.*)")
_DURATION: Final = re.compile(r"(\d+):(\d+):(\d+)")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
_PPN: Final = re.compile(r"ppn=(\d+)")
_ARRAY: Final = re.compile(r"\d+\[\](\.|$)")  # the array as a whole, whose tasks have records of their own


def read_pbs(lines: Iterator[str], jobs: JobCollector) -> None:
    """Add the jobs of a file to `jobs`.

    Raises:
        ValueError: The file has another format.
    """
    ended: set[str] = set()
    others: dict[str, bool] = {}  # whether a job that has no record of its end has started, by job
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            if line.strip() and not (ended or others):
                raise ValueError(f"line {number}: found another format; allowed: MM/DD/YYYY hh:mm:ss;type;job;text")
            if line.strip():
                jobs.leave_out("on a line that cannot be read")
            continue
        kind, job, text = match.groups()
        if not job or _ARRAY.match(job):
            continue
        if kind != "E":
            others[job] = others.get(job, False) or kind == "S"
            continue
        ended.add(job)
        fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        submit_s = next((s for key in ("qtime", "ctime", "etime") if (s := _number(fields.get(key))) is not None), None)
        jobs.add(job, submit_s, _run_time(fields), _slots(fields))
    for job, has_started in others.items():
        if job not in ended:
            jobs.leave_out("without an end" if has_started else "without a start")


def _number(text: str | None) -> float | None:
    """Return a positive number; None if the text is no such number, for example `None`."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _run_time(fields: Mapping[str, str]) -> float | None:
    """Return the run time in s; None if it is unknown. Some versions of TORQUE write it as a number of seconds."""
    walltime = fields.get("resources_used.walltime", "")
    if match := _DURATION.fullmatch(walltime):
        hours, minutes, seconds = map(int, match.groups())
        return (60.0 * hours + minutes) * 60 + seconds
    if walltime.isdigit():
        return float(walltime)
    start, end = _number(fields.get("start")), _number(fields.get("end"))
    return end - start if start is not None and end is not None else None


def _slots(fields: Mapping[str, str]) -> int | None:
    """Return the number of CPUs of a job; None if it is unknown."""
    for key in ("total_execution_slots", "resources_used.ncpus", "Resource_List.ncpus"):
        if count := _number(fields.get(key)):
            return int(count)
    counts = [_slots_of_host(host) for host in fields.get("exec_host", "").split("+") if host]
    ppn, nodes = _PPN.search(fields.get("Resource_List.nodes", "")), _number(fields.get("Resource_List.nodect"))
    return max(sum(counts), int(nodes or 0) * int(ppn[1] if ppn else 1)) or None


def _slots_of_host(text: str) -> int:
    """Return the number of CPUs of an entry of `exec_host`: `host/3`, `host/0-3,8`, or `host/0*4`."""
    indices, _, count = text.partition("/")[2].partition("*")
    if count.isdigit():
        return int(count)
    ranges = [_RANGE.fullmatch(part) for part in indices.split(",")]
    return sum(1 + int(r[2] or r[1]) - int(r[1]) if r else 1 for r in ranges)
