"""Tables below the map: history, absolute values, the busiest of many components and processes."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType

from meshmark.views.terminal.live.panels import MAX_ROWS, activity, processes, spark
from meshmark.watch.frames import Frame, FrameMetric, Header


def printed(what: RenderableType) -> list[str]:
    console = Console(width=120, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get().splitlines()


def header(disks: int) -> Header:
    return Header(
        "host",
        "test",
        "",
        1.0,
        {
            "cpu": ({"name": "CPU 0"}, {"name": "CPU 1"}),
            "io": tuple({"name": f"disk{i}", "kind": "disk"} for i in range(disks)),
        },
        (
            FrameMetric("cpu.busy", "1", "neither idle nor waiting", "time"),
            FrameMetric("io.busy", "1", "in use", "time"),
        ),
    )


def frame(seq: int, cpus: list[float | None], disks: list[float | None], **more: Any) -> Frame:
    rates = [None if v is None else 1e6 * v for v in disks]
    return Frame(seq, float(seq), 1.0, {"cpu.busy": cpus, "io.busy": disks, "io.in": rates, "io.out": rates}, **more)


def test_history_is_a_character_per_frame() -> None:
    assert spark([0, 0.5, None, 1, 2], 1) == "▁▅·██"
    frames = [frame(1, [0, 0], [0]), frame(2, [1, 1], [None]), frame(3, [0.5, None], [1])]
    head, cpus, disk = printed(activity(header(1), frames))
    assert "last 3 frames" in head
    assert cpus.split()[:4] == ["2", "CPUs", "50", "%"] and cpus.rstrip().endswith(
        "▁█▅"
    )  # the mean of the known values
    assert "reads 1.00\u00a0MB/s, writes 1.00\u00a0MB/s" in disk and "▁·█" in disk


def test_of_many_components_the_busiest_are_shown_in_their_order() -> None:
    busy: list[float | None] = [i / 20 for i in range(20)]
    lines = printed(activity(header(20), [frame(1, [0, 0], busy[::-1])]))
    names = [line.split()[0] for line in lines if line.startswith("disk")]
    assert names == [f"disk{i}" for i in range(MAX_ROWS)]
    assert lines[-1].strip() == "12 more of io, less busy"


def test_processes_have_a_table() -> None:
    assert processes(frame(1, [0], [0])) is None
    process = {"pid": 7, "name": "a [b] c", "cpu": 1.5, "threads": 2, "on": 1, "rss": 3 * 2**20}
    table = processes(frame(1, [0], [0], processes=[process]))
    assert table is not None
    head, row = printed(table)
    assert head.split() == ["process", "PID", "CPU", "threads", "on", "CPU", "memory"]
    assert row.split() == ["a", "[b]", "c", "7", "150", "%", "2", "1", "3", "MiB"]
