"""The bar of a measurement: on a terminal, the figures of the first of several runs precede it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from meshmark.cli.console import progress


class MadeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(metric: str, value: float, unit: str) -> dict[str, Any]:
    return {"type": "result", "metric": metric, "value": value, "unit": unit}


def shown(monkeypatch: pytest.MonkeyPatch, repetitions: int, stderr: io.StringIO) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    steps = [SimpleNamespace(id=f"latency.r{n}", budget_s=3.0) for n in (1, 2)]
    with progress(6.0, repetitions=repetitions) as report:
        for factor, step in enumerate(steps, 1):
            for nanoseconds in (1, 150):
                report(step, result("load_latency", factor * nanoseconds * 1e-9, "s"))
            report(step, result("level_capacity", 32768.0, "B"))
            report(step, {"type": "end", "elapsed_s": 3.0})
    return stderr.getvalue()


def test_the_figures_of_the_first_run_are_shown_before_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 2, MadeTerminal()).replace("\N{NO-BREAK SPACE}", " ")
    assert "first of 2 runs: load_latency 1.00 ns to 150 ns; level_capacity 32 KiB\n" in text
    assert text.count("first of") == 1


def test_a_single_run_and_a_file_get_no_figures_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "first of" not in shown(monkeypatch, 1, MadeTerminal())
    assert shown(monkeypatch, 2, io.StringIO()) == ""
