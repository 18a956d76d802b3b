"""fio's JSON (`--output-format=json`), fio 3.

Processes of a job (numjobs) that fio reports one by one are one record: their bandwidths are summed, as fio's own group
lines do, and each process's mean latency is a sample. fio states means, so the condition `statistic` says `mean`.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, field, ours, size, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar, is_unicode

_NUMBER: Final = (int, float)
_PATTERNS: Final = {
    "read": "read",
    "write": "write",
    "rw": "rw",
    "readwrite": "rw",
    "randread": "randread",
    "randwrite": "randwrite",
    "randrw": "randrw",
}
_SIZE: Final = re.compile(r"\d+\s*[kmgt]?i?b?", re.IGNORECASE)


def recognises(start: str) -> bool:
    return re.search(r'"fio version"\s*:', start) is not None


def read(text: str, machine: str) -> list[Record]:
    """Bandwidth and mean latency of each job and direction, the rate of operations, and percentiles of latency."""
    try:
        found = json.loads(text[text.index("{") :], parse_constant=str)
    except (ValueError, RecursionError):
        raise FormatError("fio: found no complete JSON object; the output is damaged or incomplete") from None
    jobs = field(found, "jobs", list, "fio")
    moment = field(found, "timestamp", int, "fio")
    try:
        start = datetime.fromtimestamp(moment, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise FormatError(f"fio: timestamp: found {str(moment)[:40]}, seconds since 1970 are required") from None
    version = field(found, "fio version", str, "fio")
    if re.fullmatch(r"[\w.+-]{1,60}", version) is None:
        raise FormatError(f"fio: fio version: found '{quoted(version, 40)}', a version is required")
    about = About(machine, "fio", version.removeprefix("fio-"), start=start)
    common = found.get("global options", {})
    groups: dict[tuple[str, int], list[tuple[str, Any]]] = {}
    for at, job in enumerate(jobs):
        where = f"fio: jobs[{at}]"
        name, group = field(job, "jobname", str, where), field(job, "groupid", int, where)
        if not is_unicode(name):
            raise FormatError(f"{where}: jobname: found a name that is no text")
        if (error := field(job, "error", int, where)) != 0:
            raise FormatError(f"{where}: error: found {str(error)[:20]}; jobs that failed are not imported")
        groups.setdefault((name, group), []).append((where, job))
    made = [r for (name, _), members in groups.items() for r in _job(about, name, members, common)]
    if not made:
        raise FormatError("fio: jobs: found no operation, reads or writes are required")
    return made


def _job(about: About, name: str, members: list[tuple[str, Any]], common: Any) -> list[Record]:
    where, first = members[0]
    options = {**_options(common, "fio: global options"), **_options(first.get("job options", {}), where)}
    jobs = _count(options, "numjobs", where)
    if len(members) not in {1, jobs}:  # one of several: --group_reporting
        raise FormatError(f"{where}: found {len(members)} of {jobs} processes of the job; the output is incomplete")
    pattern = _PATTERNS.get(options.get("rw", options.get("readwrite", "read")).partition(":")[0])
    if pattern is None:
        return []  # trim
    stated: dict[str, Scalar] = {
        "target": options.get("filename") or options.get("directory"),
        "queue_depth": _count(options, "iodepth", where),
        "jobs": jobs,
        "size_bytes": _size(options.get("size", ""), f"{where}: size"),
        "engine": options.get("ioengine"),
        "job": name,
        "statistic": "mean",
    }
    made: list[Record] = []
    for direction in ("read", "write"):
        parts = [(f"{w}: {direction}", field(j, direction, dict, w)) for w, j in members]
        if sum(_value(part, "total_ios", w) for w, part in parts) == 0:
            continue
        conditions = {
            **stated,
            "direction": f"rand{direction}" if pattern.startswith("rand") else direction,
            "mixed": pattern if pattern.endswith("rw") else None,
            "block_bytes": _block(options, direction, where),
        }
        made += _direction(about, parts, conditions)
    return made


def _direction(about: About, parts: list[tuple[str, Any]], conditions: dict[str, Scalar]) -> list[Record]:
    rate = sum(_value(part, "bw_bytes", w) for w, part in parts)
    operations = sum(_value(part, "iops", w) for w, part in parts)
    means = [1e-9 * _value(field(part, "lat_ns", dict, w), "mean", f"{w}: lat_ns") for w, part in parts]
    made = [
        ours(about, "io", "bandwidth_net", [rate], **conditions),
        ours(about, "io", "operation_latency", means, **conditions),
        theirs(about, "operation_rate", "op/s", "higher", [operations], **conditions),
    ]
    if len(parts) == 1:
        where, part = parts[0]
        completion = field(part, "clat_ns", dict, where)
        percentiles = field(completion, "percentile", dict, f"{where}: clat_ns") if "percentile" in completion else {}
        for percentile in percentiles:
            if re.fullmatch(r"\d{1,3}\.\d{1,9}", percentile) is None:
                raise FormatError(f"{where}: clat_ns: percentile: found '{quoted(percentile, 20)}', one is required")
            nanoseconds = _value(percentiles, percentile, f"{where}: clat_ns: percentile")
            stated = {**conditions, "statistic": "percentile", "percentile": float(percentile)}
            made.append(theirs(about, "completion_latency", "s", "lower", [1e-9 * nanoseconds], **stated))
    return made


def _options(values: Any, where: str) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(v, str) and is_unicode(v) for v in values.values()):
        raise FormatError(f"{where}: found options that are none, an object of strings is required")
    return values


def _value(values: Any, key: str, where: str) -> float:
    value = float(field(values, key, _NUMBER, where)) if not _huge(values, key) else float("inf")
    if not 0 <= value < float("inf"):
        raise FormatError(f"{where}: {key[:40]}: found {value}, a finite number of at least 0 is required")
    return value


def _huge(values: Any, key: str) -> bool:
    found = values.get(key) if isinstance(values, dict) else None
    return isinstance(found, int) and abs(found) > 1 << 100


def _count(options: dict[str, str], key: str, where: str) -> int:
    """An option that is a count; fio's default of all of them is 1."""
    text = options.get(key, "1")
    if re.fullmatch(r"[1-9]\d{0,8}", text) is None:
        raise FormatError(f"{where}: {key}: found '{quoted(text, 40)}', a count is required")
    return int(text)


def _block(options: dict[str, str], direction: str, where: str) -> int | None:
    """The size of a request; None if it varies. `bs=4k,8k` is of reads and of writes."""
    if any(k in options for k in ("bsrange", "blocksize_range", "bssplit")):
        return None
    texts = options.get("bs", options.get("blocksize", "4k")).split(",")
    return _size(texts[min(len(texts) - 1, int(direction == "write"))], f"{where}: bs")


def _size(text: str, where: str) -> int | None:
    """A size in bytes; None if it is a share or not stated."""
    return size(text, where) if _SIZE.fullmatch(text) else None


READERS: Final = [Reader("fio", "fio, JSON", recognises, whole(read))]
