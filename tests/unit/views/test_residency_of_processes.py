"""Where the threads and pages of a process were over time, from a recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import UsageError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.recorder.residency import residency
from support.made_recordings import frames, header, record

MIB = 1 << 20


def two_nodes() -> Header:
    one = header(cpus=4)
    cpus = tuple({**cpu, "node": i // 2, "number": i} for i, cpu in enumerate(one.components["cpu"]))
    return replace(one, components={**one.components, "node": ({"name": "node 0"}, {"name": "node 1"}), "cpu": cpus})


def with_processes(*lists: list[dict[str, Any]]) -> list[Frame]:
    made = frames([(0.5, 0.5, 0.5, 0.5)] * len(lists))
    return [replace(frame, processes=list(one)) for frame, one in zip(made, lists, strict=True)]


def server(pid: int, nodes: list[int], *on: tuple[int, float], name: str = "server") -> dict[str, Any]:
    threads = [{"tid": pid + i, "on": cpu, "cpu": share} for i, (cpu, share) in enumerate(on)]
    total = sum(share for _, share in on)
    return {
        "pid": pid,
        "name": name,
        "cpu": total,
        "on": on[0][0],
        "busiest": threads,
        "nodes": [n * MIB for n in nodes],
    }


MOVED = with_processes(
    [server(7, [100, 0], (0, 0.9), (3, 0.5)), server(8, [5, 5], (1, 0.1))],
    [server(8, [5, 5], (1, 0.1))],
    [server(7, [40, 60], (2, 1.0), (3, 0.5))],
)


def test_threads_and_pages_are_followed_over_time() -> None:
    found = residency(two_nodes(), MOVED, "server")
    assert found.title == "server (7)", "the one of this name that used most"
    assert found.at_s == [0.0, pytest.approx(0.2)]
    assert found.cpus == [{"node 0": 0.9, "node 1": 0.5}, {"node 1": 1.5}]
    assert found.memory == [
        {"node 0": 100 * MIB, "node 1": 0.0},
        {"node 0": 40 * MIB, "node 1": 60 * MIB},
    ]
    assert residency(two_nodes(), MOVED, "8").at_s == [0.0, pytest.approx(0.1)]


def test_threads_whose_use_is_unknown_count_as_their_process() -> None:
    first = server(7, [1, 0], (2, 0.5))
    first["busiest"][0]["cpu"] = None
    assert residency(two_nodes(), with_processes([first]), "7").cpus == [{"node 1": 0.5}]


def test_a_process_that_is_not_listed_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--process: found 'other'.*allowed: a number or name, such as server"):
        residency(two_nodes(), MOVED, "other")


def test_the_chart_is_drawn_as_pictures_only(tmp_path: Path) -> None:
    file = record(tmp_path / "r.parquet", two_nodes(), MOVED)
    drawn = CliRunner().invoke(app, ["plot", str(file), "--process", "7", "--out", str(tmp_path / "out")])
    assert drawn.exit_code == 0, drawn.output
    picture = (tmp_path / "out/process.svg").read_text(encoding="utf-8")
    assert all(text in picture for text in ("server (7)", "CPUs used by its threads", "node 1"))
    assert (tmp_path / "out/process.png").stat().st_size > 5000
    refused = CliRunner().invoke(app, ["plot", str(file), "--process", "7", "--csv"])
    assert isinstance(refused.exception, UsageError) or "--process: found with" in refused.output
