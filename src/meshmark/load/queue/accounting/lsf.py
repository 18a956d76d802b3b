"""Reads LSF's `lsb.acct`: one record per line, whose fields are numbers and quoted texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from meshmark.load.queue.jobs import JobCollector

_FIELD: Final = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
# Positions of fields in a record JOB_FINISH.
_END, _JOB, _PROCESSORS, _SUBMIT, _START, _ASKED_HOSTS = 2, 3, 6, 7, 10, 22


def read_lsf(lines: Iterator[str], jobs: JobCollector) -> None:
    """Add the jobs of a file to `jobs`.

    Raises:
        ValueError: The file has another format.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = [text if quoted is None else quoted for quoted, text in _words(line)]
        if fields[0] != "JOB_FINISH":
            if not fields[0].isupper():
                if not jobs.jobs_seen:
                    raise ValueError(f"line {number}: found another format; allowed: records such as JOB_FINISH")
                jobs.leave_out("on a line that cannot be read")
            continue
        try:
            end_s, submit_s, start_s = (float(fields[i]) for i in (_END, _SUBMIT, _START))
            slots = _slots(fields)
        except (IndexError, ValueError):
            jobs.leave_out("on a line that cannot be read")
            continue
        jobs.add(fields[_JOB], submit_s or None, end_s - start_s if start_s > 0 else None, slots)


def _words(line: str) -> Iterator[tuple[str | None, str]]:
    """Yield the fields of a record: the content of a quoted text, or None and an unquoted word."""
    for match in _FIELD.finditer(line):
        yield (None if match[1] is None else match[1].replace('""', '"')), match[2] or ""


def _slots(fields: list[str]) -> int:
    """Return the number of slots on which a job ran: the hosts, one entry for each slot, or `4*host`."""
    begin = _ASKED_HOSTS + 1 + int(fields[_ASKED_HOSTS])  # position of the number of hosts on which the job ran
    count = int(fields[begin])
    hosts = fields[begin + 1 : begin + 1 + count]
    if len(hosts) < count:
        raise ValueError("the record ends too early")
    slots = sum(int(n) if star and n.isdigit() else 1 for n, star, _ in (host.partition("*") for host in hosts))
    return slots or int(fields[_PROCESSORS])
