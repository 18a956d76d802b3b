"""A simulated machine whose caches can be assigned."""

from __future__ import annotations

from dataclasses import replace

from meshmark.machine.sources import from_synthetic
from meshmark.machine.topology import Topology


def machine() -> Topology:
    """Return a machine with two L3 caches of 16 MiB."""
    topology = from_synthetic("pack:2 l3:1(size=16MiB) core:2 pu:1")
    return replace(topology, caches=tuple(replace(c, size_bytes=16 << 20) for c in topology.caches if c.level == 3))
