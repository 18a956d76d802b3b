"""Commands that raise the limits of control groups."""

from __future__ import annotations

import shlex
from typing import Final

from meshmark.doctor.counters import CounterHost
from meshmark.machine.control_group import ControlGroups, control_groups

# For each file of cgroup 2: controller, file and unlimited value of cgroup 1; the value is "" for lists of numbers.
_OF_VERSION_1: Final = {
    "cpuset.cpus": ("cpuset", "cpuset.cpus", ""),
    "cpuset.mems": ("cpuset", "cpuset.mems", ""),
    "cpu.max": ("cpu", "cpu.cfs_quota_us", "-1"),
    "memory.max": ("memory", "memory.limit_in_bytes", "-1"),
}


def raise_limit(host: CounterHost, docker: str, file: str, value: str, process: str = "self") -> str:
    """Return the command that raises or removes a limit of a process; "" if its control group is unknown.

    Args:
        host: The host, or its recorded tree.
        docker: Options of `docker update` that raise the limit, for containers.
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


def _limiting_file(host: CounterHost, groups: ControlGroups, file: str) -> tuple[str, str]:
    """Return the file that limits the control group or its nearest limited ancestor, and the value for no limit.

    The value is "" for version 2 and for lists.
    """
    controller, unlimited = file.partition(".")[0], ""
    if not groups.unified:
        controller, file, unlimited = _OF_VERSION_1[file]
    names = [f"{folder}/{file}" for folder in groups.folders(controller)]
    limiting_files = (name for name in names if (host.tree.text(name) or "max").split()[0] not in {"max", "-1"})
    return next(limiting_files, names[0]), unlimited
