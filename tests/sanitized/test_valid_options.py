"""Valid options of every instrument, drawn at random, for the native program with sanitizers.

Each run ends with one of its statuses and without a report of a sanitizer: allowed options must not crash a program,
however short the budget is. A latency curve that ended within a cache once did.

Slow: `make check-all` runs it, some seconds for each instrument; see `test_mutations.py` for the variables that say how
many, and from which seed on.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sanitized_runs import PROGRAMS, environment, run_all, verdict

CPUS = len(os.sched_getaffinity(0))
COUNTS = (1, 2, 3, 5, 8)  # small, since programs built with sanitizers are slow
LARGEST = 25  # bits of a size
# Pages that must be reserved, and a problem of which one step takes minutes with sanitizers.
UNTRIED = {"2MiB", "1GiB", "T170"}
BUDGETS = ("10ms", "30ms", "100ms", "300ms")
Description = dict[str, Any]


def descriptions() -> list[Description]:
    """Return the descriptions of the instruments of the probe and of its applications, as far as they were built."""
    programs = [p for p in (PROGRAMS / "meshmark-probe", PROGRAMS / "meshmark-probe-apps") if p.exists()]
    texts = [subprocess.run([p, "--describe"], capture_output=True, check=True, timeout=60).stdout for p in programs]
    return [description for text in texts for description in json.loads(text)]


def size(draw: random.Random, least: int) -> str:
    return str(draw.randint(least, least << draw.randint(1, max(1, LARGEST - least.bit_length()))) // 8 * 8)


def value(draw: random.Random, p: dict[str, Any]) -> str:
    """Return a value that the parameter allows; "" if only its default is tried."""
    kind, minimum, maximum = p["kind"], p["minimum"], p["maximum"]
    smallest = 1 << max(3, int(minimum or 8).bit_length())  # for sizes
    if p["name"] == "budget_s":
        return draw.choice(BUDGETS)
    if kind in {"choices", "choice"}:
        names = [name for name in p["choices"] if name not in UNTRIED]
        return ",".join(draw.sample(names, draw.randint(1, len(names)) if kind == "choices" else 1))
    if kind in {"sizes", "size"}:
        if kind == "sizes" and draw.random() < 0.6:  # a range in which each value is twice the previous one
            return f"{smallest}..{smallest << draw.randint(0, max(1, LARGEST - smallest.bit_length()))}"
        return ",".join(size(draw, smallest) for _ in range(draw.randint(1, 8) if kind == "sizes" else 1))
    if kind in {"integers", "integer"}:
        allowed = [n for n in COUNTS if (minimum is None or n >= minimum) and (maximum is None or n <= maximum)] or [
            int(minimum)
        ]
        if p["name"] in {"threads", "processes"}:
            allowed = [n for n in allowed if n <= CPUS]
        return ",".join(str(draw.choice(allowed)) for _ in range(draw.randint(1, 4) if kind == "integers" else 1))
    if kind == "cpus":
        return ",".join(map(str, draw.sample(sorted(os.sched_getaffinity(0)), draw.randint(1, CPUS))))
    return ""


def words(draw: random.Random, description: Description) -> list[str]:
    """Return a command line with a value for some of the parameters, and always a short budget."""
    line = [str(description["name"])]
    for p in description["parameters"]:
        always = (
            p["name"] == "budget_s" or p["default"] == "memory"
        )  # otherwise more memory than sanitizers check in time
        if (always or draw.random() < 0.3) and (text := value(draw, p)):
            line += [p["option"], text]
    if "--cpus" in line and "," not in line[line.index("--cpus") + 1]:
        for option in {"--threads", "--processes"} & {*line}:
            line[line.index(option) + 1] = "1"
    return line


@pytest.mark.slow
@pytest.mark.parametrize("description", descriptions(), ids=lambda d: d["name"])
def test_valid_options_do_not_crash(description: Description, tmp_path: Path) -> None:
    def one(seed: int, folder: Path) -> str:
        return verdict(["probe", *words(random.Random(seed), description)], folder, None, environment(folder), False)

    run_all(str(description["name"]), tmp_path, one)
