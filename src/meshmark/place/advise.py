"""Which placement and page size is best for a program, found by running it.

A folder holds what an advice needs to go on after it was killed: `plan.json` (what was asked, and the candidates),
`journal.jsonl` (a line a run, on disk before it counts) and `runs/` (the records of each run). Statistics are in
`halving`, placing in the native program.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.place import native
from meshmark.place.advice import Advice, best_values, duration, runs_of, usual_time
from meshmark.place.candidates import BASELINE, LAUNCHERS, Candidate, Here, Plan, Wishes, candidates
from meshmark.place.halving import Race
from meshmark.place.trial import MIN_LIMIT_S, TOO_LONG, Outcome, Runner

Talk = Callable[[str], None]


def advise(plan: Plan, folder: Path, runner: Runner, talk: Talk) -> Advice:
    """Runs, or goes on with, a plan until the answer is clear or its budget ends.

    Raises:
        MeshmarkError: the journal is not this plan's, or the baseline failed twice.
    """
    race = Race([c.name for c in plan.candidates], BASELINE, plan.seed)
    outcomes: list[Outcome] = []
    failed: dict[str, str] = {}
    by_name = {c.name: c for c in plan.candidates}
    spent = plan.pilot_s

    def count(outcome: Outcome) -> None:
        nonlocal spent
        if race.next() != outcome.candidate:
            raise MeshmarkError(f"{folder}: the journal is not of this plan: found a run of '{outcome.candidate}'")
        race.add(outcome.candidate, outcome.cost)
        outcomes.append(outcome)
        spent += outcome.elapsed_s
        if outcome.cost is None:
            failed[outcome.candidate] = outcome.reason
            times = race.failures[outcome.candidate]
            talk(
                f"{outcome.candidate}: {outcome.reason}" + (": it is out" if times > 1 else "; once more and it is out")
            )

    journal = folder / "journal.jsonl"
    for line in runs_of(journal):
        count(Outcome.from_json(line))
    told = -1
    with _appending(journal) as write:
        while (name := race.next()) is not None:
            if len(race.rounds) != told:
                told = len(race.rounds)
                left = max(0.0, plan.budget_s - spent)
                talk(
                    f"round {told}: {len(race.alive)} of {len(plan.candidates)} left, {best_values(race)}"
                    f"at most {duration(left)} to go"
                )
            usual = usual_time(race, name, outcomes, plan.pilot_s)
            if spent + usual > plan.budget_s:
                race.stop("the budget ended")
                break
            reference = usual_time(race, BASELINE, outcomes, plan.pilot_s)
            limit = max(MIN_LIMIT_S, TOO_LONG * reference)
            outcome = runner.run(by_name[name], len(outcomes) + 1, limit)
            write({"type": "run", **asdict(outcome)})
            count(outcome)
    if race.failures.get(BASELINE, 0) > 1:
        raise MeshmarkError(f"advise: the command failed twice as it is: {failed[BASELINE]}")
    return Advice(plan, race.verdict(), outcomes, failed, spent)


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    with path.open("ab", buffering=0) as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

        yield write


def make_plan(
    command: Sequence[str],
    wishes: Wishes,
    here: Here,
    runner: Runner,
    *,
    budget_s: float,
    seed: int,
    figure: str = "",
    higher: bool = False,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> Plan:
    """Runs the command once as it is, which warms up and does not count, and lists what to try.

    Raises:
        MeshmarkError: the command fails as it is; UsageError: its output has no figure of merit.
        AbsentError: there is nothing to try but to run it as it is.
    """
    pilot = runner.run(Candidate(BASELINE), 0, budget_s)
    if pilot.cost is None:
        if pilot.reason.startswith("--fom"):
            raise UsageError(pilot.reason)
        raise MeshmarkError(f"advise: the command {pilot.reason}")
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    busy = int(said) if said.isdigit() and int(said) else int(pilot.evidence.get("threads", 1))
    pinned = Path(command[0]).name not in LAUNCHERS
    made, left_out = candidates(wishes, here, min(busy, here.cpus), pinned, parts_of, missing)
    if len(made) == 1:
        why = "; ".join(f"{k}: {v}" for k, v in list(left_out.items())[:3])
        raise AbsentError(
            f"advise: nothing here differs from running it as it is ({why})",
            "name more --policies, --threads, --memory or --pages",
        )
    return Plan(list(command), budget_s, seed, figure, higher, made, left_out, pilot.elapsed_s, here.inherited)
