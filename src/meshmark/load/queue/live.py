"""Runs a mix of jobs on this machine under a policy. The native placer decides which job starts next, and where."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError, quoted
from meshmark.load.queue.jobs import JobMix, QueuedJob
from meshmark.load.queue.mix import QueueRules
from meshmark.load.queue.simulation import HERE, JobRun, PolicyRun, mix_arguments, written_jobs
from meshmark.machine.tree import parse_list
from meshmark.place.native import find_place
from meshmark.store.files import read_tail

_TAIL_BYTES: Final = 2000  # of the output of a job that failed
_SHORTEST_S: Final = 1e-3  # CPU time of a job without a command


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A mix that really ran.

    Attributes:
        failed: Reason why a job failed, by position in the mix. Such a job counts like others: it ran until it failed.
    """

    run: PolicyRun
    failed: dict[int, str] = field(default_factory=dict)


def run_mix(mix: JobMix, rules: QueueRules, policy: str, slots: int) -> LiveRun:
    """Run a mix on this machine; return when all jobs have ended.

    Args:
        mix: The jobs, by time of submission.
        rules: How the queue treats jobs.
        policy: Placement policy.
        slots: Number of slots of this machine.

    Raises:
        MeshmarkError: The policy is unknown, or the placer fails.
    """
    started: dict[int, tuple[float, tuple[int, ...], bool]] = {}
    ends_s: dict[int, float] = {}
    failed: dict[int, str] = {}
    refused: dict[int, str] = {}
    with _Placer(mix, rules, policy) as placer, _RunningJobs() as running:
        begin_s = time.monotonic()

        def act(decision: dict[str, Any]) -> None:
            """Start the jobs that may start. A job that cannot be executed ends at once."""
            decisions = deque([decision])
            while decisions:
                current = decisions.popleft()
                refused.update({row["job"]: row["why"] for row in current["refused"]})
                for row in current["start"]:
                    number, cpus = row["job"], tuple(parse_list(row["cpus"]))
                    started[number] = (time.monotonic() - begin_s, cpus, "oversubscribed" in row)
                    try:
                        running.start(number, mix.jobs[number], cpus)
                    except OSError as error:
                        failed[number] = f"cannot be started: {error.strerror or error}"
                        ends_s[number] = time.monotonic() - begin_s
                        decisions.append(placer.ask(f"end {number}"))

        pending = deque(range(len(mix.jobs)))
        while pending or running:
            while pending and mix.jobs[pending[0]].submit_s <= time.monotonic() - begin_s:
                act(placer.ask(f"submit {pending.popleft()}"))
            wait_s = max(0.0, mix.jobs[pending[0]].submit_s - (time.monotonic() - begin_s)) if pending else None
            for number, reason in running.ended(wait_s):
                ends_s[number] = time.monotonic() - begin_s
                if reason:
                    failed[number] = reason
                act(placer.ask(f"end {number}"))
    runs = [
        JobRun(number, start_s, ends_s[number], cpus, oversubscribed)
        for number, (start_s, cpus, oversubscribed) in sorted(started.items())
    ]
    return LiveRun(PolicyRun(policy, slots, runs, refused), failed)


def time_alone(job: QueuedJob) -> float:
    """Return the time that a job takes alone, unbound, in s.

    Raises:
        MeshmarkError: The job failed.
    """
    with _RunningJobs() as running:
        begin_s = time.monotonic()
        try:
            running.start(0, job, ())
        except OSError as error:
            raise MeshmarkError(f"job {job.name}: cannot be started: {error.strerror or error}") from error
        for _, reason in running.ended(None):
            if reason:
                raise MeshmarkError(f"job {job.name}: {reason}")
        return time.monotonic() - begin_s


def arguments(job: QueuedJob) -> list[str]:
    """Return the command of a job. A job without a command uses as much CPU time as its run time in each slot."""
    if job.command:
        return list(job.command)
    seconds = max(job.run_s, _SHORTEST_S)
    return [str(find_place()), "work", "--threads", str(job.slots), "--cpu-time", f"{seconds:.6f}s"]


class _Placer:
    """The native placer as a process that decides. Use it as a context manager."""

    def __init__(self, mix: JobMix, rules: QueueRules, policy: str) -> None:
        self._policy = policy
        self._stack = contextlib.ExitStack()
        jobs_file = self._stack.enter_context(written_jobs(mix))
        argv = [str(find_place()), *mix_arguments(rules, policy, HERE, jobs_file), "--live"]
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed by the stack)
        self._errors = self._stack.enter_context(errors)
        self._child = process.start(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8"
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Return the decision after an event."""
        assert self._child.stdin is not None and self._child.stdout is not None
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        if not answer:
            self._child.wait()
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or [f"status {self._child.returncode}"]
            raise MeshmarkError(f"policy {self._policy}: {lines[0].removeprefix('meshmark: error: ')}")
        decision: dict[str, Any] = json.loads(answer)
        return decision

    def __enter__(self) -> _Placer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait()
        self._stack.close()


class _RunningJobs:
    """The processes of jobs. Those that still run are ended at the end of the context."""

    def __init__(self) -> None:
        self._children: dict[int, tuple[int, subprocess.Popen[bytes], Any]] = {}  # by the descriptor of the process
        self._selector = selectors.DefaultSelector()

    def __bool__(self) -> bool:
        return bool(self._children)

    def start(self, number: int, job: QueuedJob, cpus: Sequence[int]) -> None:
        """Start a job on CPUs; () leaves it unbound.

        Raises:
            OSError: The program cannot be executed.
        """
        output = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the job has ended)
        try:
            child = process.start(
                arguments(job),
                process.Preparation(cpus=cpus),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={"OMP_NUM_THREADS": str(job.slots), **os.environ},
            )
        except BaseException:
            output.close()
            raise
        descriptor = os.pidfd_open(child.pid)
        self._children[descriptor] = (number, child, output)
        self._selector.register(descriptor, selectors.EVENT_READ)

    def ended(self, wait_s: float | None) -> Iterator[tuple[int, str]]:
        """Wait until a job ends, at most for a time; yield each job that has ended, and why it failed or ""."""
        for key, _ in self._selector.select(wait_s):
            number, child, output = self._children.pop(key.fd)
            self._selector.unregister(key.fd)
            os.close(key.fd)
            status = child.wait()
            reason = ""
            if status:
                lines = read_tail(output.fileno(), _TAIL_BYTES).splitlines()
                last = next((line.strip() for line in reversed(lines) if line.strip()), "")
                reason = process.status_text(status) + (f": {quoted(last)}" if last else "")
            output.close()
            yield number, reason

    def __enter__(self) -> _RunningJobs:
        return self

    def __exit__(self, *_: object) -> None:
        process.end([entry[1] for entry in self._children.values()])
        for descriptor, entry in self._children.items():
            os.close(descriptor)
            entry[2].close()
        self._selector.close()
