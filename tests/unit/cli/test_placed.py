"""`meshmark placed` judges a running program, and verifies an expectation as the native program does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.machine.sources import from_sysfs
from support import fake_perf
from support.cli import meshmark

BUSY = "print(flush=True)\nwhile True: sum(range(1000))"


@pytest.fixture
def busy() -> Iterator[int]:
    """Return a process that computes."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str | None]:
    return {"XDG_DATA_HOME": str(tmp_path)}


def test_a_running_program_gets_a_verdict_and_a_table(busy: int, home: dict[str, str | None]) -> None:
    completed = meshmark("placed", busy, "--duration", "0.3s", env=home)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("No change suggested: ")
    one = json.loads(meshmark("placed", busy, "--duration", "0.3s", "--json", env=home).stdout)
    assert one["verdict"] == "well placed" and one["command"] == "" and one["target"]["kind"] == "process"
    (process,) = one["processes"]
    assert process["process"] == busy and process["ran_s"] > 0 and process["pages"]["sampled"] > 50
    assert sum(process["ran_by_node"].values()) == pytest.approx(process["ran_s"])


def test_a_machine_with_one_memory_node_is_one_line(busy: int, home: dict[str, str | None]) -> None:
    nodes = [n for n in from_sysfs().nodes if n.memory_bytes]
    text = meshmark("placed", busy, "--duration", "0.1s", env=home).stdout
    assert len(nodes) > 1 or text.count("\n") == 1


def test_the_hottest_functions_of_the_process_that_ran_most_follow_the_verdict(
    busy: int, home: dict[str, str | None], tmp_path: Path
) -> None:
    env = {**home, "PATH": fake_perf.install(tmp_path / "perf")}
    words = ("placed", busy, "--duration", "0.1s", "--profile")
    completed = meshmark(*words, env=env)
    assert completed.returncode == 0, completed.stderr
    recorded = (tmp_path / "perf" / "recorded.txt").read_text().split()
    assert recorded[recorded.index("-p") + 1] == str(busy)
    assert recorded[recorded.index("--") + 1 :] == ["sleep", "1"]  # a shorter profile would have few samples
    assert completed.stdout.startswith("No change suggested: ")
    assert "sweep(double*, int)" in completed.stdout and "75.0 %" in completed.stdout
    assert "1,000 samples of cpu-clock by perf 6.1.187, 3 more were lost" in completed.stdout
    profile = json.loads(meshmark(*words, "--json", env=env).stdout)["profile"]
    assert profile["process"].endswith(f"({busy})") and profile["samples"] == 1000 and profile["reason"] == ""
    hottest = profile["functions"][0]
    assert hottest["function"] == "sweep(double*, int)" and hottest["share"] == pytest.approx(0.75)
    assert hottest["interval"][0] < 0.75 < hottest["interval"][1]


def test_without_perf_the_verdict_is_given_with_the_reason(
    busy: int, home: dict[str, str | None], tmp_path: Path
) -> None:
    path = fake_perf.install(tmp_path / "perf")
    env = {**home, "PATH": path, "FAKE_PERF_REFUSES": "no permission"}
    completed = meshmark("placed", busy, "--duration", "0.1s", "--profile", env=env)
    assert completed.returncode == 0 and completed.stdout.startswith("No change suggested: ")
    reason = completed.stdout.splitlines()[-1]
    assert reason.startswith("no profile of ") and ("no permission" in reason or "perf_event_paranoid" in reason)
    missing = json.loads(meshmark("placed", busy, "--profile", "--json", env={**home, "PATH": str(tmp_path)}).stdout)
    assert missing["verdict"] == "well placed" and missing["profile"]["reason"] == "perf is not installed"
    assert missing["profile"]["functions"] == [] and "linux-perf" in missing["profile"]["enable"]


def test_an_expectation_is_verified_by_the_native_program(busy: int, home: dict[str, str | None]) -> None:
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    held = meshmark("placed", busy, "--cpus", cpus, "--duration", "0.2s", env=home)
    assert held.returncode == 0 and "placement held" in held.stdout
    os.sched_setaffinity(busy, {min(os.sched_getaffinity(0))})
    broken = meshmark("placed", busy, "--cpus", cpus, "--duration", "0.2s", env=home)
    assert len(cpus) == 1 or (broken.returncode == 1 and "placement did not hold" in broken.stdout)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "placed: found no program; required: one of PID, --container, --cgroup, --unit, --slurm-job, --pod"),
        (["1", "--unit", "x"], "placed: found several programs"),
        (["4194303"], "PID: found 4194303, which is not a process here"),
        (["x"], "PID: found 'x'; allowed: the number of a process"),
        (["{own}", "--duration", "2h"], "--duration: found '2h'; allowed: 10ms to 1h"),
        (["{own}", "--survey", "nothing"], "--survey: found 'nothing', of which the store has no latency"),
        (["{own}", "--fix", "--undo"], "--fix: found with --undo; one of them is allowed"),
        (["{own}", "--undo", "--profile"], "--profile: found with --undo; allowed without it"),
        (["{own}", "--undo"], "--undo: found no change of"),
        (["--unit", "no-such-unit"], "--unit: found 'no-such-unit', which matches nothing that runs here"),
    ],
)
def test_bad_requests_are_one_line(words: list[str], message: str, home: dict[str, str | None]) -> None:
    completed = meshmark("placed", *(w.format(own=os.getpid()) for w in words), env=home)
    assert completed.returncode == 2, completed.stdout
    assert completed.stderr.startswith(f"meshmark: error: {message}") and "Traceback" not in completed.stderr


def test_a_program_that_ends_meanwhile_is_one_line(busy: int, home: dict[str, str | None]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "meshmark", "placed", str(busy), "--duration", "1s"],
        env={**os.environ, **home},  # type: ignore[dict-item]
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        os.kill(busy, signal.SIGKILL)
        os.waitpid(busy, os.WNOHANG)
        _, errors = command.communicate(timeout=60)
    assert command.returncode in {1, 2} and "Traceback" not in errors
    assert (errors.count("\n") <= 2 and "ended" in errors) or "not a process here" in errors
