"""Measures one instrument on this host, for the command line and the Python interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.describe import Description, description
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.sources import from_sysfs
from meshmark.measure.history import in_store
from meshmark.measure.repetitions import pool_steps, shortfall, unique
from meshmark.measure.runs.plan import SurveyPlan
from meshmark.measure.runs.runner import Report, StepResult, run_plan
from meshmark.measure.runs.unfinished import PartlyError
from meshmark.measure.suspicion import suspicious
from meshmark.store.record import Record, Scalar
from meshmark.store.run import Absence
from meshmark.store.store import Store
from meshmark.values.units import NBSP, size

_NAMED: Final = 4  # number of points that a line about an absence names


@dataclass(frozen=True, slots=True)
class Measurement:
    """The results of a plan of one instrument.

    Attributes:
        records: Records with repetitions pooled.
        absent: A line for each quantity that could not be measured.
        notes: A line for each limit of the results, and for each result that departs from the history of the host.
    """

    plan: SurveyPlan
    records: list[Record]
    absences: Sequence[Absence]
    absent: Sequence[str]
    notes: Sequence[str]
    results: Sequence[StepResult]

    def check(self) -> None:
        """Raise if the measurement failed.

        Raises:
            UsageError: A step rejected its options.
            PartlyError: A step failed after some points were measured.
            AbsentError: Nothing could be measured.
            MeshmarkError: A step failed.
        """
        d = description(self.plan.steps[0].instrument)
        for result in self.results:
            if result.status == "failed":
                field, _, reason = result.message.partition(":")
                option = next((p.option for p in d.parameters if p.name == field), "")
                if option or field in {"options", "fill"}:
                    raise UsageError(f"{d.name}: {option or field}:{reason}")
                kind = PartlyError if self.records else MeshmarkError
                raise kind(f"{result.step.id}: {result.message}")
        if not self.records:
            reasons = [a.reason for a in self.absences]
            raise AbsentError(f"{d.name}: {reasons[0] if reasons else 'nothing was measured'}")


def measure(plan: SurveyPlan, folder: Path, store: Path, run_id: str, report: Report | None = None) -> Measurement:
    """Run the steps of a plan of one instrument, and store their results as a run.

    Args:
        folder: Folder of the journals.
        store: Folder of the store.
        run_id: Id of the run in the store.
        report: Function that is called with each line of the instrument; None: none is.
    """
    results_store = Store(store)
    results = run_plan(plan, folder, results_store, run_id, report, lambda _: None, stops_at_refusal=True)
    records = pool_steps((result.step, result.reading.records) for result in results)
    absences = unique(absence for result in results for absence in result.reading.absences)
    absent = absent_lines([a for a in absences if a.kind == "absent"])
    shortfall_text = shortfall(records, plan.budget_s)
    notes = [f"note: {shortfall_text}"] if shortfall_text else []
    notes += [*suspicious(records, from_sysfs().to_dict()), *in_store(records, Store(store), run_id)]
    return Measurement(plan, records, absences, absent, notes, results)


def absent_lines(absences: Sequence[Absence]) -> list[str]:
    """Return a line for each quantity and reason, with the conditions in which the absences of a run differ."""
    groups: dict[tuple[str, str, str], list[Absence]] = {}
    for a in absences:
        groups.setdefault((a.metric or a.instrument, a.reason, a.enable), []).append(a)
    keys = dict.fromkeys(k for a in absences for k in a.conditions)
    differing_keys = [k for k in keys if len({str(a.conditions.get(k)) for a in absences}) > 1]
    lines = []
    for (quantity, reason, enable), group in groups.items():
        points = [" ".join(_condition(k, a.conditions[k]) for k in differing_keys if k in a.conditions) for a in group]
        point_texts = [p for p in dict.fromkeys(points) if p]
        more_text = f" and {len(point_texts) - _NAMED} more points" if len(point_texts) > _NAMED else ""
        points_text = f" at {', '.join(point_texts[:_NAMED])}{more_text}" if point_texts else ""
        lines.append(f"absent: {quantity}{points_text}: {reason}" + (f" (to enable: {enable})" if enable else ""))
    return lines


def _condition(name: str, value: Scalar) -> str:
    """Return a condition as text, such as `footprint 1 GiB`."""
    if name.endswith("_bytes") and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{name.removesuffix('_bytes')} {size(value)}".replace(NBSP, " ")
    return f"{name.replace('_', ' ')} {value}"


def stores(d: Description, words: Sequence[str]) -> tuple[list[str], str]:
    """Separate the values of `--store` into kinds of stores of an instrument and a folder.

    `--store streaming` is a kind for instruments with that option; a folder then needs a path, `./streaming`.

    Returns:
        The kinds as arguments of the instrument, and the folder, "" if no folder is named.

    Raises:
        UsageError: A word is neither a kind nor a folder.
    """
    kinds = next((p.choices for p in d.parameters if p.option == "--store"), ())
    argv: list[str] = []
    folder = ""
    for word in words:
        if {*word.split(",")} <= {*kinds}:
            argv += ["--store", word]
        elif kinds and "/" not in word and not Path(word).is_dir():
            raise UsageError(f"--store: found '{word}'; allowed: {', '.join(kinds)}, or the path of a folder, ./{word}")
        else:
            folder = word
    return argv, folder
