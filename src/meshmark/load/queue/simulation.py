"""Simulates a mix of jobs under a policy with the native placer, which uses the same policies as `meshmark run`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.queue.jobs import JobMix
from meshmark.load.queue.mix import QueueRules
from meshmark.machine.tree import parse_list
from meshmark.place.native import ask


@dataclass(frozen=True, slots=True)
class QueueMachine:
    """The machine on which jobs run.

    Attributes:
        name: Name in results.
        topology: `host`, or a description for `meshmark place --topology`.
        matrix: Content of a file of distances between nodes; "" if the topology states them.
        node_bytes_per_s: Memory bandwidth of each node, B/s; 0: no limit.
        core_yield: Work of a core with several busy threads, relative to a core with one.
    """

    name: str
    topology: str
    matrix: str = ""
    node_bytes_per_s: float = 0.0
    core_yield: float = 1.0


@dataclass(frozen=True, slots=True)
class JobRun:
    """How a job fared: times in s since the first submission.

    Attributes:
        job: Position of the job in the mix.
        cpus: CPUs to which it was bound; () if it was not bound.
        oversubscribed: Whether another job already held one of its CPUs when it started.
    """

    job: int
    start_s: float
    end_s: float
    cpus: tuple[int, ...] = ()
    oversubscribed: bool = False


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A mix that ran under a policy.

    Attributes:
        slots: Number of slots of the machine.
        runs: The jobs that ran, in the order of the mix.
        refused: Reason why a job could not run on this machine, by position in the mix.
    """

    policy: str
    slots: int
    runs: Sequence[JobRun]
    refused: dict[int, str] = field(default_factory=dict)


HERE: Final = QueueMachine("host", "host")


@contextlib.contextmanager
def written_jobs(mix: JobMix) -> Iterator[str]:
    """Yield the name of a temporary file with the jobs of a mix, as the placer reads them."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        json.dump([[job.submit_s, job.run_s, job.slots, job.bytes_per_s] for job in mix.jobs], file)
        file.flush()
        yield file.name


def mix_arguments(rules: QueueRules, policy: str, machine: QueueMachine, jobs_file: str) -> list[str]:
    """Return the arguments of `meshmark-place` for a mix under a policy, without a matrix of distances."""
    return [
        *("mix", "--jobs", jobs_file, "--policy", policy, "--topology", machine.topology),
        *("--slots", rules.slots, "--discipline", rules.discipline, "--max-slots", str(rules.max_slots)),
        *("--node-bandwidth", f"{machine.node_bytes_per_s:.17g}", "--core-yield", f"{machine.core_yield:.17g}"),
    ]


def simulate(mix: JobMix, rules: QueueRules, policy: str, machine: QueueMachine) -> PolicyRun:
    """Simulate a mix under a policy.

    Raises:
        UsageError: The policy or the machine is unknown, or none of the jobs can run on the machine.
    """
    with (
        written_jobs(mix) as jobs_file,
        tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as matrix_file,
    ):
        matrix_file.write(machine.matrix)
        matrix_file.flush()
        argv = mix_arguments(rules, policy, machine, jobs_file)
        try:
            answer = json.loads(ask([*argv, *(["--matrix", matrix_file.name] if machine.matrix else [])], 3600))
        except UsageError as error:
            raise UsageError(f"policy {policy}: {str(error).removeprefix('bind: ')}") from error
        except ValueError as error:
            raise MeshmarkError(f"policy {policy}: the placer's answer is not JSON: {error}") from error
    runs, refused = [], {}
    for number, row in enumerate(answer["jobs"]):
        if "refused" in row:
            refused[number] = str(row["refused"])
        else:
            cpus = tuple(parse_list(row["cpus"]))
            runs.append(JobRun(number, row["start_s"], row["end_s"], cpus, "oversubscribed" in row))
    if not runs:
        raise UsageError(f"policy {policy}: none of the jobs can run: {next(iter(refused.values()))}")
    return PolicyRun(policy, int(answer["slots"]), runs, refused)
