"""What commands print, compared with files. After an intended change: pytest tests/unit/cli/test_printed.py
--snapshot-update, and read the difference."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation

from meshmark.store.record import Record
from meshmark.store.store import Store
from support import made_run
from support.cli import meshmark
from support.made_load import made_load
from support.made_recordings import frames, header, record

TOPOLOGY = "pack:2 [numa] core:4 pu:2"


class TextFile(SingleFileSnapshotExtension):
    """One text file for each command, in the folder `printed`."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(Path(test_location.filepath).with_name("printed"))

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: str | int = 0) -> str:
        return str(index)


@pytest.fixture
def printed(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data home with runs of four machines, two load runs and a recording."""
    folder = tmp_path_factory.mktemp("data")
    store = Store(folder / "meshmark" / "store")
    for machine, day, factor in (("made-up", 1, 1.0), ("made-up", 2, 1.25), ("other", 3, 0.5)):
        records = list(_scaled([*made_run.latency(), *made_run.bandwidth()], machine, day, factor))
        store.add(f"measure-202611{day:02}T080000-0000000{day}", "latency", records)
    for day in range(1, 15):
        factor = 1.0 if day < 8 else 1.1
        records = list(_scaled(made_run.latency()[:4], "drifting", day, factor * (1 + 0.001 * (day % 3))))
        store.add(f"measure-202611{day:02}T090000-000000{day:02}", "latency", records)
    messages = [*made_run.halo(("openmpi", "mpich")), *made_run.pingpong(), *made_run.swap(), *made_run.programs()]
    store.add("measure-20261120T080000-00000020", "halo", list(_scaled(messages, "cluster", 20, 1.0)))
    loads = folder / "meshmark" / "load"
    made_load(loads / "made-1", {"triad": [4.0, 4.2], "chase": [3.0, 3.1]})
    made_load(loads / "made-2", {"triad": [4.0, 4.1], "chase": [3.9, 4.0]}, waiting=0.1)
    record(folder / "made.mmrec", header(), frames([[k / 10, 0.5, None, 1.0] for k in range(8)]))
    return folder


def _scaled(records: Iterable[Record], machine: str, day: int, factor: float) -> Iterable[Record]:
    """Return the records of a machine on a day in November 2026, their times multiplied by `factor`."""
    for r in records:
        scale = factor if r.unit == "s" else 1.0
        interval = (r.interval[0] * scale, r.interval[1] * scale) if r.interval else None
        provenance = {**r.provenance, "start": f"2026-11-{day:02}T08:00:00Z", "version": "0.1.0"}
        samples = tuple(s * scale for s in r.samples)
        yield replace(
            r, machine=machine, samples=samples, value=r.value * scale, interval=interval, provenance=provenance
        )


COMMANDS = {
    "compare_paper": "compare paper:gs1280 gs1280-16 es45",
    "compare_runs": "compare measure-20261101T080000-00000001 measure-20261102T080000-00000002",
    "compare_three": "compare made-up@2026-11-01 made-up@2026-11-02 other --metric level_latency",
    "composite": "composite paper:xeon5400 paper:xeon5500",
    "history": "history made-up",
    "history_of_changes": "history drifting",
    "list_kernels": "list kernels",
    "list_policies": "list policies",
    "load_compare": "load compare {home}/meshmark/load/made-1 {home}/meshmark/load/made-2",
    "load_show": "load show {home}/meshmark/load/made-2",
    "machine_paper": "machine show paper:gs1280",
    "machine_synthetic": f"machine show '{TOPOLOGY}'",
    "model_compare": "model compare gs1280-16 gs320-16",
    "model_list": "model list",
    "model_measure": "model measure hot_spot gs1280-4 --chains 1,4 --no-store",
    "model_show": "model show gs1280-16",
    "model_validate": "model validate A01 A02",
    "place": f"place --topology '{TOPOLOGY}' --policy pack --jobs 2,3",
    "plot": "plot {home}/made.mmrec",
    "store_formats": "store formats",
    "store_list": "store list",
    "store_machines": "store machines",
    "store_table": "store export --format table --instrument latency --metric level_latency",
    "table_of_halos": "store export --format table --machine cluster --instrument halo",
    "table_of_programs": "store export --format table --machine cluster --instrument pop",
    "translate": f"translate --from numactl --to all --topology '{TOPOLOGY}' -- -N 0 -m 0",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_printed(name: str, home: Path, printed: SnapshotAssertion, tmp_path: Path) -> None:
    words = [w.format(home=home) for w in shlex.split(COMMANDS[name])]
    completed = meshmark(*words, env={"XDG_DATA_HOME": str(home), "COLUMNS": "110", "NO_COLOR": "1"}, cwd=tmp_path)
    text = f"$ meshmark {COMMANDS[name]}\n{completed.stdout}"
    if completed.stderr or completed.returncode:
        text += f"--- stderr, status {completed.returncode}\n{completed.stderr}"
    text = text.replace(str(home), "HOME").replace("{home}", "HOME")
    for changing, fixed in ((r"\d+ days ago", "N days ago"), (r"[-\d]{10} [:\d]{5} UTC(?=, model)", "NOW")):
        text = re.sub(changing, fixed, text)
    assert text == printed(name=name)
