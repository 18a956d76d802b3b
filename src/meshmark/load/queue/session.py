"""Runs a mix of jobs under several policies in alternation, repeatedly, in a folder that can be resumed.

First, each kind of job runs alone once; slowdowns refer to these times, and the simulation uses them. Then each
repetition runs the same jobs under each policy, in random order. A run that was interrupted is repeated as a whole.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.queue.jobs import JobMix, QueuedJob
from meshmark.load.queue.live import LiveRun, run_mix, time_alone
from meshmark.load.queue.mix import QueueRules
from meshmark.load.queue.simulation import HERE, JobRun, PolicyRun, simulate
from meshmark.store.files import write_json
from meshmark.store.session import Journal, check_same, held, load_plan
from meshmark.values.secrets import mask_words
from meshmark.values.units import duration

PLAN: Final = "plan.json"
_HINT: Final = "use another folder with --out, or repeat the command that began this one"


@dataclass(frozen=True, slots=True)
class MeasuredRepetition:
    """A repetition that really ran.

    Attributes:
        mix: The jobs, with run times that were measured alone.
        runs: What happened under each policy, in the order of the rules.
    """

    mix: JobMix
    runs: Sequence[LiveRun]


@dataclass(slots=True)
class QueueSession:
    """A session in a folder.

    Args:
        folder: The folder; it gets the plan and the journal.
        rules: How the queue treats jobs, and the policies.
        mixes: The jobs of each repetition.
        seed: Determines the order of policies.
        notify: Called with a line about what runs.
    """

    folder: Path
    rules: QueueRules
    mixes: Sequence[JobMix]
    seed: int
    notify: Callable[[str], None]
    _alone_s: dict[str, float] = field(default_factory=dict)
    _done: dict[tuple[int, str], LiveRun] = field(default_factory=dict)

    def run(self, resume: bool) -> list[MeasuredRepetition]:
        """Run what the journal does not contain yet, and return all repetitions.

        Args:
            resume: Continue the session in the folder. Otherwise, the folder must not contain one.

        Raises:
            UsageError: The folder contains another session or none to resume, or no job can run.
            MeshmarkError: A job failed alone, or the folder cannot be written.
        """
        with held(self.folder, resumed=resume):
            self._prepare(resume)
            journal = Journal(self.folder / "journal.jsonl")
            for entry in journal.entries(dict):
                self._recall(entry[1])
            slots = self._slots()
            for kind, job in self._kinds():
                if kind not in self._alone_s:
                    self.notify(f"{job.name} alone, about {duration(job.run_s)}")
                    journal.append(self._recall({"alone": kind, "run_s": time_alone(job)}))
            for number, mix in enumerate(self.mixes):
                for policy in self._order(number):
                    if (number, policy) not in self._done:
                        self.notify(f"repetition {number + 1} of {len(self.mixes)}, {policy}")
                        live = run_mix(mix, self.rules, policy, slots)
                        journal.append(self._recall(_entry(number, live)))
        return [
            MeasuredRepetition(
                replace(mix, jobs=tuple(replace(job, run_s=self._alone_s[kind_of(job)]) for job in mix.jobs)),
                [self._done[number, policy] for policy in self.rules.policies],
            )
            for number, mix in enumerate(self.mixes)
        ]

    def _prepare(self, resume: bool) -> None:
        jobs = json.dumps([[_job_json(job) for job in mix.jobs] for mix in self.mixes])
        plan = {**asdict(self.rules), "seed": self.seed, "repetitions": len(self.mixes)}
        plan = {**json.loads(json.dumps(plan)), "jobs": hashlib.sha256(jobs.encode()).hexdigest()}
        path = self.folder / PLAN
        if resume:
            recorded = load_plan(path, dict, "a mix of jobs", "meshmark load queue MIX --run --out DIR")
            check_same(self.folder, "a mix of jobs", recorded, plan, _HINT)
        elif path.exists():
            raise UsageError(
                f"--out: {self.folder} contains a mix of jobs that ran; allowed: another folder, or --resume"
            )
        else:
            write_json(path, plan)

    def _slots(self) -> int:
        """Return the number of slots of this machine; a simulation checks the policies before anything runs."""
        return max(simulate(self.mixes[0], self.rules, policy, HERE).slots for policy in self.rules.policies)

    def _kinds(self) -> Iterator[tuple[str, QueuedJob]]:
        """Yield each kind of job once, with its key."""
        seen: set[str] = set()
        for mix in self.mixes:
            for job in mix.jobs:
                if (kind := kind_of(job)) not in seen:
                    seen.add(kind)
                    yield kind, job

    def _order(self, repetition: int) -> list[str]:
        policies = list(self.rules.policies)
        random.Random(f"{self.seed}:{repetition}").shuffle(policies)
        return policies

    def _recall(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take over an entry of the journal, and return it.

        Raises:
            MeshmarkError: The entry belongs to another kind of session.
        """
        try:
            if "alone" in entry:
                self._alone_s[str(entry["alone"])] = float(entry["run_s"])
            else:
                self._done[int(entry["repetition"]), str(entry["policy"])] = _live_run(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise MeshmarkError(f"{self.folder / 'journal.jsonl'}: found another entry: {error}") from error
        return entry


def kind_of(job: QueuedJob) -> str:
    """Return a text that is equal for jobs with the same work. Secrets in commands are masked."""
    return json.dumps([job.name if job.command else "", mask_words(job.command), job.run_s, job.slots])


def _job_json(job: QueuedJob) -> list[Any]:
    return [job.name, job.submit_s, job.run_s, job.slots, list(job.command)]


def _entry(repetition: int, live: LiveRun) -> dict[str, Any]:
    run = live.run
    return {
        "repetition": repetition,
        "policy": run.policy,
        "slots": run.slots,
        "runs": [[r.job, r.start_s, r.end_s, list(r.cpus), r.oversubscribed] for r in run.runs],
        "refused": {str(job): why for job, why in run.refused.items()},
        "failed": {str(job): why for job, why in live.failed.items()},
    }


def _live_run(entry: Mapping[str, Any]) -> LiveRun:
    runs = [JobRun(job, start_s, end_s, tuple(cpus), bool(over)) for job, start_s, end_s, cpus, over in entry["runs"]]
    refused = {int(job): str(why) for job, why in entry["refused"].items()}
    failed = {int(job): str(why) for job, why in entry["failed"].items()}
    return LiveRun(PolicyRun(str(entry["policy"]), int(entry["slots"]), runs, refused), failed)
