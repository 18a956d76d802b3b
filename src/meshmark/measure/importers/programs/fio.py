"""Reader of fio's JSON (`--output-format=json`), fio 2 and 3, from one machine or from a client with several servers.

Processes of a job (numjobs) that fio reports one by one become one record: their bandwidths are summed, as in fio's own
group lines, and the mean latency of each process is a sample. fio states means, so the condition `statistic` is `mean`.

`queue_depth` is the depth that was used: with a synchronous engine, it is 1 for any iodepth. Latencies that fio did not
measure (gtod_reduce, disable_lat), which it prints as 0 of 0 samples, have no record. Every option that does not
concern the report becomes a condition, because results may differ in it; repeated options are joined by `:`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, FormatReader, field, has, matched, place_of, unexpected
from meshmark.measure.importers.documents import json_objects
from meshmark.measure.importers.output import ToolOutput
from meshmark.measure.importers.quantities import measured, named, optional, scalar, string
from meshmark.store.record import Scalar, is_unicode

_PATTERNS: Final = {
    **{name: name for name in ("read", "write", "rw", "randread", "randwrite", "randrw")},
    **{name: name for name in ("trim", "randtrim", "trimwrite", "randtrimwrite")},
    "readwrite": "rw",
}
_DIRECTIONS: Final = ("read", "write", "trim", "mixed")
_SIZE: Final = re.compile(r"(\d{1,15})([kmgtp]?)(i?)b?", re.IGNORECASE)
_MIN_RUNTIME_MS: Final = 1000  # the run time of a shorter job does not show how many processes it had

# Engines with one request at a time (FIO_SYNCIO); psync is the default except on Windows.
_SYNCHRONOUS: Final = (
    "sync psync vsync pvsync pvsync2 mmap splice net netsplice cpuio falloc e4defrag ftruncate http libhdfs gfapi mtd"
    " dev-dax libpmem pmemblk ime_psync ime_psyncv libzbc libiscsi libcufile libhipfile exec page_fault filecreate"
    " filestat filedelete dircreate dirstat dirdelete"
)
# Options that have conditions of their own, or that concern the report or the order of the jobs.
_STATED: Final = (
    "name description rw readwrite bs blocksize size filename directory ioengine iodepth numjobs kb_base"
    " group_reporting new_group stonewall wait_for wait_for_previous unified_rw_reporting status_interval"
    " write_bw_log write_lat_log write_iops_log write_hist_log log_avg_msec log_hist_msec log_offset log_max_value"
    " per_job_logs lat_percentiles clat_percentiles slat_percentiles percentile_list significant_figures"
    " randrepeat allrandrepeat randseed exitall exitall_on_error error_dump disk_util unlink uid gid output"
    " output-format output_format eta minimal append-terse"
)


@dataclass(frozen=True, slots=True)
class _FioDirection:
    """One direction of a process or of a group of processes. `where` is its place; "" if messages need not name it."""

    where: str
    values: dict[str, Any]

    def number(self, key: str) -> float:
        return _number(self.values, key, self.where)

    @property
    def rate(self) -> float:
        """Return the rate in B/s; fio 2 states only KiB/s."""
        return self.number("bw_bytes") if "bw_bytes" in self.values else 1024 * self.number("bw")

    def latency(self, name: str) -> tuple[dict[str, Any], float]:
        """Return an object of latencies, and seconds per unit of its values; an empty object if they were not measured.

        fio 3 states `lat_ns` in nanoseconds, fio 2 states `lat` in microseconds without the number of samples.
        """
        key, second = (f"{name}_ns", 1e-9) if f"{name}_ns" in self.values else (name, 1e-6)
        if self.values.get(key) is None:
            return {}, second
        latency = field(self.values, key, dict, self.where)
        is_measured = _number(latency, "N" if "N" in latency else "mean", place_of(self.where, key)) > 0
        return (latency if is_measured else {}), second

    def mean(self, name: str) -> float | None:
        """Return the mean latency in seconds; None if it was not measured."""
        latency, second = self.latency(name)
        return measured(second * _number(latency, "mean", place_of(self.where, name)), "s", "mean") if latency else None

    def percentiles(self, name: str) -> dict[float, float]:
        """Return latencies in seconds by percentile; empty if they were not measured."""
        latency, second = self.latency(name)
        where = f"{place_of(self.where, name)}: percentile"
        values = field({"percentile": {}, **latency}, "percentile", dict, place_of(self.where, name))
        for percentile in values:
            if float(matched(r"\d{1,3}(?:\.\d{1,9})?", percentile, "a percentile", where)[0]) > 100:
                raise unexpected(percentile, "a percentile", where)
        numbers = {float(percentile): second * _number(values, percentile, where) for percentile in values}
        return {percentile: time for percentile, time in numbers.items() if time > 0}  # fio 2 pads its list with 0.00


def read(output: ToolOutput) -> None:
    """Read bandwidth, rate of operations, mean latency and percentiles of latency of each job and direction."""
    documents = list(json_objects(output, "fio version", decoder=_DECODER))
    for (place, document), (_, following) in zip(documents, [*documents[1:], ("", {})], strict=True):
        if _is_interim(document, following):
            output.leave_out(place.removesuffix(": "), "an interim report (status-interval) of the run that follows")
        else:
            _run(output, document, place)


def _joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys may repeat: fio uses all files of `filename`, and the last value of other keys."""
    values = dict(pairs)
    files = [value for key, value in pairs if key == "filename"]
    if len(files) > 1 and all(isinstance(file, str) for file in files):
        values["filename"] = ":".join(files)
    return values


def _is_interim(document: dict[str, Any], following: dict[str, Any]) -> bool:
    """Return whether a report is an interim report of the following one: same jobs with the same start."""

    def identity(report: dict[str, Any]) -> tuple[Any, float] | None:
        jobs = report.get("jobs")
        if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
            return None
        moment, elapsed = report.get("timestamp"), jobs[0].get("elapsed")
        if not isinstance(moment, int) or not isinstance(elapsed, int) or elapsed < 1:
            return None
        return [(job.get("jobname"), job.get("groupid"), job.get("job options")) for job in jobs], moment - elapsed

    first, second = identity(document), identity(following)
    return first is not None and second is not None and first[0] == second[0] and abs(first[1] - second[1]) <= 2


def _run(output: ToolOutput, document: dict[str, Any], place: str) -> None:
    key = "client_stats" if "client_stats" in document and "jobs" not in document else "jobs"
    jobs = field(document, key, list, f"{place}fio")
    version = optional(document, "fio version")
    version = version.removeprefix("fio-") if re.fullmatch(r"[\w.+-]{1,60}", version) else ""
    output.set_source(version, start=_start(document.get("timestamp")))
    groups: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
    for index, job in enumerate(jobs):
        where = f"{place}{key}[{index}]"
        with output.item(where):
            name, group, host = string(job, "jobname"), field(job, "groupid", int), optional(job, "hostname")
            if key == "client_stats" and name == "All clients" and len(jobs) > 1:
                raise FormatError("'All clients' is the sum of the clients, whose jobs are read")
            identity = (host, name, str(group), repr(sorted(_options(job.get("job options", {})).items())))
            groups.setdefault(identity, []).append((where, job))
    for (host, name, *_), members in groups.items():
        with output.item(f"{members[0][0]} '{quoted(name, 40)}'"):
            read_job(output, name, members, _common(document.get("global options", {}), host), host)


def _start(moment: Any) -> str:
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat()
    except (ValueError, OverflowError, OSError, TypeError):
        return ""


def _common(options: Any, host: str) -> dict[str, str]:
    """Return the global options; in the output of a client, the global options of the server `host`."""
    if isinstance(options, list):
        options = next(
            (
                server_options
                for server_options in options
                if isinstance(server_options, dict) and server_options.get("hostname") == host
            ),
            {},
        )
        options = {key: value for key, value in options.items() if key not in {"hostname", "port"}}
    return _options(options)


def read_job(
    output: ToolOutput,
    name: str,
    members: list[tuple[str, Any]],
    common: dict[str, str],
    host: str = "",
    processes: int | None = None,
) -> None:
    """Read a job.

    Args:
        output: The output, to which the records are added.
        name: Name of the job.
        members: Place and object of each process of the job.
        common: Options of all jobs.
        host: Server that ran the job, if there are several.
        processes: Number of processes, if the output states it but not the options.
    """
    for where, job in members:
        if (error := field(job, "error", int, "" if len(members) == 1 else where)) != 0:
            raise FormatError(f"error: found {quoted(error, 20)}, 0 is required; the job failed")
    place, first = members[0]
    options = {**common, **_options(first.get("job options", {}))}
    conditions: dict[str, Scalar] = {"job": name, "client": host or None, "statistic": "mean", "options": "not stated"}
    conditions["jobs"] = len(members) if len(members) > 1 else processes
    pattern = ""
    if "job options" in first:
        conditions = {**conditions, **_stated(options, members), "options": None}
        pattern = _pattern(options)
    other_options = {key: text for key, text in options.items() if key not in _STATED.split() and key not in conditions}
    conditions |= named({key: scalar(text) if text else 1 for key, text in other_options.items()})
    items = len(output.records) + output.left_out_count
    for direction in _DIRECTIONS:
        parts = _parts(members, direction)
        with output.item(f"{place}: {direction}"):
            if parts := [p for p in parts if p.number("total_ios" if "total_ios" in p.values else "iops") > 0]:
                _direction(output, parts, {**conditions, **_kind(pattern, direction, options)}, f"{place}: {direction}")
    with output.item(f"{place}: sync"):  # latencies of fsync and fdatasync
        if parts := [part for part in _parts(members, "sync") if part.number("total_ios") > 0]:
            sync_conditions = {**conditions, "direction": "sync"}
            if means := _means(parts, "lat"):
                output.add_tool_metric("sync_latency", "s", means, **sync_conditions)
            _percentiles(output, parts, "lat", "sync_latency", sync_conditions)
    if len(output.records) + output.left_out_count == items:
        raise FormatError("found no operation, reads or writes are required")


def _parts(members: list[tuple[str, Any]], direction: str) -> list[_FioDirection]:
    """Return one direction of each process. Messages name the process only if there are several processes."""
    return [
        _FioDirection("" if len(members) == 1 else where, field(job, direction, dict))
        for where, job in members
        if direction in job
    ]


def _direction(output: ToolOutput, parts: list[_FioDirection], conditions: dict[str, Scalar], place: str) -> None:
    rates, operations = [part.rate for part in parts], [part.number("iops") for part in parts]
    if not all(rates) or not all(operations):
        raise FormatError("found a rate of 0, a rate above 0 is required")
    if str(conditions["direction"]).endswith("trim"):  # discarded blocks are not transferred
        output.add_tool_metric("discard_rate", "B/s", sum(rates), **conditions)
    else:
        output.add_meshmark_metric("io.bandwidth_net", sum(rates), **conditions)
    output.add_tool_metric("operation_rate", "op/s", sum(operations), **conditions)
    with output.item(place):
        if means := _means(parts, "lat"):
            output.add_meshmark_metric("io.operation_latency", means, **conditions)
        elif means := _means(parts, "clat"):  # disable_lat
            output.add_tool_metric("completion_latency", "s", means, **conditions)
    for name, metric in (("clat", "completion_latency"), ("lat", "total_latency"), ("slat", "submission_latency")):
        with output.item(place):
            _percentiles(output, parts, name, metric, conditions)


def _means(parts: list[_FioDirection], name: str) -> list[float]:
    """Return the mean latency of each process that measured it."""
    return [mean for part in parts if (mean := part.mean(name)) is not None]


def _percentiles(
    output: ToolOutput, parts: list[_FioDirection], name: str, metric: str, conditions: dict[str, Scalar]
) -> None:
    """Add percentiles of latency, with one sample per process."""
    series: dict[float, list[float]] = {}
    for part in parts:
        for percentile, time in part.percentiles(name).items():
            series.setdefault(percentile, []).append(time)
    for percentile, times in series.items():
        output.add_tool_metric(
            metric, "s", times, **{**conditions, "statistic": "percentile", "percentile": percentile}
        )


# ------------------------------------------------------------------ options


def _pattern(options: dict[str, str]) -> str:
    text = options.get("rw", options.get("readwrite", "read"))
    if (pattern := _PATTERNS.get(text.partition(":")[0].lower())) is None:
        raise unexpected(text, "a pattern such as randread", "rw")
    return pattern


def _stated(options: dict[str, str], members: list[tuple[str, Any]]) -> dict[str, Scalar]:
    """Return the conditions that the options of a job state; absent options have fio's defaults."""
    jobs: int | None = _count(options, "numjobs")
    if len(members) not in {1, jobs}:  # one member for several processes: --group_reporting
        raise FormatError(f"found {len(members)} of {jobs} processes of the job; the output is incomplete")
    if len(members) == 1:
        jobs = _processes(members[0][1], jobs)
    depth = _depth(options, [job for _, job in members])
    pattern = options.get("rw", options.get("readwrite", ""))
    size = _size(options.get("size", ""), options)
    return {
        "target": _target(options),
        "queue_depth": depth,
        "requested_queue_depth": _count(options, "iodepth") if depth is None else None,
        "jobs": jobs,
        "size_bytes": size,
        "size": options.get("size") if size is None else None,
        "engine": options.get("ioengine"),
        "pattern": pattern if ":" in pattern else None,
    }


def _kind(pattern: str, direction: str, options: dict[str, str]) -> dict[str, Scalar]:
    """Return the conditions of one direction. If the pattern has only one direction, `mixed` is that direction.

    Args:
        pattern: Pattern of the job; "" if the output does not state the options of its jobs, as before fio 2.8.
        direction: `read`, `write`, `trim` or `mixed`.
        options: Options of the job.
    """
    if not pattern:
        return {"direction": direction}
    if direction == "mixed":
        direction = pattern
    elif pattern.startswith("rand"):
        direction = f"rand{direction}"
    mixed = pattern if pattern.endswith("rw") or "trimwrite" in pattern else None
    block = _block(options, direction)
    sizes = options.get("bs", options.get("blocksize")) if block is None else None  # such as 4k-64k
    return {"direction": direction, "mixed": mixed, "block_bytes": block, "block_sizes": sizes}


def _options(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(v, str) and is_unicode(v) for v in values.values()):
        raise FormatError("options: found values that are not text, an object of strings is required")
    return values


def _target(options: dict[str, str]) -> str | None:
    """Return the files or the folder of a job; fio joins a folder and a relative file name."""
    files, folder = options.get("filename"), options.get("directory")
    if not files or not folder or files.startswith("/"):
        return files or folder
    return f"{folder.rstrip('/')}/{files}"


def _count(options: dict[str, str], key: str) -> int:
    """Return an option that is a count; fio's default is always 1."""
    return int(matched(r"[1-9]\d{0,8}", options.get(key, "1"), "a count", key)[0])


def _processes(job: dict[str, Any], stated: int | None) -> int | None:
    """Return the number of processes of an entry; None if it is not known.

    With --group_reporting, fio merges all jobs of a group into one entry with the options of one job. The run time of
    the entry is the sum over the processes, so there were more processes if `stated` processes cannot have this sum.
    """
    parts = [job[name] for name in _DIRECTIONS if isinstance(job.get(name), dict)]
    runtimes = [part["runtime"] for part in parts if isinstance(part.get("runtime"), int | float)]
    total = job.get("job_runtime")
    if stated is None or not isinstance(total, int) or sum(runtimes) < _MIN_RUNTIME_MS:
        return stated
    if total <= 1.3 * stated * sum(runtimes):
        return stated
    processes = total / max(runtimes)
    return round(processes) if abs(processes - round(processes)) < 0.05 * processes else None


def _depth(options: dict[str, str], jobs: list[Any]) -> int | None:
    """Return the number of requests in flight: iodepth, or less if the engine or the reported shares show it.

    None means less than iodepth, but the number is not known.
    """
    requested_depth = _count(options, "iodepth")
    engine = options.get("ioengine", "")
    if requested_depth == 1 or engine in _SYNCHRONOUS.split():
        return 1
    reached = 0  # smallest depth of the highest class that has a share; classes are 1, 2 to 3, 4 to 7, … 64 and more
    for job in jobs:
        levels = job.get("iodepth_level") if isinstance(job, dict) else None
        for level, share in levels.items() if isinstance(levels, dict) else ():
            if isinstance(share, int | float) and share > 0 and re.fullmatch(r"(?:>=)?\d{1,6}", level):
                reached = max(reached, int(level.removeprefix(">=")))
    if not engine and reached <= 1:
        return 1  # psync
    if 0 < reached < 64 and 2 * reached - 1 < requested_depth:
        return 1 if reached == 1 else None
    return requested_depth


def _block(options: dict[str, str], direction: str) -> int | None:
    """Return the size of a request in bytes; None if it varies. `bs=4k,8k` states the sizes of reads and of writes."""
    if any(k in options for k in ("bsrange", "blocksize_range", "bssplit")):
        return None
    texts = options.get("bs", options.get("blocksize", "4k")).split(",")
    if len(set(texts)) > 1 and direction.endswith("rw"):
        return None
    index = 2 if direction.endswith("trim") else int(direction.endswith("write"))
    return _size(texts[min(len(texts) - 1, index)], options)


def _size(text: str, options: dict[str, str]) -> int | None:
    """Return a size in bytes; None if the size is a share or not stated.

    fio's prefixes are k = 1024 and ki = 1000 unless kb_base=1000 swaps them.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    binary = (options.get("kb_base", "1024") == "1024") != bool(match[3])
    return int(match[1]) * math.prod([1024 if binary else 1000] * " kmgtp".index(match[2].lower() or " "))


def _number(values: Any, key: str, where: str) -> float:
    """Return a field that is a finite number of at least 0."""
    value = field(values, key, (int, float), where)
    if not 0 <= value < 1e300:
        raise FormatError(
            f"{place_of(where, key)}: found {quoted(value, 40)}, a finite number of at least 0 is required"
        )
    return float(value)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_joined)
READERS: Final = [FormatReader("fio", "fio, JSON", has(r'"fio version"\s*:'), read, version=2)]
