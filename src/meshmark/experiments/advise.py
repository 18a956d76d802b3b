"""Finds the best placement and page size for a program by running it.

The state is kept in a folder, so that an interrupted advice can resume: `plan.json` (the request and the candidates),
`journal.jsonl` (one line per run, flushed to disk before the run counts) and `runs/` (the records of each run). The
statistics are in `halving`; the native program `meshmark-place` applies the placement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.experiments.advice import Advice, best_values, duration, usual_time
from meshmark.experiments.halving import Race
from meshmark.experiments.trial import BUDGET, MAX_SLOWDOWN, MIN_LIMIT_S, CandidateRun, CandidateRunner
from meshmark.place import native
from meshmark.place.candidates import (
    BASELINE,
    LAUNCHERS,
    AdvicePlan,
    Candidate,
    PlacementResources,
    SearchSpace,
    candidates,
)
from meshmark.store.session import Journal
from meshmark.values.numbers import whole

Notify = Callable[[str], None]


def advise(plan: AdvicePlan, folder: Path, runner: CandidateRunner, notify: Notify) -> Advice:
    """Run or resume a plan until the result is conclusive or the budget is spent.

    Raises:
        MeshmarkError: The journal belongs to another plan, or the baseline failed twice.
    """
    race = Race([c.name for c in plan.candidates], BASELINE, plan.seed)
    outcomes: list[CandidateRun] = []
    reasons: dict[str, str] = {}
    by_name = {c.name: c for c in plan.candidates}
    spent_s = plan.pilot_s

    def count(outcome: CandidateRun) -> None:
        nonlocal spent_s
        if race.next() != outcome.candidate:
            raise MeshmarkError(f"{folder}: the journal belongs to another plan: found a run of '{outcome.candidate}'")
        race.add(outcome.candidate, outcome.cost)
        outcomes.append(outcome)
        spent_s += outcome.elapsed_s
        if outcome.cost is None:
            reasons[outcome.candidate] = outcome.reason
            times = race.failures[outcome.candidate]
            notify(
                f"{outcome.candidate}: {outcome.reason}"
                + (": excluded" if times > 1 else "; a second failure excludes it")
            )

    journal = Journal(folder / "journal.jsonl")
    for _, outcome in journal.entries(CandidateRun.from_json, "a run"):
        count(outcome)
    reported_round = -1
    while (name := race.next()) is not None:
        if len(race.rounds) != reported_round:
            reported_round = len(race.rounds)
            remaining_s = max(0.0, plan.budget_s - spent_s)
            notify(
                f"round {reported_round}: {len(race.alive)} of {len(plan.candidates)} left, {best_values(race)}"
                f"at most {duration(remaining_s)} remaining"
            )
        usual_s = usual_time(race, name, outcomes, plan.pilot_s)
        if spent_s + usual_s > plan.budget_s:
            race.stop(BUDGET)
            break
        baseline_s = usual_time(race, BASELINE, outcomes, plan.pilot_s)
        limit_s = max(MIN_LIMIT_S, MAX_SLOWDOWN * baseline_s)
        outcome = runner.run(by_name[name], len(outcomes) + 1, limit_s)
        journal.append({"type": "run", **asdict(outcome)})
        count(outcome)
    if race.failures.get(BASELINE, 0) > 1:
        raise MeshmarkError(f"advise: the baseline failed twice: {reasons[BASELINE]}")
    return Advice(plan, race.verdict(), outcomes, reasons, spent_s)


def make_plan(
    command: Sequence[str],
    space: SearchSpace,
    resources: PlacementResources,
    runner: CandidateRunner,
    *,
    budget_s: float,
    seed: int,
    figure: str = "",
    higher: bool = False,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> AdvicePlan:
    """Run the baseline once as a warm-up, which does not count, and list the candidates.

    Raises:
        MeshmarkError: The baseline failed.
        UsageError: The output of the baseline contains no figure of merit.
        AbsentError: No candidate differs from the baseline on this machine.
    """
    pilot = runner.run(Candidate(BASELINE), 0, budget_s)
    if pilot.cost is None:
        if pilot.reason.startswith("--fom"):
            raise UsageError(pilot.reason)
        raise MeshmarkError(f"advise: the command {pilot.reason}")
    threads = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    busy = omp_threads if (omp_threads := whole(threads) or 0) > 0 else int(pilot.evidence.get("threads", 1))
    pinned = Path(command[0]).name not in LAUNCHERS
    variants, left_out = candidates(space, resources, min(busy, resources.cpus), pinned, parts_of, missing)
    if len(variants) == 1:
        examples = "; ".join(f"{k}: {v}" for k, v in list(left_out.items())[:3])
        raise AbsentError(
            f"advise: no candidate differs from the baseline on this machine ({examples})",
            "specify more --policies, --threads, --memory or --pages",
        )
    return AdvicePlan(
        list(command), budget_s, seed, figure, higher, variants, left_out, pilot.elapsed_s, resources.inherited
    )
