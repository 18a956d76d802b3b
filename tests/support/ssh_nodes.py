"""Nodes that are network namespaces of this machine.

Each has a host name and an sshd, and is reached by a bridge. All file systems are shared."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.waiting import until

_SSHD = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/{name}.pid
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 1000
"""
_CLIENT = """\
Host *
IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
ConnectTimeout 3
"""


class CannotStart(Exception):
    """The reason why there are no nodes."""


class SshNodes:
    """Nodes n1, n2 …

    Attributes:
        config: Configuration file for `ssh -F`.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.names = [f"n{i}" for i in range(1, count + 1)]
        self.config = folder / "config"
        self._prefix = f"mm{os.getpid() % 100000}"
        self._net = f"10.{os.getpid() % 200 + 20}.78"

    def open(self) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if sshd is None or shutil.which("ip") is None:
            raise CannotStart("sshd or ip is not installed")
        for key in ("key", "host_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / key))
        with contextlib.suppress(FileExistsError):
            Path("/run/sshd").mkdir(0o755)  # sshd needs this folder, which its package leaves to systemd
        bridge = f"{self._prefix}s"
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self._net}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        host_key = " ".join((self._folder / "host_key.pub").read_text().split()[:2])
        known_hosts, config = [], []
        for i, name in enumerate(self.names, 1):
            address, space = f"{self._net}.{i}", self._space(name)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", self._link(name), "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", self._link(name), "master", bridge, "up")
            _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            config_file = self._folder / f"{name}.conf"
            config_file.write_text(_SSHD.format(address=address, folder=self._folder, name=name), encoding="utf-8")
            start = f"hostname {name}; exec {sshd} -f {config_file} -E {self._folder}/{name}.log"
            _run("ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", start)
            known_hosts.append(f"{address} {host_key}\n")
            config.append(f"Host {name}\nHostName {address}\n")
        (self._folder / "known_hosts").write_text("".join(known_hosts), encoding="utf-8")
        self.config.write_text("".join(config) + _CLIENT.format(folder=self._folder), encoding="utf-8")
        for i in range(1, len(self.names) + 1):
            if not until(lambda i=i: _answers(f"{self._net}.{i}"), 10):  # type: ignore[misc]
                raise CannotStart(f"the sshd of n{i} does not answer")

    def close(self) -> None:
        for name in self.names:
            self.kill(name)
            subprocess.run(["ip", "link", "del", self._link(name)], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"{self._prefix}s"], capture_output=True, check=False)

    def forget_key(self, name: str) -> None:
        """Remove a node from the known hosts."""
        path = self._folder / "known_hosts"
        lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{self._net}.{name[1:]} ")]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def silence(self, name: str) -> None:
        """Cut the network of a node, then kill its processes, like a loss of power."""
        _run("ip", "link", "set", self._link(name), "down")
        self.kill(name)

    def kill(self, name: str) -> None:
        """Kill all processes of a node."""
        words = ["ip", "netns", "pids", self._space(name)]
        for process in subprocess.run(words, capture_output=True, text=True, check=False).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def logins(self, name: str) -> int:
        """Return how many logins a node has had."""
        return (self._folder / f"{name}.log").read_text().count("Accepted publickey")

    def _space(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _link(self, name: str) -> str:
        return f"{self._prefix}v{name[1:]}"


@contextlib.contextmanager
def ssh_nodes(folder: Path, count: int) -> Iterator[SshNodes]:
    """Yield the nodes. Raises CannotStart if there are none."""
    nodes = SshNodes(folder, count)
    try:
        try:
            nodes.open()
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotStart(f"network name spaces cannot be made here: {error}") from error
        yield nodes
    finally:
        nodes.close()


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _run(*words: str) -> None:
    completed = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if completed.returncode != 0:
        raise OSError(f"{' '.join(words[:6])}: {completed.stderr.strip()}")
