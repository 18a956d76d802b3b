"""Checks that the operating system enforces placement. Each finding is ok, wrong or unknown.

Settings are read below a root, which may be a recorded tree. Tests run on the live system only: threads are bound,
pages are touched, and programs are started bound and unbound.

Sources: the kernel's documentation (admin-guide/mm/numa_memory_policy, mm/numa, admin-guide/sysctl/vm and kernel,
ABI/stable/sysfs-devices-node), move_pages(2), mbind(2), set_mempolicy_home_node(2); the
scheduling test comes from the study of the Xeon 5500 with LSF (2009), part 3.
"""

from __future__ import annotations

from pathlib import Path

from meshmark.doctor.finding import HostFinding, in_order
from meshmark.doctor.scheduler import scheduler_findings
from meshmark.doctor.settings import BY_READING
from meshmark.doctor.spill import provoked
from meshmark.doctor.starts import scheduling
from meshmark.doctor.trials import BY_TRIAL
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import FileTree


def examine(root: Path = Path("/"), starts: int = 0, threads: int = 0, provoke: bool = False) -> list[HostFinding]:
    """Return all findings, worst first.

    Args:
        root: `/`, or a recorded tree with proc and sys, for which only settings are checked.
        starts: Number of bound starts of the triad, and of unbound starts; 0 skips all tests of the scheduler.
        threads: Number of threads of the triad; 0 means half of the cores.
        provoke: Whether to fill each node until allocations spill.

    Raises:
        MachineError: There is no CPU below the root.
    """
    tree, topology = FileTree(root), from_sysfs(root)
    findings = [finding for check in BY_READING for finding in check(tree, topology)]
    for name, effect, trial in BY_TRIAL:
        if not tree.live:
            findings.append(HostFinding(name, "tested on live systems only", "unknown", effect))
            continue
        try:
            findings.append(trial(topology, effect))
        except OSError as error:
            findings.append(HostFinding(name, str(error), "unknown", effect))
    if provoke:
        findings.append(provoked(tree, topology))
    if starts:
        findings.append(scheduling(tree, topology, starts, threads))
        findings += scheduler_findings(topology) if tree.live else []
    return in_order(findings)
