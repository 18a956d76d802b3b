"""Hosts that are network namespaces of this host, joined by a bridge."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from meshmark.measure.runs import launch
from support.mpi_here import needed

AGENT = """#!/bin/sh
# Stands for ssh: HOST COMMAND…, on the host of that address.
while [ "${{1#-}}" != "$1" ]; do shift; done  # its options
host=$1
shift
exec ip netns exec {name}h"${{host##*.}}" unshare --uts sh -c "hostname {name}h${{host##*.}}; $*"
"""


def ip(*words: str) -> None:
    completed = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=120, check=False)
    if completed.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {completed.stderr.strip()}")


class Cluster:
    """Hosts 1, 2 … in a separate network, and a bridge by which this host reaches them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.name = f"mm{os.getpid() % 100000}"
        self.net = f"10.{os.getpid() % 200 + 20}.77"
        self.bridge = f"{self.name}b"
        self.agent = folder / "agent"
        self.addresses = [f"{self.net}.{i}" for i in range(1, self.count + 1)]

    def open(self) -> None:
        """Create the network. Raises OSError if the kernel does not allow it."""
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.net}.254/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for i, address in enumerate(self.addresses, 1):
            host, link = f"{self.name}h{i}", f"{self.name}v{i}"
            ip("netns", "add", host)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", link, "master", self.bridge, "up")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        self.agent.write_text(AGENT.format(name=self.name))
        self.agent.chmod(0o755)

    def close(self) -> None:
        for i in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "del", f"{self.name}h{i}"], capture_output=True, timeout=120, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, timeout=120, check=False)

    def sent_bytes(self) -> int:
        """Return the number of bytes that the first host has sent."""
        return int(Path(f"/sys/class/net/{self.name}v1/statistics/rx_bytes").read_text())

    def line(self, kind: str, *more: str, ranks: int = 0) -> list[str]:
        """Return the command line that starts one rank per host, or `ranks` ranks in all."""
        needs = needed(kind)
        if kind == "openmpi":
            options = [
                "--mca",
                "plm_rsh_agent",
                str(self.agent),
                "-H",
                ",".join(f"{a}:1" for a in self.addresses),
                "--mca",
                "oob_tcp_if_include",
                f"{self.net}.0/24",
                "--mca",
                "btl_tcp_if_include",
                f"{self.net}.0/24",
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self,vader",
                "--bind-to",
                "none",
                "--mca",
                "mpi_yield_when_idle",
                "1",
                "--mca",
                "opal_common_ucx_opal_mem_hooks",
                "0",
            ]
        else:
            options = [
                "-launcher",
                "rsh",
                "-launcher-exec",
                str(self.agent),
                "-iface",
                self.bridge,
                "-hosts",
                ",".join(self.addresses),
            ]
        return [str(needs.path), *options, "-n", str(ranks or self.count), *more, str(needs.program)]

    def run(self, kind: str, more: list[str], *words: str, ranks: int = 0) -> list[dict[str, Any]]:
        completed = subprocess.run(
            [*self.line(kind, *more, ranks=ranks), *words],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
            env=launch.environment(kind),
        )
        assert completed.returncode == 0, (launch.failure_message(completed.stderr), completed.stderr[-3000:])
        return [json.loads(line) for line in completed.stdout.splitlines()]
