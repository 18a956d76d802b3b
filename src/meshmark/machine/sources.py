"""Requests topologies from the native half, which reads trees of /proc and /sys, hwloc XML, and descriptions.

Trees are read in this process by libmeshmark-values.so. XML and synthetic descriptions are read by hwloc in
`meshmark-place`, because hwloc aborts on some malformed XML.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.topology import Topology, topology_of
from meshmark.machine.tree import MAX_CPUS, MachineError
from meshmark.native import call_library, find_native

_MAX_XML = 64 << 20
_TYPICAL_JSON = 1 << 20  # bytes of 1,000 CPUs, so that one call reads a tree


def from_sysfs(root: Path = Path("/")) -> Topology:
    """Return the topology of the online CPUs below `root`.

    `allowed_cpus` is the affinity of this process for `/`, otherwise the affinity in the recorded /proc/self/status, or
    else all online CPUs.

    Raises:
        MachineError: `root` contains no CPU.
        MeshmarkError: The native library is missing.
    """
    path = os.fspath(root)
    native = call_library("meshmark_topology", "" if _is_host(root) else path.rstrip("/"), capacity=_TYPICAL_JSON)
    if not native["cpus"]:
        raise MachineError(f"{root}: no CPU in sys/devices/system/cpu: not the tree of a Linux machine")
    return topology_of(native)


def _is_host(root: Path) -> bool:
    return root.resolve() == Path("/")


def from_hwloc_xml(data: bytes) -> Topology:
    """Return the topology in the output of `lstopo --of xml` of hwloc 1, 2 or 3.

    If a CPU is local to several nodes, it is assigned to the node with the fewest local CPUs; among equals, to the
    node with the lowest number.
    Nodes without assigned CPUs count as memory-only.

    Raises:
        MachineError: The data are not XML that hwloc reads, or contain no CPU.
        MeshmarkError: The native program is missing.
    """
    if len(data) > _MAX_XML:
        raise MachineError(f"XML of {len(data)} B: at most {_MAX_XML} B are read")
    if b"<!ENTITY" in data or b"\0" in data:  # NUL bytes mean UTF-16, which would hide an entity
        raise MachineError("XML declares an entity or is not UTF-8, which hwloc never writes")
    file = os.memfd_create("machine.xml")
    try:
        with os.fdopen(os.dup(file), "wb") as stream:
            stream.write(data)
        return topology_of(_described(f"/proc/self/fd/{file}", "XML", file))
    finally:
        os.close(file)


def from_synthetic(description: str) -> Topology:
    """Return the topology of a synthetic description of hwloc, such as `pack:4 [numa] core:64 pu:2`.

    Raises:
        UsageError: The text does not look like a description.
        MachineError: hwloc rejects the description, or it has 65536 CPUs or more.
        MeshmarkError: The native program is missing.
    """
    _check_synthetic(description)
    return topology_of(_described(description, f"machine '{description[:80]}'"))


def _described(topology: str, name: str, *files: int) -> dict[str, object]:
    """Return the JSON object that `meshmark-place machine` prints; errors mention `name` instead of the argument."""
    program = find_native("meshmark-place", "MESHMARK_PLACE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")}
    try:
        completed = process.run_text(
            [program, "machine", "--", topology], timeout_s=60, env=environment, pass_fds=files
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeshmarkError(f"meshmark-place machine failed: {error}") from error
    if completed.returncode != 0:
        lines = completed.stderr.strip().splitlines() or [f"meshmark-place ended with status {completed.returncode}"]
        message = lines[0].removeprefix("meshmark: ").removeprefix("error: ").removeprefix("topology: ")
        message = re.split("; allowed: ", message)[0].replace(topology, "").strip(" :")
        raise MachineError(f"{name}: {message}")
    native: dict[str, object] = json.loads(completed.stdout)
    return native


def is_synthetic(text: str) -> bool:
    """Return whether the text looks like a synthetic description of hwloc: `pack:2 [numa] core:4 pu:2`, `node:8 2`."""
    return bool(re.fullmatch(r"[A-Za-z0-9:()\[\]=, _.-]{1,500}", text, re.ASCII)) and bool(
        re.match(r"\s*(\[|[A-Za-z0-9]+(\([^)]*\))?:[0-9]+|[0-9]+(\s|$))", text)
    )


def _check_synthetic(description: str) -> None:
    if not is_synthetic(description):
        raise UsageError(
            f"machine: found '{description[:80]}'; allowed: a file, or a synthetic description such as "
            "'pack:2 core:4 pu:2'",
            hint="meshmark machine show --help",
        )
    cpus = math.prod(int(n) for n in re.findall(r"(?:^|[:\s])([0-9]{1,9})(?=[\s(]|$)", description))
    if cpus >= MAX_CPUS:
        raise MachineError(f"machine '{description[:80]}': {cpus} CPUs, fewer than {MAX_CPUS} are allowed")


def synthetic_xml(description: str) -> bytes:
    """Return the hwloc XML of a synthetic description; raises like `from_synthetic`.

    Raises:
        AbsentError: lstopo is not installed.
    """
    _check_synthetic(description)
    return lstopo("-i", description, "--if", "synthetic")


def lstopo(*words: str) -> bytes:
    """Return the XML output of lstopo with these options.

    Raises:
        AbsentError: lstopo is not installed.
        MachineError: lstopo failed or took more than 60 s.
    """
    program = shutil.which("lstopo-no-graphics") or shutil.which("lstopo") or shutil.which("hwloc-ls")
    if program is None:
        raise AbsentError("hwloc's lstopo is not installed", hint="Debian: apt install hwloc")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HWLOC_")} if words else dict(os.environ)
    try:
        completed = process.run([program, *words, "--of", "xml", "-f", "-"], timeout_s=60, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"lstopo {' '.join(words)}: {error}") from None
    if completed.returncode != 0 or not completed.stdout.lstrip().startswith(b"<"):
        message = " ".join(completed.stderr.decode("utf-8", "replace").split())[:200]
        raise MachineError(f"machine '{' '.join(words)[:80]}': hwloc rejects it ({message or 'no message'})")
    xml: bytes = completed.stdout
    return xml
