"""Runs the tests of claims, stores their evidence and verdicts, and reads earlier verdicts.

A run of the store has the name `claims-…`. The verdict of each test is a separate step, named after claim and machine;
the names of the steps of its evidence begin with the same name. While a run is incomplete, `.measuring/RUN` in the
store contains the request and the journals of measurements. A resumed run skips the tests that have a verdict.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark import native
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.machine.boot import remember
from meshmark.store.files import read_json, write_json
from meshmark.store.record import Record
from meshmark.store.session import held, unlocked_sessions
from meshmark.store.store import MEASURING, Store, run_name
from meshmark.validation.claims import computed, measured, modelled  # noqa: F401 (the modules register their methods)
from meshmark.validation.claims.bench import BUDGET_S, Bench
from meshmark.validation.claims.catalogue import Claim, ClaimTest, chosen, trials_of
from meshmark.validation.claims.judging import (
    EFFECT,
    INSTRUMENT,
    Basis,
    ClaimVerdict,
    from_record,
    of_effects,
    to_record,
    untested,
)
from meshmark.validation.claims.registry import call

KIND: Final = "claims"  # first word of the names of runs
REQUEST: Final = "claims.json"  # file in the folder of an incomplete run
COMPUTED: Final = "publications"  # machine of verdicts by computation
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class ClaimsRequest:
    """The selection of tests of a run.

    Attributes:
        ids: Ids of claims; empty for all.
        on: `host`, `guest`, `computed` or a modelled machine; "" for all.
        budget_s: Sampling time of each test on the host in seconds.
    """

    ids: tuple[str, ...] = ()
    theme: str = ""
    on: str = ""
    budget_s: float = BUDGET_S

    def trials(self) -> list[tuple[Claim, ClaimTest, str]]:
        """Return the tests, with the machine of each.

        Raises:
            UsageError: An id, the theme or the machine is unknown.
            AbsentError: No test of these claims uses the machine.
        """
        if self.on not in {"", "host", "guest", "computed"}:
            from meshmark.model.machine import machine_names

            if self.on not in machine_names():
                raise UsageError(
                    f"--on: found '{quoted(self.on)}'; allowed: host, guest, computed, {', '.join(machine_names())}"
                )
        trials = trials_of(chosen(self.ids, self.theme), self.on)
        if not trials:
            raise AbsentError(f"claims: none of these claims is tested on {self.on}", "meshmark claims --list")
        return trials


@contextmanager
def begun(store: Store, request: ClaimsRequest) -> Iterator[tuple[str, Path]]:
    """Yield the name of a new run and the folder of its journals; meanwhile, other processes cannot resume the run."""
    run = run_name(KIND)
    folder = store.folder / MEASURING / run
    with held(folder):
        write_json(folder / REQUEST, request)
        yield run, folder


@contextmanager
def resumed(store: Store) -> Iterator[tuple[str, Path, ClaimsRequest]]:
    """Yield name, folder and request of the newest incomplete run of this store.

    Raises:
        UsageError: The store has no incomplete run.
        MeshmarkError: The run cannot be read or locked.
    """
    with closing(unlocked_sessions(store.folder / MEASURING, f"{KIND}-*/{REQUEST}")) as folders:
        folder = next(folders, None)
        if folder is None:
            raise UsageError(f"--resume: found no incomplete run of claims in {store.folder}")
        path = folder / REQUEST
        try:
            raw = read_json(path)
            request = ClaimsRequest(tuple(raw["ids"]), str(raw["theme"]), str(raw["on"]), float(raw["budget_s"]))
        except (MeshmarkError, KeyError, TypeError, ValueError) as error:
            raise MeshmarkError(f"cannot read {path}: {quoted(error)}", f"rm -r {folder}") from error
        yield folder.name, folder, request


def run_tests(bench: Bench, request: ClaimsRequest, progress: Progress | None = None) -> list[ClaimVerdict]:
    """Run the tests of a request that do not have a verdict in the run yet, and finish the run.

    Args:
        bench: Bench that measures, and the run that stores the evidence.
        request: The claims and the machine.
        progress: Called before each test with the number of completed tests, the total and the step of the next test.

    Returns:
        The verdicts of all tests, in the order of the claims.

    Raises:
        AbsentError: The request is for a guest, but this host is not a guest.
    """
    if request.on == "guest" and not bench.guest:
        raise AbsentError("--on guest: this host is not a guest", "meshmark claims --on host")
    trials = request.trials()
    verdict_by_step = _done(bench)
    if any(t.where == "host" for _, t, _ in trials):
        with suppress(MeshmarkError):
            remember(bench.store)
    verdicts = []
    for number, (claim, trial, machine) in enumerate(trials):
        step = step_of(claim, machine)
        if progress is not None:
            progress(number, len(trials), step)
        verdict = verdict_by_step.get(step) or _test(bench, claim, trial, machine, step)
        verdicts.append(verdict)
    bench.store.finish(bench.run)
    shutil.rmtree(bench.folder, ignore_errors=True)
    return verdicts


def step_of(claim: Claim, machine: str) -> str:
    """Return the name of the step of a verdict, with which the names of the steps of its evidence begin."""
    return f"{claim.id}-{machine}"


def _done(bench: Bench) -> dict[str, ClaimVerdict]:
    """Return the verdicts of an earlier, incomplete part of the run by step."""
    verdict_by_step = dict(_read(bench.store, run=bench.run))
    for absence in bench.store.absences(run=bench.run, instrument=INSTRUMENT):
        if absence.step is not None and absence.step not in verdict_by_step:
            conditions = {k: str(v or "") for k, v in absence.conditions.items()}
            claim = next((candidate for candidate in chosen(()) if candidate.id == conditions.get("claim")), None)
            if claim is not None:
                basis: Basis = next(b for b in _BASES if b == conditions.get("basis"))
                verdict_by_step[absence.step] = untested(
                    claim, absence.step.partition("-")[2], basis, absence.reason, ""
                )
    return verdict_by_step


_BASES: Final[tuple[Basis, ...]] = ("measured", "measured on a guest", "modelled", "computed", "printed")


def _test(bench: Bench, claim: Claim, trial: ClaimTest, machine: str, step: str) -> ClaimVerdict:
    """Execute one test and store its verdict after its evidence."""
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    basis: Basis
    if trial.where == "host":
        basis, machine_name = "measured on a guest" if bench.guest else "measured", bench.host
    elif trial.where == "model":
        basis, machine_name = "modelled", machine
    else:
        basis, machine_name = "printed" if claim.printed else "computed", COMPUTED
    reason = bench.lacks(trial.needs) if trial.where == "host" else ""
    verdict = None
    if not reason:
        try:
            effects = call(trial.where, trial.method, bench, step, machine, trial.parameters)
            verdict = of_effects(claim, machine_name, basis, effects, start)
        except MeshmarkError as error:
            reason = quoted(error, 300)
    if verdict is None:
        verdict = untested(claim, machine_name, basis, reason, start)
    row = to_record(verdict, native.VERSION)
    if isinstance(row, Record):
        bench.store.add(bench.run, step, [row], (), machine_name)
    else:
        bench.store.add(bench.run, step, (), [row], machine_name)
    return verdict


def _read(store: Store, **equal: str) -> Iterator[tuple[str, ClaimVerdict]]:
    for run, step, record in store.rows(instrument=INSTRUMENT, metric=EFFECT.name, **equal):
        with suppress(KeyError, ValueError, StopIteration):  # the row is from another version
            yield step, from_record(record, run, step)


def history(store: Store) -> dict[str, list[ClaimVerdict]]:
    """Return every verdict in a store by claim, oldest first, without tests that could not be made."""
    verdicts_by_claim: dict[str, list[ClaimVerdict]] = {}
    for _, verdict in _read(store):
        verdicts_by_claim.setdefault(verdict.claim, []).append(verdict)
    return {k: sorted(v, key=lambda x: x.start) for k, v in verdicts_by_claim.items()}


def latest(verdicts: Sequence[ClaimVerdict]) -> list[ClaimVerdict]:
    """Return the newest verdict on each machine, in the order in which the machines first occur."""
    return list({(v.machine, v.basis): v for v in verdicts}.values())


def counts(verdicts: Sequence[ClaimVerdict]) -> Mapping[str, int]:
    """Return the number of verdicts by word, and under `counted` the number of verdicts that are evidence."""
    count_by_word: dict[str, int] = {}
    for v in verdicts:
        count_by_word[v.word] = count_by_word.get(v.word, 0) + 1
    return {**count_by_word, "counted": sum(v.counts for v in verdicts)}


def agreement(one: Sequence[ClaimVerdict], other: Sequence[ClaimVerdict]) -> tuple[int, int]:
    """Return how many tests have the same verdict in both runs, and how many tests are in both runs."""
    text_by_test = {(v.claim, v.machine): v.text for v in one}
    common = [v for v in other if (v.claim, v.machine) in text_by_test]
    return sum(text_by_test[v.claim, v.machine] == v.text for v in common), len(common)


def as_dict(claim: Claim) -> dict[str, Any]:
    """Return a claim as a JSON object."""
    return {
        "type": "claim",
        "id": claim.id,
        "theme": claim.theme,
        "statement": claim.statement,
        "published": claim.published,
        "source": {"title": claim.source.title, "year": claim.source.year, "place": claim.source.place},
        "expected": claim.expected,
        "margin": claim.margin,
        "timing": claim.timing,
        "printed": claim.printed,
        "tests": [
            {"where": t.where, "method": t.method, "on": list(t.on), "needs": dict(t.needs)} for t in claim.tests
        ],
    }
