"""Test base data as a user measures them: interruptions, damage, busy or other machines, counters and user metrics."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration import base
from meshmark.load.calibration.base import base_run, base_runs, inspect_run, last_base, read_base
from meshmark.load.calibration.native import described_columns
from meshmark.load.calibration.variants import COUNTER_PREFIX
from meshmark.machine.facts import host_id
from meshmark.measure import survey
from support.cli import meshmark, start
from support.waiting import until

# The smallest possible calibration data, named like the shipped quick data so that they are found by default.
SMALL = """
name = "load-quick"
[[step]]
name = "stream"
instrument = "kernels"
options = { kernel = "triad,copy", volume = "64KiB,1MiB", stride = "1", threads = "1", budget = "2s", interval = 20 }
[[step]]
name = "compute"
instrument = "kernels"
options = { kernel = "horner,gemm", volume = "64KiB", threads = "1", budget = "2s", interval = 20 }
"""
VARIANTS = {
    "triad/64KiB/s1/t1",
    "triad/1MiB/s1/t1",
    "copy/64KiB/s1/t1",
    "copy/1MiB/s1/t1",
    "horner/s1/t1",
    "gemm/64KiB/s1/t1",
}
WISH = '[[program]]\nname = "p"\nrun_time_s = 0.5\nleast_kernels = 2\n'


def one_error(done: subprocess.CompletedProcess[str], status: int, *says: str) -> None:
    """Assert that a process ended with the status and one error line that contains the texts; hints are allowed."""
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert done.returncode == status and len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    for part in says:
        assert part in done.stderr


def home_of(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_DATA_HOME": str(folder)}


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with small calibration data; tests must not change it."""
    data = tmp_path_factory.mktemp("taken")
    (data / "small.toml").write_text(SMALL)
    completed = meshmark("load", "base", "--spec", data / "small.toml", "--force", env=home_of(data))
    assert completed.returncode == 0, completed.stderr
    return data


@pytest.fixture
def data(taken: Path, tmp_path: Path) -> Path:
    """Return a copy of the data folder that a test may change."""
    shutil.copytree(taken, tmp_path / "data")
    return tmp_path / "data"


def run_of(data: Path) -> Path:
    (run,) = (data / "meshmark" / "runs").iterdir()
    return run


def journals(data: Path) -> list[Path]:
    return sorted((run_of(data) / "journal").glob("*.jsonl"))


def make(data: Path, *more: object, wish: str = WISH) -> subprocess.CompletedProcess[str]:
    (data / "wish.toml").write_text(wish)
    return meshmark(
        "load", "make", data / "wish.toml", "--out", data / "programs", "--rounds", 0, *more, env=home_of(data)
    )


def rewritten(journal: Path, change: Any) -> None:
    """Apply `change` to each line of the journal and write the journal back."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        change(line)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_plan_is_measured_and_a_program_can_be_made_of_it(data: Path) -> None:
    variants, notes = read_base(run_of(data))
    assert {v.name for v in variants} == VARIANTS and not notes
    completed = make(data)
    assert completed.returncode == 0, completed.stderr
    assert "warning" not in completed.stderr


def test_killed_in_its_midst_it_goes_on_and_measures_nothing_twice(taken: Path, tmp_path: Path) -> None:
    env = home_of(tmp_path)
    runs = tmp_path / "meshmark" / "runs"
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ("load", "base", "--spec", taken / "small.toml", "--force")
    with start(*words, env=env, start_new_session=True, **streams) as child:
        assert until(lambda: any(b'"sample"' in j.read_bytes() for j in runs.glob("*/journal/02-*.jsonl")))
        os.killpg(child.pid, signal.SIGKILL)
    (run,) = runs.iterdir()
    first_journal = next(run.glob("journal/01-*.jsonl"))
    first_bytes = first_journal.read_bytes()
    assert b'"end"' in first_bytes and not base_runs(runs, host_id())[0].finished
    one_error(make(tmp_path), 1, "interrupted run", run.name, "--resume")
    completed = meshmark("load", "base", "--resume", "--force", env=env)
    assert completed.returncode == 0 and Path(completed.stdout.strip()) == run, completed.stderr
    assert first_journal.read_bytes() == first_bytes, "a finished step is left alone"
    points = [
        json.loads(x)["index"]
        for x in next(run.glob("journal/02-*.jsonl")).read_text().splitlines()
        if '"type":"point"' in x.replace(" ", "")
    ]
    assert len(points) == len(set(points)) > 0
    assert {v.name for v in read_base(run)[0]} == VARIANTS
    assert base_run(runs, host_id()) == run


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def busy() -> Iterator[None]:
    """Run a busy loop on every CPU during the test."""
    children = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
        for cpu in os.sched_getaffinity(0)
    ]
    assert until(lambda: all(cpu_seconds(child.pid) > 0.3 for child in children))
    yield
    for child in children:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("busy")
def test_a_busy_machine_is_refused_and_else_flagged(taken: Path, tmp_path: Path) -> None:
    env = home_of(tmp_path)
    one_error(meshmark("load", "base", "--spec", taken / "small.toml", env=env), 1, "of the CPUs", "--force")
    assert not (tmp_path / "meshmark" / "runs").exists(), "nothing was begun"
    completed = meshmark("load", "base", "--spec", taken / "small.toml", "--force", env=env)
    assert completed.returncode == 0 and "warning" in completed.stderr, completed.stderr
    records = survey.load_run(run_of(tmp_path))[0]
    assert records and all("disturbed" in r.flags for r in records)
    assert max(float(str(r.conditions["others_share"])) for r in records) > 0.25


def test_what_does_not_fit_into_memory_is_absent_with_the_numbers(taken: Path, tmp_path: Path) -> None:
    spec = tmp_path / "large.toml"
    spec.write_text(SMALL.replace('"64KiB,1MiB"', '"64KiB,64TiB"'))
    completed = meshmark("load", "base", "--spec", spec, "--force", env=home_of(tmp_path))
    assert completed.returncode == 0, completed.stderr
    records, absences, _ = survey.load_run(run_of(tmp_path))
    large = [a for a in absences if a.conditions.get("volume_bytes") == 64 << 40]
    assert {a.conditions["kernel"] for a in large} == {"triad", "copy"}
    assert all("needs " in a.reason and ", available are " in a.reason and a.kind == "absent" for a in large)
    assert {r.conditions["volume_bytes"] for r in records if r.conditions["kernel"] == "triad"} == {64 << 10}


def test_base_data_of_another_machine_are_refused_by_name(data: Path) -> None:
    run = run_of(data)
    for journal in journals(data):
        rewritten(journal, lambda line: line.update(machine="n042") if "machine" in line else None)
    one_error(make(data), 1, "no calibration data of this machine")
    one_error(make(data, "--base", run.name), 1, "is from machine n042", host_id())


def test_a_survey_of_other_things_is_no_base_data(data: Path, tmp_path: Path) -> None:
    plan = run_of(data) / "plan.json"
    raw = json.loads(plan.read_text())
    raw["steps"][0]["instrument"] = "clock"
    plan.write_text(json.dumps(raw))
    one_error(make(data, "--base", run_of(data).name), 1, "not calibration data")
    spec = tmp_path / "other.toml"
    spec.write_text('name = "x"\n[[step]]\ninstrument = "clock"\noptions = { clocks = "tsc" }\n')
    completed = meshmark("load", "base", "--spec", spec, "--force", env=home_of(data))
    one_error(completed, 2, "instrument: found 'clock'", "kernels")
    one_error(meshmark("load", "base", "--spec", spec, "--quick", env=home_of(data)), 2, "--spec: found with --quick")


def test_a_journal_cut_short_is_said_and_what_is_left_serves(data: Path) -> None:
    last_journal = journals(data)[-1]
    content = last_journal.read_bytes()
    lines = content.splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"result"' in line) + 2  # both metrics of one variant
    last_journal.write_bytes(b"".join(lines[:cut]) + lines[cut][:40])
    completed = make(data)
    assert completed.returncode == 0 and completed.stderr.count("warning: calibration data of") == 1, completed.stderr
    assert "02-compute: this step is incomplete" in completed.stderr
    assert len(read_base(run_of(data))[0]) == len(VARIANTS) - 1


def test_a_damaged_journal_is_said_in_one_line(data: Path) -> None:
    first_journal = journals(data)[0]
    lines = first_journal.read_bytes().splitlines(keepends=True)
    index = next(i for i, line in enumerate(lines) if b'"result"' in line)
    lines[index] = lines[index].replace(b'"type"', b'\x00\xff"ty')
    first_journal.write_bytes(b"".join(lines))
    completed = make(data)
    assert completed.returncode == 0 and completed.stderr.count("warning: calibration data of") == 1, completed.stderr
    assert "01-stream: 1 lines of its journal are invalid" in completed.stderr
    for journal in journals(data):
        journal.write_bytes(os.urandom(20_000))
    one_error(make(data, "--base", run_of(data).name), 1)
    for journal in journals(data):
        journal.write_bytes(b"")
    one_error(make(data, "--base", run_of(data).name), 1, "contains no variant")


@pytest.mark.parametrize(
    ("condition", "value"), [("volume_bytes", "large"), ("kernel", 7), ("flops", None), ("kind", None)]
)
def test_a_condition_that_is_none_is_named(data: Path, condition: str, value: object) -> None:
    def spoil(line: dict[str, Any]) -> None:
        if line["type"] == "result":
            line["conditions"][condition] = value

    rewritten(journals(data)[0], spoil)
    one_error(make(data), 1, condition)


@pytest.mark.parametrize("file", ["plan.json", "run.json"])
def test_a_damaged_state_of_a_run_is_one_line(data: Path, file: str) -> None:
    run = run_of(data)
    (run / file).write_bytes((run / file).read_bytes()[:50])
    one_error(make(data, "--base", run.name), 1, file)
    one_error(make(data), 1, "no calibration data of this machine")
    assert last_base(run.parent, host_id()) is None
    with pytest.raises(MeshmarkError, match=file):
        inspect_run(run)


def test_a_damaged_store_does_not_touch_base_data(data: Path) -> None:
    parquet = sorted((data / "meshmark" / "store").rglob("*.parquet"))
    assert parquet
    for file in parquet:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert make(data).returncode == 0
    completed = meshmark("load", "base", "--resume", "--force", env=home_of(data))
    assert "Traceback" not in completed.stderr and completed.returncode == 0, completed.stderr
    verified = meshmark("store", "verify", env=home_of(data))
    assert verified.returncode in {0, 1} and "Traceback" not in verified.stderr


def test_the_right_run_is_found_without_reading_results(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(folder: Path) -> None:
        raise AssertionError(f"{folder} was read whole")

    monkeypatch.setattr(survey, "load_run", never)
    quick, runs = run_of(data), tmp_path / "runs"

    def copy(name: str, spec: str, started: str, finished: bool = True) -> Path:
        shutil.copytree(quick, runs / name)
        plan, state = json.loads((quick / "plan.json").read_text()), json.loads((quick / "run.json").read_text())
        (runs / name / "plan.json").write_text(json.dumps({**plan, "spec": spec}))
        (runs / name / "run.json").write_text(
            json.dumps({**state, "started": started, "steps": state["steps"] if finished else []})
        )
        return runs / name

    older = copy("a", "load-quick", "2026-01-01T00:00:00+00:00")
    assert base_run(runs, host_id()) == older
    newer = copy("b", "load-quick", "2026-01-02T00:00:00+00:00")
    assert base_run(runs, host_id()) == newer
    full = copy("c", "load", "2025-01-01T00:00:00+00:00")
    assert base_run(runs, host_id()) == full, "a full one goes before a newer quick one"
    own_spec = copy("d", "mine", "2026-01-05T00:00:00+00:00")
    unfinished = copy("e", "load", "2026-01-06T00:00:00+00:00", finished=False)
    assert base_run(runs, host_id()) == full, "one of one's own goes by its name, one not finished not at all"
    assert base_run(runs, host_id(), "d") == own_spec
    assert last_base(runs, host_id()) == unfinished
    (runs / "nothing").mkdir()
    (runs / "e" / "plan.json").write_text("{")
    assert last_base(runs, host_id()) == own_spec
    assert base_run(runs, "n042") is None
    with pytest.raises(UsageError):
        base.base_spec(True, Path("x.toml"))


def test_counters_are_counted_or_said_to_be_absent_once_a_run(taken: Path) -> None:
    for journal in journals(taken):
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        absent_lists = [x["conditions"]["counters"] for x in lines if x["type"] == "absent"]
        counter_keys = {
            k for x in lines if x["type"] == "result" for k in x["conditions"] if k.startswith(COUNTER_PREFIX)
        }
        missing = {name for names in absent_lists for name in names.split(",") if name}
        assert {k.removeprefix(COUNTER_PREFIX) for k in counter_keys} | missing == {*described_columns().counters}
        assert len([n for names in absent_lists for n in names.split(",")]) == len(missing), "each of them once"
        for x in lines:
            if x["type"] == "result" and "counter_task_clock_s" in counter_keys:
                seconds = x["conditions"].get("counter_task_clock_s")
                if seconds is None:
                    assert "task_clock_s" in missing
                    continue
                assert seconds > 0 and x["conditions"]["counters_of"] in {"user", "user and kernel"}
                if x["metric"] == "unit_cpu_time":  # both values are CPU times, but from different bursts
                    assert 0.1 * x["value"] < seconds < 10 * x["value"]


OWN = """
[metric.ipc]
formula = "instructions / cycles"
[metric.misses_per_flop]
formula = "cache_misses / flops"
unit = "1"
"""


def test_a_metric_of_ones_own_over_counters_is_shown_and_prescribed(data: Path) -> None:
    metrics_file = data / "own.toml"
    metrics_file.write_text(OWN)
    ipc = {"triad": 1.0, "copy": 0.5, "horner": 3.0, "gemm": 2.0}

    def count(line: dict[str, Any]) -> None:
        if line["type"] == "result":
            c = line["conditions"]
            c.update(counter_cycles=100.0, counter_instructions=100.0 * ipc[c["kernel"]], counter_cache_misses=3.0)

    for journal in journals(data):
        rewritten(journal, count)
    completed = meshmark("load", "variants", "--metrics", metrics_file, "--json", env=home_of(data))
    assert completed.returncode == 0, completed.stderr
    variants = {r["name"]: r for r in map(json.loads, completed.stdout.splitlines())}
    assert variants.keys() == VARIANTS
    for row in variants.values():
        assert row["metrics"]["ipc"] == pytest.approx(ipc[row["kernel"]])
        assert row["counters"]["cycles"] == 100 * row.get("window", 1), "of one call"
        assert ("misses_per_flop" in row["metrics"]) == ("flops" in row), "nothing is divided by 0"
    table = meshmark("load", "variants", "--metrics", metrics_file, "--kernel", "gemm", env=home_of(data))
    assert table.returncode == 0 and "ipc" in table.stdout and table.stdout.count("t1") == 1
    # The metric can also be prescribed, and is written to the file of the program.
    completed = make(data, "--metrics", metrics_file, "--json", wish=WISH + "ipc = 1.7\nmemory_mib = 64\n")
    assert completed.returncode == 0, completed.stderr
    rows = {r["metric"]: r for r in map(json.loads, completed.stdout.splitlines())}
    assert rows["ipc"]["planned"] == pytest.approx(1.7, rel=0.02)
    program = json.loads((data / "programs" / "p.json").read_text())
    assert program["metrics"]["ipc"]["formula"] == "instructions / cycles"
    words = ("--programs", data / "programs", "--metrics", metrics_file, "--no-store", "--out", data / "out")
    native = meshmark("load", "run", data / "wish.toml", *words, env=home_of(data))
    assert native.returncode == 0, native.stderr


def test_a_metric_whose_counter_is_not_there_is_refused_by_name(data: Path) -> None:
    def forget(line: dict[str, Any]) -> None:
        if line["type"] == "result":
            line["conditions"] = {k: v for k, v in line["conditions"].items() if not k.startswith(COUNTER_PREFIX)}

    for journal in journals(data):
        rewritten(journal, forget)
    metrics_file = data / "own.toml"
    metrics_file.write_text(OWN)
    one_error(make(data, "--metrics", metrics_file, wish=WISH + "ipc = 1.7\n"), 2, "calibration data have no cycles")
    one_error(
        meshmark("load", "variants", "--metrics", metrics_file, env=home_of(data)), 2, "calibration data have no cycles"
    )
    metrics_file.write_text('[metric.x]\nformula = "cicles / flops"\n')
    one_error(
        meshmark("load", "variants", "--metrics", metrics_file, env=home_of(data)), 2, "unknown name 'cicles'", "cycles"
    )
    one_error(meshmark("load", "variants", "--kernel", "tirad", env=home_of(data)), 2, "--kernel: found 'tirad'")
