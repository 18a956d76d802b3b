"""Jobs of any batch system that PSI/J supports, for batch systems that have no engine here.

PSI/J lists neither the nodes nor which of them are free, and finds jobs of other processes only by their ids. Sites
therefore name the nodes, each node has its own job that waits in the queue, and the journal stores the ids.

Source:
    Hategan-Marandiuc et al.: PSI/J: A Portable Interface for Submitting, Monitoring, and Managing Jobs (2023); tried
    with psij-python 0.9.11.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from meshmark.errors import AbsentError, UsageError, near, quoted
from meshmark.fleet.engines.engine import EngineError, EngineNode, Job, JobWork
from meshmark.fleet.engines.processes import MARK, Processes
from meshmark.fleet.nodesets import own_node_name
from meshmark.values.inputs import PRINTABLE, Input

# The attribute of a job that requests a certain node, for executors of PSI/J that pass one on.
_PINS: Final = {"slurm": "slurm.nodelist={node}", "lsf": "lsf.m={node}", "local": ""}
_POLL_S: Final = 10
_SILENT: Final = 60  # queries without an answer after which PSI/J considers all jobs failed


Text = Annotated[str, Field(max_length=4096), PRINTABLE]


@dataclass(frozen=True, slots=True)
class PsijSite(Input):
    """Settings of PSI/J.

    Attributes:
        executor: Name of the executor in PSI/J.
        pin: The attribute of a job that requests a node, such as "slurm.nodelist={node}"; "": the attribute of the
            executor.
    """

    executor: Text = "local"
    pin: Text = ""
    queue: Text = ""
    account: Text = ""


class Psij:
    """An executor of PSI/J.

    Args:
        site: Settings of PSI/J.
        names: Names of nodes; for the executor "local", at most one.
    """

    name: ClassVar[str] = "psij"

    def __init__(self, site: PsijSite, names: Sequence[str]) -> None:
        kind = site.executor
        pin = site.pin or _PINS.get(kind)
        if pin is None or (pin and "{node}" not in pin.partition("=")[2]):
            raise UsageError(
                f"psij.pin: found '{quoted(site.pin)}'; allowed for {quoted(kind)}: an attribute of its jobs by which "
                'they get a node, such as "slurm.nodelist={node}"'
            )
        if pin and not names:
            raise UsageError(
                "nodes: found no node; allowed: a set such as n[1-16], since PSI/J lists no nodes", "--nodes"
            )
        if not pin and len(names) > 1:
            raise UsageError(f"nodes: found {len(names)}; allowed for psij.executor local: this host", "--engine local")
        self._site, self._pin, self._names = site, pin, tuple(names) or (own_node_name(),)
        self._processes = Processes()
        self._jobs: dict[str, Any] = {}  # jobs by name
        self._executor = _opened(kind)

    def nodes(self) -> list[EngineNode]:
        """Return the nodes of the site. Nodes of a batch system are busy, because PSI/J does not report their state."""
        if not self._pin:
            return [EngineNode(name, "idle") for name in self._names]
        return [EngineNode(name, "busy", "PSI/J does not report whether it is free") for name in self._names]

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Submit a job of one node and return its id.

        Raises:
            UsageError: There are several nodes.
            EngineError: PSI/J refuses the job.
        """
        import psij

        if len(nodes) > 1:
            raise UsageError("--engine: found psij, whose jobs have one node; allowed here: any other engine")
        (node,) = nodes
        key, _, value = self._pin.partition("=")
        # A local job is a process of this host that outlives this process and is found by its mark.
        prefix = "" if self._pin else "setsid "
        log = shlex.quote(str(work.logs / f"{name}.log"))
        command = work.command('"$1"')  # the node is an argument of the shell, and not part of its text
        job = psij.Job(
            psij.JobSpec(
                name=name,
                executable="/bin/sh",
                arguments=["-c", f"exec >>{log} 2>&1; exec {prefix}{command}", "sh", node],
                environment={} if self._pin else {MARK: name},
                resources=psij.ResourceSpecV1(node_count=1, process_count=1, exclusive_node_use=bool(self._pin)),
                attributes=psij.JobAttributes(
                    duration=timedelta(seconds=int(work.limit_s) + 60),
                    queue_name=self._site.queue or None,
                    account=self._site.account or None,
                    custom_attributes={key: value.replace("{node}", node)} if self._pin else None,
                ),
            )
        )
        try:
            self._executor.submit(job)
        except (psij.SubmitException, psij.InvalidJobException, OSError, subprocess.SubprocessError) as error:
            raise EngineError(f"PSI/J: {quoted(error)}") from error
        self._jobs[name] = job
        return str(job.native_id) if self._pin else name

    def jobs(self, names: Mapping[str, str]) -> list[Job]:
        """Return the unfinished jobs with one of these names, whose values are their ids."""
        if not self._pin:
            return self._processes.jobs(names)
        jobs = []
        for name, id_ in names.items():
            job = self._jobs.get(name) or self._attached(name, id_)
            if job is not None and not job.status.final:
                waits = job.status.state.name in {"NEW", "QUEUED"}
                jobs.append(Job(str(job.native_id), name, waits, job.status.message or "it is queued" if waits else ""))
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by their ids.

        Raises:
            EngineError: PSI/J raised an exception.
        """
        if not self._pin:
            return self._processes.cancel(ids)
        for job in [job for job in self._jobs.values() if str(job.native_id) in ids]:
            try:
                self._executor.cancel(job)
            except Exception as error:  # exceptions of many types, also if the job has ended
                raise EngineError(f"PSI/J: {quoted(error)}") from error
        return None

    def _attached(self, name: str, id_: str) -> Any:
        """Return a job that another process submitted; None if its id is not known."""
        if not id_:
            return None
        import psij

        job = psij.Job(psij.JobSpec(name=name))
        self._executor.attach(job, id_)
        self._jobs[name] = job
        return job


def _opened(kind: str) -> Any:
    """Return an executor of PSI/J.

    Raises:
        AbsentError: PSI/J, or a dependency of the executor, is not installed.
        UsageError: PSI/J does not know the executor.
    """
    try:
        import psij
    except ImportError as error:
        raise AbsentError("PSI/J is not installed", "pip install 'meshmark[psij]'") from error
    names = sorted(psij.JobExecutor.get_executor_names())
    if kind not in names:
        raise UsageError(f"psij.executor: found '{quoted(kind)}'; allowed: {', '.join(names)}", near(kind, names))
    try:
        executor = psij.JobExecutor.get_instance(kind)
    except Exception as error:  # exceptions of many types
        raise AbsentError(f"PSI/J's executor {kind} cannot be used: {quoted(error)}") from error
    if hasattr(executor.config, "queue_polling_interval"):
        executor.config.queue_polling_interval = _POLL_S
        executor.config.queue_polling_error_threshold = _SILENT
    return executor
