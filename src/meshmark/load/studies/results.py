"""Points, records and tables of a study."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meshmark.load.scenario.records import INSTRUMENT, METRICS
from meshmark.load.scenario.result import Slowdown, slowdown
from meshmark.load.studies.outcome import RECORDS, CellRun, Clock
from meshmark.store.files import write_file
from meshmark.store.record import SCHEMA, Record, Scalar
from meshmark.store.run import Absence


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPoint:
    """Run times together and alone under these conditions. `pairs`: their ratio in each repetition."""

    x: float
    label: str
    slowdown: Slowdown
    pairs: tuple[float, ...]
    alone_s: tuple[float, ...]
    together_s: tuple[float, ...]
    flags: frozenset[str]
    conditions: Mapping[str, Scalar]

    def number(self, condition: str) -> float:
        """Return the value of a condition that is a number."""
        return float(str(self.conditions[condition]))


def point(
    x: float,
    label: str,
    alone: Sequence[CellRun],
    together: Sequence[CellRun],
    clock: Clock,
    conditions: Mapping[str, Scalar],
) -> tuple[StudyPoint | None, str]:
    """Return the point, or None and the reason if a run is invalid or missing."""
    for runs in (together, alone):
        if reason := next((o.reason for o in runs if o.reason), ""):
            return None, reason
    alone_by_repetition = {o.repetition: o.time_s(clock) for o in alone}
    together_by_repetition = {o.repetition: o.time_s(clock) for o in together}
    if not alone_by_repetition or not together_by_repetition:
        return None, "not run"
    return StudyPoint(
        x=x,
        label=label,
        slowdown=slowdown(list(alone_by_repetition.values()), list(together_by_repetition.values())),
        pairs=tuple(
            together_by_repetition[r] / alone_by_repetition[r]
            for r in sorted(alone_by_repetition.keys() & together_by_repetition.keys())
        ),
        alone_s=tuple(alone_by_repetition.values()),
        together_s=tuple(together_by_repetition.values()),
        flags=frozenset().union(*(o.flags for o in (*alone, *together))),
        conditions=conditions,
    ), ""


@dataclass(kw_only=True)
class StudyResults:
    """Collects the records and absences of a study."""

    study: str
    machine: str
    common: Mapping[str, Scalar]
    provenance: Mapping[str, Scalar]
    records: list[Record] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)

    def add(
        self,
        metric: str,
        samples: Iterable[float],
        conditions: Mapping[str, Scalar],
        flags: frozenset[str] = frozenset(),
    ) -> None:
        """Add a record of a metric, unless it has no sample."""
        if values := tuple(samples):
            self.records.append(
                Record.from_samples(
                    METRICS[metric],
                    values,
                    source="host",
                    machine=self.machine or "host",
                    instrument=INSTRUMENT,
                    conditions={"study": self.study, **self.common, **conditions},
                    flags=flags,
                    provenance=self.provenance,
                )
            )

    def absent(
        self,
        metric: str,
        reason: str,
        conditions: Mapping[str, Scalar],
        kind: Literal["absent", "error"] = "error",
        enable: str = "",
    ) -> None:
        """Add the absence of a metric, or with the kind `error` its failure."""
        self.absences.append(
            Absence(
                instrument=INSTRUMENT,
                metric=metric,
                reason=reason,
                kind=kind,
                enable=enable,
                conditions={"study": self.study, **self.common, **conditions},
            )
        )

    def add_point(self, p: StudyPoint) -> None:
        """Add the run times alone and together, and their ratio.

        The value of the ratio's record is the median over the pairs. Its conditions contain the estimate over all runs,
        which has a confidence interval from 4 repetitions.
        """
        for company, times in (("alone", p.alone_s), ("together", p.together_s)):
            self.add("elapsed", times, {**p.conditions, "company": company}, p.flags)
        ratio = p.slowdown
        self.add(
            "slowdown",
            p.pairs or (ratio.ratio,),
            {
                **p.conditions,
                "estimate": ratio.ratio,
                "estimate_low": ratio.interval[0] if ratio.interval else None,
                "estimate_high": ratio.interval[1] if ratio.interval else None,
                "alone_runs": ratio.alone,
                "together_runs": ratio.together,
            },
            p.flags,
        )

    def write(self, folder: Path) -> None:
        """Write the records and absences to the folder of the study."""
        lines = [{"type": "result", "schema": SCHEMA, **r.to_json()} for r in self.records]
        keys = ("instrument", "metric", "conditions", "reason", "enable")
        lines += [{"type": "absent", **{key: getattr(a, key) for key in keys}} for a in self.absences]
        text = b"".join(json.dumps(x, allow_nan=False).encode() + b"\n" for x in lines)
        write_file(folder / RECORDS, text, private=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Return columns of text as lines. `left`: left-aligned columns; the others are right-aligned."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in (head, *rows)
    )


def format_slowdown(s: Slowdown) -> tuple[str, str]:
    """Return a slowdown and its confidence interval as text for a table."""
    return f"{s.ratio:.3f}", f"{s.interval[0]:.3f} – {s.interval[1]:.3f}" if s.interval else "none below 4 runs"
