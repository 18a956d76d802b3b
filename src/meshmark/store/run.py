"""What a run is, beside its records: what could not be had, and how it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from meshmark.store.record import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Something that was asked for and not measured, with the reason; never a zero.

    `kind` is `absent` (cannot be had here) or `error` (should have worked and did not).
    """

    instrument: str
    reason: str
    metric: str | None = None
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    enable: str = ""  # what would make it possible; may be empty
    kind: Literal["absent", "error"] = "absent"
    step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One survey: when, what was asked, how each step ended, what the host said of itself.

    What is not known, of records without a survey, is empty or 0: views leave it out.
    """

    run_id: str
    machine: str
    started: str  # ISO 8601, UTC
    elapsed_s: float
    spec_name: str
    command: str
    version: str
    headers: Sequence[Mapping[str, Any]] = ()  # header lines of the probe, one a step
    host: Mapping[str, Any] = field(default_factory=dict)  # meshmark.machine.facts.host_facts()
    steps: Sequence[Mapping[str, Any]] = ()  # id, instrument, argv, status, elapsed_s
