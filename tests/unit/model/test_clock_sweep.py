"""Sweeps over the core clock of a modelled machine: the sentence below the table and the output of --json."""

from __future__ import annotations

import json

import pytest

from meshmark.model.machine import find_machine
from meshmark.model.sweeps.clock_sweep import CLOCK, clock_sweeps
from meshmark.model.sweeps.sweep import run_sweep
from meshmark.store.record import Metric, Record
from support.cli import meshmark

RATE, TIME = Metric("rate", "op/s", "higher", ""), Metric("time", "s", "lower", "")


def record(metric: Metric, ghz: float, value: float, **conditions: str) -> Record:
    return Record.from_samples(
        metric,
        [value],
        source="model",
        machine="m",
        instrument="peak",
        conditions={CLOCK: ghz, **conditions},
        provenance={},
    )


def test_times_count_as_rates_and_equal_metrics_share_a_sentence() -> None:
    records = [
        record(metric, ghz, 1 / ghz if metric is TIME else ghz, size=size)
        for metric in (RATE, TIME)
        for size in ("1", "2")
        for ghz in (1.0, 1.5, 2.0)
    ]
    sweeps = clock_sweeps(records)
    assert [(sweep["word"], sweep["others"]) for sweep in sweeps] == [
        ("proportional", "size=1"),
        ("proportional", "size=2"),
    ]
    assert sweeps[0]["metrics"] == ["rate", "time"] and sweeps[0]["computed"] is True


def test_without_several_clocks_nothing_is_said() -> None:
    assert clock_sweeps([record(RATE, 1.0, 1.0), record(RATE, 1.0, 1.0)]) == []
    assert clock_sweeps([record(Metric("power", "W", "none", ""), g, g) for g in (1.0, 2.0, 3.0)]) == []


def test_the_rate_of_a_published_machine_has_a_plateau() -> None:
    options = {"threads": "2", "store": "streaming"}
    vary = [f"{CLOCK}=1.4,1.6,1.8,2.0,2.2"]
    records = run_sweep(find_machine("e325"), vary, "bandwidth", options, None, False, None, lambda _: None)
    (sweep,) = clock_sweeps(records)
    assert sweep["metrics"] == ["bandwidth_net", "bandwidth_gross"]
    assert (sweep["word"], sweep["plateau_hz"]) == ("plateau", 2.0e9)
    assert sweep["exponent"]["interval"] is None and sweep["exponent"]["value"] == pytest.approx(0.34, abs=0.02)


def test_the_sentence_follows_the_table_and_the_records() -> None:
    command = ("model", "sweep", "e325", "--vary", f"{CLOCK}=1.4,2.0", "--instrument", "latency", "--no-store")
    output_lines = meshmark(*command).stdout.splitlines()
    assert output_lines[-1].startswith("clock, load_latency, ") and "computed: inconclusive" in output_lines[-1]
    assert "2 clocks, at least 3 are needed; exponent 0." in output_lines[-1]
    lines = [json.loads(line) for line in meshmark(*command, "--json").stdout.splitlines()]
    assert lines[-1]["type"] == "clock" and lines[-1]["word"] == "inconclusive" and "metric" in lines[0]
