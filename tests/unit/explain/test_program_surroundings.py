"""Settings and counts that act on a running program, read from trees of files and from this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshmark.explain.devices import devices_of, interrupt_counts, interrupts_by_node
from meshmark.explain.surroundings import Cpuset, SurroundingsObserver
from meshmark.machine.tree import FileTree


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


GROUP = "sys/fs/cgroup/app.slice/db.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pid = os.getpid()
    pci = "sys/devices/pci0000:80/0000:81:00.0"
    write(
        tmp_path,
        {
            f"proc/{pid}/cgroup": "0::/app.slice/db.service\n",
            f"proc/{pid}/net/dev": "Inter-| Receive\n face |bytes\n    lo: 1 2\n  eth0: 3 4\n  veth1: 5 6\n",
            f"proc/{pid}/task/{os.getpid()}/stat": "",
            "proc/vmstat": "nr_free_pages 7\nnuma_pages_migrated 100\n",
            "proc/sys/kernel/numa_balancing": "1\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            f"{GROUP}/cpu.max": "250000 100000\n",
            f"{GROUP}/cpu.stat": "usage_usec 5\nnr_periods 10\nnr_throttled 1\nthrottled_usec 1000\n",
            f"{GROUP}/memory.high": "2147483648\n",
            f"{GROUP}/memory.max": "max\n",
            f"{GROUP}/memory.current": "1073741824\n",
            f"{GROUP}/memory.events": "low 0\nhigh 4\nmax 0\n",
            "sys/fs/cgroup/app.slice/memory.max": "4294967296\n",
            "sys/fs/cgroup/app.slice/cpuset.cpus.effective": "0-3\n",
            "sys/fs/cgroup/app.slice/cpuset.mems.effective": "1\n",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
            "sys/fs/cgroup/cpuset.mems.effective": "0-1\n",
            "sys/devices/virtual/memory_tiering/memory_tier4/nodelist": "0-1\n",
            "sys/devices/virtual/memory_tiering/memory_tier22/nodelist": "2\n",
            f"{pci}/msi_irqs/40": "",
            f"{pci}/msi_irqs/41": "",
            f"{pci}/net/eth0/address": "",
            "sys/devices/virtual/net/veth1/address": "",
            "sys/kernel/irq/40/per_cpu_count": "100,0,7\n",
            "sys/kernel/irq/41/per_cpu_count": "0,5,0\n",
        },
    )
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0").symlink_to(tmp_path / f"{pci}/net/eth0")
    (tmp_path / "sys/class/net/veth1").symlink_to(tmp_path / "sys/devices/virtual/net/veth1")
    return tmp_path


def test_increases_between_two_moments_are_reported(root: Path) -> None:
    observer = SurroundingsObserver(root, [os.getpid()])
    write(
        root,
        {
            "proc/vmstat": "numa_pages_migrated 160\n",
            f"{GROUP}/cpu.stat": "nr_periods 20\nnr_throttled 5\nthrottled_usec 301000\n",
            f"{GROUP}/memory.events": "low 0\nhigh 6\nmax 0\n",
            "sys/kernel/irq/40/per_cpu_count": "150,0,7\n",
            "sys/kernel/irq/41/per_cpu_count": "0,25,1\n",
        },
    )
    around = observer.finish({0: 0, 1: 0, 2: 1})
    assert around.scheduling == {("normal", os.getpriority(os.PRIO_PROCESS, 0)): 1}
    assert (around.huge_pages, around.balancing, around.balanced_pages) == ("madvise", True, 60)
    assert (around.cpu_quota, around.throttled_s, around.reclaims) == (2.5, pytest.approx(0.3), 2)
    assert around.memory_limits == {"memory.high": 2 << 30, "memory.max": 4 << 30}
    assert around.memory_used == 1 << 30
    assert around.cpuset == Cpuset("/app.slice", (0, 1, 2, 3), (1,)), "the group has no limit of its own"
    assert around.tiers == ((0, 1), (2,))
    assert around.interrupts == {"eth0": {0: 70, 1: 1}}


def test_nothing_is_known_of_an_empty_tree(tmp_path: Path) -> None:
    around = SurroundingsObserver(tmp_path, [os.getpid()]).finish({0: 0})
    assert (
        around.balancing is None and around.cpuset is None and around.cpu_quota is None and around.memory_used is None
    )
    assert (around.huge_pages, around.tiers, around.interrupts, around.memory_limits) == ("", (), {}, {})


def test_the_disk_of_an_open_file_is_found_on_this_machine(tmp_path: Path) -> None:
    root = Path("/")
    with (tmp_path / "data").open("w") as file:
        number = os.fstat(file.fileno()).st_dev
        devices = devices_of(root, os.getpid())
    counts = interrupt_counts(FileTree(root), devices)
    assert len({d.name for d in devices}) == len(devices)
    block = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if block.exists() and any((p / "msi_irqs").exists() for p in block.resolve().parents):
        assert any(block.resolve().is_relative_to(root / "sys") and d.name in str(block.resolve()) for d in devices)
    cpus = dict.fromkeys(os.sched_getaffinity(0), 0)
    assert all(sum(n.values()) > 0 for n in interrupts_by_node(counts, cpus).values())
