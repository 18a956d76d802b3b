"""Converts the result of an advice to text, records and JSON."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.experiments.halving import Race, RaceVerdict
from meshmark.experiments.trial import CandidateRun
from meshmark.machine.tree import format_list
from meshmark.place import native
from meshmark.place.candidates import BASELINE, LAUNCHERS, AdvicePlan, Candidate
from meshmark.place.other_work import disturbance, result_flags, shares_during
from meshmark.store.record import Better, Metric, Record, median

# ------------------------------------------------------------------ the advice


@dataclass(slots=True)
class Advice:
    """The result of `meshmark advise`. `outcomes` are all runs that count, in order."""

    plan: AdvicePlan
    verdict: RaceVerdict
    outcomes: list[CandidateRun]
    failed: dict[str, str]  # last reason of failure by candidate
    spent_s: float

    def successful_runs(self, name: str) -> list[CandidateRun]:
        """Return the successful runs of one candidate."""
        return [o for o in self.outcomes if o.candidate == name and o.cost is not None]

    @property
    def compared(self) -> list[CandidateRun]:
        """Return the successful runs of the baseline and of the best candidate."""
        return [o for name in dict.fromkeys((BASELINE, self.verdict.best)) for o in self.successful_runs(name)]

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of a name, which must be in the plan."""
        return next(c for c in self.plan.candidates if c.name == name)


def usual_time(race: Race, name: str, outcomes: Sequence[CandidateRun], default: float) -> float:
    """Return the median time in s of the successful runs of a candidate.

    Without such a run, it is the median of the unchanged program, and without that, `default`.
    """
    times = [o.elapsed_s for o in outcomes if o.candidate == name and o.cost is not None]
    return median(times) if times else default if name == BASELINE else usual_time(race, BASELINE, outcomes, default)


def best_values(race: Race) -> str:
    """Return words about the best candidate so far, for progress; "" in the first round."""
    if len(race.rounds) < 2:
        return ""
    best = min((n for n in race.alive if race.costs(n)), key=lambda n: median(race.costs(n)), default="")
    return f"so far the best is {best}, " if best else ""


def duration(seconds: float) -> str:
    """Return a time as text, in s below 100 s and in min above."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# ------------------------------------------------------------------ results


def spread(values: Sequence[float], less_is_better: bool) -> dict[str, float | int]:
    """Return mean, cov (standard deviation over mean), best, worst and n of at least one value, in the values' unit."""
    mean = statistics.fmean(values)
    low, high = min(values), max(values)
    return {
        "mean": mean,
        "cov": statistics.stdev(values) / mean if len(values) > 1 else 0.0,
        "best": low if less_is_better else high,
        "worst": high if less_is_better else low,
        "n": len(values),
    }


def values_of(advice: Advice, name: str) -> list[float]:
    """Return the compared values of one candidate: elapsed times in s, or figures of merit."""
    if advice.plan.figure:
        return [o.figure for o in advice.successful_runs(name) if o.figure is not None]
    return [o.elapsed_s for o in advice.successful_runs(name)]


def gain(advice: Advice) -> tuple[float, tuple[float, float] | None] | None:
    """Return the share by which the best candidate improves on the baseline, and its 95 % interval; None if unknown."""
    verdict = advice.verdict
    if verdict.ratio is None:
        return None
    share: Callable[[float], float] = (lambda r: 1 / r - 1) if advice.plan.higher else (lambda r: 1 - r)
    return share(verdict.ratio), (share(verdict.interval[1]), share(verdict.interval[0])) if verdict.interval else None


def reasons(advice: Advice) -> list[str]:
    """Return the differences that may explain why the best candidate is better than the baseline; empty if it is not.

    A difference in the other direction explains nothing: a candidate whose threads wait longer is not faster because
    they wait. Quantities are medians over the runs.
    """
    best = advice.verdict.best
    if advice.verdict.word != "better":
        return []
    before, after = (_evidence(advice.successful_runs(n)) for n in (BASELINE, best))
    differences = []
    for key, description, scale, unit, min_change, better_if_higher in (
        ("remote_share", "pages on remote nodes", 100, " %", 1.0, False),
        ("huge_share", "memory in huge pages", 100, " %", 5.0, True),
        ("migrations", "thread migrations per run", 1, "", 3.0, False),
        ("waiting_share", "time that threads waited for a CPU", 100, " %", 1.0, False),
        ("minor_faults", "page faults per run", 1, "", 1000.0, False),
        ("major_faults", "page faults with I/O per run", 1, "", 10.0, False),
    ):
        if key not in before or key not in after:
            continue
        change = (after[key] - before[key]) * scale
        if abs(change) >= min_change and (change > 0) == better_if_higher:
            differences.append(
                f"{description}: {before[key] * scale:.3g}{unit} baseline, {after[key] * scale:.3g}{unit} with {best}"
            )
    return differences


def not_held(advice: Advice) -> list[str]:
    """Return the candidates whose placement was not enforced, each with the number of runs and the first finding."""
    entries = []
    for candidate in advice.plan.candidates:
        findings = [o.findings[0] for o in advice.successful_runs(candidate.name) if o.findings]
        if findings:
            entries.append(
                f"{candidate.name}: in {len(findings)} of {len(advice.successful_runs(candidate.name))} runs, "
                f"for example: {findings[0]}"
            )
    return entries


def _evidence(outcomes: Sequence[CandidateRun]) -> dict[str, float]:
    keys = {k for o in outcomes for k in o.evidence}
    return {k: median([o.evidence[k] for o in outcomes if k in o.evidence]) for k in sorted(keys)}


# Forms of `meshmark-place translate` that start one rank on each part.
_RANK_FORMS: Final = ("openmpi", "openmpi5", "mpich", "slurm", "slurm-mask", "flux", "jsrun", "blaunch", "pbsdsh")


@dataclass(frozen=True, slots=True)
class CommandLines:
    """Command lines that apply the choice, by launcher, `meshmark` first.

    `left_out` states, by launcher, why there is no line.
    """

    ready: Mapping[str, str]
    left_out: Mapping[str, str]


def lines(advice: Advice, translate: Callable[[Sequence[str]], dict[str, Any]] = native.answer) -> CommandLines:
    """Translate the choice for all launchers; omit a line that cannot express everything that was chosen."""
    candidate, command = advice.candidate(advice.verdict.choice), advice.plan.command
    line_by_launcher, left_out = {"meshmark": candidate.line(command)}, dict[str, str]()
    if not candidate.parts:
        return CommandLines(line_by_launcher, left_out)
    memory = ["--memory", candidate.memory] if candidate.memory != "default" else []
    translations = translate(
        [
            "translate",
            "--parts",
            native.parts_text(candidate.parts),
            "--to",
            "all",
            "--topology",
            "host",
            *memory,
            "--command",
            shlex.join(command),
        ]
    )
    forms = translations.get("forms")
    launcher = Path(command[0]).name
    no_ranks = f"{launcher} starts its own ranks" if launcher in LAUNCHERS else "the program has no ranks"
    prefix = "".join(f"{k}={v} " for k, v in candidate.environment().items())
    for form, translation in forms.items() if isinstance(forms, dict) else ():
        if form == "parts" or not isinstance(translation, dict):
            continue
        if form in _RANK_FORMS:
            left_out[form] = no_ranks
        elif candidate.pages != "default":
            left_out[form] = f"it does not set the page size ({candidate.pages})"
        elif translation.get("line"):
            line_by_launcher[form] = prefix + str(translation["line"])
    refusals = translations.get("refused")
    for form, reason in refusals.items() if isinstance(refusals, dict) else ():
        left_out.setdefault(form, no_ranks if form in _RANK_FORMS else str(reason))
    return CommandLines(line_by_launcher, left_out)


def records(advice: Advice, machine: str, command_line: str, started: str, build: str) -> list[Record]:
    """Return one record per candidate and metric, with all samples.

    The metrics are `elapsed`, `user`, `system` and `waiting` in s, and `figure_of_merit` (unit 1) if one was requested.
    """
    rows = []
    for candidate in advice.plan.candidates:
        runs = advice.successful_runs(candidate.name)
        series = [
            (m, v)
            for m in native.vocabulary().metrics
            if len(v := [o.times[m.name] for o in runs if m.name in o.times]) == len(runs) > 0
        ]
        if advice.plan.figure and runs:
            better: Better = "higher" if advice.plan.higher else "lower"
            figure = Metric("figure_of_merit", "1", better, "what the program printed")
            series.append((figure, values_of(advice, candidate.name)))
        for metric, samples in series:
            rows.append(_record(advice, candidate, metric, samples, machine, command_line, started, build))
    return rows


def _record(
    advice: Advice,
    candidate: Candidate,
    metric: Metric,
    samples: Sequence[float],
    machine: str,
    command_line: str,
    started: str,
    build: str,
) -> Record:
    runs = advice.successful_runs(candidate.name)
    cpus = format_list(sorted({c for part in candidate.parts for c in part}))
    inherited = advice.plan.inherited
    return Record.from_samples(
        metric,
        samples,
        source="host",
        machine=machine,
        instrument="run",
        conditions={
            "program": Path(advice.plan.command[0]).name,
            "command": shlex.join(advice.plan.command),
            "copies": 1,
            "candidate": candidate.name,
            "policy": candidate.policy,
            "slots": len(candidate.parts),
            "slot_kind": candidate.slots,
            "cpus": cpus if candidate.parts else inherited.cpus or cpus,
            "each": candidate.pinned,
            "threads": candidate.threads,
            "memory": inherited.memory if candidate.memory == "default" else candidate.memory,
            "pages": candidate.pages,
            "wait_policy": candidate.wait,
            **{k: v for k, v in _evidence(runs).items() if k != "threads"},
            **shares_during(runs),
        },
        flags=result_flags(runs),
        provenance={"build": build, "command": command_line, "start": started, "seed": advice.plan.seed},
    )


def to_json(advice: Advice, command_lines: CommandLines) -> dict[str, Any]:
    """Return the result as one JSON object.

    Shares are fractions of 1; values are in s or in the unit of the figure.
    """
    verdict, plan = advice.verdict, advice.plan
    improvement = gain(advice)
    lower_is_better = not (plan.figure and plan.higher)
    spreads = {
        n: spread(values_of(advice, n), lower_is_better)
        for n in dict.fromkeys((BASELINE, verdict.best))
        if n and advice.successful_runs(n)
    }
    before, after = spreads.get(BASELINE), spreads.get(verdict.best)
    return {
        "type": "answer",
        "schema": 1,
        "verdict": verdict.word,
        "choice": verdict.choice,
        "best_other": verdict.best or None,
        "options": advice.candidate(verdict.choice).options() if verdict.choice != BASELINE else [],
        "environment": advice.candidate(verdict.choice).environment(),
        "gain": improvement and improvement[0],
        "gain_interval": list(improvement[1]) if improvement and improvement[1] else None,
        "pairs": verdict.pairs,
        "minimum_effect": _finite(verdict.effect),
        "floor": _finite(verdict.floor),
        "before": before,
        "after": after,
        "best_vs_best": _over(after, before, "best", lower_is_better),
        "worst_vs_worst": _over(after, before, "worst", lower_is_better),
        "others": {name: asdict(standing) for name, standing in verdict.standings.items()},
        "failed": advice.failed,
        "left_out": plan.left_out,
        "as_it_is": asdict(plan.inherited),
        "why": reasons(advice),
        "flags": sorted(result_flags(advice.compared)),
        "disturbance": disturbance(advice.compared),
        "not_held": not_held(advice),
        "lines": dict(command_lines.ready),
        "lines_left_out": dict(command_lines.left_out),
        "runs": len(advice.outcomes),
        "spent_s": advice.spent_s,
        "stopped": verdict.stopped,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _over(
    after: Mapping[str, float | int] | None, before: Mapping[str, float | int] | None, key: str, less: bool
) -> float | None:
    if not after or not before:
        return None
    ratio = after[key] / before[key]
    return 1 - ratio if less else ratio - 1
