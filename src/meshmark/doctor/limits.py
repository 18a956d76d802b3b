"""Commands that raise the limits of control groups."""

from __future__ import annotations

import shlex
from typing import Final

from meshmark.doctor.counters import Host
from meshmark.machine.control_group import ControlGroups, control_groups

# Files of cgroup 2, the controller and file of cgroup 1, and what cgroup 1 calls no limit; "" is a list of numbers.
_OF_VERSION_1: Final = {
    "cpuset.cpus": ("cpuset", "cpuset.cpus", ""),
    "cpuset.mems": ("cpuset", "cpuset.mems", ""),
    "cpu.max": ("cpu", "cpu.cfs_quota_us", "-1"),
    "memory.max": ("memory", "memory.limit_in_bytes", "-1"),
}


def raise_limit(host: Host, docker: str, file: str, value: str, process: str = "self") -> str:
    """The command that raises a limit of a process, or removes it; "" if its control group is unknown.

    Args:
        docker: Options of `docker update` that do it, for containers.
        file: The file of cgroup 2 with the limit.
        value: The new value.
        process: The number of the process.
    """
    if host.container:
        return f"on the host: docker update {docker} CONTAINER"
    groups = control_groups(host.tree, process)
    if host.tree.text(f"proc/{process}/cgroup") is None:  # a recorded tree may lack the name of the group
        return ""
    name, unlimited = _limiting_file(host, groups, file)
    return host.write(unlimited or value, shlex.quote(name))  # the name is arbitrary, and users copy the command


def _limiting_file(host: Host, groups: ControlGroups, file: str) -> tuple[str, str]:
    """The file with the limit of the control group or of the nearest ancestor that has one, and the value that removes
    it in version 1; "" for version 2 and for lists."""
    controller, unlimited = file.partition(".")[0], ""
    if not groups.unified:
        controller, file, unlimited = _OF_VERSION_1[file]
    names = [f"{folder}/{file}" for folder in groups.folders(controller)]
    has_limit = (name for name in names if (host.tree.text(name) or "max").split()[0] not in {"max", "-1"})
    return next(has_limit, names[0]), unlimited
