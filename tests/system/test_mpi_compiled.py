"""`meshmark mpi build` compiles a program that measures, by the wrapper of an installed MPI library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_the_compiled_program_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = shutil.which("mpicxx")
    if wrapper is None:
        pytest.skip("no MPI library is installed (mpicxx)")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    meshmark = [sys.executable, "-m", "meshmark"]
    completed = subprocess.run([*meshmark, "mpi", "build"], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    program = Path(completed.stdout.strip())
    assert program.is_relative_to(tmp_path)
    kind = program.name.removeprefix("meshmark-comm-")
    words = ["measure", "barrier", "--mpi", kind, "--ranks", "2", "--budget", "1s", "--json"]
    record = json.loads(subprocess.check_output([*meshmark, *words], text=True).splitlines()[0])
    assert record["conditions"]["ranks"] == 2
    assert record["provenance"]["compiler"].endswith(" -O2 -DNDEBUG")
