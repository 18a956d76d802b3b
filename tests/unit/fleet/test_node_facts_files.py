"""The files that nodes copy from their file systems are enough to describe the nodes."""

from __future__ import annotations

from pathlib import Path

from machines.shapes import Shape, write_shape
from meshmark.fleet.plan import FILES
from meshmark.machine.processor import clocks
from meshmark.machine.tree import FilesInMemory, FileTree


def test_the_clocks_of_all_cpus_are_copied(tmp_path: Path) -> None:
    values = {
        "scaling_governor": ("performance", "powersave"),
        "scaling_driver": ("intel_pstate", "intel_pstate"),
        "cpuinfo_min_freq": ("800000", "700000"),
        "cpuinfo_max_freq": ("5000000", "3800000"),
        "base_frequency": ("2500000", "1800000"),
        "boost": ("1", "0"),
    }
    files = {
        f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}": f"{of_kind[cpu // 2]}\n"
        for cpu in range(4)
        for name, of_kind in values.items()
    }
    root = write_shape(tmp_path / "whole", Shape(cores=[[0], [1], [2], [3]], files=files))
    copied_files = {
        str(path.relative_to(root)): path.read_bytes()
        for pattern in FILES
        for path in root.glob(pattern)
        if path.is_file()
    }
    copied_clocks = clocks(FilesInMemory(copied_files))
    assert copied_clocks == clocks(FileTree(root))
    assert [(clock.cpus, clock.driver, clock.max_hz) for clock in copied_clocks] == [
        ((0, 1), "intel_pstate", 5_000_000_000),
        ((2, 3), "intel_pstate", 3_800_000_000),
    ]
