"""Reads the Standard Workload Format, in which the Parallel Workloads Archive publishes logs of batch systems.

Source: Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", 1999, version 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from meshmark.load.queue.jobs import JobCollector

_FIELDS: Final = 18
_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _STATUS = 1, 3, 4, 7, 10  # positions of fields
_PARTS: Final = frozenset((2, 3, 4))  # statuses of a part of a job that was checkpointed; the job has a line of its own


def read_swf(lines: Iterator[str], jobs: JobCollector) -> None:
    """Add the jobs of a file to `jobs`.

    Raises:
        ValueError: The file has another format.
    """
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        try:
            fields = [float(word) for word in text.split()]
        except ValueError:
            fields = []
        if len(fields) != _FIELDS or not all(map(math.isfinite, fields)):
            if not jobs.jobs_seen:
                raise ValueError(f"line {number}: found another format; allowed: {_FIELDS} numbers")
            jobs.leave_out("on a line that cannot be read")
            continue
        if fields[_STATUS] in _PARTS:
            continue
        run_s, submit_s = fields[_RUN], fields[_SUBMIT]
        slots = next((int(n) for n in (fields[_ALLOCATED], fields[_REQUESTED]) if n > 0), None)
        jobs.add(f"{fields[0]:.0f}", submit_s if submit_s >= 0 else None, None if run_s == -1 else run_s, slots)
