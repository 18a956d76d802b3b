"""Cores of several kinds are named, and a process that may use several kinds gets a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshmark.machine.facts import host_facts
from support.made_host import AS_USER, looked, made, of


def kinds(performance: list[int], efficiency: list[int]) -> dict[str, Any]:
    files = (("performance", performance), ("efficiency", efficiency))
    return {"core_kinds": [{"name": name, "cpus": cpus} for name, cpus in files]}


@pytest.mark.parametrize(
    ("allowed", "judged", "found", "command"),
    [
        ("0-3", "spoils-measurements", "performance: CPUs 0-1, efficiency: CPUs 2-3", "taskset -c 0-1 meshmark"),
        ("1-2", "spoils-measurements", "performance: CPUs 0-1, efficiency: CPUs 2-3", "taskset -c 1 meshmark"),
        ("2-3", "ok", "efficiency: CPUs 2-3; this process may use efficiency only", ""),
    ],
)
def test_kinds_of_cores_are_named_and_judged_by_those_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, judged: str, found: str, command: str
) -> None:
    def with_kinds(root: Path) -> dict[str, object]:
        facts: dict[str, Any] = host_facts(root)
        return facts | {"topology": facts["topology"] | kinds([0, 1], [2, 3])}

    monkeypatch.setattr("meshmark.doctor.counters.host_facts", with_kinds)
    finding = of(looked(made(tmp_path, **{"proc/self/status": AS_USER.replace("0-3", allowed)})), "kinds of cores")
    assert finding.verdict == judged and found in finding.value and command in finding.command


def test_a_machine_whose_cores_are_alike_has_no_such_finding(tmp_path: Path) -> None:
    assert not [f for f in looked(made(tmp_path)) if f.name == "kinds of cores"]
