"""Programs end with the process that started them, at whatever moment of their start it dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import alive, until

PARENT = """
import os, signal, subprocess, sys, time
from pathlib import Path
from meshmark.native import die_with_parent, end_with_parent

signal.signal(signal.SIGTERM, lambda *_: None)
folder, parent = Path(sys.argv[1]), os.getpid()

def wait():
    (folder / "child.new").write_text(str(os.getpid()))
    (folder / "child.new").rename(folder / "child")
    while os.getppid() == parent:
        time.sleep(0.001)

def begin():
    steps = {"wait": wait, "end": end_with_parent, "die": die_with_parent}
    for word in sys.argv[2:]:
        steps[word]()

subprocess.Popen(["sh", "-c", "echo x > ran"], cwd=folder, preexec_fn=begin)
"""


@pytest.mark.parametrize("steps", [("wait", "end"), ("wait", "die"), ("end", "wait"), ("die", "wait")], ids="-".join)
def test_a_parent_that_dies_before_exec_starts_no_program(tmp_path: Path, steps: tuple[str, ...]) -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT, tmp_path, *steps])
    assert until((tmp_path / "child").exists)
    process.kill()
    process.wait()
    child = int((tmp_path / "child").read_text())
    assert until(lambda: not alive(child))
    assert not (tmp_path / "ran").exists()
