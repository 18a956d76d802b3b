"""A fleet behind PSI/J: on this host, and on a real Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.cli import meshmark, start
from support.mini_slurm import CannotStart, mini_slurm
from support.paths import ROOT
from support.waiting import until

LIBRARY = ROOT / "build" / "psij"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (LIBRARY / "psij").exists(), reason="PSI/J is not installed (tools/setup.sh --tests)"),
]
STEP = """[[step]]
instrument = "peak"
options = { type = "fp64", threads = "1", budget = "200ms" }
"""


def environment(folder: Path) -> dict[str, str | None]:
    return {"PYTHONPATH": os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")]), "HOME": str(folder)}


def words(folder: Path, *more: str) -> list[str]:
    spec = folder.parent / "tiny.toml"
    return ["fleet", "check", str(folder), "--spec", str(spec), "--engine", "psij", "--beside", "--json", *more]


def fleet(folder: Path, site: str) -> Path:
    fleet_folder = folder / "a fleet"
    fleet_folder.mkdir()
    (fleet_folder / "fleet.toml").write_text(site, encoding="utf-8")
    (folder / "tiny.toml").write_text('name = "tiny"\n' + STEP * 8, encoding="utf-8")
    return fleet_folder


def states(text: str) -> dict[str, dict[str, Any]]:
    return {line["node"]: line for line in map(json.loads, text.splitlines()) if line["type"] == "node"}


def killed_and_resumed(folder: Path, env: dict[str, str | None]) -> dict[str, tuple[str, int]]:
    """Return the status and tries of the nodes of a campaign that was killed while a node measured, and resumed."""
    first = start(*words(folder), env=env)
    assert until(lambda: any(folder.glob("campaigns/*/inbox/.*")) or first.poll() is not None, 60)
    first.kill()
    error = first.communicate()[1]
    completed = meshmark(*words(folder, "--resume"), env=env, timeout_s=200)
    assert completed.returncode == 0, error + completed.stderr
    return {node: (state["status"], state["tries"]) for node, state in states(completed.stdout).items()}


def test_this_host_measures_once(tmp_path: Path) -> None:
    folder = fleet(tmp_path, 'nodes = "n1"\n')
    assert killed_and_resumed(folder, environment(tmp_path)) == {"n1": ("done", 1)}


def test_jobs_of_slurm_get_their_nodes_and_are_found_by_their_ids(tmp_path: Path) -> None:
    try:
        with mini_slurm(nodes=3) as (names, env):
            site = f'nodes = "{",".join(names)}"\nmax_jobs = 4\n[psij]\nexecutor = "slurm"\n'
            folder = fleet(tmp_path, site)
            results = killed_and_resumed(folder, {**env, **environment(tmp_path)})
    except CannotStart as error:
        pytest.skip(str(error))
    assert results == dict.fromkeys(names, ("done", 1))


def test_without_psij_the_package_to_install_is_named(tmp_path: Path) -> None:
    folder = fleet(tmp_path, 'nodes = "n1"\n')
    completed = meshmark(*words(folder))
    assert completed.returncode == 77 and "PSI/J is not installed" in completed.stderr, completed.stderr
    assert "meshmark[psij]" in completed.stderr
