"""The native probe and the ranks as their readers see them: the protocol, refusals, and resumed runs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import descriptions, find_comm, observed_conditions
from meshmark.measure.repetitions import point_key
from meshmark.measure.runs import launch
from meshmark.store.record import BETTER, FLAGS, Record, median, median_interval
from support import applications_here
from support.mpi_here import needed
from support.paths import ROOT

PROBE = Path(os.environ.get("MESHMARK_PROBE", ROOT / "build" / "release" / "bin" / "meshmark-probe"))

MARKS = 127  # all bits of docs/reference/protocol.md
# The smallest request to each instrument, so that the contract of all of them is tested in seconds.
SMALL: dict[str, list[str]] = {
    "clock": ["--cpus", "0", "--clocks", "tsc"],
    "latency": ["--footprint", "16KiB,1MiB", "--cpus", "0"],
    "bandwidth": ["--footprint", "64KiB", "--threads", "1"],
    "kernels": ["--kernel", "triad,horner,barrier", "--volume", "64KiB", "--stride", "1,8", "--threads", "1"],
    "lines": ["--cpus", "0,1"],
    "loaded": ["--footprint", "16MiB", "--chains", "1,4", "--threads", "1"],
    "gups": ["--table", "1MiB", "--threads", "1"],
    "llm": ["--weights", "4MiB", "--threads", "1", "--layers", "2"],
    "peak": ["--threads", "1"],
    "dgemm": ["--n", "200", "--threads", "1"],
    "linpack": ["--n", "200", "--threads", "1"],
    "prefetch": ["--footprint", "1MiB", "--distance", "0,4", "--threads", "1"],
    "loops": ["--length", "1,7,64", "--isa", "all"],
    "io": ["--size", "4MiB"],
}
# The same for instruments with two ranks.
SMALL_OF_RANKS: dict[str, list[str]] = {
    "pingpong": ["--bytes", "0,8"],
    "halo": ["--words", "1,64", "--protocol", "irecv_isend,rma_fence"],
    "swap": ["--bytes", "8,64"],
    "barrier": [],
    "bcast": ["--bytes", "8,64"],
    "reduce": ["--bytes", "8,64"],
    "allreduce": ["--bytes", "8"],
    "alltoall": ["--bytes", "8,64"],
    "exchange": ["--bytes", "0,64"],
    "defects": ["--words", "1,16"],
}
if applications_here.BUILT:
    SMALL |= {
        "swim_threads": ["--cells", "64", "--threads", "1,all", "--steps", "10"],
        "mod2d": ["--n", "100", "--threads", "1"],
        "mod2e": ["--edge", "8", "--threads", "1", "--eigenvalues", "4", "--basis", "16"],
        "fft": ["--shape", "4096,16x16x16", "--threads", "1"],
        "lj": ["--edge", "6", "--steps", "5", "--threads", "1"],
        "pstswm": ["--levels", "1,3", "--threads", "1", "--steps", "1"],
    }
    SMALL_OF_RANKS |= {
        "npb": [],
        "pop": ["--grid", "2x1", "--reductions", "2", "--protocol", "irecv_isend"],
        "gyro": ["--modes", "16"],
        "swim": ["--cells", "64,128", "--protocol", "irecv_isend"],
        "anatomy": ["--program", "swim,gyro"],
    }


def run(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROBE), *words], capture_output=True, text=True, timeout=timeout, check=False)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def described(program: Path, *words: str) -> Any:
    completed = subprocess.run([program, *words, "--describe"], capture_output=True, timeout=60, check=False)
    return json.loads(completed.stdout or "[]")


UNBUILT = frozenset() if applications_here.BUILT else applications_here.NAMES
DESCRIPTIONS = {name: d.raw for name, d in descriptions().items() if name not in UNBUILT}
OF_RANKS = sorted(name for name, d in DESCRIPTIONS.items() if d["ranks"])


def test_every_instrument_is_tried_here() -> None:
    assert DESCRIPTIONS.keys() - OF_RANKS == SMALL.keys()
    assert not OF_RANKS or {*OF_RANKS} == SMALL_OF_RANKS.keys()


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_a_description_is_complete(name: str) -> None:
    d = DESCRIPTIONS[name]
    assert described(find_comm() if d["ranks"] else PROBE, name) == d
    assert d["summary"] and d["source"] and d["detail"]
    assert "example:" in d["detail"], "help shows an example"
    options = [p["option"] for p in d["parameters"]]
    assert len(options) == len(set(options))
    common_options = ("--ranks", "--mpi") if d["ranks"] else ("--cpus", "--memory-node", "--policy", "--pages")
    for common in (*common_options, "--budget", "--interval", "--seed", "--resume", "--machine"):
        assert common in options
    for metric in d["metrics"]:
        assert metric["better"] in BETTER
        assert metric["unit"] in {"s", "B/s", "op/s", "flop/s", "Hz", "B", "1"}


@cache
def small_stream(name: str, seed: int, budget: str = "2s") -> subprocess.CompletedProcess[str]:
    """Run the smallest request to an instrument, with two ranks of the first MPI library if it needs ranks."""
    line = [name, *(SMALL | SMALL_OF_RANKS)[name], "--seed", str(seed), "--budget", budget]
    call, env = [str(PROBE), *line], dict(os.environ)
    if name in OF_RANKS:
        needs = needed()
        start = launch.launch_argv(needs, 2, len(os.sched_getaffinity(0)))
        call, env = [*start, *line], dict(launch.environment(needs.kind))
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            call,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            env=env,
        )


PLACED = [
    name
    for name, d in DESCRIPTIONS.items()
    if "memory_node" in d["identity"] and not d["ranks"] and name != "llm"  # its placement is a separate option
]


@pytest.mark.parametrize("name", PLACED)
def test_interleaved_memory_is_not_called_local(name: str) -> None:
    completed = run(name, *SMALL[name], "--policy", "interleave", "--budget", "2s")
    lines = lines_of(completed.stdout)
    if completed.returncode == 77 or lines[-1].get("status") == "absent":
        pytest.skip(f"{name} cannot be had here")
    assert completed.returncode == 0, completed.stderr
    places = {r["conditions"].get("memory_node", "none") for r in lines if r["type"] == "result"}
    assert places == {"interleave"}


@pytest.mark.parametrize("name", sorted(DESCRIPTIONS))
def test_a_stream_keeps_the_contract(name: str) -> None:
    completed = small_stream(name, 1)
    lines = lines_of(completed.stdout)
    if completed.returncode == 77:
        reasons = [line["reason"] for line in lines if line["type"] == "absent"]
        assert reasons and all(reasons)
        pytest.skip(f"{name} cannot be had here: {reasons[0]}")
    assert completed.returncode == 0, completed.stderr
    assert lines[0]["type"] == "header"
    assert lines[-1]["type"] == "end" and lines[-1]["status"] == "ok"
    metrics = {m["name"]: m for m in DESCRIPTIONS[name]["metrics"]}
    results = [line for line in lines if line["type"] == "result"]
    assert results
    for r in results:
        assert r["instrument"] == name and r["source"] == "host"
        assert {k: r[k] for k in ("unit", "better")} == {k: metrics[r["metric"]][k] for k in ("unit", "better")}
        assert r["samples"] and r["value"] == pytest.approx(median(r["samples"]), rel=1e-12)
        interval = median_interval(r["samples"])
        assert r["interval"] == (None if interval is None else pytest.approx(list(interval), rel=1e-12))
        assert set(r["flags"]) <= FLAGS
        assert all(isinstance(v, str | int | float | bool | None) for v in r["conditions"].values())
        assert r["provenance"]["command"].startswith(name)
    keys = [
        json.dumps([r["metric"], *[[k, r["conditions"].get(k)] for k in DESCRIPTIONS[name]["identity"]]])
        for r in results
        if "derived_from" not in r["conditions"]
    ]
    assert len(keys) == len(set(keys)), "the identity tells all points apart"
    # Samples are planned to be 100 times as long as reads of the clock; they are shorter if the plan was made on a CPU
    # that did other work, too.
    assert lines[-1]["overhead"] < 0.05, "reads of the clock take a negligible part of every sample"


@pytest.mark.parametrize("name", OF_RANKS)
def test_a_stream_of_ranks_tells_who_they_are_and_what_each_took(name: str) -> None:
    lines = lines_of(small_stream(name, 1).stdout)
    ranks = lines[0]["processes"]
    assert len({r["pid"] for r in ranks}) == 2 and all(r.keys() == {"host", "pid", "cpu"} for r in ranks)
    samples: dict[int, list[dict[str, Any]]] = {}
    for line in lines:
        if line["type"] == "sample":
            samples.setdefault(line["point"], []).append(line)
    for times in samples.values():
        for line in times:
            slowest, *values = line["values"]
            assert len(values) in {1, 2} and slowest == max(values) and 0 <= line["marks"] <= MARKS
        start_times = [line["begun_s"] for line in times]
        assert start_times == sorted(start_times)
    points = {r["point"] for r in lines if r["type"] == "result" and "point" in r}
    assert points == {line["index"] for line in lines if line["type"] == "point"}
    assert samples.keys() == (set() if name == "defects" else points), "defects times nothing"


@pytest.mark.parametrize("name", OF_RANKS)
def test_two_runs_of_ranks_differ_in_nothing_but_what_was_observed(name: str) -> None:
    def cut_off(lines: list[dict[str, Any]]) -> bool:
        reasons = [line["reason"] for line in lines if line["type"] == "absent"]
        return any("budget" in reason and "ended" in reason for reason in reasons)

    runs, in_time = [], True
    for seed in (1, 2):
        lines = lines_of(small_stream(name, seed).stdout)
        if cut_off(lines):  # on a busy machine
            lines = lines_of(small_stream(name, seed, "30s").stdout)
        in_time = in_time and not cut_off(lines)
        records = [Record.from_json(line) for line in lines if line["type"] == "result"]
        runs.append({point_key(r): r for r in records})
        assert len(runs[-1]) == len(records), "each is a point of its own"
    measured = [{k for k, r in run.items() if "derived_from" not in r.conditions} for run in runs]
    assert measured[0] & measured[1] and (measured[0] == measured[1] or not in_time)
    for point in runs[0].keys() & runs[1].keys():
        conditions, other = (dict(run[point].conditions) for run in runs)
        assert {k for k in {*conditions, *other} if conditions.get(k) != other.get(k)} <= observed_conditions()


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
        (["latency", "--resume", "/proc/nonexistent"], "resume"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_the_field(words: list[str], field: str) -> None:
    completed = run(*words)
    assert completed.returncode == 2
    last = lines_of(completed.stdout)[-1]
    assert last["type"] == "error" and last["field"] == field
    assert len(completed.stderr.strip().splitlines()) == 1
    assert field in completed.stderr


def test_more_memory_than_there_is_is_absent_with_the_reason() -> None:
    completed = run("latency", "--footprint", "1TiB", "--budget", "1s")
    assert completed.returncode == 77
    absences = [line for line in lines_of(completed.stdout) if line["type"] == "absent"]
    assert "not enough memory" in absences[0]["reason"]


def test_nobody_can_take_the_output() -> None:
    with open("/dev/full", "w") as full:
        completed = subprocess.run(
            [str(PROBE), "latency", "--footprint", "16KiB", "--budget", "1s"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert completed.returncode == 1
    assert len(completed.stderr.strip().splitlines()) == 1 and "No space left" in completed.stderr


@pytest.mark.slow
def test_killed_at_random_moments_it_resumes_and_measures_nothing_twice(tmp_path: Path) -> None:
    words = ["latency", "--footprint", "4KiB..4MiB", "--budget", "4s", "--cpus", "0", "--interval", "0.01"]
    out = tmp_path / "out.jsonl"
    rng = random.Random(1)
    out.touch()
    for _ in range(3):
        with out.open("a") as sink:
            options = ["--resume", str(out)] if out.stat().st_size else []
            child = subprocess.Popen([str(PROBE), *words, *options], stdout=sink, stderr=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(rng.uniform(0.05, 0.8))
            child.send_signal(signal.SIGKILL)
            child.wait()
    before = [json.loads(line) for line in out.read_text().splitlines()]
    samples_before = [line for line in before if line["type"] == "sample"]
    assert samples_before, "nothing was measured before the kills"
    completed = run(*words, "--resume", str(out))
    assert completed.returncode == 0, completed.stderr
    after = lines_of(completed.stdout)
    finished_before = {line["index"] for line in before if line["type"] == "point"}
    assert not finished_before & {line["point"] for line in after if line["type"] == "sample"}
    records = before + after
    points = [line["index"] for line in records if line["type"] == "point"]
    assert sorted(points) == list(range(11)), "every point once"
    # Samples from before a kill are part of the result after it.
    results = [line for line in after if line["type"] == "result" and line["metric"] == "load_latency"]
    by_order = [r for r in results if r["conditions"]["footprint_bytes"] == 4 << 20]
    old = [s["values"][0] for s in samples_before if s["point"] == 0]
    assert by_order[0]["samples"][: len(old)] == old


def test_a_torn_or_foreign_earlier_output_is_not_trusted(tmp_path: Path) -> None:
    words = ["latency", "--footprint", "16KiB,64KiB", "--budget", "1s", "--cpus", "0"]
    good = run(*words).stdout.encode()
    rng = random.Random(2)
    for _ in range(5):
        truncated = bytearray(good[: rng.randrange(len(good))])
        for _ in range(rng.randrange(4)):
            if truncated:
                truncated[rng.randrange(len(truncated))] = rng.randrange(256)
        path = tmp_path / "torn.jsonl"
        path.write_bytes(truncated)
        completed = run(*words, "--resume", str(path))
        assert completed.returncode in {0, 2}, completed.stderr
        assert lines_of(completed.stdout)[-1]["type"] in {"end", "error"}
    path.write_bytes(good)
    assert run("latency", "--footprint", "16KiB", "--resume", str(path)).returncode == 2
    assert run("clock", "--resume", str(path)).returncode == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("words", "condition"),
    [
        (("latency", "--footprint", "64KiB"), "cpu"),
        (("loops", "--kernel", "copy", "--length", "64"), "cpu"),
        (("clock", "--clocks", "monotonic"), "cpu"),
    ],
)
def test_every_cpu_that_is_named_is_measured(words: tuple[str, ...], condition: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    completed = run(*words, "--cpus", ",".join(map(str, cpus)), "--budget", "6s")
    results = [line for line in lines_of(completed.stdout) if line["type"] == "result"]
    values_by_metric: dict[str, set[int]] = {}
    for line in results:
        if condition in line["conditions"]:
            values_by_metric.setdefault(line["metric"], set()).add(line["conditions"][condition])
    metrics = {"counter_frequency", "clock_drift"}  # of the whole machine
    assert values_by_metric
    assert all(values == set(cpus) for metric, values in values_by_metric.items() if metric not in metrics)


def test_every_page_size_that_is_named_is_measured_or_refused() -> None:
    small = ("--chains", "1", "--threads", "1", "--mode", "chains", "--footprint", "1MiB")
    completed = run("loaded", *small, "--pages", "4KiB,thp", "--budget", "2s")
    results = [line for line in lines_of(completed.stdout) if line["type"] == "result"]
    assert {line["conditions"]["pages"] for line in results} == {"4KiB", "thp"}
    result = run("dgemm", "--n", "64", "--pages", "4KiB,thp")
    assert result.returncode == 2
    assert "pages: found '4KiB,thp'; allowed: one page size" in result.stderr


def test_the_chosen_instructions_are_a_condition() -> None:
    small = ("--kernel", "copy", "--threads", "1", "--footprint", "1MiB", "--budget", "2s")
    completed = run("bandwidth", *small)
    results = [line for line in lines_of(completed.stdout) if line["type"] == "result"]
    assert {line["conditions"]["isa"] for line in results} == {"best"}, "runs that choose otherwise are of one point"
    assert {line["conditions"]["chosen_isa"] for line in results} <= {"sse2", "avx2", "avx512", "neon", "sve"}


@pytest.mark.parametrize("name", [name for name in ("kernels", "loops", "pstswm") if name in SMALL])
def test_the_compiler_is_a_condition_where_its_code_is_measured(name: str) -> None:
    results = [line for line in lines_of(small_stream(name, 1).stdout) if line["type"] == "result"]
    (compiler,) = {line["conditions"]["compiler"] for line in results}
    assert re.fullmatch(r"\S+ \d+(\.\d+)+", compiler)
    assert all(line["provenance"]["compiler"].startswith(f"{compiler} ") for line in results)
