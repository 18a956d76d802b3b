"""The native probe as its readers meet it: its protocol, its refusals, its resume."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from meshmark.store.record import FLAGS, median, median_interval

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(os.environ.get("MESHMARK_PROBE", ROOT / "build" / "release" / "bin" / "meshmark-probe"))

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason=f"{PROBE.name} is not built: make setup")

# The least that each instrument can be asked, so that the contract of all of them is tried in seconds.
SMALL: dict[str, list[str]] = {
    "clock": ["--cpus", "0", "--clocks", "tsc"],
    "latency": ["--footprint", "16KiB,1MiB", "--cpus", "0"],
    "bandwidth": ["--footprint", "64KiB", "--threads", "1"],
    "kernels": ["--kernel", "triad,horner,barrier", "--volume", "64KiB", "--stride", "1,8", "--threads", "1"],
    "lines": ["--cpus", "0,1"],
    "loaded": ["--footprint", "16MiB", "--chains", "1,4", "--threads", "1"],
    "gups": ["--table", "1MiB", "--threads", "1"],
    "peak": ["--threads", "1"],
    "dgemm": ["--n", "200", "--threads", "1"],
    "linpack": ["--n", "200", "--threads", "1"],
    "io": ["--size", "4MiB"],
}


def run(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROBE), *words], capture_output=True, text=True, timeout=timeout, check=False)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def descriptions() -> list[dict[str, Any]]:
    if not PROBE.exists():
        return []
    return json.loads(run("--describe").stdout)


DESCRIPTIONS = {d["name"]: d for d in descriptions()}


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_a_description_is_complete(name: str) -> None:
    d = DESCRIPTIONS[name]
    assert json.loads(run(name, "--describe").stdout) == d
    assert d["summary"] and d["source"] and d["detail"]
    assert "example:" in d["detail"], "help shows an example"
    options = [p["option"] for p in d["parameters"]]
    assert len(options) == len(set(options))
    for common in (
        "--cpus",
        "--memory-node",
        "--policy",
        "--pages",
        "--budget",
        "--interval",
        "--seed",
        "--resume",
    ):
        assert common in options
    for metric in d["metrics"]:
        assert metric["better"] in {"lower", "higher"}
        assert metric["unit"] in {"s", "B/s", "op/s", "flop/s", "Hz", "B", "1"}


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_a_stream_keeps_the_contract(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(PROBE), name, *SMALL[name], "--budget", "2s"],
        capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path,
    )  # fmt: skip
    lines = lines_of(done.stdout)
    if done.returncode == 77:
        reasons = [line["reason"] for line in lines if line["type"] == "absent"]
        assert reasons and all(reasons)
        pytest.skip(f"{name} cannot be had here: {reasons[0]}")
    assert done.returncode == 0, done.stderr
    assert lines[0]["type"] == "header"
    assert lines[-1]["type"] == "end" and lines[-1]["status"] == "ok"
    units = {m["name"]: m["unit"] for m in DESCRIPTIONS[name]["metrics"]}
    results = [line for line in lines if line["type"] == "result"]
    assert results
    for r in results:
        assert r["instrument"] == name and r["source"] == "host" and r["unit"] == units[r["metric"]]
        assert r["samples"] and r["value"] == pytest.approx(median(r["samples"]), rel=1e-12)
        interval = median_interval(r["samples"])
        assert r["interval"] == (None if interval is None else pytest.approx(list(interval), rel=1e-12))
        assert set(r["flags"]) <= FLAGS
        assert all(isinstance(v, str | int | float | bool | None) for v in r["conditions"].values())
        assert r["provenance"]["command"].startswith(name)
    keys = [json.dumps([r["metric"], *[[k, r["conditions"].get(k)] for k in DESCRIPTIONS[name]["identity"]]])
            for r in results if "derived_from" not in r["conditions"]]  # fmt: skip
    assert len(keys) == len(set(keys)), "the identity tells all points apart"
    assert lines[-1]["overhead"] < 0.01, "the clock takes less than 1 % of every sample"


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["nosuch"], "instrument"),
        (["latency", "--nosuch", "1"], "options"),
        (["latency", "--cpus", "9999"], "cpus"),
        (["latency", "--cpus", "zero"], "cpus"),
        (["latency", "--footprint", "-4KiB"], "footprint_bytes"),
        (["latency", "--footprint", "4XiB"], "footprint_bytes"),
        (["latency", "--footprint", "8EiB"], "footprint_bytes"),
        (["latency", "--stride", "7"], "stride_bytes"),
        (["latency", "--pages", "3KiB"], "pages"),
        (["latency", "--pattern", "zigzag"], "pattern"),
        (["latency", "--memory-node", "77"], "memory_node"),
        (["latency", "--processes", "4000"], "processes"),
        (["latency", "--budget", "-1s"], "budget_s"),
        (["latency", "--interval", "0"], "interval_percent"),
        (["latency", "--resume", "/nonexistent"], "resume"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_the_field(words: list[str], field: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    last = lines_of(done.stdout)[-1]
    assert last["type"] == "error" and last["field"] == field
    assert len(done.stderr.strip().splitlines()) == 1
    assert field in done.stderr


def test_more_memory_than_there_is_is_absent_with_the_reason() -> None:
    done = run("latency", "--footprint", "1TiB", "--budget", "1s")
    assert done.returncode == 77
    absent = [line for line in lines_of(done.stdout) if line["type"] == "absent"]
    assert "memory too small" in absent[0]["reason"]


def test_nobody_can_take_the_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PROBE), "latency", "--footprint", "16KiB", "--budget", "1s"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "No space left" in done.stderr


def test_killed_at_random_moments_it_resumes_and_measures_nothing_twice(tmp_path: Path) -> None:
    words = ["latency", "--footprint", "4KiB..4MiB", "--budget", "4s", "--cpus", "0", "--interval", "0.01"]
    out = tmp_path / "out.jsonl"
    dice = random.Random(1)
    out.touch()
    for _ in range(3):
        with out.open("a") as sink:
            more = ["--resume", str(out)] if out.stat().st_size else []
            child = subprocess.Popen([str(PROBE), *words, *more], stdout=sink, stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0.05, 0.8))
            child.send_signal(signal.SIGKILL)
            child.wait()
    before = [json.loads(line) for line in out.read_text().splitlines()]
    samples_before = [line for line in before if line["type"] == "sample"]
    assert samples_before, "nothing was measured before the kills"
    done = run(*words, "--resume", str(out))
    assert done.returncode == 0, done.stderr
    after = lines_of(done.stdout)
    finished_before = {line["index"] for line in before if line["type"] == "point"}
    assert not finished_before & {line["point"] for line in after if line["type"] == "sample"}
    everything = before + after
    points = [line["index"] for line in everything if line["type"] == "point"]
    assert sorted(points) == list(range(11)), "every point once"
    # What was measured before a kill is part of the result after it.
    results = [line for line in after if line["type"] == "result" and line["metric"] == "load_latency"]
    by_order = [r for r in results if r["conditions"]["footprint_bytes"] == 4 << 20]
    old = [s["values"][0] for s in samples_before if s["point"] == 0]
    assert by_order[0]["samples"][: len(old)] == old


def test_a_torn_or_foreign_earlier_output_is_not_trusted(tmp_path: Path) -> None:
    words = ["latency", "--footprint", "16KiB,64KiB", "--budget", "1s", "--cpus", "0"]
    good = run(*words).stdout.encode()
    dice = random.Random(2)
    for _ in range(5):
        torn = bytearray(good[: dice.randrange(len(good))])
        for _ in range(dice.randrange(4)):
            if torn:
                torn[dice.randrange(len(torn))] = dice.randrange(256)
        path = tmp_path / "torn.jsonl"
        path.write_bytes(torn)
        done = run(*words, "--resume", str(path))
        assert done.returncode in {0, 2}, done.stderr
        assert lines_of(done.stdout)[-1]["type"] in {"end", "error"}
    path.write_bytes(good)
    assert run("latency", "--footprint", "16KiB", "--resume", str(path)).returncode == 2
    assert run("clock", "--resume", str(path)).returncode == 2
