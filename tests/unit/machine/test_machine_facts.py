"""Facts, firmware tables, captures and publications: values are read as stated, and missing ones have a reason."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from meshmark.cli.machine import app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine import capture as capture_room
from meshmark.machine.absence import is_absent
from meshmark.machine.capture import SUFFIXES, capture, open_machine, unpacked
from meshmark.machine.facts import (
    host_facts,
    host_id,
    performance_options,
    recorded_facts,
    wire_bandwidth,
)
from meshmark.machine.identity import identity
from meshmark.machine.published.reference import machine_facts, model_claims, publication, publications
from meshmark.machine.smbios import channels, dimms, without_serials
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import FileTree, MachineError
from meshmark.native import find_native
from support.paths import MACHINES

RECORDED = [
    m["name"]
    for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
    if m["label"] == "recorded-in-guest"
]
PARTS = {
    "schema",
    "machine",
    "cpu",
    "topology",
    "caches",
    "memory",
    "node_performance",
    "kernel",
    "pages",
    "settings",
    "mitigations",
    "virtual",
    "firmware",
    "cgroup",
    "load",
}


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


ONE_CPU: dict[str, str | bytes] = {"sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0"}


def no_none(value: object, at: str = "facts") -> None:
    """Assert that a missing fact is absent with a reason: never null, never an empty reason."""
    assert value is not None, at
    if isinstance(value, dict):
        if is_absent(value):
            assert value["absent"], at
        for key, part in value.items():
            no_none(part, f"{at}.{key}")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            no_none(part, f"{at}[{i}]")


def without_reasons(value: Any) -> Any:
    """Return facts without the reasons of absences, which other versions may word differently."""
    if is_absent(value):
        return {"absent": ""}
    if isinstance(value, dict):
        return {k: without_reasons(v) for k, v in value.items()}
    return [without_reasons(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", RECORDED)
def test_facts_of_recorded_machines(name: str) -> None:
    with unpacked(MACHINES / f"{name}.tar.xz") as folder:
        facts: dict[str, Any] = host_facts(folder / "root")
        document = json.loads((folder / "facts.json").read_text())
        root = folder / "root"
        files = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert set(facts) == PARTS
    no_none(facts)
    read = json.loads(json.dumps(facts))
    # The hashes were computed by another formula when these files were recorded.
    assert document.pop("machine")["name"] == read.pop("machine")["name"]
    needs = read.pop("node_performance")  # only later versions have this fact
    assert is_absent(read["settings"].pop("prefetchers")), "of later versions, too; a hypervisor hides them"
    topology = read["topology"]
    assert topology.pop("core_kinds") == [] and topology.pop("unlisted_cpus") == [], "of later versions"
    assert [p.pop("index") for p in topology["packages"]] == list(range(len(topology["packages"]))), "of later versions"
    assert is_absent(read["settings"].pop("clocks")), "of later versions, too; a guest has none"
    rows = [] if is_absent(needs) else needs
    assert {row["target"] for row in rows} <= {n["os_index"] for n in facts["topology"]["nodes"]}
    assert without_reasons(document) == without_reasons(read), (
        "read again from the tree, the facts are those taken there"
    )
    assert facts["virtual"]["guest"] is True and facts["virtual"]["hypervisor"] == "QEMU"
    assert facts["firmware"]["system_vendor"] == "QEMU"
    assert facts["cpu"]["model"].startswith("QEMU") and "avx2" in facts["cpu"]["isa"]
    assert facts["machine"]["name"] == "numa-guest"
    assert facts["settings"]["numa_balancing"] in {0, 1}
    assert facts["memory"]["dimms"][0]["size_bytes"] > 0
    assert is_absent(facts["memory"]["peak_bytes_per_s"]), "a hypervisor's modules are not the hardware's"
    huge = facts["pages"]["huge"]
    assert [p["size_bytes"] for p in huge] == [2 << 20, 1 << 30]
    assert len(huge[0]["nodes"]) == len(facts["topology"]["nodes"])
    facts_of_files: dict[str, Any] = recorded_facts(files)
    assert facts_of_files.keys() < facts.keys()
    facts_of_files["memory"] |= {
        k: facts["memory"][k] for k in ("nodes_bytes", "safe_bytes")
    }  # these facts need the topology
    assert facts_of_files == {k: facts[k] for k in facts_of_files}


def test_facts_of_this_machine() -> None:
    facts = host_facts()
    assert set(facts) == PARTS
    no_none(facts)
    json.dumps(facts)


def test_facts_of_nothing_are_all_absent(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    no_none(facts)
    assert is_absent(facts["topology"]) and is_absent(facts["machine"]) and is_absent(facts["load"])


def test_one_hash_for_one_make_whatever_its_name(tmp_path: Path) -> None:
    def of(hostname: str, model: str, **more: str) -> dict[str, str]:
        root = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        files = {"proc/sys/kernel/hostname": hostname, "proc/cpuinfo": f"processor : 0\nmodel name\t: {model}\n"}
        tree(root, {"sys/devices/system/cpu/online": "0", **files, **more})
        return identity(root)

    a, b = of("n001", "A"), of("n/0 02-", "A")
    assert a["hash"] == b["hash"] and re.fullmatch("[0-9a-f]{12}", a["hash"])
    assert b["name"] == "n-0-02" and b["id"] == f"n-0-02-{a['hash'][:8]}"
    others = [
        of("n001", "B"),
        of("n001", "A", **{"sys/devices/system/cpu/online": "0-1"}),
        of("n001", "A", **{"sys/devices/system/cpu/cpu0/topology/physical_package_id": "3"}),
    ]
    assert len({x["hash"] for x in [a, *others]}) == 4
    cpuinfo = "processor : 0\nmodel name\t: A\n\nprocessor : 1\nmodel name : other\n"
    assert of("n001", "A", **{"proc/cpuinfo": cpuinfo}) == a, "the first CPU speaks for all"


def test_a_tree_without_names_or_cpus_still_has_an_id(tmp_path: Path) -> None:
    (tmp_path / "n042").mkdir()
    assert identity(tmp_path / "n042") == {"id": "n042", "name": "n042", "hash": ""}
    assert identity(tmp_path / "n042" / "absent") == {"id": "absent", "name": "absent", "hash": ""}


def test_every_program_names_this_machine_alike() -> None:
    identity_ = host_id()
    assert identity_ == host_id(host_facts()) and identity_.startswith(identity()["name"])
    programs = {
        "meshmark-probe": ["clock", "--budget", "100ms"],
        "meshmark-watch": ["--describe"],
    }
    for program, argv in programs.items():
        completed = subprocess.run(
            [find_native(program), *argv], check=True, capture_output=True, text=True, timeout=60
        )
        header = json.loads(completed.stdout.splitlines()[0])
        assert header["machine"] == identity_, program


def test_clock_governor_and_boost(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu"
    files = ONE_CPU | {
        "proc/cpuinfo": "vendor_id\t: GenuineIntel\nmodel name\t: Xeon X5570 @ 2.93GHz\nflags\t: fpu sse2 avx2\n",
        f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave",
        f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq": "3333000",
        f"{cpu}/intel_pstate/no_turbo": "1",
    }
    facts: dict[str, Any] = host_facts(tree(tmp_path, files))
    assert facts["cpu"]["claimed_hz"] == 2_930_000_000
    assert facts["settings"]["governor"] == "powersave" and facts["settings"]["boost"] is False
    assert facts["settings"]["frequency_max_hz"] == 3_333_000_000
    assert facts["virtual"]["guest"] is False


def test_a_bare_machine_of_a_cloud_is_no_guest(tmp_path: Path) -> None:
    files = ONE_CPU | {"proc/cpuinfo": "flags\t: sse2\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2"}
    facts: dict[str, Any] = host_facts(tree(tmp_path, files))
    assert facts["virtual"]["guest"] is False


def test_limits_of_a_group_are_the_tightest_above_it(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    files = ONE_CPU | {
        "proc/self/cgroup": "0::/a/b\n",
        f"{base}/a/memory.max": "1000000\n",
        f"{base}/a/b/memory.max": "max\n",
        f"{base}/a/b/cpu.max": "150000 100000\n",
        f"{base}/a/b/cpuset.cpus.effective": "0\n",
    }
    group: Any = host_facts(tree(tmp_path, files))["cgroup"]
    assert (group["version"], group["memory_limit_bytes"], group["cpu_quota"], group["cpus"]) == (2, 1000000, 1.5, [0])


def test_limits_of_version_1(tmp_path: Path) -> None:
    files = ONE_CPU | {
        "proc/self/cgroup": "4:memory:/job\n3:cpuset:/job\n0::/\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpuset/job/cpuset.cpus": "0\n",
    }
    group: Any = host_facts(tree(tmp_path, files))["cgroup"]
    assert (group["version"], group["memory_limit_bytes"], group["cpus"]) == (1, 4096000, [0])
    assert is_absent(group["cpu_quota"])


def test_only_options_that_matter_to_speed_are_kept() -> None:
    line = "root=UUID=1-2 isolcpus=2-3 quiet hugepages=8 token=secret mitigations=off -- init --port 1"
    assert performance_options(line) == ["isolcpus=2-3", "hugepages=8", "mitigations=off"]


# ------------------------------------------------------------------ firmware


def module(slot: str, bank: str, *, mib: int, rate: int, kind: int = 0x22) -> bytes:
    """Return a type 17 structure according to DSP0134, 7.18."""
    size = mib if mib < 0x7FFF else 0x7FFF
    area = bytearray(0x5C)
    area[0:4] = struct.pack("<BBH", 17, len(area), 1)
    area[0x08:0x0E] = struct.pack("<HHH", 72, 64, size)
    area[0x10], area[0x11], area[0x12], area[0x18], area[0x1A] = 1, 2, kind, 3, 4
    area[0x15:0x17] = struct.pack("<H", 5600)
    area[0x1C:0x20] = struct.pack("<I", mib if size == 0x7FFF else 0)
    area[0x20:0x22] = struct.pack("<H", rate)
    return bytes(area) + b"".join(s.encode() + b"\0" for s in (slot, bank, "SECRET42", "PART-1")) + b"\0"


END = bytes([127, 4, 9, 0, 0, 0])


def table(*modules: bytes) -> bytes:
    return b"".join(modules) + END


def test_memory_modules_give_the_hardware_peak(tmp_path: Path) -> None:
    data = table(
        *(module(f"P{p} DIMM {c}1", f"P{p} CHANNEL {c}", mib=65536, rate=4800) for p in (0, 1) for c in "ABCDEFGH")
    )
    files = ONE_CPU | {"proc/cpuinfo": "flags\t: sse2\n", "sys/firmware/dmi/tables/DMI": data}
    memory: Any = host_facts(tree(tmp_path, files))["memory"]
    assert memory["channels"] == 16 and memory["rate_t_per_s"] == 4_800_000_000
    assert memory["peak_bytes_per_s"] == 16 * 8 * 4_800_000_000
    assert wire_bandwidth(FileTree(tmp_path)) == 16 * 8 * 4_800_000_000
    (tmp_path / "sys" / "firmware" / "dmi" / "tables" / "DMI").unlink()
    assert wire_bandwidth(FileTree(tmp_path)) is None
    assert memory["dimms"][0]["kind"] == "DDR5" and memory["dimms"][0]["size_bytes"] == 64 << 30
    assert memory["dimms"][0]["max_rate_t_per_s"] == 5_600_000_000


def test_two_modules_of_a_channel_are_one_channel() -> None:
    modules = dimms(
        table(module("CPU1_DIMM_A1", "", mib=8192, rate=2666), module("CPU1_DIMM_A2", "", mib=8192, rate=2666))
    )
    channel_count = channels(modules)
    assert channel_count is not None and channel_count[0] == 1


@pytest.mark.parametrize(
    "data",
    [
        table(module("slot one", "", mib=8192, rate=2666)),  # a name that does not include the channel
        table(module("DIMM_A1", "", mib=8192, rate=0)),  # an unknown rate
        table(module("DIMM_A1", "", mib=0, rate=2666)),  # an empty slot
        END,
        b"",
    ],
)
def test_a_peak_that_the_firmware_does_not_tell_is_absent(tmp_path: Path, data: bytes) -> None:
    files = ONE_CPU | {"proc/cpuinfo": "flags\t: sse2\n", "sys/firmware/dmi/tables/DMI": data}
    memory: Any = host_facts(tree(tmp_path, files))["memory"]
    assert is_absent(memory["peak_bytes_per_s"])


def test_serial_numbers_are_left_out_of_what_is_shared() -> None:
    data = table(module("DIMM_A1", "", mib=8192, rate=2666))
    shared = without_serials(bytes([1, 4, 7, 0]) + b"system serial\0\0" + data)
    assert b"SECRET42" not in shared and b"system serial" not in shared
    assert dimms(shared) == dimms(data)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | st.binary(max_size=100).map(lambda b: table(module("A", "B", mib=1, rate=1))[: len(b) * 3] + b)
)
def test_any_firmware_table_reads(data: bytes) -> None:
    channels(dimms(data))
    without_serials(data)


# ------------------------------------------------------------------ captures


def test_a_synthetic_machine_has_no_facts() -> None:
    recording = open_machine("numa:2 core:2 pu:1")
    assert (recording.what, recording.label, recording.facts) == ("numa:2 core:2 pu:1", "synthetic", {})
    assert len(recording.topology.nodes) == 2 and len(recording.topology.cpus) == 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_capture_comes_back(tmp_path: Path, suffix: str) -> None:
    with unpacked(MACHINES / "cxl-2+1.tar.xz") as folder:
        second_file = tmp_path / f"again{suffix}"
        assert capture(second_file, folder / "root", label="recorded-in-guest", xml=b"<topology/>\n") > 100
        expected = from_sysfs(folder / "root")
    recording = open_machine(str(second_file))
    assert recording.topology == expected and recording.label == "recorded-in-guest"
    assert recording.hwloc_xml == b"<topology/>\n"
    assert recording.facts["schema"] == 1
    assert [p.name for p in tmp_path.iterdir()] == [second_file.name], "nothing is left beside it"


def test_this_machine_can_be_captured(tmp_path: Path) -> None:
    capture(tmp_path / "a.tar.gz")
    from_capture, live = open_machine(str(tmp_path / "a.tar.gz")), from_sysfs()
    assert (from_capture.topology.cpus, from_capture.topology.nodes) == (live.cpus, live.nodes)
    with gzip.open(tmp_path / "a.tar.gz") as file:
        assert b"product_serial" not in file.read()


def test_another_suffix_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.tar\.gz"):
        capture(tmp_path / "a.zip")


def archive(path: Path, members: list[tarfile.TarInfo | tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def test_an_archive_cannot_write_or_read_outside(tmp_path: Path) -> None:
    link = tarfile.TarInfo("root/sys/devices/system/cpu/online")
    link.type, link.linkname = tarfile.SYMTYPE, "/proc/self/status"
    path = archive(
        tmp_path / "evil.tar.gz",
        [
            link,
            ("../outside", b"x"),
            ("root/../../outside", b"x"),
            ("meshmark-capture.json", b'{"format": 1, "label": "x"}'),
            ("facts.json", b'{"schema": 1}'),
            ("root/sys/devices/system/cpu/cpu0/topology/core_id", b"0"),
        ],
    )
    with unpacked(path) as folder:
        assert not (folder.parent / "outside").exists()
        assert not (folder / "root/sys/devices/system/cpu/online").exists()
    assert open_machine(str(path)).topology.summary() == "unknown packages, 1 NUMA node, 1 core, 1 CPU"


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ([("x", b"")], "metadata"),
        ([("meshmark-capture.json", b"[" * 100000), ("facts.json", b"{}")], "metadata"),
        ([("meshmark-capture.json", b'{"format": 9}'), ("facts.json", b"{}")], "format"),
        ([("meshmark-capture.json", b'{"format": 1}'), ("facts.json", b"[]")], "schema"),
        ([("meshmark-capture.json", b'{"format": 1}'), ("facts.json", b'{"schema": 1}')], "no CPU"),
    ],
)
def test_what_is_no_capture_is_one_clear_error(tmp_path: Path, members: list[Any], word: str) -> None:
    with pytest.raises(MachineError, match=word) as error:
        open_machine(str(archive(tmp_path / "a.tar.gz", members)))
    assert "\n" not in str(error.value)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_capture_is_one_clear_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    data_ = bytearray((MACHINES / "opteron-2.tar.xz").read_bytes())
    if data.draw(st.booleans()):
        del data_[data.draw(st.integers(0, len(data_) - 1)) :]
    else:
        data_[data.draw(st.integers(0, len(data_) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("torn") / "a.tar.xz"
    path.write_bytes(data_)
    try:
        open_machine(str(path))
    except MeshmarkError as error:
        assert "\n" not in str(error)


# ------------------------------------------------------------------ commands


def test_show_answers_in_text_and_json() -> None:
    path = str(MACHINES / "torus-4x4-16.tar.xz")
    text = CliRunner().invoke(app, ["show", path])
    assert text.exit_code == 0 and "16 packages, 16 NUMA nodes, 16 cores, 16 CPUs" in text.stdout
    answer = CliRunner().invoke(app, ["show", path, "--json"])
    facts = json.loads(answer.stdout)
    assert facts["label"] == "recorded-in-guest" and len(facts["topology"]["nodes"]) == 16
    assert "(" in CliRunner().invoke(app, ["show"]).stdout


@pytest.mark.skipif(not shutil.which("lstopo-no-graphics"), reason="hwloc's lstopo is not installed")
def test_show_takes_a_synthetic_machine() -> None:
    answer = CliRunner().invoke(app, ["show", "pack:4 core:64 pu:1", "--json"])
    assert len(json.loads(answer.stdout)["topology"]["cpus"]) == 256


def test_capture_writes_one_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["capture", str(tmp_path / "host.tar.xz")])
    assert result.exit_code == 0, result.output
    assert open_machine(str(tmp_path / "host.tar.xz")).label == "captured"


# ------------------------------------------------------------------ publications


def test_every_number_of_a_publication_has_its_place() -> None:
    names = {p.name: list(p.entries()) for p in publications()}
    assert len(names) == 5
    for name, entries in names.items():
        assert entries, name
        assert all(e.place for e in entries), name
        assert all(len(e.printed) == len(e.values) for e in entries)


def test_units_are_si() -> None:
    entries = {e.path: e for e in publication("paper:xeon_5500_lsf_2009").entries()}
    peak = entries["system.xeon_5400.peak_per_socket_gb_per_s"]
    assert (peak.printed, peak.unit) == ((12.8,), "B/s") and peak.values[0] == pytest.approx(12.8e9)
    assert entries["system.xeon_5500.memory_gib"].values == (20 * 2.0**30,)


def test_unknown_facts_have_no_value() -> None:
    assert len(machine_facts()) > 100 and len(model_claims()) > 50
    assert all(f.value is None for f in machine_facts() if f.origin == "unknown")


def test_an_unknown_publication_names_the_known() -> None:
    with pytest.raises(MachineError, match="gs1280"):
        publication("paper:none")


def test_a_publication_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("reference_format = 2\n")
    with pytest.raises(MachineError, match="reference_format"):
        publications(tmp_path)


def test_settings_of_the_kernel_are_read() -> None:
    """The kernel refuses very long reads from /proc/sys, even of short files."""
    path = "proc/sys/kernel/perf_event_paranoid"
    assert FileTree(Path("/")).number(path) == int((Path("/") / path).read_text())


def _header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "content",
    [
        _header(tarfile.REGTYPE, 0) * 101,  # files
        _header(tarfile.REGTYPE, 65 << 10) + bytes(65 << 10),  # one file
        (_header(tarfile.REGTYPE, 60 << 10) + bytes(60 << 10)) * 20,  # all files together
        _header(tarfile.GNUTYPE_LONGNAME, 8 << 30) + bytes(2 << 20),  # a name of 8 GiB, which would be read into memory
        _header(tarfile.XHDTYPE, 8 << 30) + bytes(2 << 20),
    ],
)
def test_a_capture_beyond_the_limits_is_refused_before_anything_is_written(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in {"_MAX_FILES": 100, "_MAX_BYTES": 1 << 20, "_MAX_FILE": 64 << 10}.items():
        monkeypatch.setattr(capture_room, name, limit)
    archive = tmp_path / "large.tar.gz"
    archive.write_bytes(gzip.compress(content))
    members: list[str] = []
    monkeypatch.setattr(Path, "write_bytes", lambda self, _: members.append(self.name))
    with pytest.raises(MachineError, match="unpacks to more than"), unpacked(archive):
        pass
    assert not members


def test_a_capture_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar.gz")
    for path in (str(tmp_path / "x.tar.gz"), "/dev/zero"):
        with pytest.raises(MachineError, match="a regular file is required"):
            open_machine(path)
