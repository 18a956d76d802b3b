"""Finds runs of the store that an earlier version of a reader imported from another tool's output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.measure.importers.formats import readers
from meshmark.measure.importers.importing import StepImport
from meshmark.store.store import Store

_SHARED: Final = 3  # smallest number of equal values that identifies two runs as the same output


@dataclass(frozen=True, slots=True)
class OutdatedRun:
    """A run whose results an earlier reader imported.

    Attributes:
        run: Name of the run.
        machine: Machine of the run.
        tool: The tool whose output it is.
        version: Version of the reader that imported it; 1 if the run does not state it.
        current: Present version of the reader.
        output: Digest of the output; "" if the run does not state it.
    """

    run: str
    machine: str
    tool: str
    version: int
    current: int
    output: str

    def __str__(self) -> str:
        return (
            f"{self.run}: imported by version {self.version} of the reader of {self.tool}, now {self.current}: "
            "results may be wrong or missing"
        )


def outdated_runs(store: Store) -> list[OutdatedRun]:
    """Return the runs with results of an earlier version of a reader, ordered by name."""
    current = {reader.name: reader.version for reader in readers()}
    outdated: dict[str, OutdatedRun] = {}
    query = "SELECT DISTINCT run, machine, provenance FROM {rows} AND source = 'tool' ORDER BY run"
    for row in store.select(query):
        provenance = _provenance(row["provenance"])
        tool = str(provenance.get("tool", ""))
        reader = str(provenance.get("reader", tool))
        version = provenance.get("reader_version", 1)
        if reader in current and isinstance(version, int) and version < current[reader]:
            output = str(provenance.get("output", ""))
            outdated.setdefault(
                row["run"], OutdatedRun(row["run"], row["machine"], tool, version, current[reader], output)
            )
    return list(outdated.values())


def superseded(store: Store, parts: Sequence[StepImport]) -> list[str]:
    """Return the outdated runs that come from the same output as one of these parts.

    The digest of the output decides. A run that does not state it comes from the same output if the machine, the tool
    and at least half of the values, 3 or more, are the same.
    """
    runs: list[str] = []
    tool_parts = [part for part in parts if part.records and part.records.first.source == "tool"]
    for outdated_run in outdated_runs(store) if tool_parts else ():
        for part in tool_parts:
            if part.machine != outdated_run.machine or outdated_run.tool not in {
                r.provenance.get("tool") for r in part.records
            }:
                continue
            output = part.records.first.provenance.get("output")
            is_same_output = (
                outdated_run.output == output if outdated_run.output else _share_values(store, outdated_run.run, part)
            )
            if is_same_output and outdated_run.run not in runs:
                runs.append(outdated_run.run)
    return runs


def _share_values(store: Store, run: str, part: StepImport) -> bool:
    old_values = {f"{record.value:.9g}" for record in store.query(run=run)}
    shared_values = old_values & {f"{record.value:.9g}" for record in part.records}
    return len(shared_values) >= max(_SHARED, len(old_values) / 2)


def _provenance(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        return {}
    return value if isinstance(value, dict) else {}
