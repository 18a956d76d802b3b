"""Which machine this is: a name for people, and a hash that tells its make.

Two machines of one make have one hash; a changed name does not change it. What varies from boot to
boot (memory that the kernel keeps for itself, the CPUs a process may use) is left out. Taking CPUs
offline changes the hash, as it changes what is measured.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Mapping

from meshmark.machine.topology import Topology


def machine_hash(topology: Topology, cpu: Mapping[str, object]) -> str:
    """12 hexadecimal digits of the parts, their links, and the processor's make.

    Args:
        topology: Only online CPUs count.
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
    """`name` (the host's, made fit for a file name), `hash`, and `id`, which is both.

    Args:
        topology: of the machine.
        cpu: as for `machine_hash`.
        hostname: The recorded one; None asks the running system.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", hostname or socket.gethostname()).strip("-.")[:64] or "machine"
    short = machine_hash(topology, cpu)
    return {"id": f"{name}-{short[:8]}", "name": name, "hash": short}
