"""Runs `meshmark-place run` with a separate ledger."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.native import find_native

CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
FOREIGN = ("MESHMARK_", "OMP", "PMI", "MPI_", "SLURM_", "FLUX_", "LSB_", "LSF_", "BIND_JOB", "EGO_", "GLIBC_TUNABLES")


@contextlib.contextmanager
def placed() -> Iterator[Place]:
    """Yield a place in a folder that other users can reach."""
    with tempfile.TemporaryDirectory(prefix="meshmark-place-") as folder:
        os.chmod(folder, 0o755)
        yield Place(Path(folder))


class Place:
    """The program with an environment that has no placement variables."""

    def __init__(self, folder: Path) -> None:
        self.program = str(find_native("meshmark-place", "MESHMARK_PLACE"))
        self.folder = folder
        self.ledger = folder / "claims"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        config = folder / "site.toml"
        config.write_text("")
        self.env |= {"MESHMARK_LEDGER": str(self.ledger), "MESHMARK_SITE_CONFIG": str(config), "HOME": str(folder)}
        self.env |= {"XDG_CONFIG_HOME": str(folder)}

    def words(self, *words: str) -> list[str]:
        return [self.program, "run", *words]

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), env=self.env | (env or {}), capture_output=True, text=True, timeout=120, check=False
        )

    @contextlib.contextmanager
    def start(self, *words: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """Start the program in the background with its output piped; it is killed if the test does not end it."""
        with subprocess.Popen(
            self.words(*words), env=self.env | (env or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def slots(self) -> dict[str, Any]:
        completed = subprocess.run(
            [self.program, "slots", "--json"], env=self.env, capture_output=True, text=True, check=True
        )
        document: dict[str, Any] = json.loads(completed.stdout)
        return document
