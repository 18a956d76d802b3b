"""Describes what a run has in addition to its records: its metadata, and what could not be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from meshmark.store.record import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A requested quantity that was not measured, with the reason.

    `kind` is `absent` (not available on this machine) or `error` (the measurement failed).
    """

    instrument: str
    reason: str
    metric: str | None = None
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    enable: str = ""  # how to make it available; "" if there is no way
    kind: Literal["absent", "error"] = "absent"
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Metadata of a survey: its start, its command, the status of each step, and facts about the host.

    Fields are empty or 0 where the records do not come from a survey; views omit them.
    """

    run_id: str
    machine: str
    started: str  # ISO 8601, UTC
    elapsed_s: float
    spec_name: str
    command: str
    version: str
    headers: Sequence[Mapping[str, Any]] = ()  # header lines of the probe, one per step
    host: Mapping[str, Any] = field(default_factory=dict)  # meshmark.machine.facts.host_facts()
    steps: Sequence[Mapping[str, Any]] = ()  # id, instrument, argv, status, elapsed_s
