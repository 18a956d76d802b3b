"""Ranks and launchers that are killed or hang: the step names them, leaves nothing behind, and a later run resumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from meshmark.measure.runs import launch
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner, StepResult
from support.comm_runs import Line, comm, kinds, measured, of, slow, started_by
from support.mpi_here import installed
from support.waiting import alive, until

pytestmark = pytest.mark.skipif(not installed(), reason="no MPI library is installed")

# One size after the other, with the maximum number of blocks: about two seconds.
LONG = ("swap", "--bytes", "8,16,32,64,128,256,512,1024", "--interval", "0.01", "--budget", "20s")


def journalled(runner: PlanRunner, step: SurveyStep, kind: str) -> list[Line]:
    """Return the complete lines of this type that the journal has at present."""
    journal = runner.journal(step)
    raw = journal.read_bytes() if journal.exists() else b""
    lines = [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    return [line for line in lines if line["type"] == kind]


def shared_files(pid: int) -> set[Path]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {Path(name) for name in re.findall(r"(/dev/shm/\S+)", maps) if Path(name).exists()}


def injured(
    runner: PlanRunner, step: SurveyStep, injure: Callable[[int, list[int]], None], *, orderly: bool = True
) -> tuple[StepResult, list[Line]]:
    """Run a step, injure its launcher and ranks after the first point, and return the result and the ranks.

    Asserts that no rank and none of their shared memory is left (`orderly` launchers remove it), only measurements."""
    step_results: list[StepResult] = []
    thread = threading.Thread(target=lambda: step_results.append(runner.run_step(step)))
    thread.start()
    assert until(lambda: journalled(runner, step, "point") or not thread.is_alive())
    ranks: list[Line] = journalled(runner, step, "header")[0]["processes"]
    pids = [p["pid"] for p in ranks]
    files = set().union(*map(shared_files, pids))
    children = Path(f"/proc/self/task/{thread.native_id}/children")  # other tests start browsers and guests
    (launcher,) = map(int, children.read_text().split())
    injure(launcher, pids)
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert until(lambda: not any(map(alive, [launcher, *pids])), 10)
    leftovers = [f for f in files if f.exists()]
    for file in leftovers:
        file.unlink()
    assert not (leftovers and orderly), leftovers
    assert 0 < len(journalled(runner, step, "point")) < 8
    return step_results[0], ranks


@pytest.mark.parametrize(("kind", "victim"), [("openmpi", 1), slow("openmpi", 0), slow("mpich", 1), slow("mpich", 0)])
def test_a_killed_rank_is_named_and_a_later_run_measures_the_rest(kind: str, victim: int, tmp_path: Path) -> None:
    started_by(kind, 2)
    runner, step = PlanRunner(tmp_path), SurveyStep("s", "swap", LONG, 20, 2, kind)
    result, ranks = injured(runner, step, lambda _launcher, pids: os.kill(pids[victim], signal.SIGKILL))
    assert result.status == "failed"
    assert result.message == f"rank {victim} on {ranks[victim]['host']} was terminated by SIGKILL"
    second_run = runner.run_step(step)
    assert second_run.status == "ok", second_run.message
    assert Counter(line["index"] for line in journalled(runner, step, "point")) == Counter(range(8))
    assert len([r for r in second_run.reading.records if r.metric == "exchange_time"]) == 8


@kinds
@pytest.mark.slow
@pytest.mark.parametrize("whom", ["a rank", "all ranks", "the launcher and all ranks"])
def test_hanging_processes_are_ended_and_a_later_run_measures_the_rest(kind: str, whom: str, tmp_path: Path) -> None:
    started_by(kind, 2)
    step = SurveyStep("s", "swap", LONG, 1, 2, kind)

    def stop(launcher: int, pids: list[int]) -> None:
        for pid in {"a rank": pids[1:], "all ranks": pids}.get(whom, [launcher, *pids]):
            os.kill(pid, signal.SIGSTOP)

    result, _ranks = injured(PlanRunner(tmp_path, silence_s=3), step, stop)
    assert result.status == "failed" and re.fullmatch(r"no output for \d+ s: killed", result.message), result.message
    runner = PlanRunner(tmp_path)
    assert runner.run_step(step).status == "ok"
    assert Counter(line["index"] for line in journalled(runner, step, "point")) == Counter(range(8))


@kinds
@pytest.mark.slow
def test_a_killed_launcher_is_named_and_its_ranks_end(kind: str, tmp_path: Path) -> None:
    started_by(kind, 2)
    step = SurveyStep("s", "swap", LONG, 20, 2, kind)
    result, _ranks = injured(
        PlanRunner(tmp_path), step, lambda launcher, _pids: os.kill(launcher, signal.SIGKILL), orderly=False
    )
    assert (result.status, result.message) == ("failed", "the launcher was terminated by SIGKILL")


@kinds
def test_no_rank_survives_its_launcher(kind: str) -> None:
    files = set(Path("/dev/shm").glob("*"))
    child = subprocess.Popen(
        [*started_by(kind, 2), *LONG], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=launch.environment(kind)
    )
    try:
        assert child.stdout is not None
        pids = [p["pid"] for p in json.loads(child.stdout.readline())["processes"]]
        assert len(pids) == 2 and all(map(alive, pids))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    child.stdout.close()
    assert until(lambda: not any(map(alive, pids)), 10)
    for file in set(Path("/dev/shm").glob("vader_segment*")) - files:  # no process was left to remove it
        file.unlink()


@kinds
@pytest.mark.slow
def test_a_resumed_run_derives_missing_results_from_kept_samples(kind: str, tmp_path: Path) -> None:
    words = ("swap", "--bytes", "8", "--distance", "1", "--budget", "1s")
    status, lines, messages = comm(kind, 4, *words)
    assert status == 0, messages
    (complete,) = of(lines, "result", "contention")
    ends = [i for i, line in enumerate(lines) if line["type"] == "point"]
    journal = tmp_path / "cut.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines[: ends[0] + 1]))
    second_run = measured(kind, 4, *words, "--resume", str(journal))
    assert second_run[-1]["resumed"] == 1 and second_run[-1]["points"] == 1
    (later,) = of(second_run, "result", "contention")
    assert later["value"] > 0 and later["conditions"] == complete["conditions"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, refused_lines, messages = comm(kind, 4, *words, "--resume", str(journal))
    assert status == 0 and not of(refused_lines, "sample") and not of(refused_lines, "point"), messages
