#!/usr/bin/env python3
"""A probe that follows the protocol and misbehaves on request, for tests of the runner.

Its only instrument, `fake`, has POINTS points of SAMPLES samples each. It writes a line per sample to the file
FAKE_LOG, so that a test can count how often each point was measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

COMMON = {
    "budget": "2s",
    "interval": "5",
    "seed": "1",
    "resume": "",
    "machine": "",
    "points": "4",
    "samples": "7",
    "pause": "0.002",
    "fault": "",
}


def emit(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def describe() -> dict[str, object]:
    parameters = [
        {
            "name": n,
            "option": f"--{n}",
            "help": n,
            "unit": "",
            "kind": "text",
            "default": d,
            "minimum": None,
            "maximum": None,
            "choices": [],
        }
        for n, d in COMMON.items()
    ]
    return {
        "schema": 1,
        "name": "fake",
        "summary": "tests",
        "detail": "example: meshmark-probe fake",
        "source": "tests",
        "spoils": [],
        "needs": [],
        "parameters": parameters,
        "identity": ["n"],
        "metrics": [{"name": "load_latency", "help": "h", "unit": "s", "better": "lower"}],
        "work": {},
    }


def main() -> int:
    words = sys.argv[1:]
    if "--plan" in words:
        emit(type="plan", relative_points=1.0, memory_scale=1.0, budget_s=2.0)
        return 0
    if words == ["--describe"]:
        print(json.dumps([describe()]))
        return 0
    options = dict(COMMON)
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options[name.removeprefix("--")] = value
    old: dict[int, list[float]] = {}
    finished: set[int] = set()
    if options["resume"]:
        for text in Path(options["resume"]).read_text().splitlines():
            line = json.loads(text)
            if line["type"] == "sample":
                old.setdefault(line["point"], []).append(line["values"][0])
            if line["type"] == "point":
                finished.add(line["index"])
    emit(type="header", schema=1, instrument="fake", machine="m", provenance={}, conditions={}, parameters={}, points=4)
    fault_ = options["fault"]
    if fault_ == "hang":
        signal.pause()
    if fault_ == "nonsense":
        print("Segmentation fault, or so I say {")
    if fault_ == "usage":
        emit(type="error", field="points", message="found 'x'", allowed="1 to 9")
        print("fake: points: found 'x'", file=sys.stderr)
        return 2
    if fault_ == "absent":
        emit(
            type="absent", instrument="fake", metric=None, conditions={}, reason="no such thing here", enable="buy one"
        )
        emit(type="end", status="absent", elapsed_s=0, points=0, resumed=0, overhead=0)
        return 77
    for index in range(int(options["points"])):
        if index in finished:
            continue
        samples = old.get(index, [])
        while len(samples) < int(options["samples"]):
            time.sleep(float(options["pause"]))
            samples.append(1e-9 * (index + 1) * (1 + 0.01 * len(samples)))
            with open(os.environ["FAKE_LOG"], "a") as log:
                log.write(f"{index}:{len(samples)}\n")
            emit(type="sample", point=index, values=[samples[-1]], marks=0)
        if index == 1 and (fault_ == "crash" or (fault_ == "crash_once" and not options["resume"])):
            os.kill(os.getpid(), signal.SIGSEGV)
        sorted_samples = sorted(samples)
        value = sorted_samples[len(sorted_samples) // 2]
        if fault_ == "lies":
            value *= 2
        emit(
            type="result",
            schema=1,
            source="host",
            machine="m",
            instrument="fake",
            metric="load_latency",
            unit="s",
            better="lower",
            value=value,
            interval=[sorted_samples[0], sorted_samples[-1]],
            samples=samples,
            flags=[],
            conditions={"n": index},
            provenance={"command": "fake"},
            point=index,
        )
        emit(type="point", index=index, key={"n": index})
    if fault_ != "no_end":
        emit(type="end", status="ok", elapsed_s=1, points=4, resumed=len(finished), overhead=0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
