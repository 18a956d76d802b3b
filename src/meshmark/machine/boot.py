"""Adds facts to the store: the software and settings under which this machine produced its results."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark.machine.absence import is_absent
from meshmark.machine.facts import host_facts, host_id
from meshmark.machine.tree import FileTree
from meshmark.store.machines import add_machine
from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.store.store import Store


def boot_facts(root: Path = Path("/")) -> dict[str, str]:
    """Return the facts of a machine and its present boot on which comparability depends; unknown facts are left out.

    Args:
        root: `/`, or a recorded tree.

    Returns:
        Texts by name. The names are among `store.machines.FACTS`.
    """
    boot = FileTree(root).text("proc/sys/kernel/random/boot_id")
    return {**({"boot": boot} if boot else {}), **comparable_facts(host_facts(root))}


def comparable_facts(known: Mapping[str, Any]) -> dict[str, str]:
    """Return the same facts as `boot_facts` except the boot, from facts that were already read.

    Args:
        known: Result of `host_facts` or `recorded_facts`.
    """

    def text(*path: str) -> str:
        value: Any = known
        for key in path:
            value = value.get(key, "") if isinstance(value, dict) else ""
        if is_absent(value):
            return ""
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    firmware = (text("firmware", key) for key in ("bios_vendor", "bios_version", "bios_date"))
    facts = {
        "cpu": text("cpu", "model"),
        "microcode": text("cpu", "microcode"),
        "firmware": " ".join(filter(None, firmware)),
        "kernel": text("kernel", "release"),
        "kernel_build": text("kernel", "version"),
        "kernel_options": text("kernel", "options"),
        "governor": text("settings", "governor"),
        "boost": text("settings", "boost"),
        "thp": text("pages", "thp"),
        "smt": text("settings", "smt"),
        "numa_balancing": text("settings", "numa_balancing"),
        "hypervisor": text("virtual", "hypervisor"),
        "prefetchers": text("settings", "prefetchers"),
    }
    return {name: value for name, value in facts.items() if value}


def remember(store: Store, records: Iterable[Record] = ()) -> None:
    """Add this host's facts to the store, if they differ from the last facts there.

    Args:
        store: Store to which the facts are added.
        records: Results that were just measured under these facts; empty if the measurement follows.

    Raises:
        MeshmarkError: The store cannot be written.
    """
    timestamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    starts = (str(r.provenance.get("start", "")) for r in records)
    add_machine(store, host_id(), boot_facts(), min([timestamp, *filter(None, starts)]))


def keep(store: Store, run: str, step: str, records: Sequence[Record], absences: Sequence[Absence] = ()) -> None:
    """Add results that this host just measured, at least one, as a finished run, and the facts of this host.

    Raises:
        MeshmarkError: The store cannot be written.
    """
    store.add(run, step, records, absences, records[0].machine)
    store.finish(run)
    remember(store, records)
