"""Identifies a machine by its host name and a hash of its hardware.

Machines of the same model have the same hash, whatever their names. The hash excludes what varies between boots, such
as memory reserved by the kernel and the allowed CPUs. Taking CPUs offline changes the hash, because it changes what is
measured.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Mapping

from meshmark.machine.topology import Topology


def machine_hash(topology: Topology, cpu: Mapping[str, object]) -> str:
    """A hash of the topology and the processor model, 12 hexadecimal digits.

    Args:
        topology: The topology; only online CPUs count.
        cpu: `vendor`, `model`, `family`, `model_number`, `stepping` of `host_facts()["cpu"]`.
    """
    shape = {
        "cpus": [(c.os_index, c.core, c.package, c.node) for c in topology.cpus],
        "nodes": [(n.os_index, n.kind) for n in topology.nodes],
        "caches": [(c.level, c.kind, c.size_bytes, len(c.cpus)) for c in topology.caches],
        "distances": topology.distances,
        "cpu": [str(cpu.get(k)) for k in ("vendor", "model", "family", "model_number", "stepping")],
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:12]


def identity(topology: Topology, cpu: Mapping[str, object], hostname: str | None = None) -> dict[str, str]:
    """`name` (the host name, sanitized for file names), `hash`, and `id`, which combines both.

    Args:
        topology: The topology of the machine.
        cpu: As for `machine_hash`.
        hostname: A recorded host name; by default that of the running system.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", hostname or socket.gethostname()).strip("-.")[:64] or "machine"
    short = machine_hash(topology, cpu)
    return {"id": f"{name}-{short[:8]}", "name": name, "hash": short}
