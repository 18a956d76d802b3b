"""Captures a machine (its sysfs, procfs, hwloc XML and facts) in one archive, and opens machines for inspection.

A capture is a tar archive (`.tar.gz`, `.tar.xz` or `.tar.zst`) with

    meshmark-capture.json   {"format": 1, "label", "created", "summary"}
    facts.json              `host_facts()` of the machine
    hwloc.xml               if hwloc was installed
    root/…                  the recorded files: root/sys/…, root/proc/…

Captures can be shared: they contain no serial numbers, asset tags or addresses, and only those kernel options that
affect performance.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import io
import json
import lzma
import os
import stat
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.machine.facts import host_facts, node_performance, performance_options
from meshmark.machine.smbios import without_serials
from meshmark.machine.sources import from_hwloc_xml, from_synthetic, from_sysfs, lstopo, synthetic_xml
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, MachineError
from meshmark.store.files import open_regular, read_bytes, write_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT = 1
SUFFIXES = (".tar.gz", ".tar.xz", ".tar.zst")
# A capture of a machine with 1,024 CPUs has about 85,000 members.
_MAX_FILES, _MAX_BYTES, _MAX_FILE = 150_000, 512 << 20, 64 << 20

_FOLDERS = (
    "sys/devices/system/node",
    "sys/devices/system/cpu",
    "sys/devices/system/clocksource",
    "sys/bus/node",
    "sys/kernel/mm/hugepages",
    "sys/kernel/mm/transparent_hugepage",
    "sys/hypervisor",
)
_SKIP = ("uevent", "power", "cpuidle", "crash*", "hotplug", "microcode", "unbind_clocksource", "memory[0-9]*")
_FILES = (
    *(f"proc/{n}" for n in ("meminfo", "stat", "vmstat", "zoneinfo", "loadavg", "self/cgroup")),
    *(f"proc/sys/vm/{n}" for n in ("swappiness", "zone_reclaim_mode", "overcommit_memory")),
    *(
        f"proc/sys/kernel/{n}"
        for n in (
            "osrelease",
            "hostname",
            "numa_balancing",
            "sched_rt_runtime_us",
            "sched_rt_period_us",
            "perf_event_paranoid",
        )
    ),
    *(
        f"sys/class/dmi/id/{n}"
        for n in (
            "bios_vendor",
            "bios_version",
            "bios_date",
            "sys_vendor",
            "product_name",
            "board_vendor",
            "board_name",
        )
    ),
    "sys/fs/cgroup/cgroup.controllers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedMachine:
    """An opened machine. `facts` is empty if only the topology is known (XML, synthetic)."""

    what: str
    label: str  # host, captured, recorded-in-guest, tree, hwloc-xml or synthetic
    topology: Topology
    facts: dict[str, object]
    hwloc_xml: bytes | None = None


# ------------------------------------------------------------------ writing


def _recorded(tree: FileTree) -> Iterator[tuple[str, bytes | PurePosixPath]]:
    """Yield the members of a capture: (name below the root, content or link target)."""
    for folder in _FOLDERS:
        for parent, folders, files in os.walk(tree.path(folder)):
            folders[:] = sorted(f for f in folders if not any(fnmatch.fnmatch(f, s) for s in _SKIP))
            links = [f for f in folders if (Path(parent) / f).is_symlink()]
            for name in sorted([*files, *links]):
                path = Path(parent) / name
                if any(fnmatch.fnmatch(name, s) for s in _SKIP):
                    continue
                relative = path.relative_to(tree.root).as_posix()
                if path.is_symlink():
                    yield relative, PurePosixPath(path.readlink())
                elif (data := tree.data(relative)) is not None and path.stat().st_mode & stat.S_IRUSR:
                    yield relative, data
    for name in _FILES:
        if (data := tree.data(name)) is not None:
            yield name, data
    if (text := tree.text("proc/cmdline")) is not None:
        yield "proc/cmdline", " ".join(performance_options(text)).encode()
    if (text := tree.text("proc/version")) is not None:
        fields, build = text.split(), text.find("#")
        yield "proc/version", (" ".join(fields[:3]) + (f" {text[build:]}" if build >= 0 else "")).encode()
    if (text := tree.text("proc/cpuinfo")) is not None:
        yield "proc/cpuinfo", "\n".join(x for x in text.splitlines() if not x.startswith("Serial")).encode()
    if (text := tree.text("proc/self/status")) is not None:
        lines = [x for x in text.splitlines() if x.startswith(("Cpus_allowed", "Mems_allowed"))]
        yield "proc/self/status", "\n".join(lines).encode()
    if (table := tree.data("sys/firmware/dmi/tables/DMI")) is not None:
        yield "sys/firmware/dmi/tables/DMI", without_serials(table)
    yield from _recorded_cgroup(tree)


def _recorded_cgroup(tree: FileTree) -> Iterator[tuple[str, bytes]]:
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        base = "sys/fs/cgroup" if number == "0" else f"sys/fs/cgroup/{controllers}"
        parts = [p for p in path.split("/") if p and p != ".."]
        for n in range(len(parts) + 1):
            for name in (
                "memory.max",
                "cpu.max",
                "cpuset.cpus.effective",
                "cpuset.mems.effective",
                "memory.limit_in_bytes",
                "cpu.cfs_quota_us",
                "cpu.cfs_period_us",
                "cpuset.cpus",
                "cpuset.mems",
            ):
                relative = "/".join([base, *parts[:n], name])
                if (data := tree.data(relative)) is not None:
                    yield relative, data


def capture(out: Path, root: Path = Path("/"), *, label: str = "captured", xml: bytes | None = None) -> int:
    """Write the machine below `root` to an archive, atomically, and return the number of members.

    Two captures of an unchanged tree differ only in their time stamps.

    Args:
        out: The archive; its suffix is .tar.gz, .tar.xz or .tar.zst.
        root: `/`, or a recorded tree.
        label: Origin: `captured` or `recorded-in-guest`.
        xml: hwloc XML; by default the output of lstopo, if `root` is `/` and lstopo is installed.

    Raises:
        UsageError: The suffix is not supported.
        MachineError: `root` is not the tree of a machine.
        MeshmarkError: `out` cannot be written.
    """
    import datetime

    suffix = next((s for s in SUFFIXES if out.name.endswith(s)), None)
    if suffix is None:
        raise UsageError(f"FILE: found '{out.name}', the name must end in {', '.join(SUFFIXES)}")
    tree = FileTree(root)
    topology = from_sysfs(root)
    if xml is None and tree.live:
        with contextlib.suppress(AbsentError, MachineError):
            xml = lstopo("--no-io")
    metadata = {
        "format": FORMAT,
        "label": label,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "summary": topology.summary(),
    }
    members: dict[str, bytes | PurePosixPath] = {
        "meshmark-capture.json": json.dumps(metadata, indent=1).encode(),
        "facts.json": json.dumps(host_facts(root), indent=1).encode(),
    }
    if xml is not None:
        members["hwloc.xml"] = _without_host_addresses(xml)
    members |= {f"root/{name}": content for name, content in _recorded(tree)}
    write_file(out, _compressed(_archive(members), suffix))
    return len(members)


def _without_host_addresses(xml: bytes) -> bytes:
    """Return XML without the lines that contain serial numbers or network addresses."""
    drop = (b'name="Address"', b"Serial", b"AssetTag", b"UUID", b"NodeGUID", b"SysImageGUID", b"Port1LID")
    return b"\n".join(line for line in xml.split(b"\n") if not any(d in line for d in drop))


def _archive(members: dict[str, bytes | PurePosixPath]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in members.items():
            info = tarfile.TarInfo(path)
            info.mode = 0o644
            if isinstance(content, PurePosixPath):
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".tar.gz":
        return gzip.compress(data, mtime=0)
    if suffix == ".tar.xz":
        return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    return zstd.compress(data, level=19)


# ------------------------------------------------------------------ reading


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Unpack a capture into a temporary folder and yield the folder.

    Raises:
        MachineError: The file is not a capture, is damaged, or unpacks to more than 512 MiB.
    """
    with tempfile.TemporaryDirectory(prefix="meshmark-machine-") as folder:
        try:
            _unpack(archive, Path(folder))
        except _DAMAGED as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise MachineError(
                f"{quoted(archive)}: not a capture of a machine, or damaged ({quoted(reason)})"
            ) from None
        yield Path(folder)


_DAMAGED = (
    *(tarfile.TarError, zlib.error, lzma.LZMAError, zstd.ZstdError),
    *(EOFError, ValueError, OSError, RecursionError),
)  # what reading a damaged archive raises


class _LimitedReader:
    """Limits the bytes read from a stream, because a few KiB of an archive can unpack to a terabyte."""

    def __init__(self, stream: Any, archive: Path) -> None:
        self.stream, self.archive, self.left = stream, archive, _MAX_BYTES + 2048 * _MAX_FILES

    def read(self, count: int) -> bytes:
        data: bytes = self.stream.read(min(count, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise _too_large(self.archive)
        return data


def _too_large(archive: Path) -> MachineError:
    return MachineError(
        f"{quoted(archive)}: unpacks to more than {_MAX_FILES} files, {_MAX_BYTES >> 20} MiB, or a file of more than "
        f"{_MAX_FILE >> 20} MiB"
    )


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for sequential reading and yield it."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_regular(archive))
        start = file.read(6)
        file.seek(0)
        stream: Any
        if start.startswith(b"\x28\xb5\x2f\xfd"):
            stream = stack.enter_context(zstd.ZstdFile(file))
        elif start.startswith(b"\x1f\x8b"):
            stream = stack.enter_context(gzip.GzipFile(fileobj=file))
        elif start.startswith(b"\xfd7zXZ"):
            stream = stack.enter_context(lzma.LZMAFile(file))
        else:
            raise MachineError(f"{quoted(archive)}: found neither gzip, xz nor zstd, which captures use")
        bounded: Any = _LimitedReader(stream, archive)
        yield stack.enter_context(tarfile.open(fileobj=bounded, mode="r|"))


def _unpack(archive: Path, folder: Path) -> None:
    with _members(archive) as tar:  # checks the size before the first file is written
        files = size = 0
        for member in tar:
            files, size = files + 1, size + max(0, member.size)
            if files > _MAX_FILES or size > _MAX_BYTES or member.size > _MAX_FILE:
                raise _too_large(archive)
    with _members(archive) as tar:
        for member in tar:
            if member.isdir() or not (member.isreg() or member.issym()):
                continue
            target = folder / member.name
            if not _is_inside(folder, target) or (
                member.issym() and not _is_inside(folder, target.parent / member.linkname)
            ):
                continue  # names and links that leave the folder are skipped
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            content = None if member.issym() else tar.extractfile(member)
            if content is None:
                target.symlink_to(member.linkname)
            else:
                target.write_bytes(content.read())


def _is_inside(folder: Path, path: Path) -> bool:
    """Return whether `path` is inside `folder`, following the links unpacked so far.

    tarfile.data_filter would do this, but Python before 3.11.4, as in Debian 12, lacks it.
    """
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def open_machine(what: str = "host") -> OpenedMachine:
    """Open a machine: `host`, a capture, a folder with a recorded tree, hwloc XML, or a synthetic description.

    Raises:
        MachineError: The file has another format, or `what` is neither a file nor a synthetic description.
    """
    if what == "host":
        return OpenedMachine(what=what, label="host", topology=from_sysfs(), facts=host_facts())
    path = Path(what)
    try:
        is_folder, is_file = path.is_dir(), path.exists()
    except (OSError, ValueError):
        is_folder = is_file = False
    if is_folder:
        root = path / "root" if (path / "root" / "sys").is_dir() else path
        return OpenedMachine(what=what, label="tree", topology=from_sysfs(root), facts=host_facts(root))
    if is_file:
        try:
            with open_regular(path) as file:
                text = file.read(1024)
            if text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                data = read_bytes(path, _MAX_FILE)
                topology = from_hwloc_xml(data)
                return OpenedMachine(what=what, label="hwloc-xml", topology=topology, facts={}, hwloc_xml=data)
        except OSError as error:
            raise MachineError(f"{quoted(what)}: {error.strerror or error}") from None
        except MachineError as error:
            raise MachineError(f"{what}: {error}", error.hint) from None
        return _open_capture(path)
    topology, xml = from_synthetic(what), None
    with contextlib.suppress(AbsentError):
        xml = synthetic_xml(what)
    return OpenedMachine(what=what, label="synthetic", topology=topology, facts={}, hwloc_xml=xml)


def _open_capture(path: Path) -> OpenedMachine:
    with unpacked(path) as folder:
        try:
            metadata = json.loads((folder / "meshmark-capture.json").read_bytes())
            facts = json.loads((folder / "facts.json").read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise MachineError(f"{path}: not a capture of a machine: {type(error).__name__} in its metadata") from None
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            version = metadata.get("format") if isinstance(metadata, dict) else None
            raise MachineError(f"{path}: format: found {str(version)[:20]!r}; allowed: {FORMAT}")
        if not isinstance(facts, dict) or facts.get("schema") != 1:
            raise MachineError(f"{path}: facts.json: schema 1 is required")
        facts.setdefault("node_performance", node_performance(FileTree(folder / "root")))  # older captures lack it
        xml = folder / "hwloc.xml"
        try:
            topology = from_sysfs(folder / "root")
        except MachineError:
            raise MachineError(f"{path}: not a capture of a machine: found no CPU in its tree") from None
        return OpenedMachine(
            what=str(path),
            label=str(metadata.get("label", "captured"))[:40],
            topology=topology,
            facts=facts,
            hwloc_xml=xml.read_bytes() if xml.is_file() else None,
        )
