"""The tests of the scheduler: verdicts on samples, and one run on this host."""

from __future__ import annotations

import pytest

from meshmark.doctor import scheduler
from meshmark.doctor.scheduler import Watched, crowded, judge_moves, judge_overload, judge_starts, moves
from meshmark.machine.sources import from_sysfs

APART = [[0, 1]] * 50


def watched(cpus: list[list[int]], *cpu_s: float) -> Watched:
    return Watched(cpus, cpu_s or (1.0,) * len(cpus[0]), 1.0, 0.0)


def test_threads_that_share_a_cpu_beside_an_idle_one_are_crowded() -> None:
    assert crowded([[0, 1], [0, 0], [1, 0], [1, 1]], 2) == 0.5
    assert crowded([[0, 1, 0]], 2) == 0, "three threads have to share two CPUs"
    assert judge_starts(watched(APART), 2)[0] == "ok"
    judgement, text = judge_starts(watched([[0, 0]] * 20 + [[0, 1]] * 30), 2)
    assert judgement == "wrong" and "in 40\u00a0% of the samples" in text


def test_only_moves_without_an_idle_cpu_count() -> None:
    assert moves([[0, 1], [1, 0], [1, 0]], 2) == 2
    assert moves([[0, 0], [0, 1], [0, 1]], 2) == 0, "the thread moved to an idle CPU"
    assert judge_moves(watched(APART), 2)[0] == "ok"
    assert judge_moves(watched([[0, 1], [1, 0]] * 25), 2)[0] == "wrong"


def test_overload_is_shared_by_all_threads() -> None:
    assert judge_overload(watched([[0, 1, 0]], 0.66, 0.67, 0.67), 2)[0] == "ok"
    judgement, text = judge_overload(watched([[0, 1, 0]], 1.0, 0.5, 0.5), 2)
    assert judgement == "wrong" and "fairness 0.889" in text
    assert judge_overload(watched([[0, 1, 0]], 1.0, 1.0, 0.0), 2)[0] == "wrong"


def test_this_host_is_judged_unless_other_programs_use_it() -> None:
    findings = scheduler.scheduler_findings(from_sysfs())
    assert [finding.name for finding in findings] == ["start of threads", "moves of threads", "shared overload"]
    for finding in findings:
        assert finding.verdict in ("ok", "wrong", "unknown")
        assert ("other programs used" in finding.value) == (finding.verdict == "unknown"), finding


def test_a_missing_program_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHMARK_LOAD", "/missing/meshmark-load")
    for finding in scheduler.scheduler_findings(from_sysfs()):
        assert finding.verdict == "unknown" and "meshmark-load" in finding.value
