"""A launcher under test, on one host and between two hosts that are network namespaces."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.doctor.attempt import Host, Tried, Try
from meshmark.measure import launch

NAMES: Final = {"openmpi": "Open MPI", "mpich": "MPICH", "mpi": "MPI"}


ROOT_VARIABLES: Final = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


@dataclass(frozen=True, slots=True)
class Reach:
    """How a launcher reaches a second host through an agent, and what keeps its library to the network."""

    start: Callable[[str], Sequence[str]]
    cure: Sequence[str]
    setting: Mapping[str, str]
    command: str


_NEAR_HOST, _FAR_HOST, _NO_NAMESPACES = "10.77.0.1", "10.77.0.2", 97


NAMESPACES: Final = {
    "openmpi": Reach(
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
    "mpich": Reach(
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


# This shell is the near host, in namespaces of its own; when it ends, all of them end with it.
_HOSTS: Final = f"""\
agent=$1; shift
fail() {{ echo "$1" >&2; exit {_NO_NAMESPACES}; }}
ip link set lo up || fail 'no loopback'
hostname near || fail 'no host name'
# Of its own namespace, since libraries look there for interfaces.
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


class Tested:
    """One launcher, its MPI library and Meshmark's program for it, under test."""

    def __init__(self, launcher: launch.Launcher, host: Host, attempt: Try) -> None:
        self.kind, self.launcher, self.host, self.attempt = launcher.kind, launcher, host, attempt
        self.name = NAMES[self.kind]
        self.environment = launch.environment(self.kind)

    def mpirun(self, ranks: int, words: Sequence[str], own: Sequence[str] = ()) -> Tried:
        """Ranks of Meshmark's program, started with these words of the launcher's and no others."""
        line = [str(self.launcher.path), "-n", str(ranks), *own, str(self.launcher.program), *words]
        return self.attempt(line, self.environment)

    def as_measured(self, ranks: int, words: Sequence[str], **variables: str) -> Tried:
        """The same as `meshmark measure` starts them, with these variables in its environment."""
        line = launch.launch_argv(self.launcher, ranks, len(self.host.cpus))
        return self.attempt([*line, *words], {**self.environment, **variables})

    def room(self) -> list[str]:
        """For two ranks also on one CPU."""
        few = len(self.host.cpus) < 2
        return ["--oversubscribe", "--bind-to", "none"] if few and self.kind == "openmpi" else []

    def between_hosts(
        self, words: Sequence[str], more: Sequence[str] = (), setting: Mapping[str, str] | None = None
    ) -> Tried:
        """Two ranks of Meshmark's program on two hosts that are namespaces of this kernel, and gone afterwards.

        Args:
            more: the launcher's, beside what it needs to reach the second host.
            setting: variables of the ranks.
        """
        unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if not self.host.root:
            unshare += ["--user", "--map-root-user"]
        with tempfile.TemporaryDirectory(prefix="meshmark-hosts-") as folder:
            script, agent = Path(folder) / "hosts.sh", Path(folder) / "agent.sh"
            script.write_text(_HOSTS, encoding="utf-8")
            agent.touch(0o755)
            line = [
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
                *words,
            ]
            # In a namespace of users, who started it is root.
            return self.attempt(line, {**self.environment, **dict.fromkeys(ROOT_VARIABLES, "1"), **(setting or {})})

    @property
    def more_rights(self) -> str:
        return "" if self.host.root else "sudo meshmark doctor mpi"

    def cure(self, trial: Sequence[str], in_program: str) -> str:
        """What helps against words that go astray: a variable, where it was seen to help, and what programs can do."""
        if self.kind != "mpich":
            return in_program
        tried = self.as_measured(2, ["defects", *trial], MPIR_CVAR_NOLOCAL="1")  # as if no rank were on the same host
        results = tried.results("wrong_words")
        if tried.status or not results or any(r.value for r in results):
            return in_program
        return "export MPIR_CVAR_NOLOCAL=1   # slower: through no shared memory" + (in_program and f"; or {in_program}")


def forbidden_namespaces(tried: Tried) -> str:
    """Why no hosts could be made of namespaces; '' where they were."""
    if tried.status != _NO_NAMESPACES and not re.search(r"^unshare: ", tried.talk, re.M) and tried.status != 127:
        return ""
    said = tried.talk.strip().splitlines()
    return f"namespaces may not be made here: {said[-1] if said else 'no word'}"


def transport_of(tried: Tried) -> tuple[str, float] | None:
    """What carried messages between hosts, as the kernel's counters of networks tell, and the latency in s."""
    for r in tried.results("message_latency"):
        return str(r.conditions.get("transport", "")), r.value
    return None
