"""Tests of the CPU time that other programs use during runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshmark.experiments.experiment import ExperimentPlan
from meshmark.experiments.turns import SettingRunner
from meshmark.place.other_work import (
    OtherWork,
    OtherWorkShares,
    disturbance,
    overall,
    result_flags,
    shares_during,
    shares_of,
)
from support.waiting import until


@dataclass
class Run:
    flags: list[str] = field(default_factory=list)
    shares: OtherWorkShares | None = None


def test_the_time_of_other_programs_is_what_is_left_of_the_time_in_use() -> None:
    shares = shares_of(busy_s=3.0, stolen_s=0.4, own_s=1.0, elapsed_s=2.0, cpus=4)
    assert (shares.others, shares.stolen) == (pytest.approx(0.25), pytest.approx(0.05))
    assert shares.flags == ["disturbed", "stolen"]
    assert overall([Run(shares=shares_of(1.0, 0.0, 1.2, 1.0, 2))]) == OtherWorkShares(0.0, 0.0, 1.0), (
        "errors of the accounting"
    )


def test_differences_of_a_few_ticks_are_no_flags() -> None:
    assert OtherWorkShares(0.5, 0.5, 0.02).flags == []
    assert OtherWorkShares(0.04, 0.01, 10.0).flags == []


def test_another_program_counts_and_the_own_children_do_not() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    child = subprocess.Popen(spin)
    try:
        used_s = 0.0
        other_work = OtherWork()

        def seen() -> bool:
            nonlocal used_s
            used_s = sum(map(int, Path(f"/proc/{child.pid}/stat").read_text().split()[13:15])) / 100
            return used_s >= 0.3

        assert until(seen)
        shares_as_other, shares_as_own = other_work.shares(0.0), other_work.shares(used_s)
        assert shares_as_other.others * shares_as_other.elapsed_s > 0 and shares_as_own.others < shares_as_other.others
    finally:
        child.kill()
        child.wait()


def test_disturbances_count_from_a_quarter_of_the_runs_on_and_doubts_from_one() -> None:
    runs = [Run(["disturbed"]), Run(["unverified"]), Run(), Run()]
    assert result_flags(runs) == {"unverified"}
    runs[2].flags.append("disturbed")
    assert result_flags(runs) == {"unverified", "disturbed"}
    assert disturbance(runs) == "", "the shares are not known"


def test_runs_that_are_too_short_each_count_together() -> None:
    runs = [Run(shares=OtherWorkShares(0.5 if i % 2 else -0.1, 0.03, 0.02)) for i in range(10)]
    assert not any(run.shares and run.shares.flags for run in runs)
    assert result_flags(runs[:2]) == frozenset(), "not accounted for either"
    assert result_flags(runs) == {"disturbed"}
    assert disturbance(runs) == "other programs used 20 % (disturbed) of this machine's CPU time meanwhile"
    assert shares_during(runs) == {"others_share": pytest.approx(0.2), "steal_share": pytest.approx(0.03)}
    long_runs = [Run(shares=OtherWorkShares(0.5, 0.03, 1.0))]
    assert disturbance(long_runs) == (
        "other programs used 50 % (disturbed) and the hypervisor took 3.0 % (stolen) "
        "of this machine's CPU time meanwhile"
    )


def test_runs_of_an_experiment_have_the_shares_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.experiments.turns.OtherWork.shares", lambda _, __: OtherWorkShares(0.0, 0.3, 1.0))
    plan = ExperimentPlan(
        a="same",
        b="X=1",
        command=["true"],
        seed=1,
        budget_s=10.0,
        warmup=0,
        max_pairs=9,
        timeout_s=None,
        margin=0.02,
        pattern="",
        metric="",
        better="",
        restore="",
        run="experiment-1",
        started="2026-11-29T10:00:00Z",
    )
    outcome = SettingRunner(plan, tmp_path).run(0, "a", 0)
    assert (outcome.others_share, outcome.stolen_share, outcome.flags) == (0.0, 0.3, ["stolen"])
