"""Tests of verification: the output has the expected number, and the verification command succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshmark.applications.application import VerifyTable
from meshmark.applications.verification import verified
from meshmark.values.inputs import checked


def reason(text: str, folder: Path, values: dict[str, str] | None = None, **table: Any) -> str:
    return verified(checked(VerifyTable, table, "verify"), text, folder, values or {})


def test_a_command_runs_in_the_folder_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "result").write_text("4\n")
    assert reason("", tmp_path, command=["grep", "-q", "4", "result"]) == ""
    assert reason("", tmp_path, {"n": "4"}, command=["grep", "-q", "{n}", "result"]) == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "echo out; echo wrong sum >&2; exit 3"], "verify.command: "),
        (["no-such-program"], "verify.command: "),
    ],
)
def test_a_command_that_fails_says_why(tmp_path: Path, command: list[str], message: str) -> None:
    result = reason("", tmp_path, command=command)
    assert result.startswith(message)
    assert ("wrong sum" in result and "3" in result) or "No such file or directory" in result


@pytest.mark.parametrize(
    ("text", "table", "message"),
    [
        ("sum 4", {"pattern": r"sum (\S+)"}, ""),
        ("sum", {"pattern": r"total (\S+)"}, "verify.pattern: found no match in the output"),
        ("sum 4.1", {"pattern": r"sum (\S+)", "expected": 4.0, "tolerance": 0.05}, ""),
        ("sum 4.1", {"pattern": r"sum (\S+)", "expected": 4.0, "absolute": 0.2}, ""),
        (
            "sum 4.1",
            {"pattern": r"sum (\S+)", "expected": 4.0, "tolerance": 0.01},
            "verify.expected: found 4.1; expected 4.0 ± 0.04",
        ),
        (
            "sum 4\nsum 9",
            {"pattern": r"^sum (\S+)", "expected": 4.0, "absolute": 1.0},
            "verify.expected: found 9.0; expected 4.0 ± 1",
        ),
        ("sum nan", {"pattern": r"sum (\S+)", "expected": 4.0, "absolute": 1.0}, "verify.expected: found nan"),
        ("sum x", {"pattern": r"sum (\S+)", "expected": 4.0, "absolute": 1.0}, "verify.pattern: found 'x', a number"),
        ("4", {"pattern": r"\d", "expected": 4.0, "absolute": 1.0}, ""),
    ],
)
def test_the_number_in_the_output_is_near_the_expected_one(
    tmp_path: Path, text: str, table: dict[str, Any], message: str
) -> None:
    result = reason(text, tmp_path, **table)
    assert result.startswith(message) and bool(result) == bool(message)
