"""The activity of a machine during an interval is the mean of its frames; a value that no frame states is unknown."""

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
    activity = activity_of(HEADER, frames)
    assert activity.interval_s == 4.0
    assert activity.busy == {4: pytest.approx(0.5)} and activity.stolen == {4: 0.0} and activity.devices == {"sda": 0.5}
    assert activity.runnable == pytest.approx(5.0)  # the thread of the sampler does not count
    assert [(p.name, p.pid, p.cpus) for p in activity.programs] == [("a", 9, 1.5)]


def test_what_no_frame_states_is_unknown() -> None:
    activity = activity_of(HEADER, [Frame(1, 1.0, 1.0, {})])
    assert activity.runnable is None and not activity.busy and not activity.stolen and not activity.devices


def test_this_machine_is_observed_for_the_interval_that_is_stated() -> None:
    activity = observe()
    assert activity.interval_s >= 0.9 * INTERVAL_S
    assert activity.busy and all(0 <= share <= 1 for share in (*activity.busy.values(), *activity.stolen.values()))
    assert activity.runnable is not None and activity.runnable >= 0
