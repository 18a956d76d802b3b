"""Watching: frames of this host and of trees, recordings that survive, the map, the terminal view and the server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.frames import frame_lines, header_line
from meshmark.model.machine import MachineFile, find_machine, machine_names
from meshmark.model.workloads import random_reads, stream_actor, trial
from meshmark.native import find_native
from meshmark.report.recording import binned, draw_difference, draw_recording
from meshmark.terminal.map import UNKNOWN, draw, step_of
from meshmark.watch.frames import USE, Frame, FrameError, Header, Metric, frame_of, header_of, parse_line
from meshmark.watch.hotspots import Detector, HotSpot, hot_now
from meshmark.watch.layout import Map, map_of, node_places
from meshmark.watch.live import Live
from meshmark.watch.palette import PALETTES
from meshmark.watch.recording import HOLD_S, Recorder, Recording, RecordingError
from meshmark.web.hub import Hub, Past
from meshmark.web.openmetrics import Window
from meshmark.web.openmetrics import text as openmetrics_text
from meshmark.web.server import make_app, serve
from support.paths import MACHINES, ROOT
from support.waiting import until

INDEX: dict[str, dict[str, Any]] = {
    m["name"]: m for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
}
RECORDED = sorted(n for n, m in INDEX.items() if m["label"] == "recorded-in-guest")


def header(cpus: int = 4, metrics: int = 2, **more: Any) -> Header:
    return Header(
        "host", "test", "2026-01-01T00:00:00Z", 0.1,
        {"node": ({"name": "node 0"},), "cpu": tuple({"name": f"CPU {i}", "node": 0} for i in range(cpus))},
        (Metric("cpu.busy", "1", "busy", "time"), *(Metric(f"cpu.m{i}", "B/s", "moved") for i in range(metrics - 1))),
        **more,
    )  # fmt: skip


def frame(n: int, *values: float | None) -> Frame:
    return Frame(n, 0.1 * n, 0.1, {"cpu.busy": list(values), "cpu.m0": [1e9 * (v or 0) for v in values]}, at=1e9 + n)


def tree(tmp_path: Path, name: str) -> Path:
    with tarfile.open(MACHINES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "root"


# ------------------------------------------------------------------ frames


def test_a_header_comes_back_as_it_went() -> None:
    first = header(absent=({"metric": "memory", "why": "none here"},), more={"kernel": "6"})
    assert header_of(json.loads(json.dumps(first.to_json()))) == first
    assert first.why_unknown("memory.busy") == "none here"
    assert first.why_unknown("cpu.busy", 1) == "not known at this tick"
    one = frame(3, 0.5, None, 0.25, 1.0)
    assert frame_of(json.loads(json.dumps(one.to_json())), first) == one


def test_values_of_the_wrong_number_are_unknown_and_not_shifted() -> None:
    line = {"seq": 1, "t_s": 1, "window_s": 1, "values": {"cpu.busy": [0.1, 0.2]}}
    assert frame_of(line, header()).values["cpu.busy"] == [0.1, 0.2, None, None]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type":"frame"}', '{"type":"header","format":2}',
                                  '{"type":"header","format":1,"source":"host"}'])  # fmt: skip
def test_what_is_no_header_is_one_line(text: str) -> None:
    with pytest.raises(FrameError, match="frames: ") as why:
        header_of(parse_line(text))
    assert "\n" not in str(why.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["type", "format", "components", "metrics", "absent", "values", "cpu.busy", "seq", "name"]),
        inner, max_size=6), max_leaves=15)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(JSON)
@example({"type": "header", "format": 1, "source": 1, "machine": 2, "started": 3, "period_s": 4,
          "components": {"cpu": [1]}, "metrics": []})  # fmt: skip
def test_no_line_is_a_traceback(line: Any) -> None:
    for read in (header_of, lambda x: frame_of(x, header())):
        with contextlib.suppress(FrameError):
            read(line if isinstance(line, dict) else {"type": "header", "format": 1, "metrics": line})


# ------------------------------------------------------------------ the sampler


def test_this_host_is_watched() -> None:
    with Live(20, 0.5) as live:
        found = list(live.frames())
    assert len(found) == 10
    assert live.header.count("cpu") >= len(os.sched_getaffinity(0))
    for f in found:
        assert f.window_s == pytest.approx(0.05, abs=0.05)
        assert all(v is None or 0 <= v <= 1 for m in live.header.metrics if m.is_share for v in f.values[m.name])
        assert 0 < f.cost_s < 0.05
    said = Path("/sys/devices/system/node/node0/meminfo").read_text().split("MemTotal:")[1].split()[0]
    assert found[-1].values["node.total"][0] == 1024 * int(said)


def test_a_busy_cpu_is_seen_busy() -> None:
    cpu = max(os.sched_getaffinity(0))
    line = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", line])
    try:
        with Live(2, 2, sources=("cpu",)) as live:
            place = next(i for i, c in enumerate(live.header.components["cpu"]) if c["number"] == cpu)
            shares = [f.values["cpu.busy"][place] for f in live.frames()]
    finally:
        busy.kill()
        busy.wait()
    assert shares[-1] is not None and shares[-1] > 0.9


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_is_drawn_whole(name: str, tmp_path: Path) -> None:
    about = INDEX[name]
    with Live(50, 0.1, root=tree(tmp_path, name)) as live:
        assert list(live.frames())
        h = live.header
    assert h.count("node") == about["nodes"]
    assert h.count("cpu") >= about["cpus"]
    links = {(link["from"], link["to"]) for link in h.components.get("link", ())}
    assert links == {(b, a) for a, b in links}
    degrees = {sum(1 for a, _ in links if a == n) for n in range(about["nodes"])}
    wanted = {"ring-8": {2}, "torus-4x4-16": {4}}.get(name)
    assert wanted is None or degrees == wanted
    whole(h, map_of(h))


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
PIECES = st.sampled_from(["cpu0 1 2 3", "cpu -1 99999999999999999999", "cpu1", "0-3", "0-", "7-2,", "0-99999999", "-",
                          "MemTotal: 5 kB", "Node 0 MemFree:", "numa_hit 3", "intr", "some avg10=0 total=", "10 21",
                          "8 0 sda 1 2 3", "\0", "\xff", " \t", "-5", "1e9"])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), st.lists(PIECES | st.text(max_size=12), max_size=6), max_size=8))
def test_no_tree_makes_the_sampler_crash(tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]]) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "proc").mkdir()  # without any of it, it is refused as no tree
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes("\n".join(lines).encode("utf-8", "replace"))
    command = [find_native("meshmark-watch", "MESHMARK_WATCH"), "--root", root, "--rate", "200", "--duration", "0.02"]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(x) for x in done.stdout.splitlines()]
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
    with Live(10, 0, root=tmp_path, sources=("cpu",)) as live:
        seen = []
        frames = live.frames()
        for n in range(2, 40):
            tick(n, second=not 10 <= n < 20)
            seen.append(next(frames).values["cpu.busy"])
        live.stop()
    assert [None, 0.5] not in seen
    second = [b for _, b in seen]
    assert None in second[5:]  # gone
    assert second[0] in {1.0, None} and second[-1] == 1.0  # there, and there again
    assert all(a == 0.5 for a, _ in seen if a is not None)


def test_energy_and_cache_traffic_of_a_tree(tmp_path: Path) -> None:
    """Counters that wrap, domains that fall silent, and parts that may not be read."""

    def put(file: Path, text: str) -> None:
        """In place and at once: who reads meanwhile never finds it empty, as write_text leaves it for a moment."""
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
    with Live(5, 0, root=tmp_path, sources=("energy", "resctrl")) as live:
        frames = live.frames()
        seen = []
        for n in range(1, 12):
            tick(n)
            seen.append(next(frames).values)
        live.stop()
    names = [c["name"] for c in live.header.components["power"]]
    assert names == ["package-0", "package-0 dram", "package-1"]
    for k in range(3):
        watts = [v["power.drawn"][k] for v in seen]
        assert all(w is not None and 0 <= w < 20 * (k + 1) for w in watts)  # no jump where it wraps
        assert sum(w for w in watts if w) / len(watts) == pytest.approx(2.5 * (k + 1), rel=0.4)
    totals = [v["l3.total"][0] for v in seen]
    assert sum(t for t in totals if t) / len(totals) == pytest.approx(5e8, rel=0.4)
    assert all(v["l3.total"][1] is None for v in seen)


def test_what_a_tree_does_not_offer_is_absent_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : fpu cqm_mbm_total cqm_mbm_local\n")
    with Live(5, 0.2, root=tmp_path) as live:
        absent = {a["metric"]: a for a in live.header.absent}
    assert absent["power"]["why"].startswith("no energy counters")
    assert absent["l3.total"]["why"] == "resctrl is not mounted" and "mount -t resctrl" in absent["l3.total"]["hint"]
    assert "recorded tree" in absent["node.latency"]["why"]
    assert absent["cpu.busy"]["why"] == "/proc/stat cannot be read"


def test_a_reader_that_does_not_read_costs_frames_and_not_time() -> None:
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--rate", "500", "--duration", "3"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(2)  # more than the pipe holds
    lines = [json.loads(x) for x in child.stdout]
    assert child.wait(10) == 0
    assert lines[-1]["dropped"] > 0
    assert lines[-1]["t_s"] == pytest.approx(3, abs=0.3)
    assert all(b["seq"] > a["seq"] for a, b in itertools.pairwise(lines))


@pytest.mark.parametrize(("words", "said"), [
    (["--rate", "0"], "--rate"), (["--sources", "moon"], "--sources"), (["--root", "/proc/nowhere"], "--root"),
    (["--duration", "-1"], "--duration"),
])  # fmt: skip
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("\n") == 1


# ------------------------------------------------------------------ recordings


def test_a_recording_gives_back_what_went_in(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    frames = [frame(n, 0.1234, None, n / 100, 1.0) for n in range(1, 40)]
    with Recorder(out, header()) as recorder:
        for f in frames:
            recorder.add(f)
    assert [p.name for p in tmp_path.iterdir()] == ["r.parquet"]
    recording = Recording(out)
    assert recording.header == header()
    assert recording.count() == 39
    for mine, theirs in zip(frames, recording.frames(), strict=True):
        assert theirs.seq == mine.seq and theirs.t_s == mine.t_s and theirs.at == mine.at
        for a, b in zip(mine.values["cpu.busy"], theirs.values["cpu.busy"], strict=True):
            assert (a is None) == (b is None) and (a is None or b == pytest.approx(a, abs=0.0005))
        assert theirs.values["cpu.m0"] == pytest.approx(mine.values["cpu.m0"], rel=1e-6)
    assert [f.seq for f in recording.frames(begin_s=3.75)] == [38, 39]
    assert [f.seq for f in recording.some(5, 2)] == [6, 7]


def test_others_can_open_it(tmp_path: Path) -> None:
    import duckdb

    out = tmp_path / "r.parquet"
    with Recorder(out, header()) as recorder:
        recorder.add(frame(1, 0.25, None, 0.5, 1.0))
    found = duckdb.sql(f'select t_s, "cpu.busy"[1]::double, "cpu.busy"[2] from \'{out}\'').fetchall()
    assert found == [(0.1, 0.25, None)]


@pytest.mark.parametrize("rate_hz", [1, 7, 10, 100])
def test_a_killed_recorder_loses_less_than_a_second(tmp_path: Path, rate_hz: int) -> None:
    """Killed at any moment, it loses what the sampler holds and what waits in the recorder: both are looked at after
    every burst of the sampler, just before the next one comes."""
    out = tmp_path / "r.parquet"
    recorder = Recorder(out, header())
    period_s = 1 / rate_hz
    held = [frame(seq, 0.5) for seq in range(1, max(1, round(HOLD_S * rate_hz)) + 1)]
    for burst in range(8):
        for one in held:
            seq = burst * len(held) + one.seq
            jitter_s = 1e-4 * (-1) ** seq
            recorder.add(replace(one, seq=seq, t_s=seq * period_s + jitter_s, window_s=period_s + 2 * jitter_s))
        killed_s = (burst + 2) * len(held) * period_s
        # At 1 Hz the frame in the making is a second by itself.
        assert killed_s - Recording(recorder.part).extent()[1] < 0.9 + max(0.0, period_s - HOLD_S)


def test_what_a_killed_recorder_leaves_can_be_read(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    line = ("from meshmark.cli.app import main; import sys; "
            f"sys.argv = ['meshmark', 'record', '--rate', '20', '--out', {str(out)!r}]; main()")  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", line], stderr=subprocess.DEVNULL)
    part = out.with_name("r.parquet.part")
    assert until(lambda: part.exists() and part.stat().st_size and Recording(part).count() > 20)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not out.exists()
    found = list(Recording(part).frames())
    numbers = [f.seq for f in found]
    assert numbers == sorted(set(numbers)), "a machine that was held skips numbers; none comes twice"
    with part.open("r+b") as file:  # and where it was cut in the middle of a batch
        file.truncate(part.stat().st_size - 7)
    cut = list(Recording(part).frames())
    assert 0 < len(cut) < len(found)
    with pytest.raises(RecordingError, match="is there already"):
        Recorder(out, header())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_line_loses_nothing_of_it(tmp_path: Path, number: signal.Signals) -> None:
    """A sampler that has written half a frame when the signal comes, and the rest of it after that."""
    lines = [json.dumps(frame(n, 0.5, 0.5, 0.5, 0.5).to_json()) for n in (1, 2)]
    sampler = tmp_path / "sampler"
    sampler.write_text(
        f"#!{sys.executable}\n"
        "import signal, sys\n"
        "def end(*_):\n"
        f"    print({lines[0][60:]!r}, {lines[1]!r}, sep=chr(10), flush=True)\n"
        "    sys.exit(0)\n"
        "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, end)\n"
        f"print({json.dumps(header().to_json())!r})\n"
        f"print({lines[0][:60]!r}, end='', flush=True)\n"
        f"open({str(tmp_path / 'half')!r} if '--hold' in sys.argv else '/dev/null', 'w').close()\n"
        "while True: signal.pause()\n"
    )
    sampler.chmod(0o755)
    out = tmp_path / "r.parquet"
    words = [
        sys.executable,
        "-c",
        "from meshmark.cli.app import main; main()",
        "record",
        "--no-canary",
        "--out",
        str(out),
    ]
    env = {**os.environ, "MESHMARK_WATCH": str(sampler)}
    child = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert child.stderr is not None and until((tmp_path / "half").exists)
    assert "stop with Ctrl-C" in child.stderr.readline()
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert [f.seq for f in Recording(out).frames()] == [1, 2]


def test_a_strangers_file_beside_a_recording_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "r.tmp").symlink_to("victim")
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.5))
    assert (tmp_path / "victim").read_text() == "mine" and Recording(tmp_path / "r").count() == 1


def test_a_recording_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.parquet")
    with pytest.raises(RecordingError, match="a pipe; a regular file is needed"):
        Recording(tmp_path / "r.parquet")


def test_sigterm_ends_a_recording_whole(tmp_path: Path) -> None:
    out = tmp_path / "r.parquet"
    line = ("from meshmark.cli.app import main; import sys; "
            f"sys.argv = ['meshmark', 'record', '--rate', '20', '--out', {str(out)!r}]; main()")  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert "recording" in child.stderr.readline()
    time.sleep(0.5)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    assert child.returncode == 0
    assert Recording(out).count() >= 5


def test_a_full_disk_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "r.parquet"
    recorder = Recorder(out, header())
    for n in range(1, 11):
        recorder.add(frame(n, 0.1, 0.2, 0.3, 0.4))
    recorder.flush()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match="No space left") as why:
        for n in range(11, 40):
            recorder.add(frame(n, 0.1, 0.2, 0.3, 0.4))
    assert "meshmark replay" in why.value.hint
    assert Recording(tmp_path / "r.parquet.part").count() >= 10


def test_a_foreign_or_cut_file_is_one_line(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    foreign, text, cut = tmp_path / "a.parquet", tmp_path / "b", tmp_path / "c.parquet"
    pq.write_table(pa.table({"x": [1]}), foreign)
    text.write_text("no recording")
    with Recorder(cut, header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    cut.write_bytes(cut.read_bytes()[:-20])
    for path in (foreign, text, cut, tmp_path / "nothing", tmp_path):
        with pytest.raises(RecordingError, match=path.name) as why:
            Recording(path)
        assert "\n" not in str(why.value)


# ------------------------------------------------------------------ on paper


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_spoiled_recording_is_one_line_or_frames(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spoiled")
    with Recorder(folder / "r", header()) as recorder:
        for n in range(1, 30):
            recorder.add(frame(n, 0.1, None, 0.3, 0.4))
        recorder.flush()
        part = recorder.part.read_bytes()
    for name, whole in (("r", (folder / "r").read_bytes()), ("r.part", part)):
        bytes_ = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 3))):
            bytes_[data.draw(st.integers(4, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
        (folder / "s").write_bytes(bytes_)
        with contextlib.suppress(RecordingError):
            assert len(list(Recording(folder / "s").frames())) <= 29, name


def test_bins_are_means_of_what_was_known() -> None:
    frames = [frame(n, n / 10, None if n < 5 else 1.0, None, 0.5) for n in range(1, 9)]
    (cpus,) = binned(header(), frames, bins=2)
    assert cpus.names == ("CPU 0", "CPU 1", "CPU 2", "CPU 3")
    assert cpus.use[0] == pytest.approx([0.25, 0.65])
    assert cpus.use[1] == [None, 1.0] and cpus.use[2] == [None, None]
    with pytest.raises(MeshmarkError, match="no frame"):
        binned(header(), [])


def test_a_recording_and_a_difference_are_drawn(tmp_path: Path) -> None:
    one = [frame(n, 0.2, None, 0.55, 1.0) for n in range(1, 31)]
    two = [frame(n, 0.2, 0.5, 0.25, 1.0) for n in range(1, 21)]
    paths = draw_recording(header(), one, tmp_path)
    assert sorted(p.name for p in paths) == ["cpu.png", "cpu.svg"]
    text = (tmp_path / "cpu.svg").read_text()
    for step in (2, 5, 9):
        assert PALETTES["inferno"][step] in text
    assert "CPU 3" in text and "use (%)" in text and "#ddd" in text
    paths = draw_difference((header(), one), (header(), two), tmp_path / "d")
    assert "change (points)" in paths[1].read_text()
    with pytest.raises(MeshmarkError, match="CPUs: 4 and 5"):
        draw_difference((header(), one), (header(5), two), tmp_path)


def estimated(use: str = "memory.pressure") -> Header:
    """Two CPUs that are counted, and two memories: `use` is estimated."""
    parts = {k: ({"name": f"{k} 0"}, {"name": f"{k} 1"}) for k in ("cpu", "memory", "link")}
    metrics = (Metric("cpu.busy", "1", "busy", "time"), Metric(use, "1", "told from latency", "bandwidth", True))
    return Header("host", "test", "", 1.0, parts, metrics, ({"metric": "link", "why": "no counters here"},),
                  {"use": {"memory": use}})  # fmt: skip


def told(of: Header, memory: float) -> list[Frame]:
    return [Frame(n, n, 1.0, {"cpu.busy": [0.1, 0.2], of.use["memory"]: [memory, None]}) for n in range(1, 11)]


def test_what_colours_a_class_is_drawn_and_an_estimate_says_so(tmp_path: Path) -> None:
    of = estimated()
    cpus, memories = binned(of, told(of, 0.45))
    assert (cpus.metric, cpus.estimated) == ("cpu.busy", False)
    assert (memories.metric, memories.estimated) == ("memory.pressure", True)
    assert memories.use[0] == pytest.approx([0.45] * 10) and memories.use[1] == [None] * 10
    paths = draw_recording(of, told(of, 0.45), tmp_path)
    assert sorted(p.name for p in paths) == ["cpu.png", "cpu.svg", "memory.png", "memory.svg"]
    text = (tmp_path / "memory.svg").read_text()
    assert "Memory, estimated (memory.pressure)" in text and PALETTES["inferno"][4] in text
    assert "estimated" not in (tmp_path / "cpu.svg").read_text()
    # A header that calls something else the use of a class is not believed.
    assert Header("host", "t", "", 1.0, {}, (), (), {"use": {"memory": "cpu.busy"}}).use == USE


def test_plot_says_what_it_does_not_draw(tmp_path: Path) -> None:
    for name, use in (("a", "memory.pressure"), ("b", "memory.busy")):
        with Recorder(tmp_path / name, estimated(use)) as recorder:
            for f in told(estimated(use), 0.5):
                recorder.add(f)
    done = CliRunner().invoke(app, ["plot", str(tmp_path / "a"), "--out", str(tmp_path / "plots")])
    assert done.exit_code == 0 and "memory.svg" in done.stdout
    assert done.stderr.strip() == "link: not drawn: no counters here"
    words = ["plot", str(tmp_path / "a"), "--against", str(tmp_path / "b"), "--out", str(tmp_path / "change")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "cpu-difference.svg" in done.stdout and "memory-difference" not in done.stdout
    assert "memory: not drawn: it is memory.busy before and memory.pressure after" in done.stderr
    wrong = CliRunner().invoke(app, [*words, "--palette", "cividis"])
    assert isinstance(wrong.exception, UsageError) and str(wrong.exception).startswith(
        "--palette: found with --against"
    )


# ------------------------------------------------------------------ the map


def whole(h: Header, m: Map) -> None:
    """Every component is on the map once, inside it, and no two boxes lie on each other."""
    for kind in ("cpu", "memory", "io"):
        assert sorted(b.index for b in m.boxes if b.component_class == kind) == list(range(h.count(kind)))
    on_lines = {line.index for line in m.lines}
    boxes = {b.index for b in m.boxes if b.component_class == "link"}
    assert sorted(on_lines | boxes) == list(range(h.count("link")))
    assert not on_lines & boxes
    for b in m.boxes:
        assert b.x >= 0 and b.y >= 0 and b.x + b.w <= m.width and b.y + b.h <= m.height
        assert b.w > 3 and b.h > 3
    for line in m.lines:
        assert all(-1 <= x <= m.width + 1 and -1 <= y <= m.height + 1 for x, y in line.points)
    for i, a in enumerate(m.boxes):
        for b in m.boxes[i + 1 :]:
            assert (
                a.x + a.w <= b.x + 0.01 or b.x + b.w <= a.x + 0.01 or a.y + a.h <= b.y + 0.01 or b.y + b.h <= a.y + 0.01
            )


@pytest.mark.parametrize("name", machine_names())
def test_every_model_is_drawn_whole(name: str) -> None:
    h = header_of(header_line(find_machine(name), 1e-6))
    whole(h, map_of(h))


def test_places_of_nodes_that_say_none() -> None:
    ring = [{(i - 1) % 8, (i + 1) % 8} for i in range(8)]
    assert len({(round(x, 6), round(y, 6)) for x, y in node_places(8, ring)}) == 8
    torus = [{(x + 1) % 4 + 4 * y, (x - 1) % 4 + 4 * y, x + 4 * ((y + 1) % 3), x + 4 * ((y - 1) % 3)}
             for y in range(3) for x in range(4)]  # fmt: skip
    assert node_places(12, torus)[5] == (1.0, 1.0)
    assert node_places(2, [{1}, {0}]) == [(0.0, 0.0), (1.0, 0.0)]


def test_the_terminal_shows_the_steps_of_the_scale() -> None:
    h = header()
    shown = draw(h, map_of(h), frame(1, 0.05, None, 0.55, 1.0))
    colours = {str(s.style.bgcolor.name) for s in shown.spans if getattr(s.style, "bgcolor", None)}  # type: ignore[union-attr]
    assert colours == {PALETTES["inferno"][i] for i in (0, 5, 9)}
    assert UNKNOWN in shown.plain and "55" in shown.plain and "5.0" in shown.plain
    narrow = draw(h, map_of(h), frame(1, 0.05, None, 0.09, 0.0), low=0.01, high=0.1)
    colours = {str(s.style.bgcolor.name) for s in narrow.spans if getattr(s.style, "bgcolor", None)}  # type: ignore[union-attr]
    assert colours == {PALETTES["inferno"][i] for i in (4, 8, 0)}
    assert [step_of(v, 0, 1) for v in (None, 0.0, 0.0999, 0.1, 0.999, 1.0)] == [-1, 0, 0, 1, 9, 9]


def test_both_directions_of_a_link_are_seen_in_the_terminal() -> None:
    h = header_of(header_line(find_machine("gs1280-16"), 1e-6))
    links = h.components["link"]
    use: list[float | None] = [0.0] * len(links)
    for i, link in enumerate(links):
        ends = (link["from_router"], link["to_router"])
        use[i] = {(5, 6): 1.0, (6, 5): 0.55, (5, 9): 0.75, (9, 5): 0.35}.get(ends, 0.0)
    shown = draw(h, map_of(h), Frame(1, 0.0, 1.0, {"link.busy": use}))
    colours = {getattr(s.style, k).name for s in shown.spans for k in ("color", "bgcolor") if getattr(s.style, k, None)}
    assert {PALETTES["inferno"][i] for i in (0, 9, 5, 7, 3)} <= colours
    rows = shown.plain.split("\n")
    assert len({tuple(i for i, c in enumerate(r) if c == "┃") for r in rows if "┃" in r}) == 1  # all nodes alike


def test_terminal_and_browser_have_the_same_palettes() -> None:
    text = (ROOT / "web" / "src" / "palette.ts").read_text()
    for name, colours in PALETTES.items():
        line = next(x for x in text.splitlines() if x.strip().startswith(f"{name}:"))
        assert tuple(re.findall(r"#[0-9a-f]{6}", line)) == colours


# ------------------------------------------------------------------ hot spots


def simulated_cases() -> Iterator[tuple[MachineFile, tuple[str, Any] | None, dict[str, Any]]]:
    """Machines under load with a known hot spot, and as many quiet ones (light, even and heavy but even)."""
    draws = Random(3)
    for name, shape in (("gs1280-8", (4, 2)), ("gs1280-16", (4, 4)), ("gs1280-32", (8, 4)), ("es80", (8, 1))):
        m = find_machine(name)
        n = shape[0] * shape[1]
        for _ in range(4):
            home = draws.randrange(n)
            yield m, ("memory", home), random_reads(m, draws.choice([4, 8, 16]), homes=[home])
        for _ in range(3):  # everyone at work at home, and half of them on one node's memory as well
            home = draws.randrange(n)
            quiet = {**stream_actor(m, list(range(n)), "read", "ordinary", "local"), "pace_ns": 40}
            crowd = random_reads(m, 8, draws.sample(range(n), max(3, n // 2)), homes=[home])["actors"]
            yield m, ("memory", home), trial([quiet, *crowd])
        for _ in range(3):
            port = draws.randrange(n)
            yield m, ("io", port), trial([{"io": [port], "chains": 16, "streams": [{"homes": "uniform"}]}])
        for _ in range(3):
            cpu = draws.randrange(n)
            yield m, ("cpu", cpu), trial([stream_actor(m, [cpu], "read", "ordinary", "local")])
        for _ in range(3):  # three streams of reads over one link; no memory of theirs is full
            x, y = draws.randrange(shape[0]), draws.randrange(shape[1])
            at = [(x + d) % shape[0] + y * shape[0] for d in (0, 1, 2, -1)]
            pairs = ((at[0], at[1]), (at[3], at[1]), (at[0], at[2]))
            yield (
                m,
                ("link", (at[1], at[0])),
                trial([random_reads(m, 8, [a], homes=[b])["actors"][0] for a, b in pairs]),
            )
        for chains in (1, 2, 4, 8, 16):
            yield m, None, random_reads(m, chains)
        for pace in (0, 20, 60, 200):
            yield m, None, trial([{**stream_actor(m, "all", "triad", "ordinary", "local"), "pace_ns": pace}])
        yield m, None, trial([{"cpus": "all", "chains": 2, "streams": [{"homes": "uniform"}]}])


def test_hot_spots_are_found_and_quiet_machines_left_alone() -> None:
    right = wrong = missed = quiet = 0
    for m, truth, work in simulated_cases():
        h = header_of(header_line(m, 1e-6))
        detector = Detector(h)
        spots: list[HotSpot] = []
        for line in frame_lines(m, work, 1000.0, 5):  # what stands after five ticks: five seconds at 1 Hz
            spots = detector.add(frame_of(line, h))
        links = h.components["link"]

        def is_it(s: HotSpot, truth: tuple[str, Any], links: Any = links) -> bool:
            if truth[0] == "link":
                ends = [(links[i]["from_router"], links[i]["to_router"]) for i in s.components]
                return s.component_class == "link" and truth[1] in ends
            return s.component_class == truth[0] and (s.node == truth[1] or truth == ("cpu", s.components[0]))

        found = [s for s in spots if truth is not None and is_it(s, truth)]
        right += bool(found)
        missed += truth is not None and not found
        wrong += len(spots) - len(found)
        quiet += truth is None
    assert right + missed == 64 and quiet == 40
    assert right / (right + wrong) >= 0.95  # precision
    assert right / (right + missed) >= 0.95  # recall


def test_a_hot_spot_says_what_goes_with_it_and_what_helps() -> None:
    m = find_machine("gs1280-16")
    h = header_of(header_line(m, 1e-6))
    detector = Detector(h)
    for line in frame_lines(m, random_reads(m, 16, homes=[5]), 1000.0, 5):
        spots = detector.add(frame_of(line, h))
    (spot,) = spots
    assert spot.names == ("memory 5.0", "memory 5.1") and spot.node == 5
    assert spot.since_s == pytest.approx(1e-6)
    assert spot.share > 0.95
    assert all("5" in name.split(" to ") for name in spot.evidence["link"])
    assert "memory bound" in str(spot) and "interleave" in str(spot)


def test_what_is_not_known_or_lasts_a_moment_is_no_hot_spot() -> None:
    assert hot_now([None, None], 0.3) == set()
    assert hot_now([], 0.3) == set()
    assert hot_now([0.9, 0.9, 0.9, 0.9], 0.3) == set()  # all are full: busy, but no spot
    assert hot_now([0.9, 0.1, 0.1, None], 0.3) == {0}
    assert hot_now([0.9], 0.3) == {0} and hot_now([0.9, 0.8], 0.3) == set() and hot_now([0.95, 0.1], 0.3) == {0}
    detector = Detector(header(8))
    for n in range(1, 9):
        busy = 1.0 if n in {2, 3, 6} else 0.1
        assert detector.add(frame(n, busy, *[0.1] * 7)) == []
    for n in range(9, 13):
        spots = detector.add(frame(n, 1.0, *[0.1] * 7))
    assert [s.component_class for s in spots] == ["cpu"]


def test_the_processes_behind_a_hot_spot_are_named() -> None:
    nodes = ({"name": "node 0"}, {"name": "node 1"}, {"name": "node 2"})
    memories = tuple({"name": f"memory {n}", "node": n} for n in range(3))
    cpus = tuple({"name": f"CPU {4 * n}", "number": 4 * n, "node": n} for n in range(3))
    h = Header("host", "t", "", 1.0, {"node": nodes, "memory": memories, "cpu": cpus},
               (Metric("memory.busy", "1", "x", "y"), Metric("cpu.busy", "1", "x", "y")))  # fmt: skip
    busy = [{"pid": 1, "name": "small", "cpu": 1.0, "on": 0, "nodes": [9e9, 1e6, 0]},
            {"pid": 2, "name": "big", "cpu": 0.9, "on": 4, "nodes": [0, 8e9, 0]},
            {"pid": 3, "name": "idle", "cpu": 0.0, "on": 4, "nodes": [0, 9e9, 0]}]  # fmt: skip
    detector = Detector(h)
    for n in range(1, 7):
        spots = detector.add(Frame(n, n, 1.0, {"memory.busy": [0.1, 0.9, 0.1], "cpu.busy": [0.1, 0.2, 0.1]},
                                   processes=busy))  # fmt: skip
    assert [s.component_class for s in spots] == ["memory"]
    assert spots[0].culprits == ("big (2)", "small (1)")
    detector = Detector(h)
    for n in range(1, 7):
        spots = detector.add(Frame(n, n, 1.0, {"cpu.busy": [0.0, 0.95, 0.0]}, processes=busy))
    assert spots[0].culprits == ("big (2)",) and "by big (2)" in str(spots[0])


def test_a_busy_process_is_named_by_the_sampler() -> None:
    name = "mesh) mark 1 (x"  # a name that would break a careless reader
    line = f"import ctypes\nctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", line])
    try:
        with Live(2, 5, sources=("processes", "cpu")) as live:
            seen = [p for f in live.frames() for p in f.processes if p["pid"] == busy.pid]
    finally:
        busy.kill()
        busy.wait()
    assert seen
    assert seen[-1]["name"] == name[:15] and seen[-1]["cpu"] > 0.4 and seen[-1]["threads"] == 1
    assert seen[-1]["rss"] > 1e6


# ------------------------------------------------------------------ the command


def run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "meshmark", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_threads_of_a_busy_process_say_where_they_ran_and_waited() -> None:
    """Two threads that are held on one CPU: each has half of it, and waits for the other half."""
    cpu = max(os.sched_getaffinity(0))
    spin = (
        "import os, threading, zlib\n"
        f"os.sched_setaffinity(0, {{{cpu}}})\n"
        "data = bytes(1 << 20)\n"
        "def run():\n"
        "    while True: zlib.crc32(data)\n"  # lets other threads run meanwhile
        "threading.Thread(target=run, daemon=True).start()\n"
        "run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", spin]) as busy:
        try:
            with Live(2.0, 60.0, sources=["processes"]) as live:
                seen = (p for frame in live.frames() for p in frame.processes if p["pid"] == busy.pid)
                # From the second look at both on: a look costs time, so a slow machine has few of them.
                mine = next(p for p in seen if [t["cpu"] is None for t in p.get("busiest", ())] == [False, False])
        finally:
            busy.kill()
    assert mine["allowed"] == str(cpu) and mine["threads"] == 2
    assert all(t["on"] == cpu for t in mine["busiest"])
    assert sum(t["cpu"] for t in mine["busiest"]) == pytest.approx(mine["cpu"], abs=0.15)
    assert sum(t["waiting"] for t in mine["busiest"]) > 0.4


def test_pages_that_the_kernel_moves_are_counted_or_absent(tmp_path: Path) -> None:
    vmstat = tmp_path / "proc" / "vmstat"
    vmstat.parent.mkdir()
    vmstat.write_text("pgmigrate_success 10\n")
    with Live(2.0, 2.4, root=tmp_path, sources=["pages"]) as live:
        found = []
        for frame in live.frames():
            found.append(frame.values["host.pages_moved"][0])
            vmstat.write_text(f"pgmigrate_success {10 + 500 * len(found)}\n")  # at two ticks a second
    assert [m.name for m in live.header.metrics] == ["host.pages_moved"]
    assert "numa_hint_faults" in live.header.why_unknown("host.hint_faults")
    assert max(f for f in found if f is not None) == pytest.approx(1000, rel=0.5)


def test_live_recorded_and_simulated_frames_have_one_form(tmp_path: Path) -> None:
    out = tmp_path / "m.parquet"
    words = ("--on", "gs1280-8", "--workload", "hot_spot", "--frames", "6")
    told = [json.loads(x) for x in run("watch", *words, "--json").stdout.splitlines()]
    assert run("record", *words, "--out", str(out)).returncode == 0
    again = [json.loads(x) for x in run("replay", str(out), "--json").stdout.splitlines()]
    host = [json.loads(x) for x in run("watch", "--rate", "20", "--duration", "0.2", "--json").stdout.splitlines()]
    assert len(told) == len(again) == 7 and len(host) == 5
    for lines in (told, again, host):
        h = header_of(lines[0])
        assert set(lines[1]) == {"type", "seq", "t_s", "window_s", "at", "late_s", "cost_s", "dropped", "values"}
        for line in lines[1:]:
            for name, values in frame_of(line, h).values.items():
                assert len(values) == h.count(name.partition(".")[0])
    busy = told[-1]["values"][USE["memory"]]
    assert busy[0] > 0.5 > max(busy[2:])


def test_a_cut_recording_is_replayed_in_the_terminal(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.parquet", header())
    for n in range(1, 25):
        recorder.add(frame(n, 0.1, None, 0.55, 1.0))
    done = run("replay", str(tmp_path / "r.parquet.part"))
    assert done.returncode == 0, done.stderr
    assert "55" in done.stdout and UNKNOWN in done.stdout and "100 %" in done.stdout


@pytest.mark.parametrize(("words", "said"), [
    (["watch", "--from", "50", "--to", "10"], "--from"), (["watch", "--palette", "grey"], "--palette"),
    (["watch", "--on", "nothing"], "nothing"), (["watch", "--on", "gs1280-8", "--workload", "moon"], "moon"),
    (["replay", "/proc/nowhere.parquet"], "nowhere"),
    (["watch", "--web", "--host", "0.0.0.0", "--no-token", "--on", "gs1280-4"], "--no-token"),
])  # fmt: skip
def test_wrong_words_of_the_command_are_one_line(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode in {1, 2}
    assert said in done.stderr and "Traceback" not in done.stderr


# ------------------------------------------------------------------ the server


def packed_header(page: Path) -> dict[str, Any]:
    """The header that a page in one file has."""
    data = re.search(r'id="data">([^<]+)<', page.read_text())
    assert data
    raw = gzip.decompress(base64.b64decode(data[1]))
    (words,) = struct.unpack_from("<I", raw)
    return json.loads(raw[4 : 4 + words])["header"]  # type: ignore[no-any-return]


VIEWS: list[tuple[list[str], dict[str, Any] | None]] = [
    (["--from", "1", "--to", "10", "--palette", "cividis"], {"low": 1.0, "high": 10.0, "palette": "cividis"}),
    (["--to", "50"], {"low": 0.0, "high": 50.0}),
    (["--palette", "inferno"], {"palette": "inferno"}),  # the default, but asked for: not what the reader had last
    ([], None),
]


@pytest.mark.parametrize(("words", "view"), VIEWS)
def test_the_colours_that_were_asked_for_go_into_the_page(
    words: list[str], view: dict[str, Any] | None, tmp_path: Path
) -> None:
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "r"), "--html", str(tmp_path / "r.html"), *words])
    assert done.exit_code == 0, done.stderr
    assert packed_header(tmp_path / "r.html").get("view") == view


@pytest.mark.parametrize("what", ["live", "simulated", "recorded"])
def test_the_colours_that_were_asked_for_are_served(what: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", header()) as recorder:
        recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    words = {"live": ["watch"], "simulated": ["watch", "--on", "gs1280-4", "--frames", "5"],
             "recorded": ["replay", str(tmp_path / "r")]}[what]  # fmt: skip
    line = [sys.executable, "-m", "meshmark", *words, "--web", "--port", "0", "--no-token",
            *VIEWS[0][0]]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().strip()
            until = time.monotonic() + 10
            while True:
                try:
                    with urllib.request.urlopen(address + "api/header", timeout=10) as answer:
                        assert json.loads(answer.read())["view"] == VIEWS[0][1]
                    break
                except urllib.error.URLError:
                    assert time.monotonic() < until
                    time.sleep(0.05)
        finally:
            child.kill()


@pytest.mark.parametrize("words", [["--from", "1"], ["--to", "10"], ["--palette", "cividis"]])
def test_a_change_has_colours_of_its_own(words: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Recorder(tmp_path / name, header()) as recorder:
            recorder.add(frame(1, 0.1, 0.2, 0.3, 0.4))
    line = ["replay", str(tmp_path / "a"), "--against", str(tmp_path / "b"), "--html", str(tmp_path / "page.html")]
    wrong = CliRunner().invoke(app, [*line, *words])
    assert isinstance(wrong.exception, UsageError) and str(wrong.exception).startswith(f"{words[0]}: found with --ag")
    assert not (tmp_path / "page.html").exists()


class Served:
    """A server in a thread, on a free port."""

    def __init__(self, what: Hub | Past, token: str = "") -> None:
        self.ready = threading.Event()
        self.address = ""

        def say(address: str) -> None:
            self.address = address
            self.ready.set()

        self.thread = threading.Thread(target=serve, args=(what, "127.0.0.1", 0, token, say), daemon=True)
        self.thread.start()
        assert self.ready.wait(10)
        time.sleep(0.3)

    def get(self, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        base = self.address.partition("?")[0]
        request = urllib.request.Request(base + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as wrong:
            return wrong.code, wrong.read(), dict(wrong.headers)


def past(count: int = 20) -> Past:
    frames = [frame(n, 0.1, None, 0.55, 1.0) for n in range(1, count + 1)]
    return Past(header(), count, lambda begin, n: frames[begin : begin + n])


def test_the_page_its_header_and_frames_are_served() -> None:
    served = Served(past())
    status, page, headers = served.get("")
    assert status == 200 and b"main.js" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    told = json.loads(served.get("api/header")[1])
    assert told["live"] is False and told["frames"] == 20 and len(told["map"]["boxes"]) == 4
    found = json.loads(served.get("api/past?begin=18&count=50")[1])
    assert [f["seq"] for f in found] == [19, 20]
    assert served.get("api/past?begin=x")[0] == 400
    assert served.get("api/past?begin=-5&count=99999")[0] == 200
    assert served.get("api/frames")[0] == 404


@pytest.mark.parametrize(
    "path", ["../server.py", "%2e%2e/server.py", "..%2f..%2fcli.py", "//etc/passwd", "api/../../hub.py"]
)
def test_no_path_leads_out_of_the_page(path: str) -> None:
    status, text, _ = Served(past()).get(path)
    assert status in {400, 404, 405}
    assert b"import" not in text and b"root:" not in text


def test_only_the_right_host_and_token_are_let_in() -> None:
    assert Served(past()).get("api/header", Host="evil.example:80")[0] == 421
    served = Served(past(), token="secret")
    assert served.get("api/header")[0] == 401
    assert served.get("api/header?token=wrong")[0] == 401
    status, _, headers = served.get("api/header?token=secret")
    assert status == 200
    assert served.get("api/header", Cookie=headers["set-cookie"].partition(";")[0])[0] == 200
    with pytest.raises(UsageError, match="--no-token"):
        serve(past(), "0.0.0.0", 0, "", lambda _: None)


def test_live_frames_come_as_events_and_late_readers_get_the_past() -> None:
    go = threading.Event()

    def frames() -> Iterator[Frame]:
        for n in range(1, 4):
            yield frame(n, 0.1, 0.2, 0.3, 0.4)
        go.wait(10)
        yield frame(4, 0.5, 0.2, 0.3, 0.4)

    served = Served(Hub(header(), frames()))
    base = served.address
    with urllib.request.urlopen(base + "api/frames", timeout=10) as answer:
        events = []
        while len(events) < 6:
            text = answer.readline().decode()
            if text.startswith("data: "):
                events.append(json.loads(text[6:]))
            if len(events) == 4:
                go.set()
    assert [e["type"] for e in events[:5]] == ["header", "frame", "frame", "frame", "frame"]
    assert events[4]["values"]["cpu.busy"][0] == 0.5
    assert "ended" in events[5]["why"]


def test_monitoring_systems_get_summaries_and_no_zeros_for_unknown() -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    window = Window(header())
    for n in range(1, 401):  # 40 s: only the last fifteen count
        window.add(frame(n, 0.9 if n <= 200 else 0.1 + 0.002 * (n % 10), None, 0.5, 1.0))
    families = {f.name: f for f in text_string_to_metric_families(openmetrics_text(window).decode())}
    found = {(s.labels["component"], s.labels["stat"]): s.value for s in families["meshmark_cpu_busy_ratio"].samples}
    assert found["CPU 0", "mean"] == pytest.approx(0.109, abs=0.001)
    assert found["CPU 0", "max"] == pytest.approx(0.118) and found["CPU 0", "p95"] == pytest.approx(0.118)
    assert not [k for k in found if k[0] == "CPU 1"]
    assert families["meshmark_cpu_m0_bytes_per_second"].unit == "bytes_per_second"
    served = Served(Hub(header(), iter([frame(1, 0.1, None, 0.3, 0.4)])))
    status, body, headers = served.get("metrics")
    assert status == 200 and b"# EOF" in body and "openmetrics-text" in headers["content-type"]
    assert Served(past()).get("metrics")[0] == 404


def test_a_reader_that_sleeps_does_not_hold_up_the_stream() -> None:
    done = threading.Event()

    def frames() -> Iterator[Frame]:
        for n in range(1, 3000):
            yield frame(n, 0.1, 0.2, 0.3, 0.4)
        done.set()

    hub = Hub(header(), frames())

    async def sleepy() -> int:
        events = hub.events()
        await anext(events)
        hub.start()
        while not done.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await anext(events)
        return json.loads((await anext(events)).partition("data: ")[2])["seq"]  # type: ignore[no-any-return]

    # In a thread of its own: where the browser's tests ran before, this one has a loop that never ends.
    with ThreadPoolExecutor(1) as elsewhere:
        last = elsewhere.submit(lambda: asyncio.run(asyncio.wait_for(sleepy(), 30))).result()
    assert last > 2900  # the oldest were dropped, not the newest


def test_a_page_that_is_not_built_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.web.server.STATIC", tmp_path)
    with pytest.raises(MeshmarkError, match="not built"):
        make_app(past())
