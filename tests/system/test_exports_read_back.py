"""The target programs read exports: hwloc, QEMU, and the readers of Meshmark."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from meshmark.compare.exports.formats import write
from meshmark.machine.capture import open_machine
from meshmark.machine.sources import from_hwloc_xml
from support.made_matrix import bandwidth, latency, lines, machine, material, topology

LSTOPO = shutil.which("lstopo-no-graphics")
ANNOTATE = shutil.which("hwloc-annotate")
QEMU = shutil.which("qemu-system-x86_64")
hwloc = pytest.mark.skipif(LSTOPO is None or ANNOTATE is None, reason="hwloc's tools are not installed")
qemu = pytest.mark.skipif(QEMU is None, reason="QEMU is not installed")
QUIT = '{"execute": "qmp_capabilities"}{"execute": "quit"}'
MACHINES = ("numa-2", "cxl-2+1", "hbm-2", "ring-8", "memless-3", "2x8-snc4")


def all_pairs(name: str, factor: float = 1.0) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """Return latencies, ns, and bandwidths, GB/s, that differ for every pair of nodes."""
    nodes = topology(name).nodes
    pairs = [(a.os_index, b.os_index) for a in nodes if a.cpus for b in nodes if b.memory_bytes != 0]
    ns = {(a, b): 90.0 + 40 * abs(a - b) + 3 * a + b for a, b in pairs}
    return ns, {pair: factor * 6000 / value for pair, value in ns.items()}


def exported(name: str, form: str, factor: float = 1.0) -> str:
    original = topology(name)
    ns, gb = all_pairs(name, factor)
    return write(form, material(name, [*latency(original, ns), *bandwidth(original, gb), *lines(original)]))


def ran(words: Iterable[str], **more: str) -> str:
    completed = subprocess.run([*words], capture_output=True, text=True, timeout=100, check=False, **more)  # type: ignore[call-overload]
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr.strip() == "", completed.stderr
    return str(completed.stdout)


@hwloc
@pytest.mark.parametrize("name", MACHINES)
def test_hwloc_reads_every_value_back(name: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(exported(name, "hwloc-xml"), encoding="utf-8")
    ns, gb = all_pairs(name)
    text = ran([str(LSTOPO), "-i", str(file), "--memattrs", "-p"])
    values: dict[str, list[int]] = {}
    attribute = ""
    for line in text.splitlines():
        if head := re.match(r"Memory attribute #\d+ name `(\w+)'", line):
            attribute = head[1]
        elif value := re.match(r"  NUMANode P#\d+ = (\d+) from cpuset", line):
            values.setdefault(attribute, []).append(int(value[1]))
    assert sorted(values["Latency"]) == pytest.approx(sorted(ns.values()), rel=0.011, abs=0.5)
    assert sorted(values["Bandwidth"]) == pytest.approx(sorted(1e9 * v / 2**20 for v in gb.values()), rel=0.011)


@hwloc
@pytest.mark.parametrize("name", ["numa-2", "cxl-2+1"])
def test_hwloc_reads_the_matrices(name: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(exported(name, "hwloc-xml"), encoding="utf-8")
    text = ran([str(LSTOPO), "-i", str(file), "--distances"])
    cpus = len(topology(name).cpus)
    nodes = sum(bool(n.cpus) for n in topology(name).nodes)
    assert re.search(rf"latency matrix \(name load_latency_ns kind 6\) between {nodes} NUMANodes", text), text
    assert re.search(rf"matrix \(name bandwidth_net_MiB_per_s kind 10\) between {nodes} NUMANodes", text), text
    assert re.search(rf"latency matrix \(name line_latency_ns kind 6\) between {cpus} PUs", text), text


@hwloc
def test_hwloc_annotates_what_we_write_without_losing_it(tmp_path: Path) -> None:
    """The tool of hwloc loads the file, adds a value and writes everything again."""
    ours, theirs = tmp_path / "ours.xml", tmp_path / "theirs.xml"
    ours.write_text(exported("cxl-2+1", "hwloc-xml"), encoding="utf-8")
    ran([str(ANNOTATE), str(ours), str(theirs), "--", "root", "--", "info", "Checked", "yes"])
    values = re.compile(r'value="(\d+)" initiator_cpuset="(\w+)"')
    assert sorted(values.findall(theirs.read_text(encoding="utf-8"))) == sorted(
        values.findall(ours.read_text(encoding="utf-8"))
    )
    second_import = from_hwloc_xml(theirs.read_bytes())
    assert second_import == from_hwloc_xml(material("cxl-2+1", []).hwloc_xml())


@pytest.mark.parametrize("name", MACHINES)
def test_meshmark_reads_the_same_machine(name: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(exported(name, "hwloc-xml"), encoding="utf-8")
    recording = open_machine(str(machine(name)))
    assert recording.hwloc_xml is not None
    assert open_machine(str(file)).topology == from_hwloc_xml(recording.hwloc_xml)


def started(options: str) -> subprocess.CompletedProcess[str]:
    """Start QEMU with these options, without running a CPU, and quit."""
    lines_ = [line for line in options.splitlines() if not line.startswith("#")]
    words = [word for line in lines_ for word in shlex.split(line)]
    silent = ["-S", "-display", "none", "-nodefaults", "-accel", "tcg", "-cpu", "qemu64,vendor=GenuineIntel"]
    return subprocess.run(
        [str(QEMU), *silent, *words, "-qmp", "stdio"],
        input=QUIT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@qemu
@pytest.mark.parametrize(
    ("name", "factor"), [("numa-2", 1.0), ("numa-2", 10.0), ("cxl-2+1", 1.0), ("memless-3", 1.0), ("smt-2", 1.0)]
)
def test_qemu_takes_the_options(name: str, factor: float) -> None:
    """A factor of 10 gives 670 GB/s, which needs a coarser unit than 1 MiB/s."""
    completed = started(exported(name, "qemu", factor))
    assert completed.returncode == 0 and "host-qmp-quit" in completed.stdout and completed.stderr == "", (
        completed.stderr
    )


@qemu
def test_qemu_refuses_what_is_wrong() -> None:
    """This shows that the test above can fail."""
    completed = started(re.sub(r"bandwidth=\d+M", "bandwidth=1234567", exported("numa-2", "qemu")))
    assert completed.returncode != 0 and "1MB aligned" in completed.stderr
