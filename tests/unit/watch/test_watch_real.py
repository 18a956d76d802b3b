"""The sampler and the detector under a real load: a CPU that spins, a disk that is written, many waiting processes.

Other programs of this host take part. What they may spoil is tried again, or skipped with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.watch.findings.hotspots import Detector, HotSpot
from meshmark.watch.findings.periods import SHORTEST
from meshmark.watch.frames import Frame
from meshmark.watch.live import LiveSampler

MIB = 1 << 20


@contextlib.contextmanager
def spinning(cpu: int) -> Iterator[int]:
    """Yield the process ID of a process that never leaves a CPU."""
    line = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


# ------------------------------------------------------------------ a CPU


def clear(frames: list[Frame], place: int) -> bool:
    """Return whether one CPU was fully busy and the median CPU was not, judged by use alone, without the detector."""
    for f in frames:
        busy = f.values["cpu.busy"]
        others = [v for i, v in enumerate(busy) if i != place and v is not None]
        if (busy[place] or 0) < 0.95 or (others and statistics.median(others) > 0.4):
            return False
    return True


@pytest.mark.slow
def test_a_spinning_process_is_a_hot_spot_and_named() -> None:
    cpu = max(os.sched_getaffinity(0))
    observations: list[Frame] = []
    first_name: HotSpot | None = None
    with LiveSampler(4, 30) as live:
        place = next(i for i, c in enumerate(live.header.components["cpu"]) if c["number"] == cpu)
        detector = Detector(live.header)
        stream = live.frames()
        detector.add(next(stream))
        with spinning(cpu) as pid:
            for f in stream:
                observations.append(f)
                spots = [s for s in detector.add(f) if s.component_class == "cpu" and s.components == (place,)]
                if len(observations) >= SHORTEST and clear(observations[-SHORTEST:], place):
                    assert spots, f"CPU {cpu} was full for {SHORTEST} frames, and is no hot spot"
                # The process is known after two scans of all processes, which are usually two seconds apart.
                first_name = next((s for s in spots if any(f"({pid})" in c for c in s.culprits)), None)
                if first_name is not None:
                    break
    if first_name is None and not clear(observations[1:], place):
        pytest.skip("the other CPUs were busy too: by the rules none stands out")
    assert first_name is not None
    assert first_name.verdict == "CPU bound" and first_name.names == (f"CPU {cpu}",)
    assert f"({pid})" in first_name.culprits[0], first_name.culprits
    assert str(first_name).startswith(f"CPU bound: CPU {cpu} at ")


# ------------------------------------------------------------------ a disk


def disk_of(path: Path) -> str:
    """Return the name in /sys/block of the whole disk that holds a file; skip the test if no disk does."""
    number = path.stat().st_dev
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        pytest.skip(f"{path}: its file system ({os.major(number)}:{os.minor(number)}) is on no disk of /sys/block")
    folder = link.resolve()
    while not (Path("/sys/block") / folder.name).exists():
        folder = folder.parent
        if folder == Path("/"):
            pytest.skip(f"{link} leads to no disk of /sys/block")
    return folder.name


def direct(file: Path, flags: int) -> int:
    try:
        return os.open(file, flags | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno == errno.EINVAL:
            pytest.skip(f"{file}: this file system has no direct I/O")
        raise


def test_direct_writes_and_reads_are_seen_on_their_disk_byte_for_byte(tmp_path: Path) -> None:
    disk = disk_of(tmp_path)
    blocks = 96
    file = tmp_path / "load"
    block = mmap.mmap(-1, MIB)  # whole pages, as direct I/O needs
    block.write(os.urandom(MIB))
    with LiveSampler(10, 30, sources=("io",)) as live:
        names = [c["name"] for c in live.header.components.get("io", ())]
        if disk not in names:
            pytest.skip(f"{disk}, which holds {tmp_path}, is none of the disks that are watched: {', '.join(names)}")
        place = names.index(disk)
        stream = live.frames()
        frames = [next(stream) for _ in range(3)]
        out = direct(file, os.O_WRONLY | os.O_CREAT)
        for _ in range(blocks):
            assert os.write(out, block) == MIB
        os.close(out)
        back = direct(file, os.O_RDONLY)
        while os.readv(back, [block]):
            pass
        os.close(back)
        end = time.time()
        for f in stream:
            frames.append(f)
            if f.at > end + 0.2:
                break
    bytes_moved = {m: sum((f.values[m][place] or 0) * f.window_s for f in frames) for m in ("io.in", "io.out")}
    # Other programs may use the disk too, so the only upper bound is what a disk of one host can reach.
    assert blocks * MIB <= bytes_moved["io.out"] * 1.001, bytes_moved
    assert blocks * MIB <= bytes_moved["io.in"] * 1.001, bytes_moved
    assert max(f.values["io.busy"][place] or 0 for f in frames) > 0.1
    assert all(0 <= (f.values["io.busy"][place] or 0) <= 1 for f in frames)


# ------------------------------------------------------------------ a full house


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[int]:
    """Start `count` waiting processes and yield their number. They end with the process that started them."""
    line = (
        "import ctypes, os, signal, sys\n"
        "made = 0\n"
        f"for _ in range({count}):\n"
        "    try:\n"
        "        pid = os.fork()\n"
        "    except OSError:\n"
        "        break\n"
        "    if pid == 0:\n"
        "        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL\n"
        "        signal.pause()\n"
        "    made += 1\n"
        "print(made, flush=True)\n"
        "sys.stdin.read()\n"
        "os.killpg(0, signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", line]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
    ) as group:
        try:
            assert group.stdout is not None
            yield int(group.stdout.readline())
        finally:
            os.killpg(group.pid, signal.SIGKILL)


@pytest.mark.slow
def test_looks_at_thousands_of_processes_keep_to_their_budget() -> None:
    process_count, rate, seconds = 2000, 10.0, 12.0
    with sleepers(process_count) as processes:
        if processes < process_count:
            pytest.skip(f"{processes} processes can be made here, {process_count} are needed")
        assert sum(p.name.isdigit() for p in Path("/proc").iterdir()) > process_count
        with LiveSampler(rate, seconds, sources=("cpu", "processes")) as live:
            frames = list(live.frames())
    # A scan of all processes is visible in its cost; the first scan is in the first frame.
    median_s = statistics.median(f.cost_s for f in frames)
    scanned = [f for f in frames if f.cost_s - median_s > 0.25 * max(g.cost_s - median_s for g in frames)]
    assert 1 <= len(scanned) <= seconds / 2, [f.cost_s for f in scanned]
    # A scan uses at most half a per cent of a CPU: one that took 20 ms is followed by a pause of 4 s. Its CPU time is
    # at most its wall time, and the first scan precedes the first window.
    times = [f.t_s if f is not frames[0] else 0.0 for f in scanned]
    for f, start_s, end in zip(scanned, times, times[1:], strict=False):
        assert end - start_s >= 2 - 1.5 / rate
        assert (f.cost_s - median_s) / (end - start_s) < 0.0055, (f.cost_s, median_s, end - start_s)
