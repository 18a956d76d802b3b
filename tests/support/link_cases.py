"""Recordings of modelled machines with and without a wrong route, for tests and for bench/link_loads.py."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from meshmark.model.frames import busiest, frame_lines, header_line
from meshmark.model.machine import find_machine
from meshmark.model.traffic import stated_traffic
from meshmark.watch.frames import Frame, Header, frame_of, header_of
from meshmark.watch.links.expected import ExpectedLoads, compare_with_expected
from meshmark.watch.links.network import LinkNetwork, network_of
from meshmark.watch.links.traffic import NodeTraffic, traffic_of

# Model, workload, outstanding reads of a CPU, and length of a frame in s. The CPUs do not saturate the network, except
# in a hot spot; where loads change slowly, the frames are longer.
CASES = (
    ("gs1280-16", "random_reads", 4, 5e-6),
    ("gs1280-16", "hot_spot", 2, 2e-5),
    ("gs1280-16", "halo", 4, 5e-6),
    ("gs1280-32", "random_reads", 4, 5e-6),
    ("gs1280-32", "hot_spot", 1, 5e-6),
    ("gs1280-32", "exchange", 4, 2e-5),
    ("gs1280-64", "random_reads", 4, 5e-6),
    ("es80", "random_reads", 4, 5e-6),
    ("cray-x1", "random_reads", 32, 5e-6),
    ("cray-x1", "halo", 32, 5e-6),
)
FRAMES = 400
_MIN_SHARE = 0.5  # of the largest volume between two nodes: pairs that can get a wrong route


@dataclass(frozen=True)
class LinkCase:
    """A simulated recording; `path` is the wrong route, or empty."""

    model: str
    workload: str
    outstanding: int
    window_s: float
    seed: int
    path: tuple[int, ...] = ()
    frames: int = FRAMES

    @cached_property
    def header(self) -> Header:
        """Return the header; it does not depend on the wrong route."""
        machine = find_machine(self.model, self.settings(()))
        volumes = stated_traffic(machine, busiest(machine, self.workload), self.workload)
        return header_of(header_line(machine, self.window_s, volumes=volumes))

    def settings(self, path: tuple[int, ...]) -> list[str]:
        """Return the settings of the model with a wrong route."""
        route = [f"router.routes=[{list(path)}]"] if path else []
        return [f"cpu.outstanding={self.outstanding}", *route]

    def recorded(self) -> Iterator[Frame]:
        """Yield the frames."""
        machine = find_machine(self.model, self.settings(self.path))
        run = {**busiest(machine, self.workload), "seed": self.seed}
        for line in frame_lines(machine, run, 1e9 * self.window_s, self.frames):
            yield frame_of(line, self.header)

    def compared(self) -> ExpectedLoads:
        """Return the observed loads beside the expected ones."""
        return compare_with_expected("case", self.header, self.recorded(), traffic_of("workload", self.header))


def healthy_case(number: int, seed: int = 0) -> LinkCase:
    """Return a case without a wrong route; the first numbers have different models and workloads.

    Some workloads are not random, so their load is another one when they are repeated.
    """
    round_number, index = divmod(number, len(CASES))
    model, workload, outstanding, window_s = CASES[index]
    return LinkCase(model, workload, outstanding + round_number + 2 * seed, window_s, 1000 * seed + number + 1)


def planted_case(number: int, seed: int = 0) -> LinkCase:
    """Return a case with a random wrong route between two nodes that send each other much."""
    healthy = healthy_case(number, seed)
    path = wrong_route(network_of(healthy.header), traffic_of("workload", healthy.header), random.Random(healthy.seed))
    return replace(healthy, path=path)


def wrong_route(network: LinkNetwork, traffic: NodeTraffic, rng: random.Random) -> tuple[int, ...]:
    """Return a path that begins with a link on no shortest path, and then takes the shortest way."""
    pairs = np.argwhere(traffic.volumes >= _MIN_SHARE * traffic.volumes.max())
    while True:
        begin, target = (network.vertex_of_node[n] for n in rng.choice(pairs.tolist()))
        distance = network.distances_to(target, without=begin)
        usual = {network.ends[link][1] for link in network.shortest[target][begin]}
        neighbours = {network.ends[link][1] for link in network.outputs[begin]} - usual - {target}
        reachable = sorted(n for n in neighbours if distance[n] < network.vertices)
        if not reachable:
            continue
        path = [begin, rng.choice(reachable)]
        while path[-1] != target:
            ends = {network.ends[link][1] for link in network.outputs[path[-1]]}
            path.append(rng.choice(sorted(e for e in ends if distance[e] < distance[path[-1]])))
        return tuple(path)
