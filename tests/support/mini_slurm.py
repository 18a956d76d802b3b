"""A Slurm cluster for tests, all of whose nodes are this machine: controller and daemons run as the tester, listen on
127.0.0.1 alone, and keep all that they write in one folder. It trusts every user of this machine (`auth/none`), so it
lives as briefly as the tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from support.waiting import until

_START_S = 30  # many times what it takes
_SYSTEM = "/usr/sbin:/sbin"  # where the daemons are, which the PATH of a user lacks
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


class CannotStart(Exception):
    """Why there is no cluster here."""


def _find(program: str) -> str:
    found = shutil.which(program, path=os.environ.get("PATH", "/usr/bin:/bin") + ":" + _SYSTEM)
    if found is None:
        raise CannotStart(f"{program} is not installed")
    return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _stop(running: list[subprocess.Popen[bytes]]) -> None:
    for process in reversed(running):
        process.terminate()
    end = time.monotonic() + 5  # a daemon that has lost another one waits for it
    for process in running:
        try:
            process.wait(timeout=max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_idle(
    root: Path, sinfo: str, nodes: int, env: dict[str, str], running: list[subprocess.Popen[bytes]]
) -> None:
    def state() -> subprocess.CompletedProcess[str]:
        words = [sinfo, "-h", "-N", "-o", "%T"]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)

    def idle() -> bool:
        return state().stdout.split() == ["idle"] * nodes

    def gone() -> bool:
        return any(process.poll() is not None for process in running)

    if until(lambda: idle() or gone(), _START_S, step_s=0.1) and idle():
        return
    told = [line for line in (root / "said").read_text().splitlines() if "error" in line or "fatal" in line]
    last = state()
    why = told[-1] if told else f"its nodes are {last.stdout.split()}: {last.stderr.strip()}"
    raise CannotStart("Slurm does not start here: " + why)


@contextlib.contextmanager
def mini_slurm(nodes: int) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The nodes, of which the first has this machine's name, and the variables with which srun, salloc and sinfo find
    the cluster, which is ready. CannotStart says why there is none."""
    programs = {name: _find(name) for name in ("slurmctld", "slurmd", "srun", "salloc", "sinfo")}
    host = socket.gethostname().split(".", maxsplit=1)[0]
    names = [host] + [f"{host}-{i}" for i in range(1, nodes)]
    with contextlib.ExitStack() as alive:
        root = Path(alive.enter_context(tempfile.TemporaryDirectory(prefix="meshmark-slurm-")))
        for folder in ("state", *(f"spool-{name}" for name in names)):
            (root / folder).mkdir()
        controller, *ports = _free_ports(1 + nodes)
        conf = _CONF.format(host=host, root=root, port=controller, user=pwd.getpwuid(os.getuid()).pw_name)
        for name, port in zip(names, ports, strict=True):
            conf += _NODE.format(node=name, host=host, port=port, cpus=os.cpu_count())
        (root / "slurm.conf").write_text(conf + _PARTITION)
        found = {"SLURM_CONF": str(root / "slurm.conf")}
        env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")} | found
        said = alive.enter_context((root / "said").open("w"))
        running: list[subprocess.Popen[bytes]] = []
        alive.callback(_stop, running)
        for words in ([programs["slurmctld"], "-D"], *([programs["slurmd"], "-D", "-N", name] for name in names)):
            # Tasks inherit nothing from the daemon but its mask: that of the tests.
            process = subprocess.Popen(
                words,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=root,
                preexec_fn=_end_with_parent,
            )
            running.append(process)
        _wait_until_idle(root, programs["sinfo"], nodes, env, running)
        yield names, found
