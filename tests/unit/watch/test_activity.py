"""What a machine did during an interval is the mean of its frames, and unknown where they do not state it."""

from __future__ import annotations

import pytest

from meshmark.watch.activity import INTERVAL_S, activity_of, observe
from meshmark.watch.frames import Frame, Header

COMPONENTS = {"cpu": ({"number": 4}, {"number": 5}), "io": ({"name": "sda"}, {"name": "eth0"}), "host": ({},)}
HEADER = Header("host", "m", "2026", 0.5, COMPONENTS, ())


def test_values_are_means_by_the_length_of_the_frames() -> None:
    frames = [
        Frame(1, 1.0, 1.0, {"cpu.busy": [0.2, None], "cpu.steal": [0.0, None], "host.running": [3]}),
        Frame(
            2,
            4.0,
            3.0,
            {"cpu.busy": [0.6, None], "io.busy": [0.5, None], "host.running": [7]},
            processes=[{"pid": 9, "name": "a", "cpu": 1.5}],
        ),
    ]
    found = activity_of(HEADER, frames)
    assert found.interval_s == 4.0
    assert found.busy == {4: pytest.approx(0.5)} and found.stolen == {4: 0.0} and found.devices == {"sda": 0.5}
    assert found.runnable == pytest.approx(5.0)  # without the sampler
    assert [(p.name, p.pid, p.cpus) for p in found.programs] == [("a", 9, 1.5)]


def test_what_no_frame_states_is_unknown() -> None:
    found = activity_of(HEADER, [Frame(1, 1.0, 1.0, {})])
    assert found.runnable is None and not found.busy and not found.stolen and not found.devices


def test_this_machine_is_observed_for_the_interval_that_is_stated() -> None:
    found = observe()
    assert found.interval_s >= 0.9 * INTERVAL_S
    assert found.busy and all(0 <= share <= 1 for share in (*found.busy.values(), *found.stolen.values()))
    assert found.runnable is not None and found.runnable >= 0
