"""A small program file for tests of what runs programs; the counts come from the kernels themselves."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

# Only readers use this program: no kernel runs it.
PROGRAM = {
    "format": "meshmark load program",
    "version": 1,
    "machine": "m",
    "kernels": {"triad": "1"},
    "calibrations": 0,
    "prescription": {"name": "p", "run_time_s": 1.0, "threads": 1},
    "shares": [1.0],
    "notes": [],
    "metrics": {"mine": {"formula": "flops / cpu_s", "unit": "flop/s"}},
    "variants": [
        {
            "name": "triad/s1/t1",
            "kernel": "triad",
            "kind": "stream",
            "volume_bytes": 1 << 20,
            "wall_s": 1e-3,
            "cpu_s": 1e-3,
            "flops": 100,
            "counters": {"cycles": 3.0},
            "calls": 1000,
            "phase": 0.25,
        }
    ],
    "planned": {
        "calls": 1000,
        "run_time_s": 1.0,
        "worst_deviation": {"wall_s": 0.1},
        "window_s": 0.1,
        "window_cov": {},
    },
}
_WRONG = re.compile(r"(\S+): a call counts (\S+) (\w+), but the file assumes")


def made_program(load: Path, path: Path, calls: int, threads: int = 1) -> Path:
    """Write a program of triad, dot and gemm with `calls` calls of some 20 to 100 µs each, and return its path."""
    parts = (("triad", 3 << 20, 2000), ("dot", 1 << 20, 2000), ("gemm", 1 << 18, 4))
    variants = {
        f"{kernel}/made": {
            "name": f"{kernel}/made",
            "kernel": kernel,
            "kind": "stream",
            "volume_bytes": volume,
            "threads": threads,
            "window": window,
            "wall_s": 5e-5,
            "cpu_s": 5e-5,
            "calls": calls,
            "phase": 0.25 * i,
        }
        for i, (kernel, volume, window) in enumerate(parts)
    }
    for _ in range(40):
        path.write_text(
            json.dumps(
                {
                    "format": "meshmark load program",
                    "version": 1,
                    "prescription": {"name": path.stem, "threads": threads},
                    "shares": [1 / threads] * threads,
                    "variants": list(variants.values()),
                }
            )
        )
        completed = subprocess.run(
            [load, "program", path, "--wait"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if completed.returncode == 0:
            return path
        match = _WRONG.search(completed.stderr)
        assert match, completed.stderr
        variants[match[1]][match[3]] = float(match[2])
    raise AssertionError("the counts of the kernels do not settle")
