"""Runs an audit of the counters of this machine, and stores its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError
from meshmark.machine.facts import host_id
from meshmark.store.files import make_folder, read_json, write_json
from meshmark.values.paths import data_home
from meshmark.watch.audit.judgement import AuditSample, CounterAudit, judge_counters
from meshmark.watch.canary import run_sampler
from meshmark.watch.frames import FrameError, Header, frame_of, header_of, parse_line


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        when: Time in UTC, ISO 8601.
        skipped: Names of the nodes with CPUs that ran no load, since this process may not use their CPUs.
    """

    machine: str
    when: str
    counters: tuple[CounterAudit, ...]
    skipped: tuple[str, ...] = ()

    def verdicts(self) -> dict[str, str]:
        """Return the verdicts by metric, with the nodes if they differ."""
        by_metric: dict[str, dict[str, str]] = {}
        for counter in self.counters:
            by_metric.setdefault(counter.metric, {})[counter.route] = str(counter)
        return {
            metric: next(iter(texts.values()))
            if len(set(texts.values())) == 1
            else "; ".join(f"{route}: {text}" for route, text in texts.items())
            for metric, texts in by_metric.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON, of type `audit`."""
        return {
            "type": "audit",
            "machine": self.machine,
            "when": self.when,
            "verdicts": self.verdicts(),
            "counters": [c.to_json() for c in self.counters],
            "skipped": list(self.skipped),
        }


def audit_file(machine: str) -> Path:
    """Return the path of the audit of a machine."""
    return data_home() / "audit" / f"{machine.replace('/', '_')}.json"


def audit_counters(load_s: float) -> AuditResult:
    """Run loads of prescribed rates on all nodes, and judge the counters by them.

    Args:
        load_s: Time per load, in s. Each node has a load that reads, and one that writes if writes are counted; each
            counted direction of a link has one that reads.

    Raises:
        AbsentError: The machine has no counters of memory or links, or no instruction that flushes cache lines.
        MeshmarkError: The sampler failed; the message comes from the sampler.
    """
    lines = run_sampler("--audit", f"{load_s:g}").splitlines()
    if not lines:
        raise FrameError("audit: the sampler printed nothing")
    return result_of(header_of(parse_line(lines[0])), [parse_line(line) for line in lines[1:]])


def result_of(header: Header, lines: list[Mapping[str, Any]]) -> AuditResult:
    """Return the result of an audit from the lines that the sampler printed.

    Raises:
        FrameError: A line is not a sample of an audit.
    """
    samples = [_sample(header, line) for line in lines]
    loaded = {s.cpu_node for s in samples}
    with_cpus = {c["node"] for c in header.components.get("cpu", ()) if c.get("node") is not None}
    names = header.names("node")
    return AuditResult(
        header.machine,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(judge_counters(header, samples)),
        tuple(names[n] for n in sorted(with_cpus - loaded)),
    )


def _sample(header: Header, line: Mapping[str, Any]) -> AuditSample:
    try:
        # The values have the form of a frame's, whose checks apply.
        frame = frame_of({"seq": line["round"], "t_s": 0, "window_s": 0, "values": line["values"]}, header)
        nodes = int(line["cpu_node"]), int(line["memory_node"])
        if not all(0 <= n < header.count("node") for n in nodes):
            raise ValueError("a node that the header does not have")
        return AuditSample(str(line["load"]), *nodes, frame.seq, int(line["rate"]), float(line["moved"]), frame.values)
    except (LookupError, TypeError, ValueError) as error:
        raise FrameError(f"audit: a line has a missing or invalid value: {error}") from error


def store_audit(result: AuditResult) -> Path:
    """Store the result of this machine in place of an earlier one. Return the file."""
    path = audit_file(host_id())
    make_folder(path.parent)
    write_json(path, result.to_json())
    return path


def stored_verdicts(machine: str) -> dict[str, Any] | None:
    """Return time (`when`) and `verdicts` by metric of the stored audit of a machine; None without one."""
    try:
        stored = read_json(audit_file(machine))
        return {"when": str(stored["when"]), "verdicts": {str(k): str(v) for k, v in stored["verdicts"].items()}}
    except (MeshmarkError, LookupError, TypeError, AttributeError):
        return None
