"""A Slurm cluster for tests, all of whose nodes are this machine.

The controller and the daemons run as the user of the tests, listen on 127.0.0.1 only, and keep all files in one folder.
The cluster trusts every user of this machine (`auth/none`), so it lives only as long as the tests.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from meshmark import process
from support.waiting import until

_START_S = 30  # many times the usual start time
_SYSTEM = "/usr/sbin:/sbin"  # folders of the daemons, which are not on the PATH of a user
_CONF = """\
ClusterName=mini
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmdSpoolDir={root}/spool-%n
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
"""
_NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=100\n"
_PARTITION = "PartitionName=all Nodes=ALL Default=YES MaxTime=10 OverSubscribe=NO State=UP\n"
# Slurm believes that it has to boot these nodes, which never ends.
_NO_NODES = """\
PrivateData=cloud
SuspendTime=86400
SuspendTimeout=10
ResumeTimeout=60000
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendRate=0
ResumeRate=0
SlurmdTimeout=0
NodeName=n[1-{count}] NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=1000 State=CLOUD
"""


class CannotStart(Exception):
    """The reason why there is no cluster."""


def _find(program: str) -> str:
    path = shutil.which(program, path=os.environ.get("PATH", "/usr/bin:/bin") + ":" + _SYSTEM)
    if path is None:
        raise CannotStart(f"{program} is not installed")
    return path


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _stop(running: list[subprocess.Popen[bytes]]) -> None:
    for daemon in reversed(running):
        daemon.terminate()
    end = time.monotonic() + 5  # a daemon that has lost another one waits for it
    for daemon in running:
        try:
            daemon.wait(timeout=max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


@dataclass
class Cluster:
    """A cluster that is ready.

    Attributes:
        names: Names of the nodes.
        root: The folder of all its files.
        env: The variables with which Slurm's commands find it.
    """

    names: list[str]
    root: Path
    env: dict[str, str]
    said: IO[str]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a daemon."""
        # Tasks inherit the CPU mask of the daemon, which is that of the tests.
        env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")} | self.env
        daemon = process.start(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self.said,
            stderr=self.said,
            cwd=self.root,
        )
        self.running.append(daemon)
        return daemon

    def start_controller(self) -> subprocess.Popen[bytes]:
        """Start the controller, or start it again after it has ended."""
        return self.start(_find("slurmctld"), "-D")

    def ask(self, *words: str) -> str:
        """Return the output of a command of Slurm; "" if it fails."""
        completed = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60, check=False
        )
        return completed.stdout if completed.returncode == 0 else ""

    def wait_until_idle(self) -> None:
        def states() -> list[str]:
            return self.ask("sinfo", "-h", "-o", "%t %D").split()

        def idle() -> bool:
            return states()[:1] in (["idle"], ["idle~"]) and states()[1:] == [str(len(self.names))]

        def gone() -> bool:
            return any(daemon.poll() is not None for daemon in self.running)

        if until(lambda: idle() or gone(), _START_S, step_s=0.1) and idle():
            return
        lines = (self.root / "said").read_text().splitlines()
        reports = [line for line in lines if "error" in line or "fatal" in line]
        raise CannotStart(f"Slurm does not start here: {reports[-1] if reports else f'its nodes are {states()}'}")


@contextlib.contextmanager
def _cluster(names: list[str], port: int, conf: str) -> Iterator[Cluster]:
    with contextlib.ExitStack() as alive:
        root = Path(alive.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-slurm-")))
        (root / "state").mkdir()
        user = pwd.getpwuid(os.getuid()).pw_name
        base = _CONF.format(host=_host(), root=root, port=port, user=user)
        (root / "slurm.conf").write_text(base + conf + _PARTITION)
        log = alive.enter_context((root / "said").open("w"))
        cluster = Cluster(names, root, {"SLURM_CONF": str(root / "slurm.conf")}, log)
        alive.callback(_stop, cluster.running)
        yield cluster


def _host() -> str:
    return socket.gethostname().split(".", maxsplit=1)[0]


@contextlib.contextmanager
def slurm_cluster(nodes: int) -> Iterator[Cluster]:
    """Yield a cluster whose first node has the name of this machine. Raises CannotStart if it does not start."""
    for program in ("slurmctld", "srun", "salloc", "sinfo"):
        _find(program)
    host, slurmd = _host(), _find("slurmd")
    names = [host] + [f"{host}-{i}" for i in range(1, nodes)]
    controller, *ports = _free_ports(1 + nodes)
    conf = "".join(
        _NODE.format(node=name, host=host, port=port, cpus=os.cpu_count())
        for name, port in zip(names, ports, strict=True)
    )
    with _cluster(names, controller, conf) as cluster:
        cluster.start_controller()
        for name in names:
            (cluster.root / f"spool-{name}").mkdir()
            cluster.start(slurmd, "-D", "-N", name)
        cluster.wait_until_idle()
        yield cluster


@contextlib.contextmanager
def mini_slurm(nodes: int) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the nodes and the variables of `slurm_cluster`."""
    with slurm_cluster(nodes) as cluster:
        yield cluster.names, cluster.env


@contextlib.contextmanager
def slurm_of_names(count: int) -> Iterator[Cluster]:
    """Yield a real controller of nodes that do not exist, n1 to n`count`.

    Their jobs start at once, run nothing, and last until they are cancelled. Raises CannotStart if there is no Slurm.

    slurm-wlm-emulator of Debian 12 cannot be used: its slurmctld refuses both a slurm.conf with FrontendName, since it
    shares the library of the other one, and a slurm.conf without.
    """
    for program in ("slurmctld", "sbatch", "sinfo"):
        _find(program)
    names = [f"n{i}" for i in range(1, count + 1)]
    controller, port = _free_ports(2)
    with _cluster(names, controller, _NO_NODES.format(count=count, port=port)) as cluster:
        cluster.start_controller()
        cluster.wait_until_idle()
        yield cluster
