"""Surveys are found among the folders of other runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.measure.survey import find_run, last_run, surveys


def make_folder(runs: Path, name: str, *files: str) -> Path:
    (runs / name).mkdir(parents=True)
    for file in files:
        (runs / name / file).write_text("{}")
    return runs / name


def test_other_runs_that_have_a_plan_are_no_surveys(tmp_path: Path) -> None:
    survey = make_folder(tmp_path, "2026-01-01-survey", "plan.json", "run.json")
    advice = make_folder(tmp_path, "advise-2026-01-02", "plan.json", "answer.json")  # newer
    make_folder(tmp_path, "experiment-2026-01-03", "experiment.json")
    assert surveys(tmp_path) == [survey]
    assert last_run(tmp_path) == find_run("latest", tmp_path) == find_run(survey.name, tmp_path) == survey
    with pytest.raises(UsageError, match=f"found no run '{advice.name}'") as error:
        find_run(advice.name, tmp_path)
    assert error.value.hint == f"recent runs: {survey.name}"


def test_a_folder_without_surveys_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path, "advise-2026-01-02", "plan.json")
    with pytest.raises(UsageError, match="found no survey in"):
        last_run(tmp_path)
