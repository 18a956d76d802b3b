"""Does the operating system do what placing relies on? Each check is ok, wrong or absent, and says what it means.

Read below a root, so that a recorded tree stands in; only the running system is tried: threads are bound, pages are
touched, and programs are started bound and unbound.

Sources: the kernel's documentation (admin-guide/mm/numa_memory_policy, mm/numa, admin-guide/sysctl/vm and kernel,
ABI/stable/sysfs-devices-node), move_pages(2), mbind(2), set_mempolicy_home_node(2); the
scheduling test is that of the study of the Xeon 5500 with LSF (2009), part 3.
"""

from __future__ import annotations

from pathlib import Path

from meshmark.doctor.check import ORDER, Check
from meshmark.doctor.settings import BY_READING
from meshmark.doctor.spill import provoked
from meshmark.doctor.starts import scheduling
from meshmark.doctor.trials import BY_TRIAL
from meshmark.machine.sysfs import from_sysfs
from meshmark.machine.tree import Tree


def examine(root: Path = Path("/"), starts: int = 0, threads: int = 0, provoke: bool = False) -> list[Check]:
    """All checks, the wrong ones first.

    Args:
        root: `/`, or a recorded tree with proc and sys, of which only what can be read is checked.
        starts: of the triad, bound and unbound; 0 leaves that test out.
        threads: of the triad; 0: half of the cores.
        provoke: fills each node until it spills.

    Raises:
        MachineError: there is no CPU below the root.
    """
    tree, topology = Tree(root), from_sysfs(root)
    found = [c for check in BY_READING for c in check(tree, topology)]
    for name, means, tried in BY_TRIAL:
        if not tree.live:
            found.append(Check(name, "absent", "a recorded tree cannot be tried", means))
            continue
        try:
            found.append(tried(topology, means))
        except OSError as why:
            found.append(Check(name, "absent", str(why), means))
    if provoke:
        found.append(provoked(tree, topology))
    if starts:
        found.append(scheduling(tree, topology, starts, threads))
    return sorted(found, key=lambda c: ORDER.index(c.judged))
