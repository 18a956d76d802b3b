"""Finds the names of containers and pods, which the paths of control groups do not contain.

Sources: conmon(8), the layout of /var/lib/docker/containers of Moby, docs/dir.md of nerdctl, the names that the kubelet
gives to containers (`k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`), the downward API of Kubernetes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from meshmark.explain.process_table import ProcessTable

_DNS_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_KUBELET_NAME: Final = re.compile(r"k8s_([^_]+)_([^_]+)_([^_]+)_([0-9a-f-]{32,36})_[0-9]+")
_NAMESPACE_FILES: Final = (
    "run/secrets/kubernetes.io/serviceaccount/namespace",
    "var/run/secrets/kubernetes.io/serviceaccount/namespace",
)
_POD_VARIABLES: Final = ("POD_NAME", "MY_POD_NAME", "K8S_POD_NAME", "HOSTNAME")
_NAMESPACE_VARIABLES: Final = ("POD_NAMESPACE", "MY_POD_NAMESPACE", "K8S_POD_NAMESPACE")
_HOSTNAME_LENGTH: Final = 63  # the kubelet shortens the host name of a pod with a longer name


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The process that started a container and waits for its end: conmon, or a shim of containerd.

    Attributes:
        container: ID of the container.
        label: Its name for conmon, its namespace for containerd.
    """

    pid: int
    container: str
    label: str


def conmons(table: ProcessTable) -> list[Supervisor]:
    """Return the supervisors of the containers of Podman and CRI-O; any user may read their command lines."""
    return list(_supervisors(table, "conmon", "-c", "-n"))


def shims(table: ProcessTable) -> list[Supervisor]:
    """Return the supervisors of the containers of containerd; one of them may supervise all containers of a pod."""
    return list(_supervisors(table, "containerd-shim", "-id", "-namespace"))


def _supervisors(table: ProcessTable, program: str, container: str, label: str) -> Iterator[Supervisor]:
    for pid in table.named(program):
        arguments = table.arguments(pid)
        values = dict(pairwise(arguments))
        if container in values:
            yield Supervisor(pid, values[container], values.get(label, ""))


def container_names(table: ProcessTable, ids: Collection[str]) -> dict[str, str]:
    """Return the names of containers by ID, as far as the files tell and this user may read them.

    Podman and CRI-O: the command line of conmon. Docker: `/var/lib/docker`, and nerdctl: `/var/lib/nerdctl`, for root.
    """
    names = {supervisor.container: supervisor.label for supervisor in conmons(table) if supervisor.label}
    for folder in table.tree.names("var/lib/nerdctl"):
        for namespace in table.tree.names(f"var/lib/nerdctl/{folder}/names"):
            for name in table.tree.names(f"var/lib/nerdctl/{folder}/names/{namespace}"):
                if identifier := table.tree.text(f"var/lib/nerdctl/{folder}/names/{namespace}/{name}"):
                    names.setdefault(identifier, name)
    for identifier in ids:
        if identifier not in names and (name := _docker_name(table, identifier)):
            names[identifier] = name
    return {identifier: names[identifier] for identifier in ids if identifier in names}


def _docker_name(table: ProcessTable, identifier: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", identifier):
        return ""
    data = table.tree.data(f"var/lib/docker/containers/{identifier}/config.v2.json")
    try:
        name = json.loads(data or b"{}").get("Name")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return name.removeprefix("/") if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class PodName:
    """Name and namespace of a pod. A name from a host name is shortened to 63 characters; "" if unknown."""

    name: str
    namespace: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.name) if part)

    def matches(self, requested: str) -> bool:
        """Return whether a user means this pod by NAME or NAMESPACE/NAME."""
        namespace, _, name = requested.rpartition("/")
        same = name == self.name or name[:_HOSTNAME_LENGTH].rstrip("-.") == self.name != ""
        return same and (not namespace or namespace == self.namespace)


def labelled_pods(containers: Iterable[str]) -> dict[str, PodName]:
    """Return pods by UID, from the names that the kubelet gave to their containers; other names are ignored."""
    matches = [match for name in containers if (match := _KUBELET_NAME.fullmatch(name))]
    return {match[4]: PodName(match[2], match[3]) for match in matches}


def pod_name(table: ProcessTable, pids: Iterable[int]) -> PodName:
    """Return the name of a pod from some of its processes.

    It is in the environment of a process or the host name of a container, which only root and the user of the process
    may read. Pods that use the network of the host have its host name, and no name here.
    """
    host = {table.tree.text("proc/sys/kernel/hostname"), table.tree.text("etc/hostname")}
    names: list[str] = []
    namespaces: list[str] = []
    for pid in pids:
        variables = table.variables(pid)
        files = [table.tree.text(f"proc/{pid}/root/{file}") or "" for file in _NAMESPACE_FILES]
        names += [variables.get(name, "") for name in _POD_VARIABLES]
        names.append(table.tree.text(f"proc/{pid}/root/etc/hostname") or "")
        namespaces += [*(variables.get(name, "") for name in _NAMESPACE_VARIABLES), *files]
    usable = [name for name in names if _DNS_NAME.fullmatch(name) and name not in host]
    return PodName(next(iter(usable), ""), next(filter(_DNS_NAME.fullmatch, namespaces), ""))
