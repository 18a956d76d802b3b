"""The registers of simulated processors show which hardware prefetchers are off."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.machine.absence import absent
from meshmark.machine.boot import comparable_facts
from meshmark.machine.facts import recorded_facts
from meshmark.machine.prefetchers import prefetchers
from meshmark.machine.tree import FilesInMemory, FileTree
from meshmark.store.machines import changes, machines
from meshmark.store.store import Store
from support.made_registers import write_registers

INTEL, AMD = ("GenuineIntel", 0x1A4), ("AuthenticAMD", 0xC0000108)


def registers(root: Path, number: int, *values: int) -> FileTree:
    """Return a tree whose CPUs have these values in a register."""
    write_registers(root / "dev" / "cpu", number, dict(enumerate(values)))
    (root / "dev" / "cpu" / "microcode").write_text("")
    return FileTree(root)


@pytest.mark.parametrize(
    ("of", "values", "text"),
    [
        (INTEL, (0, 0), "on"),
        (INTEL, (0b0011,), "off: L2 stream, L2 adjacent line"),
        (INTEL, (0b1111, 0b1111), "off: L2 stream, L2 adjacent line, L1 next line, L1 by instruction"),
        (INTEL, (0, 1), "differ between CPUs"),
        (INTEL, (1 << 40, 0), "on"),
        (AMD, (0b101000,), "off: L2 stream, L2 up and down"),
        (AMD, (0b010000,), "on"),
        (("Else", 0x1A4), (0,), None),
    ],
)
def test_bits_switch_prefetchers_off(
    tmp_path: Path, of: tuple[str, int], values: tuple[int, ...], text: str | None
) -> None:
    assert prefetchers(registers(tmp_path, of[1], *values), of[0]) == text


def test_a_register_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    tree = registers(tmp_path, INTEL[1], 0, 0)
    (tmp_path / "dev" / "cpu" / "1" / "msr").write_bytes(b"\0" * 0x1A4)  # ends before the register
    assert prefetchers(tree, INTEL[0]) is None
    (tmp_path / "dev" / "cpu" / "1" / "msr").unlink()
    assert prefetchers(tree, INTEL[0]) is None
    assert prefetchers(FilesInMemory({"dev/cpu/0/msr": b""}), INTEL[0]) is None


def test_unknown_ones_are_absent_and_known_ones_compared() -> None:
    facts = recorded_facts({"proc/cpuinfo": b"vendor_id : GenuineIntel\nflags : hypervisor\n"})
    settings = facts["settings"]
    assert isinstance(settings, dict) and settings["prefetchers"] == absent("a hypervisor hides them")
    assert "prefetchers" not in comparable_facts(facts)
    assert comparable_facts({"settings": {"prefetchers": "on"}}) == {"prefetchers": "on"}


def test_a_change_of_the_prefetchers_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for day, state in (("20", "on"), ("21", "off: L2 stream")):
        row = {"machine": "m", "seen": f"2026-11-{day}T00:00:00Z", "kernel": "6.1", "prefetchers": state}
        store.add_machine_row(row, f"202611{day}T000000-1")
    assert changes(machines(store), "2026-11-20T12") == ["prefetchers on → off: L2 stream"]
