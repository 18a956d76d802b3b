"""Input of the commands: specifications, scenarios, results to import."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

SPEC = """name = "short"
[[step]]
instrument = "bandwidth"
options = { kernel = "copy,triad", footprint = "4MiB", threads = 1, store = "ordinary", budget = "60s", interval = 60 }
[[step]]
instrument = "latency"
options = { footprint = "16KiB,128KiB", budget = "60s", interval = 60 }
[[step]]
instrument = "bandwidth"
options = { kernel = "read", footprint = "4MiB", threads = "1", store = "ordinary", budget = "60s", interval = 60 }
"""
SCENARIO = """[[program]]
name = "one"
command = ["sleep", "1"]
[[program]]
name = "two"
command = ["sh", "-c", "sleep 0.4; sleep 0.6"]
"""


def write_results(path: Path) -> None:
    """Write 40 results of four runs, to be imported."""
    lines = []
    for run, n in itertools.product(range(4), range(10)):
        lines.append(
            {
                "type": "result",
                "schema": 1,
                "source": "host",
                "machine": "m",
                "instrument": "latency",
                "run": f"r{run}",
                "metric": "load_latency",
                "unit": "s",
                "better": "lower",
                "value": 1e-9,
                "interval": [1e-9, 1e-9],
                "samples": [1e-9] * 7,
                "flags": [],
                "conditions": {"n": n},
                "provenance": {"start": "2026-01-01T00:00:00Z"},
            }
        )
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
