"""Runs the tests of claims, stores their evidence and verdicts, and reads earlier verdicts.

A run of the store has the name `claims-…`. Each test has a step of its own, named after claim and machine, with its
verdict; the steps of its evidence begin with the same name. While a run is incomplete, `.measuring/RUN` in the store
has what was asked for, and the journals of measurements. A resumed run skips the tests that have a verdict.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.machine.boot import remember
from meshmark.store.files import NoLocksError, lock, read_json, write_file
from meshmark.store.record import Record
from meshmark.store.store import MEASURING, Store, run_name
from meshmark.validation.claims import computed, measured, modelled  # noqa: F401 (the modules register their methods)
from meshmark.validation.claims.bench import BUDGET_S, Bench
from meshmark.validation.claims.catalogue import Claim, Trial, chosen, trials_of
from meshmark.validation.claims.judging import (
    EFFECT,
    INSTRUMENT,
    Basis,
    Verdict,
    from_record,
    of_effects,
    to_record,
    untested,
)
from meshmark.validation.claims.registry import call

KIND: Final = "claims"  # first word of the names of runs
REQUEST: Final = "claims.json"  # in the folder of an incomplete run
COMPUTED: Final = "publications"  # machine of verdicts by computation
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What a run tests.

    Attributes:
        ids: Of claims; empty: all.
        on: `host`, `guest`, `computed`, a modelled machine, or "" for all.
        budget_s: Sampling time of each test on the host, s.
    """

    ids: tuple[str, ...] = ()
    theme: str = ""
    on: str = ""
    budget_s: float = BUDGET_S

    def trials(self) -> list[tuple[Claim, Trial, str]]:
        """The tests, with the machine of each.

        Raises:
            UsageError: An id, the theme or the machine is unknown.
            AbsentError: None of the claims is tested there.
        """
        if self.on not in {"", "host", "guest", "computed"}:
            from meshmark.model.machine import machine_names

            if self.on not in machine_names():
                raise UsageError(
                    f"--on: found '{quoted(self.on)}'; allowed: host, guest, computed, {', '.join(machine_names())}"
                )
        found = trials_of(chosen(self.ids, self.theme), self.on)
        if not found:
            raise AbsentError(f"claims: none of these claims is tested on {self.on}", "meshmark claims --list")
        return found


@contextmanager
def begun(store: Store, request: Request) -> Iterator[tuple[str, Path]]:
    """A new run: its name, and the folder of its journals, which another process cannot resume meanwhile."""
    run = run_name(KIND)
    folder = store.folder / MEASURING / run
    write_file(folder / REQUEST, json.dumps(asdict(request)).encode() + b"\n", private=True)
    with _locked(folder / REQUEST):
        yield run, folder


@contextmanager
def resumed(store: Store) -> Iterator[tuple[str, Path, Request]]:
    """The newest incomplete run of this store.

    Raises:
        UsageError: There is none.
        MeshmarkError: It cannot be read.
    """
    newest = sorted((store.folder / MEASURING).glob(f"{KIND}-*/{REQUEST}"), key=lambda p: p.stat().st_mtime)
    for path in reversed(newest):
        try:
            handle = lock(path)
        except NoLocksError as why:
            raise MeshmarkError(f"--resume: {why}", "use --store DIR on another file system") from why
        if handle is None:
            continue  # it is being run
        try:
            raw = read_json(path)
            request = Request(tuple(raw["ids"]), str(raw["theme"]), str(raw["on"]), float(raw["budget_s"]))
        except (MeshmarkError, KeyError, TypeError, ValueError) as why:
            os.close(handle)
            raise MeshmarkError(f"cannot read {path}: {quoted(why)}", f"rm -r {path.parent}") from why
        try:
            yield path.parent.name, path.parent, request
        finally:
            os.close(handle)
        return
    raise UsageError(f"--resume: found no incomplete run of claims in {store.folder}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = None
    with suppress(NoLocksError):
        handle = lock(path, wait=True)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def run_tests(bench: Bench, request: Request, progress: Progress | None = None) -> list[Verdict]:
    """Run the tests of a request that have no verdict in the run yet, and finish the run.

    Args:
        progress: Called before each test with the number of tests that are done, their total, and the next one.

    Returns:
        The verdicts of all tests, in the order of the claims.

    Raises:
        AbsentError: `guest` was asked for, and this host is none.
    """
    if request.on == "guest" and not bench.guest:
        raise AbsentError("--on guest: this host is no guest", "meshmark claims --on host")
    trials = request.trials()
    done = _done(bench)
    if any(t.where == "host" for _, t, _ in trials):
        with suppress(MeshmarkError):
            remember(bench.store)
    verdicts = []
    for number, (claim, trial, machine) in enumerate(trials):
        step = step_of(claim, machine)
        if progress is not None:
            progress(number, len(trials), step)
        verdict = done.get(step) or _test(bench, claim, trial, machine, step)
        verdicts.append(verdict)
    bench.store.finish(bench.run)
    shutil.rmtree(bench.folder, ignore_errors=True)
    return verdicts


def step_of(claim: Claim, machine: str) -> str:
    """Name of the step of a verdict, which those of its evidence begin with."""
    return f"{claim.id}-{machine}"


def _done(bench: Bench) -> dict[str, Verdict]:
    """The verdicts of an earlier, incomplete part of the run, by step."""
    found = dict(_read(bench.store, run=bench.run))
    for a in bench.store.absences(run=bench.run, instrument=INSTRUMENT):
        if a.step is not None and a.step not in found:
            c = {k: str(v or "") for k, v in a.conditions.items()}
            claim = next((x for x in chosen(()) if x.id == c.get("claim")), None)
            if claim is not None:
                basis: Basis = next(b for b in _BASES if b == c.get("basis"))
                found[a.step] = untested(claim, a.step.partition("-")[2], basis, a.reason, "")
    return found


_BASES: Final[tuple[Basis, ...]] = ("measured", "measured on a guest", "modelled", "computed", "printed")


def _test(bench: Bench, claim: Claim, trial: Trial, machine: str, step: str) -> Verdict:
    """Make one test, and store its verdict after its evidence."""
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    basis: Basis
    if trial.where == "host":
        basis, named = "measured on a guest" if bench.guest else "measured", bench.host
    elif trial.where == "model":
        basis, named = "modelled", machine
    else:
        basis, named = "printed" if claim.printed else "computed", COMPUTED
    reason = bench.lacks(trial.needs) if trial.where == "host" else ""
    verdict = None
    if not reason:
        try:
            effects = call(trial.where, trial.method, bench, step, machine, trial.parameters)
            verdict = of_effects(claim, named, basis, effects, start)
        except MeshmarkError as why:
            reason = quoted(why, 300)
    if verdict is None:
        verdict = untested(claim, named, basis, reason, start)
    row = to_record(verdict, _build())
    if isinstance(row, Record):
        bench.store.add(bench.run, step, [row], (), named)
    else:
        bench.store.add(bench.run, step, (), [row], named)
    return verdict


def _build() -> str:
    from importlib.metadata import version

    return version("meshmark")


def _read(store: Store, **equal: str) -> Iterator[tuple[str, Verdict]]:
    for run, step, record in store.rows(instrument=INSTRUMENT, metric=EFFECT.name, **equal):
        with suppress(KeyError, ValueError, StopIteration):  # a row of another version
            yield step, from_record(record, run, step)


def history(store: Store) -> dict[str, list[Verdict]]:
    """Every verdict in a store by claim, oldest first. Tests that could not be made are not part of it."""
    found: dict[str, list[Verdict]] = {}
    for _, verdict in _read(store):
        found.setdefault(verdict.claim, []).append(verdict)
    return {k: sorted(v, key=lambda x: x.start) for k, v in found.items()}


def latest(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The newest verdict on each machine, in the order in which the machines first occur."""
    return list({(v.machine, v.basis): v for v in verdicts}.values())


def counts(verdicts: Sequence[Verdict]) -> Mapping[str, int]:
    """Verdicts by their word, and of those that count as evidence."""
    words: dict[str, int] = {}
    for v in verdicts:
        words[v.word] = words.get(v.word, 0) + 1
    return {**words, "counted": sum(v.counts for v in verdicts)}


def agreement(one: Sequence[Verdict], other: Sequence[Verdict]) -> tuple[int, int]:
    """How many tests of two runs have the same verdict, and how many both have."""
    words = {(v.claim, v.machine): v.text for v in one}
    both = [v for v in other if (v.claim, v.machine) in words]
    return sum(words[v.claim, v.machine] == v.text for v in both), len(both)


def as_dict(claim: Claim) -> dict[str, Any]:
    """A claim as a JSON object."""
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
