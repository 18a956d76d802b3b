"""Creates hot spots on this machine for the detector to find: part `hotspots` of bench/watch.py."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from results import add_row

from meshmark.watch.findings.hotspots import Detector, HotSpot
from meshmark.watch.findings.periods import RELEASE
from meshmark.watch.live import LiveSampler

ROOT: Final = Path(__file__).resolve().parent.parent
CPUS: Final = sorted(os.sched_getaffinity(0))


def cpu_of(words: list[str]) -> float:
    """Return the CPU time of a command and its children, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass
class Case:
    """A period with an injected hot spot, or with none."""

    kind: str  # cpu, io; quiet, even
    cpu: int = -1
    begin: float = 0.0
    end: float = 0.0
    used_share: float = 0.0  # share of one CPU, or of the time of the disk, that was really used


@dataclass(frozen=True)
class Moment:
    """The hot spots of a frame."""

    at: float
    spots: list[HotSpot]
    busy: float  # mean of all CPUs


class Seen(threading.Thread):
    """Reads frames and keeps the reports of the detector, with the time of this machine."""

    def __init__(self, live: LiveSampler) -> None:
        super().__init__(daemon=True)
        self.live, self.log = live, list[Moment]()

    def run(self) -> None:
        """Record the hot spots of every frame until the sampler ends."""
        detector = Detector(self.live.header)
        for f in self.live.frames():
            busy = [v for v in f.values["cpu.busy"] if v is not None]
            self.log.append(Moment(time.monotonic(), detector.add(f), statistics.fmean(busy) if busy else 0.0))


def disk_here(folder: str) -> str | None:
    """Return the name of the disk of a folder; None if it is not on a disk."""
    number = Path(folder).stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return next(
        (p.name for p in (device.resolve(), *device.resolve().parents) if (Path("/sys/block") / p.name).is_dir()), None
    )


def disk_busy_s(disk: str | None) -> float:
    """Return the time that a disk has had requests since the start, according to the kernel."""
    lines = (x.split() for x in Path("/proc/diskstats").read_text().splitlines())
    return next((int(x[12]) / 1000 for x in lines if x[2] == disk), 0.0)


def hotspots(cases: int, seconds: float, rate: float) -> None:
    """Inject, in turn, a pinned process on a CPU and writes to the disk; run, in turn, nothing and an even load."""
    if shutil.which("stress-ng") is None:
        print("hot spots: stress-ng is needed: apt-get install stress-ng")
        return
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder, LiveSampler(rate) as live:
        disk = disk_here(folder)
        disks = [str(c["name"]) for c in live.header.components.get("io", ())]
        kinds = ["cpu", "io"] if disk in disks else ["cpu"]
        if len(kinds) == 1:
            print(f"hot spots: {folder} is on none of the disks that are watched ({', '.join(disks)}): CPUs alone")
        observed = Seen(live)
        observed.start()
        settle = (RELEASE + 1) / rate  # after this time, nothing from the previous case remains
        plan = [Case(kinds[i % len(kinds)], CPUS[i // len(kinds) % len(CPUS)]) for i in range(cases)]
        plan = [
            c for pair in zip(plan, (Case(("quiet", "even")[i % 2]) for i in range(cases)), strict=True) for c in pair
        ]
        for case in plan:
            time.sleep(settle)
            words = {
                "cpu": ["--cpu", "1", "--taskset", str(case.cpu)],
                # Not pinned: the CPU would limit a writer that is bound to it, and leave a fast disk half idle.
                "io": ["--hdd", "8", "--hdd-opts", "direct,wr-seq", "--hdd-bytes", "256M", "--hdd-write-size", "1M"],
                "even": ["--cpu", str(len(CPUS))],
            }.get(case.kind)
            case.begin = time.monotonic()
            if words is None:
                time.sleep(seconds)
            else:
                wait = [*words, "--temp-path", folder, "--timeout", f"{seconds:g}s", "--quiet"]
                before = disk_busy_s(disk)
                cpu_time_s = cpu_of(["stress-ng", *wait])
                case.used_share = (disk_busy_s(disk) - before if case.kind == "io" else cpu_time_s) / seconds
            case.end = time.monotonic()
        live.stop()
        observed.join(5)
    judge(plan, observed.log, disk, rate)


def judge(plan: Sequence[Case], log: Sequence[Moment], disk: str | None, rate: float) -> None:
    """Print how many injected hot spots were detected, how fast, and how many others were reported."""
    right = wrong_count = 0
    times: dict[str, list[float]] = {"cpu": [], "io": []}
    counts: dict[str, int] = {}
    missed_spots: list[Case] = []
    for case in plan:
        counts[case.kind] = counts.get(case.kind, 0) + 1
        expected = {"cpu": ("cpu", f"CPU {case.cpu}"), "io": ("io", str(disk))}.get(case.kind)
        spots = [(m.at, s) for m in log if case.begin < m.at <= case.end for s in m.spots]
        hits = [
            time_s - case.begin
            for time_s, s in spots
            if expected is not None and (s.component_class, s.names) == (expected[0], (expected[1],))
        ]
        if expected is not None and hits:
            right += 1
            times[case.kind].append(min(hits))
        elif expected is not None:
            missed_spots.append(case)
        others = {(s.component_class, s.names) for _, s in spots if (s.component_class, ", ".join(s.names)) != expected}
        wrong_count += len(others)
        for kind, names in sorted(others):
            location = f" on CPU {case.cpu}" if case.kind == "cpu" else ""
            print(f"  wrong: {kind} {', '.join(names)} during {case.kind}{location}")
    injected_count = counts.get("cpu", 0) + counts.get("io", 0)
    precision, recall = right / max(1, right + wrong_count), right / max(1, injected_count)
    notes = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    for what, share in (("precision", precision), ("recall", recall)):
        add_row(f"hot spots generated with stress-ng: {what}", "", share, limits=(0.95, None), notes=notes)
    print(
        f"hot spots at {rate:g} Hz: {injected_count} injected ({counts.get('cpu', 0)} CPU, {counts.get('io', 0)} I/O), "
        f"{counts.get('quiet', 0)} quiet, {counts.get('even', 0)} with all CPUs alike: "
        f"precision {precision:.2f}, recall {recall:.2f}"
    )
    for kind, values in times.items():
        if values:
            add_row(f"time to find a hot spot, {kind}", "s", values, limits=(None, 5))
            print(f"  time to find {kind}: median {statistics.median(values):.1f} s, worst {max(values):.1f} s")
    quiet = [m.busy for m in log for c in plan if c.kind == "quiet" and c.begin < m.at <= c.end]
    if quiet:
        print(f"  in the quiet cases others kept the CPUs {100 * statistics.fmean(quiet):.0f} % busy")
    for case in missed_spots:
        place = disk if case.kind == "io" else f"CPU {case.cpu}"
        print(f"  missed: {case.kind} on {place}, which was really {100 * case.used_share:.0f} % taken")
