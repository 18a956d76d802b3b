"""Mixes of jobs that really run: order, CPUs, failures, and work without a command."""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError
from meshmark.load.queue.jobs import JobMix, QueuedJob
from meshmark.load.queue.live import LiveRun, run_mix, time_alone
from meshmark.load.queue.mix import QueueRules
from meshmark.load.queue.simulation import JobRun, PolicyRun
from meshmark.load.queue.summary import agreement, summarise

RULES = QueueRules(slots="threads", max_slots=1)


def shell(text: str, submit_s: float = 0.0, slots: int = 1) -> QueuedJob:
    return QueuedJob("a", submit_s, 0.1, slots, command=("sh", "-c", text))


def run(*jobs: QueuedJob, policy: str = "any", rules: QueueRules = RULES) -> LiveRun:
    return run_mix(JobMix("m", jobs), rules, policy, len(os.sched_getaffinity(0)))


def test_jobs_run_one_after_another_in_the_order_of_submission(tmp_path: Path) -> None:
    log = tmp_path / "log"
    live = run(*(shell(f"echo {n} >>{log}; sleep 0.05", 0.01 * n) for n in range(4)))
    assert log.read_text(encoding="utf-8").split() == ["0", "1", "2", "3"] and live.failed == {}
    runs = live.run.runs
    assert all(before.end_s <= after.start_s for before, after in pairwise(runs))
    assert all(r.end_s - r.start_s >= 0.05 for r in runs)


def test_a_job_runs_on_the_cpus_that_the_policy_chose(tmp_path: Path) -> None:
    mask = tmp_path / "mask"
    live = run(shell(f"grep Cpus_allowed_list /proc/self/status >{mask}"))
    assert mask.read_text(encoding="utf-8").split()[1] == ",".join(map(str, live.run.runs[0].cpus))
    unbound = run(shell(f"grep Cpus_allowed_list /proc/self/status >{mask}; env >>{mask}"), policy="none")
    text = mask.read_text(encoding="utf-8")
    assert unbound.run.runs[0].cpus == () and ("-" in text.split()[1] or len(os.sched_getaffinity(0)) < 3)
    assert "OMP_NUM_THREADS=" in text


def test_jobs_that_fail_have_their_reason_and_do_not_stop_others() -> None:
    missing = QueuedJob("b", 0.0, 0.1, 1, command=("/proc/no-such-program",))
    live = run(shell("echo first; echo why >&2; exit 3"), missing, shell("kill -9 $$"), shell("true"))
    assert live.failed == {0: "status 3: why", 1: "cannot be started: No such file or directory", 2: "SIGKILL"}
    assert [r.job for r in live.run.runs] == [0, 1, 2, 3]


def test_a_job_that_is_too_large_is_refused() -> None:
    live = run(shell("true", slots=2), shell("true"))
    assert live.run.refused == {0: "it needs 2 slots of 1"} and [r.job for r in live.run.runs] == [1]


def test_a_job_without_a_command_uses_cpu_time() -> None:
    before_s = time.monotonic()
    assert 0.2 <= time_alone(QueuedJob("a", 0.0, 0.2, 1)) <= time.monotonic() - before_s
    children_s = os.times().children_user + os.times().children_system
    time_alone(QueuedJob("a", 0.0, 0.15, 2))
    assert os.times().children_user + os.times().children_system - children_s >= 0.29


def test_a_job_that_fails_alone_is_an_error_with_its_reason() -> None:
    with pytest.raises(MeshmarkError, match="job a: status 4: no licence"):
        time_alone(shell("echo no licence; exit 4"))


def test_a_policy_that_the_placer_refuses_is_named() -> None:
    with pytest.raises(MeshmarkError, match=r"policy spread: .*found 'spread'"):
        run(shell("true"), policy="spread")


def test_the_order_of_policies_is_compared_where_the_simulation_is_clear() -> None:
    mix = JobMix("m", (QueuedJob("a", 0, 10, 1),))

    def rows(*ends_s: float) -> list[object]:
        return [summarise(mix, PolicyRun(str(n), 1, (JobRun(0, 0, end_s),))) for n, end_s in enumerate(ends_s)]

    simulated, measured = rows(10, 10.1, 12), rows(11, 10, 10.5)
    result = agreement([measured], [simulated])  # type: ignore[list-item]
    assert (result.pairs, result.same_order) == (4, 2), "by total time and by mean turnaround"
