"""The result of an experiment as a comment for a code review."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.views.terminal.experiments.experiment import markdown


def answer(**changes: Any) -> dict[str, Any]:
    return {
        "a": "BUILD=base",
        "b": "BUILD=<b>|change",
        "command": ["sh", "-c", "./$BUILD/a.out | tee out"],
        "metric": "elapsed",
        "unit": "s",
        "of_a": 1.0,
        "of_b": 1.1,
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.15,
        "verdict": "slower",
        "best": "A",
        "margin": 0.05,
        "pairs": 8,
        "warmup": 1,
        "runs": 18,
        "failed": {"a": 0, "b": 1},
        "failed_share": 1 / 18,
        "failure": "B: exit status 1",
        "flags": [],
        "disturbance": "",
        "seed": 1,
        "stopped": "the interval excludes equality",
        "spent_s": 20.0,
        **changes,
    }


def test_the_verdict_comes_first_and_names_are_escaped() -> None:
    text = markdown(answer())
    assert text.startswith("### B is slower: B over A 1.100, 95 % 1.050 – 1.150, 8 pairs (margin 5")
    assert "| B | BUILD=\\<b\\>\\|change | " in text
    assert "./$BUILD/a.out \\| tee out" in text and "failed" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"verdict": "inconclusive", "low": None, "high": None, "best": None}, "### inconclusive: B over A 1.100"),
        ({"verdict": "equal", "best": None}, "### A and B are equal"),
        ({"ratio": None, "of_a": None, "of_b": None}, "### no result"),
    ],
)
def test_what_is_not_known_is_said(changes: dict[str, Any], says: str) -> None:
    assert markdown(answer(**changes)).startswith(says)
