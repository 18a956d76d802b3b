"""The network interfaces and disks that a process may use, and the CPUs that handle their interrupts.

Sources: proc_pid_fd(5), the kernel's documentation (ABI/testing/sysfs-kernel-irq, ABI/testing/sysfs-bus-pci).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from meshmark.doctor.strain import Counts
from meshmark.machine.tree import FileTree

_FILES: Final = 64  # open files of a process that are looked up
_INTERRUPTS: Final = 64  # interrupts of a device that are read


@dataclass(frozen=True, slots=True)
class Device:
    """A device, by the name of its interface or disk, and the numbers of its interrupts."""

    name: str
    interrupts: tuple[int, ...]


def devices_of(root: Path, process: int) -> list[Device]:
    """Return the devices with interrupts that a process may use, at most once each.

    These are the network interfaces of its namespace, and the disks of its open files. Interfaces of containers, and
    file systems over other file systems, have no device.

    Args:
        root: Root of the file system, / for the live system.
        process: Its number; files of another user's process are not visible without privileges.
    """
    found: dict[Path, Device] = {}
    for name, folder in [*_interfaces(root, process), *_disks(root, process)]:
        for parent in [folder, *folder.parents]:
            if parent not in found and (numbers := _numbers(parent / "msi_irqs")):
                found[parent] = Device(name, tuple(numbers[:_INTERRUPTS]))
            if parent in found or parent.name in {"devices", "sys"}:
                break
    return list(found.values())


def interrupt_counts(tree: FileTree, devices: Sequence[Device]) -> dict[str, int]:
    """Return the interrupts that each CPU has handled since boot, by `interrupts/DEVICE/CPU`."""
    counts: dict[str, int] = {}
    for device in devices:
        for number in device.interrupts:
            words = (tree.text(f"sys/kernel/irq/{number}/per_cpu_count") or "").strip().split(",")
            for cpu, word in enumerate(words):
                key = f"interrupts/{device.name}/{cpu}"
                counts[key] = counts.get(key, 0) + (int(word) if word.isdecimal() else 0)
    return counts


def interrupts_by_node(increases: Counts, node_of: Mapping[int, int]) -> dict[str, dict[int, int]]:
    """Return how many interrupts of each device the CPUs of each node handled, without devices that had none."""
    by_device: dict[str, dict[int, int]] = {}
    for key, count in increases.items():
        kind, _, rest = key.partition("/")
        name, _, cpu = rest.rpartition("/")
        if kind == "interrupts" and count > 0 and int(cpu) in node_of:
            by_node = by_device.setdefault(name, {})
            by_node[node_of[int(cpu)]] = by_node.get(node_of[int(cpu)], 0) + count
    return by_device


def _interfaces(root: Path, process: int) -> Iterator[tuple[str, Path]]:
    try:
        lines = (root / f"proc/{process}/net/dev").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for name in (line.partition(":")[0].strip() for line in lines if ":" in line):
        folder = root / "sys/class/net" / name
        if name != "lo" and "/" not in name and folder.exists():
            yield name, folder.resolve()


def _disks(root: Path, process: int) -> Iterator[tuple[str, Path]]:
    numbers = set[int]()
    with suppress(OSError):  # the process has ended, or belongs to another user
        for file in islice((root / f"proc/{process}/fd").iterdir(), _FILES):
            with suppress(OSError):  # closed meanwhile
                numbers.add(file.stat().st_dev)
    for number in sorted(numbers):
        block = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
        if os.major(number) and block.exists():
            for lower in [*sorted((block / "slaves").glob("*")), block]:
                yield lower.resolve().name, lower.resolve()


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
    except OSError:
        return []
