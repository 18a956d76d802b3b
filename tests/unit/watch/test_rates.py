"""Absolute values beside shares: rates of devices and memory, used memory, kinds of CPU time; no unknown values."""

from __future__ import annotations

from typing import Any

from meshmark.watch.frames import Frame, Header
from meshmark.watch.rates import rates

NBSP = "\u00a0"
HEADER = Header(
    "host",
    "test",
    "",
    1.0,
    {
        "node": ({"name": "node 0"}, {"name": "node 1"}),
        "cpu": ({"name": "CPU 0", "node": 0},),
        "memory": ({"name": "memory 0", "node": 0}, {"name": "channel 1", "node": 1}, {"name": "channel 2", "node": 1}),
        "link": ({"name": "0 to 1", "from": 0, "to": 1},),
        "io": ({"name": "vda", "kind": "disk"}, {"name": "eth0", "kind": "network"}, {"name": "port 0"}),
    },
    (),
)


def text(kind: str, index: int, **values: Any) -> str:
    frame = Frame(1, 1.0, 1.0, {name.replace("__", "."): value for name, value in values.items()})
    return rates(HEADER, frame, kind, index).replace(NBSP, " ")


def test_devices_have_verbs_of_their_kind() -> None:
    values = {"io__in": [1.2e6, 0.0, 5.0], "io__out": [3.456e9, 12.0, None]}
    assert text("io", 0, **values) == "reads 1.20 MB/s, writes 3.46 GB/s"
    assert text("io", 1, **values) == "receives 0 B/s, sends 12.0 B/s"
    assert text("io", 2, **values) == "in 5.00 B/s"


def test_memory_states_what_is_used_where_it_is_all_of_its_node() -> None:
    values = {"node__used": [2.0**30, 2.0**30], "node__total": [2.0**33, 2.0**33], "memory__read": [5e9, 1e9, None]}
    assert text("memory", 0, **values) == "reads 5.00 GB/s, 1 GiB of 8 GiB used"
    assert text("memory", 1, **values) == "reads 1.00 GB/s"  # the rate of one of several channels
    assert text("memory", 2, **values) == ""
    assert text("memory", 0, memory__moved=[2e9]) == "~others move 2.00 GB/s"


def test_cpus_state_the_kinds_of_their_time() -> None:
    assert text("cpu", 0, cpu__user=[0.981], cpu__system=[0.02], cpu__steal=[0.0]) == "user 98 %, system 2.0 %"
    assert text("cpu", 0, cpu__user=[None]) == ""
    counted = {"cpu__stalled": [0.7], "cpu__waiting": [0.55], "cpu__remote": [0.12]}
    expected = "user 98 %, stalled 70 %, waiting for memory 55 %, remote loads 12 %"
    assert text("cpu", 0, cpu__user=[0.98], **counted) == expected
    assert text("link", 0, link__out=[1e9]) == "carries 1.00 GB/s" and text("link", 0) == ""
