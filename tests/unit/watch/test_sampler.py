"""The sampler reads frames from this host and from trees: processes, counters that wrap, parts that are absent."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshmark.native import find_native
from meshmark.watch.frames import frame_of, header_of
from meshmark.watch.layout import map_of
from meshmark.watch.live import LiveSampler
from support.waiting import take


def test_this_host_is_watched() -> None:
    with LiveSampler(20, 0.5) as live:
        frames = list(live.frames())
    assert 0 < len(frames) <= 10
    assert live.header.count("cpu") >= len(os.sched_getaffinity(0))
    for f in frames:
        assert f.window_s > 0 and f.cost_s > 0
        assert all(v is None or 0 <= v <= 1 for m in live.header.metrics if m.is_share for v in f.values[m.name])
    memory_kib = Path("/sys/devices/system/node/node0/meminfo").read_text().split("MemTotal:")[1].split()[0]
    assert frames[-1].values["node.total"][0] == 1024 * int(memory_kib)


def test_a_busy_cpu_is_seen_busy() -> None:
    cpu = max(os.sched_getaffinity(0))
    line = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", line])
    try:
        with LiveSampler(2, 2, sources=("cpu",)) as live:
            place = next(i for i, c in enumerate(live.header.components["cpu"]) if c["number"] == cpu)
            shares = [f.values["cpu.busy"][place] for f in live.frames()]
    finally:
        busy.kill()
        busy.wait()
    assert shares[-1] is not None and shares[-1] > 0.9


FILES = [
    "proc/stat",
    "proc/diskstats",
    "proc/meminfo",
    "proc/pressure/cpu",
    "sys/devices/system/cpu/present",
    "sys/devices/system/node/node0/meminfo",
    "sys/devices/system/node/node0/numastat",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/distance",
    "sys/devices/system/node/nodeX/cpulist",
    "sys/devices/system/cpu/cpu0/topology/core_id",
    "sys/class/powercap/intel-rapl:0/energy_uj",
    "sys/class/powercap/intel-rapl:0/name",
    "proc/1/stat",
    "sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes",
    "sys/block/sda/size",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/statistics/rx_bytes",
]
PIECES = st.sampled_from(
    [
        "cpu0 1 2 3",
        "cpu -1 99999999999999999999",
        "cpu1",
        "0-3",
        "0-",
        "7-2,",
        "0-99999999",
        "-",
        "MemTotal: 5 kB",
        "Node 0 MemFree:",
        "numa_hit 3",
        "intr",
        "some avg10=0 total=",
        "10 21",
        "8 0 sda 1 2 3",
        "\0",
        "\xff",
        " \t",
        "-5",
        "1e9",
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), st.lists(PIECES | st.text(max_size=12), max_size=6), max_size=8))
def test_no_tree_makes_the_sampler_crash(tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]]) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "proc").mkdir()  # a folder without any expected file is refused
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes("\n".join(lines).encode("utf-8", "replace"))
    command = [find_native("meshmark-watch", "MESHMARK_WATCH"), "--root", root, "--rate", "200", "--duration", "0.02"]
    completed = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(x) for x in completed.stdout.splitlines()]
    first = header_of(lines[0])
    for line in lines[1:]:
        frame_of(line, first)
    map_of(first)


def test_a_cpu_that_goes_is_unknown_and_comes_back(tmp_path: Path) -> None:
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/present").write_text("0-1\n")

    def tick(n: int, second: bool) -> None:
        lines = ["cpu  0 0 0 0", f"cpu0 {5 * n} 0 0 {5 * n} 0 0 0 0"] + [f"cpu1 {10 * n} 0 0 0 0 0 0 0"] * second
        stat.write_text("\n".join(lines) + "\nctxt 5\n")

    tick(1, True)
    with LiveSampler(10, 0, root=tmp_path, sources=("cpu",)) as live:
        observations = []
        frames = live.frames()
        for n in range(2, 40):
            tick(n, second=not 10 <= n < 20)
            observations.append(next(frames).values["cpu.busy"])
        live.stop()
    assert [None, 0.5] not in observations
    second = [b for _, b in observations]
    assert None in second[5:]  # the CPU went offline
    assert second[0] in {1.0, None} and second[-1] == 1.0  # the CPU is online, and online again
    assert all(a == 0.5 for a, _ in observations if a is not None)


def test_energy_and_cache_traffic_of_a_tree(tmp_path: Path) -> None:
    """Counters wrap, domains stop reporting, and some parts must not be read."""

    def put(file: Path, text: str) -> None:
        """Replace a file atomically: `write_text` would leave it empty for a moment, which a reader could see."""
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT), "w") as out:
            out.write(text)

    cap, mon = tmp_path / "sys/class/powercap", tmp_path / "sys/fs/resctrl/mon_data"
    for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram"), ("intel-rapl:1", "package-1")):
        (cap / zone).mkdir(parents=True)
        (cap / zone / "name").write_text(name + "\n")
        (cap / zone / "max_energy_range_uj").write_text("10000000\n")
    for domain in ("mon_L3_00", "mon_L3_01"):
        (mon / domain).mkdir(parents=True)

    def tick(n: int) -> None:
        for k, zone in enumerate(("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1")):
            put(cap / zone / "energy_uj", f"{(9_000_000 + n * 500_000 * (k + 1)) % 10_000_000:08}\n")
        put(mon / "mon_L3_00/mbm_total_bytes", f"{n * 10**8:012}\n")
        put(mon / "mon_L3_00/mbm_local_bytes", f"{n * 10**7:012}\n")
        (mon / "mon_L3_01/mbm_total_bytes").write_text("Unavailable\n")
        (mon / "mon_L3_01/mbm_local_bytes").write_text("Unavailable\n")

    tick(0)
    with LiveSampler(5, 0, root=tmp_path, sources=("energy", "resctrl")) as live:
        frames = live.frames()
        observations = []
        for n in range(1, 12):
            tick(n)
            observations.append(next(frames))
        live.stop()
    names = [c["name"] for c in live.header.components["power"]]
    assert names == ["package-0", "package-0 dram", "package-1"]
    for k in range(3):
        joules = [f.window_s * (f.values["power.drawn"][k] or 0) for f in observations]
        assert all(0 <= j < 4 * (k + 1) for j in joules)  # a wrapping counter causes no jump
        assert sum(joules) == pytest.approx(0.5 * (k + 1) * len(observations), rel=0.4)
    bytes_moved = [f.window_s * (f.values["l3.total"][0] or 0) for f in observations]
    assert sum(bytes_moved) == pytest.approx(1e8 * len(observations), rel=0.4)
    assert all(f.values["l3.total"][1] is None for f in observations)


def test_what_a_tree_does_not_offer_is_absent_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : fpu cqm_mbm_total cqm_mbm_local\n")
    with LiveSampler(5, 0.2, root=tmp_path) as live:
        absences = {a["metric"]: a for a in live.header.absent}
    assert absences["power"]["why"].startswith("no energy counters")
    assert (
        absences["l3.total"]["why"] == "resctrl is not mounted" and "mount -t resctrl" in absences["l3.total"]["hint"]
    )
    assert "recorded tree" in absences["node.latency"]["why"]
    assert absences["cpu.busy"]["why"] == "/proc/stat cannot be read"


@pytest.mark.parametrize(
    ("files", "why", "hint"),
    [
        (("sys/fs/resctrl/schemata",), "resctrl is mounted, but without bandwidth monitoring", ""),
        (("sys/fs/resctrl/info/L2/num_closids",), "resctrl is mounted, but without bandwidth monitoring", ""),
        (("sys/fs/resctrl/info/x", "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy"), "resctrl is mounted, but", ""),
        (("proc/cpuinfo",), "the processor or the hypervisor does not support bandwidth monitoring", ""),
        ((), "neither resctrl nor the processor's description is readable", ""),
    ],
)
def test_the_reason_without_bandwidth_monitoring_is_the_right_one(
    tmp_path: Path, files: tuple[str, ...], why: str, hint: str
) -> None:
    for name in ("proc/stat", *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("flags : fpu cat_l3\n")
    with LiveSampler(5, 0.2, root=tmp_path, sources=("resctrl",)) as live:
        (absences,) = [a for a in live.header.absent if a["metric"] == "l3.total"]
    assert absences["why"].startswith(why) and absences.get("hint", "") == hint


@pytest.mark.parametrize(
    ("files", "kernel"),
    [
        ({"proc/sys/kernel/osrelease": "4.18.0-513.el8.x86_64\n"}, "4.18.0-513.el8.x86_64"),
        ({"proc/version": "Linux version 5.14.0-70 (mock@build) #1 SMP\n"}, "5.14.0-70"),
        ({"proc/version": "other text\n"}, None),
        ({}, None),
    ],
)
def test_the_kernel_of_a_recorded_tree_is_its_own_or_unknown(
    tmp_path: Path, files: dict[str, str], kernel: str | None
) -> None:
    for name, text in {"proc/stat": "cpu 1 1 1 1\n", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with LiveSampler(5, 0.2, root=tmp_path) as live:
        assert live.header.to_json().get("kernel") == kernel


def test_a_reader_that_does_not_read_costs_frames_and_not_time() -> None:
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--rate", "500", "--duration", "3"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    take(2)  # more than the pipe can hold
    lines = [json.loads(x) for x in child.stdout]
    assert child.wait(10) == 0
    assert lines[-1]["dropped"] > 0
    assert lines[-1]["t_s"] > 2
    assert all(b["seq"] > a["seq"] for a, b in itertools.pairwise(lines))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rate", "0"], "--rate"),
        (["--sources", "moon"], "--sources"),
        (["--root", "/proc/nowhere"], "--root"),
        (["--duration", "-1"], "--duration"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), *words]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 2
    assert said in completed.stderr and completed.stderr.count("\n") == 1


def test_a_busy_process_is_named_by_the_sampler() -> None:
    name = "mesh) mark 1 (x"  # a name that a careless parser would split wrongly
    line = f"import ctypes\nctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", line])
    try:
        with LiveSampler(2, 60, sources=("processes", "cpu")) as live:  # others may be busier for a while
            frames = ([p for p in f.processes if p["pid"] == busy.pid] for f in live.frames())
            processes = next(filter(None, frames), [])
    finally:
        busy.kill()
        busy.wait()
    assert processes
    assert processes[-1]["name"] == name[:15] and processes[-1]["cpu"] > 0 and processes[-1]["threads"] == 1
    assert processes[-1]["rss"] > 1e6


def test_threads_of_a_busy_process_say_where_they_ran_and_waited() -> None:
    """Two threads share one CPU: each gets half of it and waits for the other half."""
    cpu = max(os.sched_getaffinity(0))
    spin = (
        "import os, threading, zlib\n"
        f"os.sched_setaffinity(0, {{{cpu}}})\n"
        "data = bytes(1 << 20)\n"
        "def run():\n"
        "    while True: zlib.crc32(data)\n"  # releases the interpreter lock, so other threads can run
        "threading.Thread(target=run, daemon=True).start()\n"
        "run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", spin]) as busy:
        try:
            with LiveSampler(2.0, 60.0, sources=["processes"]) as live:
                processes = (p for frame in live.frames() for p in frame.processes if p["pid"] == busy.pid)
                # Count from the second scan of both threads on: a scan takes time, so a slow machine has few of them.
                process = next(
                    p for p in processes if [t["cpu"] is None for t in p.get("busiest", ())] == [False, False]
                )
        finally:
            busy.kill()
    assert process["allowed"] == str(cpu) and process["threads"] == 2
    assert all(t["on"] == cpu for t in process["busiest"])
    assert sum(t["cpu"] for t in process["busiest"]) == pytest.approx(process["cpu"], abs=0.15)
    assert sum(t["waiting"] for t in process["busiest"]) > 0.4


def test_pages_that_the_kernel_moves_are_counted_or_absent(tmp_path: Path) -> None:
    vmstat = tmp_path / "proc" / "vmstat"
    vmstat.parent.mkdir()
    vmstat.write_text("pgmigrate_success 10\n")
    with LiveSampler(2.0, 2.4, root=tmp_path, sources=["pages"]) as live:
        moved_pages = []
        for frame in live.frames():
            moved_pages.append(frame.window_s * (frame.values["host.pages_moved"][0] or 0))
            vmstat.write_text(f"pgmigrate_success {10 + 500 * len(moved_pages)}\n")
    assert [m.name for m in live.header.metrics] == ["host.pages_moved"]
    assert "numa_hint_faults" in live.header.why_unknown("host.hint_faults")
    assert (
        0 < sum(moved_pages) <= 750 * len(moved_pages)
    )  # 500 per frame are written, and the file is read once per second
