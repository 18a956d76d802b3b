"""Simulated loads with a known verdict: balanced loads, and loads with a hot spot in one node's memory."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.model.frames import busiest, frame_lines, header_line
from meshmark.model.instruments import nodes_and_cpus
from meshmark.model.machine import MachineFile, find_machine
from meshmark.model.patterns import PatternRequest, points_of
from meshmark.model.workloads import random_reads, stream_actor, trial
from meshmark.watch.findings.hotspots import CLASSES, MIN_USE, Detector, HotSpot
from meshmark.watch.findings.periods import ABOVE, RATIO, RELEASE, usual_use
from meshmark.watch.frames import Frame, Header, frame_of, header_of

# The constants of the detector were chosen with these models and seed 1; the other models, and all models with other
# seeds, only check it.
DEVELOPMENT: Final = (
    *("altix3700", "altix4700", "e325", "es45", "es80", "gs1280-16", "gs1280-4", "gs1280-8", "gs320-16"),
    *("cray-x1e", "gs320-32", "gs320-4", "p690", "xeon5400", "xeon5500"),
)
VALIDATION: Final = ("cray-x1", "gs1280-32", "gs1280-64")
DEVELOPMENT_SEED: Final = 1
SECTION: Final = 250  # frames over which a component other than the target must be busier than others to be one
TAIL: Final = 2 * RELEASE  # frames after the end of a hot spot in which it may still be reported
PATTERNS: Final = ("throughput", "random_reads", "exchange", "all_to_all", "halo", "swap")

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpotCase:
    """Loads that follow each other on a simulated machine.

    Attributes:
        name: the load, as in a table.
        parts: each load with the number of its frames.
        window_ns: length of a frame.
        target: the node whose memory is the hot spot; None if the load is balanced.
        begin: number of the first frame with the hot spot, from 1.
        end: number of the last frame with the hot spot.
    """

    machine: MachineFile
    name: str
    parts: tuple[tuple[Run, int], ...]
    window_ns: float = 500.0
    target: int | None = None
    begin: int = 1
    end: int = 0

    def header(self) -> Header:
        """Return the header of the frames."""
        return header_of(header_line(self.machine, self.window_ns * 1e-9))

    def frames(self, header: Header) -> Iterator[Frame]:
        """Yield the frames of all parts, in the order of time."""
        number = 0
        for run, count in self.parts:
            for line in frame_lines(self.machine, run, self.window_ns, count):
                number += 1
                yield frame_of({**line, "seq": number, "t_s": number * self.window_ns * 1e-9}, header)


def balanced_cases(name: str, seed: int, frames: int = 1000, window_ns: float = 500.0) -> Iterator[SpotCase]:
    """Yield balanced loads of a machine: every CPU and every memory has the same work on average."""
    m = find_machine(name)

    def case(load: str, run: Run, number: int) -> SpotCase:
        return SpotCase(m, load, (({**run, "seed": 1000 * seed + number}, frames),), window_ns)

    runs: list[tuple[str, Run]] = []
    for pattern in PATTERNS:
        with contextlib.suppress(MeshmarkError):  # this machine has too few nodes for the pattern
            runs.append((pattern, dict(busiest(m, pattern))))
    for rate in ("0.3", "0.8", "0.8"):
        (point,) = points_of(m, PatternRequest("throughput", rate=rate))
        runs += [(f"throughput at {rate} GB/s", dict(point.run or {}))]
    runs.append(("random reads, 1 chain", random_reads(m, 1)))
    runs.append(("uniform, 2 chains", random_reads(m, 2, homes="uniform")))
    for pace in (0, 60):
        actor = {**stream_actor(m, "all", "triad", "ordinary", "local"), "pace_ns": pace}
        runs.append((f"triad, pace {pace} ns", trial([actor])))
    for number, (load, run) in enumerate(runs):
        yield case(load, run, number)


def injected_cases(
    name: str, seed: int, before: int = SECTION, during: int = 2 * SECTION, window_ns: float = 500.0
) -> Iterator[SpotCase]:
    """Yield loads of a machine with more than one node in which some CPUs read the memory of one node.

    A balanced load precedes and follows the hot spot, except in the cases in which the machine is idle otherwise.
    """
    m = find_machine(name)
    nodes, node_of = nodes_and_cpus(m)
    cpus = len(node_of)
    if nodes < 2:
        return
    rng = Random(zlib.crc32(name.encode()) + seed)
    limit = int(m.number("cpu.outstanding"))

    def readers(target: int, count: int) -> list[int]:
        others = [c for c in range(cpus) if node_of[c] != target]
        return sorted(rng.sample(others, min(len(others), count)))

    def case(load: str, target: int, background: list[Run], spot: list[Run], number: int) -> SpotCase:
        first_seed = 1000 * seed + number
        mixed = {**trial([*background, *spot]), "seed": first_seed}
        if not background:
            return SpotCase(m, load, ((mixed, during),), window_ns, target, 1, during)
        quiet = {**trial(background), "seed": first_seed + 100}
        parts = ((quiet, before), (mixed, during), ({**quiet, "seed": first_seed + 200}, before))
        return SpotCase(m, load, parts, window_ns, target, before + 1, before + during)

    for chains in (limit, max(2, limit // 2)):
        target = rng.randrange(nodes)
        yield case(f"all read one, {chains} chains", target, [], random_reads(m, chains, homes=[target])["actors"], 1)
    target = rng.randrange(nodes)
    half = readers(target, max(2, cpus // 2))
    yield case("half read one", target, [], random_reads(m, limit, half, [target])["actors"], 1)
    for number, rate in ((5, "0.3"), (6, "0.8"), (7, "2")):
        target = rng.randrange(nodes)
        programs = (points_of(m, PatternRequest("throughput", rate=rate))[-1].run or {})["actors"]
        half = readers(target, max(2, cpus // 2))
        spot = random_reads(m, limit, half, [target])["actors"]
        yield case(f"throughput at {rate} GB/s, half read one", target, programs, spot, number)
    for number, chains in ((8, 1), (9, 2)):
        target = rng.randrange(nodes)
        half = readers(target, max(2, cpus // 2))
        background = random_reads(m, chains)["actors"]
        spot = random_reads(m, limit, half, [target])["actors"]
        yield case(f"random reads with {chains} chains, half read one", target, background, spot, number)
    for number, pace in ((10, 40), (11, 100)):
        target = rng.randrange(nodes)
        half = readers(target, max(2, cpus // 2))
        background = [{**stream_actor(m, "all", "read", "ordinary", "local"), "pace_ns": pace}]
        spot = random_reads(m, limit, half, [target])["actors"]
        yield case(f"reads with pace {pace} ns, half read one", target, background, spot, number)


@dataclass(frozen=True, slots=True)
class SpotOutcome:
    """What the detector reported for a case.

    Attributes:
        is_clear: whether the memory of the target was a hot spot by the definition on average over all its frames.
        latency: frames from the begin of the hot spot to its first report; None if it was not reported.
        false: components that were reported and are not busier than others: class and names, with their frames.
        use: mean use of the target's memory during the hot spot; NaN in a balanced load.
    """

    case: SpotCase
    is_clear: bool
    latency: int | None
    false: dict[tuple[str, tuple[str, ...]], int]
    use: float

    @property
    def is_missed(self) -> bool:
        """Return whether a clear hot spot was not reported."""
        return self.is_clear and self.latency is None


def judge(case: SpotCase) -> SpotOutcome:
    """Run the detector over the frames of a case.

    A report of the target's memory, or of the saturated links of the target, is right from the begin of the hot spot to
    `TAIL` frames after its end. Of a balanced load, every report of a memory is false. Any other report is right if the
    components are a hot spot by the definition on average over the section of the frame or the one before.
    """
    header = case.header()
    detector = Detector(header)
    reports: list[tuple[int, HotSpot]] = []
    uses: dict[str, list[list[float | None]]] = {c: [] for c in CLASSES}
    for number, frame in enumerate(case.frames(header), 1):
        reports += [(number, spot) for spot in detector.add(frame)]
        for kind in CLASSES:
            uses[kind].append(frame.values.get(header.use[kind], []))
    busier = {kind: _busier_sections(np.array(uses[kind], dtype=float), MIN_USE[kind]) for kind in CLASSES}
    latency: int | None = None
    false: dict[tuple[str, tuple[str, ...]], int] = {}
    for number, spot in reports:
        if case.target is not None and spot.node == case.target and spot.component_class in {"memory", "link"}:
            if case.begin <= number <= case.end:
                latency = latency or number - case.begin + 1
            if case.begin <= number <= case.end + TAIL:
                continue
        section = (number - 1) // SECTION
        is_memory_of_balanced_load = spot.component_class == "memory" and case.target is None
        sections = busier[spot.component_class][max(0, section - 1) : section + 1]
        if is_memory_of_balanced_load or not all(any(i in s for s in sections) for i in spot.components):
            key = (spot.component_class, spot.names)
            false[key] = false.get(key, 0) + 1
    is_clear, use = _target_use(case, header, np.array(uses["memory"], dtype=float))
    return SpotOutcome(case, is_clear, latency, false, use)


def _busier_sections(use: NDArray[np.float64], min_use: float) -> list[set[int]]:
    """Return the components that are hot by the definition on average, for each section of the frames."""
    sections = []
    for begin in range(0, len(use), SECTION):
        mean = use[begin : begin + SECTION].mean(axis=0)
        usual = usual_use(mean)
        sections.append(set(np.flatnonzero(_is_hot(mean, usual, min_use, slack=0.05))))
    return sections


def _is_hot(mean: NDArray[np.float64], usual: NDArray[np.float64], min_use: float, slack: float) -> NDArray[np.bool_]:
    return (mean >= min_use - slack) & (mean - usual >= ABOVE - slack) & (mean >= (RATIO - 4 * slack) * usual)


def _target_use(case: SpotCase, header: Header, use: NDArray[np.float64]) -> tuple[bool, float]:
    """Return whether the target's memory was hot by the definition on average, and its mean use."""
    if case.target is None:
        return False, math.nan
    nodes = np.array([m["node"] for m in header.components["memory"]])
    mean = use[case.begin - 1 : case.end].mean(axis=0)
    by_node = np.array([mean[nodes == n].mean() for n in np.unique(nodes)])
    place = int(np.searchsorted(np.unique(nodes), case.target))
    hot = _is_hot(by_node, usual_use(by_node), MIN_USE["memory"], slack=0.0)
    return bool(hot[place]), float(by_node[place])
