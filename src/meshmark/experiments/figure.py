"""Reads the figure by which a run is judged: its elapsed time, a number in its output, or a metric of its records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshmark.errors import UsageError, quoted
from meshmark.experiments.trial import positive, printable, tail
from meshmark.store.record import BETTER, Better, Record, RecordError
from meshmark.values.expressions import expression

Direction = Literal["lower", "higher"]
DIRECTIONS: tuple[Direction, ...] = ("lower", "higher")


@dataclass(frozen=True, slots=True)
class FigureValue:
    """A positive value with its unit. It is the geometric mean of `points` records."""

    value: float
    unit: str
    better: Better
    points: int = 1
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FigureOfMerit:
    """The figure by which runs are judged: the elapsed time unless there is a pattern or a metric.

    Attributes:
        pattern: Regular expression. The first group of its last match in the output counts, or the whole match.
        metric: Metric of the records that the command prints as JSON lines.
        better: `lower` or `higher`; "" for the direction of the records. A lower elapsed time is always better.
    """

    pattern: str = ""
    metric: str = ""
    better: str = ""

    @property
    def name(self) -> str:
        """Return the metric of the records of an experiment."""
        return "figure_of_merit" if self.pattern else self.metric or "elapsed"

    def check(self) -> None:
        """Raise UsageError for options that are invalid or contradict each other."""
        if self.pattern and self.metric:
            raise UsageError("--pattern: found with --metric; allowed: one of them")
        if self.better and self.better not in DIRECTIONS:
            raise UsageError(f"--better: found '{quoted(self.better)}'; allowed: {', '.join(DIRECTIONS)}")
        if self.better and not (self.pattern or self.metric):
            raise UsageError("--better: found without --pattern or --metric; lower elapsed time is always better")
        if self.pattern and not self.better:
            raise UsageError("--better: required with --pattern; allowed: lower, higher")
        expression("--pattern", self.pattern)

    def read(self, elapsed_s: float, out: Path, err: Path) -> FigureValue | str:
        """Return the value of a run, or the reason why it has no value.

        Args:
            elapsed_s: Elapsed time of the run in s.
            out: File with the standard output of the run.
            err: File with the standard error of the run.
        """
        if self.pattern:
            return self.matched(tail(out) + "\n" + tail(err))
        return self._recorded(tail(out)) if self.metric else FigureValue(elapsed_s, "s", "lower")

    def matched(self, text: str) -> FigureValue | str:
        """Return the value of the pattern in the output of a run, or the reason why it has no value."""
        matches = list(expression("--pattern", self.pattern).finditer(text))
        value = positive(matches[-1].group(matches[-1].re.groups and 1)) if matches else None
        if value is None:
            excerpt = f"'{printable(matches[-1].group())}'" if matches else "no match"
            return f"--pattern: found {excerpt} in the output, a positive number is required"
        return FigureValue(value, "1", next(d for d in DIRECTIONS if d == self.better))

    def _recorded(self, text: str) -> FigureValue | str:
        records, metrics, problem = [], set[str](), ""
        for line in text.splitlines():
            if not line.startswith("{"):
                continue
            try:
                fields = json.loads(line)
                # `measure --json` prints records without the type that tells the lines of other commands apart.
                record = Record.from_json(fields) if fields.get("type", "result") == "result" else None
            except (ValueError, RecursionError) as error:  # RecordError, too
                problem = f": {printable(str(error))}" if isinstance(error, RecordError) else problem
                continue
            if record is not None:
                metrics.add(record.metric)
                records += [record] if record.metric == self.metric else []
        if not records:
            others = f"; found {', '.join(sorted(metrics))}" if metrics else problem
            return f"--metric: found no record of {printable(self.metric)} in the output{others}"
        if invalid := [r.value for r in records if not r.value > 0]:
            return f"--metric: found {invalid[0]:g}, a value above 0 is required"
        first = records[0]
        better = next((b for b in BETTER if b == (self.better or first.better)), "none")
        if better == "none":
            return f"--metric: {printable(self.metric)} has no direction; --better lower or higher is required"
        mean = math.exp(math.fsum(math.log(r.value) for r in records) / len(records))
        flags = tuple(sorted({f for r in records for f in r.flags}))
        return FigureValue(mean, first.unit, "lower" if better == "lower" else "higher", len(records), flags)
