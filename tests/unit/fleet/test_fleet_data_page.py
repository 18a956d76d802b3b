"""The examples of docs/how-to/fleet-data.md find the slow node, each if its library is installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from meshmark.fleet.data.compaction import compact
from meshmark.fleet.data.ingest import ingest
from meshmark.fleet.folder import Fleet
from support.cli import python
from support.made_fleet import lines_of, noisy, write_result
from support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "fleet-data.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
SLOW = "n3"
STORAGE = 'fs.S3FileSystem(endpoint_override="https://s3.example.org")'


def libraries(example: str) -> list[str]:
    return sorted(set(re.findall(r"^(?:import|from) (\w+)", example, re.M)))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Return a fleet with two days of eight nodes, of which one node has a low triad bandwidth."""
    shared_fleet = Fleet(tmp_path_factory.mktemp("shared") / "fleet")
    for day in (25, 26):
        name = f"check-202611{day}T060000-abcd"
        for nodes in (range(1, 5), range(5, 9)):
            for node in (f"n{i}" for i in nodes):
                factors = noisy(node, day, {"triad": 0.1} if node == SLOW else None)
                write_result(shared_fleet.campaign(name) / "inbox", node, lines_of(node, factors))
            ingest(shared_fleet, name, "hawk")
    compact(shared_fleet)
    return shared_fleet


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(e, id="-".join(libraries(e)), marks=() if libraries(e)[0] == "duckdb" else pytest.mark.slow)
        for e in EXAMPLES
    ],
)
def test_examples_find_the_slow_node(fleet: Fleet, tmp_path: Path, example: str) -> None:
    if missing := [name for name in libraries(example) if find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)}: not installed")
    (tmp_path / "lake").mkdir()
    (tmp_path / "storage").mkdir()
    file_system = f'fs.SubTreeFileSystem("{tmp_path / "storage"}", fs.LocalFileSystem())'
    code = example.replace("/shared/fleet", str(fleet.root)).replace("/shared/lake", str(tmp_path / "lake"))
    completed = python(code.replace(STORAGE, file_system), timeout_s=300)
    assert completed.returncode == 0, completed.stderr[-2000:]
    match = re.search(r"\bn\d\b", completed.stdout)
    assert match and match[0] == SLOW, completed.stdout


def test_there_is_an_example_for_each() -> None:
    known = {name for e in EXAMPLES for name in libraries(e)}
    assert {"duckdb", "pandas", "polars", "dask", "ray", "pyspark", "deltalake", "pyiceberg"} <= known
