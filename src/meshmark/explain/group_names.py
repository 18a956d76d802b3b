"""Recognises containers, pods, systemd units and Slurm jobs by the paths of their control groups.

Sources: systemd.slice(5), systemd.scope(5), docs.docker.com (runtime metrics), podman-run(1) (`--cgroups`), the CRI
documentation of Kubernetes, cgroup.conf(5) of Slurm, lxc.container.conf(5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

OwnerKind = Literal["container", "pod", "unit", "slurm-job"]
Reach = Literal["system", "user", "nested"]

_ID: Final = "([0-9a-f]{64})"
_PREFIXES: Final = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
}
_PREFIX: Final = "|".join(sorted(_PREFIXES, key=len, reverse=True))
_SCOPE: Final = re.compile(rf"({_PREFIX})-{_ID}(?:\.scope)?")
_TRIPLE: Final = re.compile(rf"(?:.*\.slice)?:({_PREFIX}):{_ID}")  # what a runtime without systemd makes of a scope
_POD: Final = re.compile(
    r"(?:.*-)?pod([0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12}|[0-9a-f]{32})"
)
_UNIT: Final = re.compile(r".+\.(?:service|scope|slice|socket|mount|swap)", re.S)
_SLURM: Final = re.compile(r"slurm(?:_.+)?|(?:.+_)?slurmstepd\.scope", re.S)
_PARENTS: Final = {"default": "containerd", "k8s.io": "containerd", "moby": "docker", "docker": "docker"}


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """The container, pod, unit or job for which a control group was made.

    Attributes:
        manager: Program that made the group, as in `Target.manager`; "" if the name does not tell.
        identifier: ID of a container or its name (LXC), UID of a pod, name of a unit, JOB or JOB.STEP of Slurm.
        path: Path of the group below the root of its hierarchy.
        reach: For a unit: whether the service manager of the system or of a user has it, or one inside a container.
    """

    kind: OwnerKind
    manager: str
    identifier: str
    path: str
    reach: Reach = "system"


def unescaped(name: str) -> str:
    r"""Return the name of a unit with `\xHH` replaced by the characters that systemd escaped so."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), name)


def same_uid(first: str, second: str) -> bool:
    """Return whether two UIDs of pods are equal; they are written with `-`, with `_` or without either."""
    return re.sub("[-_]", "", first) == re.sub("[-_]", "", second)


@lru_cache(maxsize=1 << 16)
def group_owners(path: str) -> tuple[GroupOwner, ...]:
    """Return the owners of a control group and of the groups around it, from the outermost to the innermost."""
    parts = path.split("/")
    owners: list[GroupOwner] = []
    for n, part in enumerate(parts):
        if part and part != "..":
            owners += _owners(parts[:n], part, "/".join(parts[: n + 1]))
    return tuple(owners)


def _owners(above: list[str], part: str, path: str) -> list[GroupOwner]:
    """Return the owners of one group; a scope of a container is a unit, too."""
    owners: list[GroupOwner] = []
    if match := _POD.fullmatch(re.sub(r"\.slice(?::.*)?$", "", part)):  # with a triple, each container has such a group
        owners.append(GroupOwner("pod", "kubernetes", match[1].replace("_", "-"), path))
    if container := _container(above, part, path):
        owners.append(container)
    if _UNIT.fullmatch(part):
        name = part[1:] if part.startswith("_") else part  # systemd escapes names that controllers have by `_`
        reach = _reach(above)
        owners.append(GroupOwner("unit", "" if reach == "nested" else "systemd", name, path, reach))
    return owners + _slurm(above, part, path)


def _container(above: list[str], part: str, path: str) -> GroupOwner | None:
    if match := _SCOPE.fullmatch(part) or _TRIPLE.fullmatch(part):
        return GroupOwner("container", _PREFIXES[match[1]], match[2], path)
    parent = above[-1] if above else ""
    if re.fullmatch(_ID, part):
        in_pod = _POD.fullmatch(parent.removesuffix(".slice"))
        return GroupOwner("container", "kubernetes" if in_pod else _PARENTS.get(parent, ""), part, path)
    if part.startswith("lxc.payload.") and len(part) > len("lxc.payload."):
        return GroupOwner("container", "lxc", part.removeprefix("lxc.payload."), path)
    if parent in {"lxc", "lxc.payload"}:
        return GroupOwner("container", "lxc", part, path)
    return None


def _reach(above: list[str]) -> Reach:
    outer = [part for part in above if part]
    users = [n for n, part in enumerate(outer) if re.fullmatch(r"user@[0-9]+\.service", part)]
    if all(part.endswith(".slice") for n, part in enumerate(outer) if n not in users[:1]):
        return "user" if users else "system"
    return "nested"


def _slurm(above: list[str], part: str, path: str) -> list[GroupOwner]:
    """Return the job or the step of Slurm that has a group.

    Version 1 of control groups: `/slurm/uid_1000/job_7/step_0`, with several daemons on a host `/slurm_NODE/…`;
    version 2: `/system.slice/slurmstepd.scope/job_7/step_0`, or `/system.slice/NODE_slurmstepd.scope/…`.
    """
    job, step = re.fullmatch(r"job_([0-9]+)", part), re.fullmatch(r"step_([0-9a-z]+)", part)
    if job and any(_SLURM.fullmatch(name) for name in above[-2:]):
        return [GroupOwner("slurm-job", "slurm", job[1], path)]
    outer = re.fullmatch(r"job_([0-9]+)", above[-1]) if step and above else None
    if step and outer and any(_SLURM.fullmatch(name) for name in above[-3:-1]):
        return [GroupOwner("slurm-job", "slurm", f"{outer[1]}.{step[1]}", path)]
    return []
