"""`meshmark-probe survey` needs nothing but itself: it prints a table, and leaves a file that the store imports."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from meshmark.measure.importers.importing import add_to, read_output
from meshmark.native import find_native
from meshmark.store.store import Store
from support.waiting import until

PROBE = find_native("meshmark-probe", "MESHMARK_PROBE")


def survey(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROBE, "survey", "--out", folder, *words], capture_output=True, text=True, check=False, timeout=300
    )


def test_a_survey_is_a_table_and_one_run_of_the_store(tmp_path: Path) -> None:
    completed = survey(tmp_path, "--budget", "12s")
    assert completed.returncode == 0, completed.stderr
    # What a busy machine cannot measure within the budget is listed as not measured.
    for part, absent in (("Latency of dependent loads", "latency"), ("Bandwidth of memory", "bandwidth")):
        assert part in completed.stdout or f"Not measured: {absent}" in completed.stdout, completed.stdout
    (file,) = tmp_path.glob("*.jsonl.gz")
    assert f"The results are in {file};" in completed.stdout
    store = Store(tmp_path / "store")
    for is_new in (True, False):
        for run, count in add_to(store, read_output(file).parts):
            assert f"{run}.jsonl.gz" == file.name and (count > 0) == is_new
    assert "latency" in {record.instrument for record in store.query()} and len(store.runs()) == 1


def test_an_interrupted_survey_retains_the_steps_that_ended(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PROBE, "survey", "--out", tmp_path, "--budget", "60s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        assert until(lambda: "bandwidth" in (child.stderr.readline() if child.stderr else ""), 120)
        child.send_signal(signal.SIGINT)
        table, _ = child.communicate(timeout=60)
    assert child.returncode == 1 and "The results are in " in table
    (file,) = tmp_path.glob("*+interrupted.jsonl.gz")
    assert "latency" in {part.step for part in read_output(file).parts}


def test_a_folder_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    completed = survey(tmp_path / "none")
    assert completed.returncode == 1 and completed.stderr.count("\n") == 1
    assert completed.stderr.startswith("meshmark-probe survey: error: cannot write ")
    assert survey(tmp_path, "--budget", "0").returncode == 2
