"""Runs a launcher under test, on one host or between two simulated hosts (network namespaces)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.doctor.mpi.attempt import CommandResult, CommandRunner, MpiHost
from meshmark.measure.runs import launch

NAMES: Final = {"openmpi": "Open MPI", "mpich": "MPICH", "mpi": "MPI"}


ROOT_VARIABLES: Final = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options with which a launcher reaches a second host through an agent, and restricts its library to the network.

    Attributes:
        start: Function that returns the launcher options for an agent.
        cure: Launcher options that restrict the library to TCP.
        setting: Environment variables with the same effect.
        command: The remedy that users see.
    """

    start: Callable[[str], Sequence[str]]
    cure: Sequence[str]
    setting: Mapping[str, str]
    command: str


_NEAR_HOST, _FAR_HOST, _NO_NAMESPACES = "10.77.0.1", "10.77.0.2", 97


NAMESPACES: Final = {
    "openmpi": AgentOptions(
        lambda agent: [
            "--mca",
            "plm_rsh_agent",
            agent,
            "-H",
            f"{_NEAR_HOST}:1,{_FAR_HOST}:1",
            "--bind-to",
            "none",
            "--mca",
            "oob_tcp_if_include",
            "mesh0",
        ],
        ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self"),
        {},
        "mpirun --mca pml ob1 --mca btl tcp,self …",
    ),
    "mpich": AgentOptions(
        lambda agent: [
            "-launcher",
            "rsh",
            "-launcher-exec",
            agent,
            "-iface",
            "mesh0",
            "-hosts",
            f"{_NEAR_HOST}:1,{_FAR_HOST}:1",
        ],
        (),
        {"UCX_TLS": "tcp,self"},
        "export UCX_TLS=tcp,self",
    ),
}


# This shell is the near host, in its own namespaces; when it ends, all processes in them end.
_HOSTS: Final = f"""\
agent=$1; shift
fail() {{ echo "$1" >&2; exit {_NO_NAMESPACES}; }}
ip link set lo up || fail 'no loopback'
hostname near || fail 'no host name'
# Libraries look for interfaces in /sys, which must be that of the namespace.
mount -t sysfs sysfs /sys || fail 'no /sys'
unshare --net --uts --mount sh -c 'mount -t sysfs sysfs /sys; exec sleep 60' & far=$!
tries=0
while [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do
  tries=$((tries + 1)); [ $tries -lt 300 ] || fail 'no second namespace'; sleep 0.01
done
ip link add mesh0 type veth peer name mesh1 || fail 'no pair of interfaces'
ip link set mesh1 netns $far name mesh0 || fail 'no interface elsewhere'
ip addr add {_NEAR_HOST}/24 dev mesh0 && ip link set mesh0 up || fail 'no address'
nsenter -t $far -n -u -m sh -c 'hostname far; ip link set lo up; ip addr add {_FAR_HOST}/24 dev mesh0; \
ip link set mesh0 up' || fail 'no address elsewhere'
printf '#!/bin/sh\\nshift\\nexec nsenter -t %s -n -u -m sh -c "$*"\\n' $far > "$agent"
"$@"
status=$?
kill $far
exit $status
"""


class TestedLauncher:
    """A launcher under test, with its MPI library and the `meshmark-comm` built for it."""

    def __init__(self, launcher: launch.Launcher, host: MpiHost, attempt: CommandRunner) -> None:
        self.kind, self.launcher, self.host, self.attempt = launcher.kind, launcher, host, attempt
        self.name = NAMES[self.kind]
        self.environment = launch.environment(self.kind)

    def mpirun(self, ranks: int, argv: Sequence[str], launcher_options: Sequence[str] = ()) -> CommandResult:
        """Run ranks of `meshmark-comm` with only these launcher options."""
        command = [str(self.launcher.path), "-n", str(ranks), *launcher_options, str(self.launcher.program), *argv]
        return self.attempt(command, self.environment)

    def as_measured(self, ranks: int, argv: Sequence[str], **variables: str) -> CommandResult:
        """Run ranks as `meshmark measure` does, with additional environment variables."""
        command = launch.launch_argv(self.launcher, ranks, len(self.host.cpus))
        return self.attempt([*command, *argv], {**self.environment, **variables})

    def room(self) -> list[str]:
        """Return the launcher options that allow two ranks on a machine with one CPU."""
        single_cpu = len(self.host.cpus) < 2
        return ["--oversubscribe", "--bind-to", "none"] if single_cpu and self.kind == "openmpi" else []

    def between_hosts(
        self, argv: Sequence[str], more: Sequence[str] = (), setting: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run two ranks of `meshmark-comm` on two hosts simulated by temporary namespaces.

        Args:
            argv: Arguments of `meshmark-comm`.
            more: Launcher options, in addition to those that reach the second host.
            setting: Environment variables of the ranks.
        """
        unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if not self.host.root:
            unshare += ["--user", "--map-root-user"]
        with tempfile.TemporaryDirectory(prefix="meshmark-hosts-") as folder:
            script, agent = Path(folder) / "hosts.sh", Path(folder) / "agent.sh"
            script.write_text(_HOSTS, encoding="utf-8")
            agent.touch(0o755)
            command = [
                *unshare,
                "sh",
                str(script),
                str(agent),
                str(self.launcher.path),
                *NAMESPACES[self.kind].start(str(agent)),
                *more,
                "-n",
                "2",
                str(self.launcher.program),
                *argv,
            ]
            # In a user namespace, the user is root.
            return self.attempt(command, {**self.environment, **dict.fromkeys(ROOT_VARIABLES, "1"), **(setting or {})})

    @property
    def more_rights(self) -> str:
        """Return the command that repeats the tests as root; "" if this process belongs to root."""
        return "" if self.host.root else "sudo meshmark doctor mpi"

    def cure(self, trial: Sequence[str], in_program: str) -> str:
        """Return the remedy for misplaced data: an environment variable, if a test confirms it, and a code change."""
        if self.kind != "mpich":
            return in_program
        run = self.as_measured(2, ["defects", *trial], MPIR_CVAR_NOLOCAL="1")  # as if no rank were on the same host
        results = run.reading.results("wrong_words")
        if run.status or not results or any(r.value for r in results):
            return in_program
        return "export MPIR_CVAR_NOLOCAL=1   # slower: disables shared memory" + (in_program and f"; or {in_program}")


def forbidden_namespaces(tried: CommandResult) -> str:
    """Return why namespaces could not be created; "" if they were created."""
    if tried.status != _NO_NAMESPACES and not re.search(r"^unshare: ", tried.stderr, re.M) and tried.status != 127:
        return ""
    lines = tried.stderr.strip().splitlines()
    return f"cannot create namespaces: {lines[-1] if lines else 'no message'}"


def transport_of(tried: CommandResult) -> tuple[str, float] | None:
    """Return the transport of messages between hosts, from the network counters of Linux, and the latency in s.

    None if no latency was measured.
    """
    for r in tried.reading.results("message_latency"):
        return str(r.conditions.get("transport", "")), r.value
    return None
