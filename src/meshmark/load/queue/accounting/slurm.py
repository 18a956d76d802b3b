"""Reads what `sacct --parsable2` prints, with at least the fields JobID, Submit, Start, End and AllocCPUS.

Steps of jobs are skipped. The parts of a heterogeneous job (`12+0`) and the tasks of an array (`12_3`) are jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from meshmark.load.queue.jobs import JobCollector

_NEEDED: Final = ("JobID", "Submit", "Start", "End")
_CPUS: Final = ("AllocCPUS", "NCPUS", "ReqCPUS")
_JOB: Final = re.compile(r"\d+(_\d+|_\[[^\]]*\])?(\+\d+)?")
_ELAPSED: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
HINT: Final = "sacct --allusers --parsable2 --format=JobID,Submit,Start,End,ElapsedRaw,AllocCPUS,State"


def read_sacct(lines: Iterator[str], jobs: JobCollector) -> None:
    """Add the jobs of a file to `jobs`.

    Raises:
        ValueError: The file has another format.
    """
    header = next((line for line in lines if line.strip()), "").rstrip("|").split("|")
    missing = [name for name in _NEEDED if name not in header]
    if not any(name in header for name in _CPUS):
        missing.append(_CPUS[0])
    if missing:
        raise ValueError(f"found no field {', '.join(missing)} in the first line; allowed: the output of {HINT}")
    for line in lines:
        words = line.split("|")
        if len(words) < len(header):
            if line.strip():
                jobs.leave_out("on a line that cannot be read")
            continue
        fields = dict(zip(header, words, strict=False))
        if _JOB.fullmatch(fields["JobID"]):
            slots = next((int(fields[n]) for n in _CPUS if fields.get(n, "").isdigit() and int(fields[n]) > 0), None)
            jobs.add(fields["JobID"], _time(fields["Submit"]), _run_time(fields), slots)


def _time(text: str) -> float | None:
    """Return a time in s since 1970, or None if the job has not reached it: `Unknown` or `None`."""
    if text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _run_time(fields: Mapping[str, str]) -> float | None:
    """Return the run time in s; None if the job did not run or has not ended.

    The elapsed time is preferred, because Slurm does not count the time for which a job was suspended.
    """
    start, end = _time(fields["Start"]), _time(fields["End"])
    if start is None or end is None:
        return None
    if fields.get("ElapsedRaw", "").isdigit():
        return float(fields["ElapsedRaw"])
    if match := _ELAPSED.fullmatch(fields.get("Elapsed", "")):
        days, *numbers = match.groups()
        if days and not numbers[0]:  # a format without seconds: days-hours:minutes
            numbers = [*numbers[1:], "0"]
        hours, minutes, seconds = (int(n or 0) for n in numbers)
        return ((24.0 * int(days or 0) + hours) * 60 + minutes) * 60 + seconds
    return end - start
