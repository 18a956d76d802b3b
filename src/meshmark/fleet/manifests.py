"""Manifests for measuring nodes by Kubernetes: a Job for each node, or a DaemonSet that checks the health of all nodes.

All nodes share the folder of the fleet as a volume. The image needs a shell and a C library; the runner is in the
folder.

Source:
    Kubernetes API: batch/v1 Job, apps/v1 DaemonSet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Final

from meshmark.applications.application import used_names
from meshmark.errors import UsageError
from meshmark.fleet.applications import of_step
from meshmark.fleet.engines.engine import EngineNode, JobWork
from meshmark.fleet.folder import Fleet
from meshmark.fleet.plan import NodePlan

_MOUNT: Final = PurePosixPath("/fleet")
_KEPT_S: Final = 3600  # time for which a Job is kept after its end
_LABEL: Final = "app.kubernetes.io/name"
_MEMORY: Final = "256Mi"  # requested for a check; a survey uses the memory that the node has


@dataclass(frozen=True, slots=True)
class KubernetesNodes:
    """Nodes of Kubernetes, by name."""

    names: Sequence[str]
    name: ClassVar[str] = "kubernetes"

    def nodes(self) -> list[EngineNode]:
        """Return the nodes that were named, all of them idle."""
        return [EngineNode(name, "idle") for name in self.names]


@dataclass(frozen=True, slots=True)
class Volume:
    """The volume with the folder of the fleet for pods: a claim, or a path that every node has mounted."""

    image: str
    claim: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        if bool(self.claim) == bool(self.path):
            options = "both" if self.claim else "neither"
            raise UsageError(f"--claim, --host-path: found {options}; allowed: one of them")

    def source(self) -> dict[str, Any]:
        """Return the source of the volume in a pod: the claim, or the path on the node."""
        if self.claim:
            return {"persistentVolumeClaim": {"claimName": self.claim}}
        return {"hostPath": {"path": self.path, "type": "Directory"}}


def check_programs(plan: NodePlan) -> None:
    """Raise UsageError if a program needs a folder that pods do not have."""
    for step in plan.steps:
        program = of_step(step) if "application" in step else None
        if program is not None and "source" in used_names(program.app, program.app.name):
            raise UsageError(
                f"{program.app.name}: application: found {{source}}; allowed on Kubernetes: programs of the image, and "
                "[files], since the folder of the fleet is the only folder of this host in a pod"
            )


def jobs(
    fleet: Fleet, campaign: str, nodes: Sequence[str], work: JobWork, at: Volume, scratch: str = ""
) -> dict[str, Any]:
    """Return a list with a Job for each node, which leaves its file in the inbox of the campaign.

    Args:
        fleet: Folder of the fleet.
        campaign: Name of the campaign.
        nodes: Names of the nodes.
        work: What a node runs.
        at: Volume with the folder of the fleet.
        scratch: A folder of pods in which programs run; "": the folder of the image.
    """
    suffix = campaign.rpartition("-")[2]
    items = []
    for number, node in enumerate(nodes, 1):
        pod = _pod(at, _inside(fleet, work).command('"$NODE"'), restart="Never")
        pod["containers"][0]["env"] = [{"name": "NODE", "value": node}]
        if scratch:
            pod["volumes"].append({"name": "scratch", "emptyDir": {}})
            pod["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": scratch})
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        items.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": f"meshmark-{suffix}-{number}", "labels": _labels(campaign)},
                "spec": {
                    "backoffLimit": 1,
                    "activeDeadlineSeconds": int(work.limit_s) + 60,
                    "ttlSecondsAfterFinished": _KEPT_S,
                    "template": {"metadata": {"labels": _labels(campaign)}, "spec": pod},
                },
            }
        )
    return _list(items)


def daemon(fleet: Fleet, work: JobWork, at: Volume, every_s: float) -> dict[str, Any]:
    """Return a DaemonSet that checks the health of every node regularly, each at another time, and prints a line."""
    pod_work = _inside(fleet, work)
    node, spread = '"$NODE"', int(every_s / 2)
    loop = f"while :; do {pod_work.command(node)} --health --spread {spread}s; sleep {int(every_s)}; done"
    pod = _pod(at, loop, restart="Always")
    pod["containers"][0]["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    labels = _labels("health")
    item = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "meshmark-health", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    return _list([item])


def _pod(at: Volume, command: str, restart: str) -> dict[str, Any]:
    return {
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "node",
                "image": at.image,
                "command": ["/bin/sh", "-c", command],
                "resources": {"requests": {"cpu": "100m", "memory": _MEMORY}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "fleet", "mountPath": str(_MOUNT)}],
            }
        ],
        "volumes": [{"name": "fleet", **at.source()}],
    }


def _labels(campaign: str) -> dict[str, str]:
    return {_LABEL: "meshmark", "campaign": campaign}


def _list(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def _inside(fleet: Fleet, work: JobWork) -> JobWork:
    """Return the work with the paths that it has in a pod."""

    def moved(path: Path) -> Path:
        return Path(_MOUNT / path.relative_to(fleet.root))

    return JobWork(
        moved(work.runner), moved(work.plan), moved(work.inbox), moved(work.logs), work.limit_s, work.options
    )
