"""Processes that read results end with the ingestion, however it ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.fleet.campaigns.campaign import new_campaign
from meshmark.fleet.folder import Fleet
from support.cli import environment
from support.made_fleet import lines_of, write_result
from support.processes import children_of, descendants_with
from support.waiting import until

# The program ingests like the command, but with one process per node.
CODE = """
import sys
from pathlib import Path

if __name__ == "__main__":
    from meshmark.cli.process import end_by_signals
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.data.ingest import ingest

    end_by_signals()
    try:
        ingest(Fleet(Path(sys.argv[1])), sys.argv[2], "hawk", at_once=1)
    except KeyboardInterrupt:
        sys.exit(130)
"""
RESULTS = 40_000  # enough to take many seconds to read


@pytest.fixture(scope="module")
def results() -> bytes:
    line = next(line for line in lines_of("n1") if line["type"] == "result")
    return gzip.compress((json.dumps(line, separators=(",", ":")) + "\n").encode() * RESULTS, 1)


@pytest.mark.parametrize(
    ("number", "is_early"),
    [(signal.SIGKILL, True), (signal.SIGKILL, False), (signal.SIGINT, False), (signal.SIGTERM, True)],
)
def test_no_process_outlives_an_ingestion(
    tmp_path: Path, results: bytes, number: signal.Signals, is_early: bool
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU, so that the ingestion starts no process")
    fleet, name = Fleet(tmp_path / "fleet"), new_campaign("check")
    for node in ("n1", "n2", "n3"):
        path = write_result(fleet.campaign(name) / "inbox", node, lines_of(node)[:1])
        path.write_bytes(path.read_bytes() + results)
    (program := tmp_path / "ingestion.py").write_text(CODE)
    mark = f"MARK_{os.getpid()}_{number}_{is_early}"
    child = subprocess.Popen(
        [sys.executable, program, fleet.root, name],
        env=environment({mark: "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}),
        stderr=subprocess.PIPE,
        text=True,
    )
    least = 1 if is_early else 3  # the semaphore tracker and at least two readers
    assert until(lambda: len(children_of(child.pid)) >= least)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == (-9 if number == signal.SIGKILL else 130)
    assert until(lambda: not descendants_with(mark), 10)
    assert "Traceback" not in errors or number == signal.SIGKILL, errors
    assert len(list(fleet.campaign(name).rglob("*.jsonl.gz"))) == 3
