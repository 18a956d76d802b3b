"""`meshmark profile` and `predict neighbours` with simulated pressures of known strength, interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from meshmark.machine.sources import from_sysfs
from support.cli import meshmark, start
from support.fake_pressure import MadePressures
from support.waiting import until

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a program and its neighbours need a CPU each")

SLOWED = {"memory": 0.5, "memory 25 %": 0.8, "memory 50 %": 0.7, "memory 75 %": 0.6}
SPEEDS = {
    "memory": {"memory": 0.6, "streams": 0.6, "computes": 1.0},
    "compute": {"compute": 0.9, "computes": 0.9, "streams": 0.95},
    "streams": SLOWED,
    "computes": {"compute": 0.9},
}
FIGURE = ("--pattern", r"time (\S+)", "--better", "lower", "--seed", "1")


def environment(made: MadePressures, data: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(data), "MESHMARK_LOAD": str(made.load)}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadePressures:
    pressures = MadePressures(tmp_path / "made", SPEEDS)
    for name, value in environment(pressures, tmp_path / "data").items():
        monkeypatch.setenv(name, value)
    return pressures


@dataclass(frozen=True)
class Profiled:
    """Profiles of two programs, in a store of their own."""

    env: dict[str, str]
    data: Path
    answers: dict[str, dict[str, Any]]

    @property
    def runs(self) -> list[str]:
        return [answer["run"] for answer in self.answers.values()]

    def meshmark(self, *words: str) -> str:
        completed = meshmark(*words, env=self.env)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    pressures = MadePressures(folder / "made", SPEEDS)
    result = Profiled(environment(pressures, folder / "data"), folder / "data", {})
    for name in ("streams", "computes"):
        out = folder / f"{name}.json"
        arguments = ("profile", "--rounds", "3", *FIGURE, "--name", name, "--json", "--out", str(out))
        result.answers[name] = json.loads(result.meshmark(*arguments, "--", *pressures.command(name)))
        assert json.loads(out.read_text(encoding="utf-8")) == result.answers[name]
    return result


def test_a_profile_has_the_slowdowns_of_the_program_and_of_its_neighbours(profiled: Profiled) -> None:
    answer = profiled.answers["streams"]
    effects = {effect["name"]: effect for effect in answer["effects"]}
    for name, speed in SLOWED.items():
        assert median(effects[name]["slowdowns"]) == pytest.approx(1 / speed)
        assert len(effects[name]["slowdowns"]) == 3
    # The simulated program slows its neighbours only after its interpreter has started.
    assert 1.15 < median(effects["memory"]["caused"]) <= 1.01 / 0.6
    assert effects["memory 50 %"]["caused"] == [], "a neighbour with a fixed rate shows no slowdown"
    assert answer["responses"]["memory"]["memory"] == pytest.approx(0.6, rel=0.1)
    assert answer["limited_by"] == "memory bandwidth"
    assert answer["demand"]["shares"]["memory"] > 0.3
    assert profiled.answers["computes"]["limited_by"] == "the core and its clock"


def test_profiles_are_shown_again_listed_and_stored(profiled: Profiled) -> None:
    files = [str(profiled.data.parent / f"{name}.json") for name in profiled.answers]
    shown = profiled.meshmark("profile", files[0])
    assert shown.startswith("streams is limited by memory bandwidth\n") and "2.00 times as long" in shown
    listed = profiled.meshmark("profile", *files)
    assert "limited by" in listed and "memory bandwidth" in listed and "the core and its clock" in listed
    assert set(profiled.runs) <= {
        json.loads(line)["run"] for line in profiled.meshmark("store", "list", "--json").splitlines()
    }


def test_profiles_predict_the_slowdowns_that_neighbours_cause(profiled: Profiled) -> None:
    answer = json.loads(profiled.meshmark("predict", "neighbours", *profiled.runs, "--json"))
    predicted = {(p["program"], p["neighbour"]): p["slowdown"] for p in answer["predictions"]}
    assert predicted["streams", "computes"] == pytest.approx(1.0, abs=0.05), "it acts like compute"
    assert predicted["computes", "streams"] < 1.1
    table = profiled.meshmark("predict", "neighbours", *profiled.runs)
    assert "streams" in table and "program on CPUs" in table


def test_predictions_are_checked_by_running_the_pairs(profiled: Profiled) -> None:
    words = ("predict", "neighbours", *profiled.runs, "--check", "--rounds", "2", "--json")
    for one in json.loads(profiled.meshmark(*words))["predictions"]:
        assert one["measured"] is not None and one["measured_low"] is None, "two rounds have no interval"


def test_a_killed_profile_resumes_without_repeating_runs(made: MadePressures, tmp_path: Path) -> None:
    child = start("profile", "--rounds", "2", *FIGURE, "--json", "--", *made.command("streams"))
    journals = tmp_path / "data/meshmark/runs"
    until(lambda: any(path.read_bytes().count(b"\n") >= 4 for path in journals.glob("*/journal.jsonl")))
    child.send_signal(signal.SIGKILL)
    child.wait()
    journal = next(journals.glob("*/journal.jsonl"))
    lines = journal.read_bytes().splitlines()
    run = journal.parent.name
    refused = meshmark("profile", "--resume", run, "--", "true")
    assert refused.returncode == 2 and "requested: 'true'" in refused.stderr
    completed = meshmark("profile", "--resume", run, "--json")
    assert completed.returncode == 0, completed.stderr
    assert journal.read_bytes().splitlines()[: len(lines)] == lines
    answer = json.loads(completed.stdout)
    assert all(len(effect["slowdowns"]) == 2 for effect in answer["effects"])


def test_a_program_that_fails_or_is_too_short_is_named(made: MadePressures) -> None:
    failing = meshmark("profile", "--", "sh", "-c", "echo no mesh >&2; exit 3")
    assert failing.returncode == 1
    assert "the program failed without neighbours: ended with status 3: no mesh" in failing.stderr
    short = meshmark("profile", "--", "true")
    assert short.returncode == 2 and "COMMAND: it ran for" in short.stderr and "allowed: at least 100" in short.stderr
    missing = meshmark("profile", "--", "./no-such-program")
    assert missing.returncode == 1 and "no-such-program" in missing.stderr


def test_a_program_that_leaves_a_process_behind_has_no_profile(made: MadePressures) -> None:
    script = f"setsid {sys.executable} -c 'import signal; signal.pause()' > /dev/null 2>&1 & exec sleep 0.2"
    completed = meshmark("profile", "--", "sh", "-c", script)
    assert completed.returncode == 1
    assert "left 1 process running, which was killed" in completed.stderr


def test_a_neighbour_that_fails_ends_the_profile_in_one_line(made: MadePressures) -> None:
    made.refuse("compute")
    completed = meshmark("profile", "--", *made.command("streams"))
    assert completed.returncode == 1
    assert "compute on CPU" in completed.stderr and "refused" in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "COMMAND: found none; allowed: a command after --, or files of profiles"),
        (["--cpus", "9999", "--", "true"], "--cpus: found CPU 9999; allowed: "),
        (["--cpus", "x", "--", "true"], "--cpus: found 'x'; allowed: numbers and ranges"),
        (["--cpus", "0", "--neighbours", "0", "--", "true"], "--neighbours: found CPU 0, which --cpus contains, too"),
        (["missing.json"], "missing.json"),
        (["missing.json", "--", "true"], "COMMAND: found 'missing.json' before --"),
    ],
)
def test_bad_words_are_named(words: list[str], text: str, tmp_path: Path) -> None:
    completed = meshmark("profile", *words, cwd=tmp_path)
    assert completed.returncode == 2 and text in completed.stderr, completed.stderr


def test_all_cpus_leave_none_for_neighbours() -> None:
    cpus = ",".join(map(str, from_sysfs().allowed_cpus))
    completed = meshmark("profile", "--cpus", cpus, "--", "true")
    assert completed.returncode == 2 and "--cpus: found all CPUs" in completed.stderr


def test_the_rates_of_this_machine_predict_the_time_here(profiled: Profiled, tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    profiled.meshmark("predict", "rates", "--out", str(file))
    answer = json.loads(profiled.meshmark("predict", "machine", profiled.runs[0], "--on", str(file), "--json"))
    assert answer["ratio"] == pytest.approx(1, rel=0.05), "all simulated kernels have the same rate on all machines"
    table = profiled.meshmark("predict", "machine", profiled.runs[0], "--on", str(file))
    assert "streams" in table and "predicted" in table
