"""Compares the observed loads of links with those that the topology and the traffic predict.

The prediction uses the topology in the recording, with shortest paths, and the traffic; it never uses the routing of
the recorded machine. In even traffic (`even.py`), all routers divide packets between equally short paths by the same
rule, which is estimated; in uneven traffic (`uneven.py`), each router may divide them as it likes.

The means of batches of frames give the interval of the observed load of each link. By Bonferroni's inequality, all
intervals together cover with a probability of 1 - FALSE_ALARM if the batches are independent and normally distributed.
Hence at most this share of the recordings of a healthy machine with this traffic shows a deviating link. Differences
below 1 % of the mean load are not reported, because the prediction is no more accurate than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.values.units import counted, percent
from meshmark.watch.difference import RecordingDifference, UseChange
from meshmark.watch.frames import Frame, Header
from meshmark.watch.links.even import TOLERANCE, predict, vertex_volumes
from meshmark.watch.links.network import network_of
from meshmark.watch.links.observed import ObservedUse, observe
from meshmark.watch.links.routes import WrongRoute, route_in_even_traffic, route_in_uneven_traffic
from meshmark.watch.links.traffic import NodeTraffic
from meshmark.watch.links.uneven import closest_loads
from meshmark.watch.links.use import LinkUse, link_use

Floats = NDArray[np.float64]
FALSE_ALARM: Final = 0.01  # bound of the share of healthy recordings in which a link deviates
AGREE, DIFFER, UNDECIDED = "agree", "differ", "undecided"
_NEGLIGIBLE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """The observed and the expected use of a link, as shares of its bandwidth.

    Attributes:
        direction: Its direction in a grid; "" without a grid.
        half_width: Half-width of the simultaneous interval of the observed use; None if there is no interval.
    """

    name: str
    ends: tuple[int, int]
    direction: str
    link_class: str
    observed: float
    expected: float
    half_width: float | None
    differs: bool

    @property
    def difference(self) -> float:
        """Return the observed minus the expected use."""
        return self.observed - self.expected

    def to_json(self) -> dict[str, Any]:
        """Return the link as JSON; shares are rounded to six digits."""
        half = self.half_width
        return {
            "name": self.name,
            "from": self.ends[0],
            "to": self.ends[1],
            "direction": self.direction or None,
            "class": self.link_class,
            "observed": round(self.observed, 6),
            "low": None if half is None else round(self.observed - half, 6),
            "high": None if half is None else round(self.observed + half, 6),
            "expected": round(self.expected, 6),
            "difference": round(self.difference, 6),
            "differs": self.differs,
        }


@dataclass(frozen=True, slots=True)
class ExpectedLoads:
    """The observed loads of all links beside the expected ones.

    Attributes:
        verdict: `agree`, `differ` or `undecided`.
        within: Largest difference that is possible within the intervals, as a share of the mean load.
        links: The links between routers, in the order of the recording.
        route: The wrong route that explains the differences, if there is one.
        index: Index of each of `links` in the recording.
    """

    name: str
    traffic: NodeTraffic
    observed: ObservedUse
    verdict: str
    within: float
    links: tuple[LinkLoad, ...]
    index: tuple[int, ...]
    route: WrongRoute | None
    use: LinkUse

    @property
    def sentence(self) -> str:
        """Return the result as a sentence."""
        count = counted(len(self.links), "link")
        predicted = f"the topology and the traffic {self.traffic.name}"
        if self.verdict == UNDECIDED:
            return (
                f"no verdict: the loads of the {count} change so slowly that this recording is too short to compare"
                f" them with {predicted}"
            )
        if self.verdict == AGREE:
            return f"the loads of all {count} agree with {predicted} within {_percent(self.within)} of the mean load"
        differing = sum(link.differs for link in self.links)
        return (
            f"the {'load' if differing == 1 else 'loads'} of {differing} of {count}"
            f" {'differs' if differing == 1 else 'differ'} from what {predicted} predict"
        )

    @property
    def cause(self) -> str:
        """Return the most likely cause of differences as a sentence; "" if there are none."""
        if self.verdict != DIFFER:
            return ""
        if self.route is None:
            return "no single wrong route explains the differences"
        route = self.route
        usual = " or ".join(_path(p) for p in route.shortest)
        text = (
            f"most likely a wrong route: packets of router {route.path[0]} for router {route.path[-1]} take"
            f" {_path(route.path)} instead of {usual}; this explains {_percent(route.explained)} of the deviation"
        )
        others = ", ".join(_path(p) for p in route.alternatives)
        more = route.others - len(route.alternatives)
        return f"{text}; nearly as likely: {others}{f' and {more} more' if more else ''}" if others else text

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON, of type `expected`."""
        return {
            "type": "expected",
            "format": 1,
            "unit": "1",
            "recording": self.name,
            "traffic": self.traffic.name,
            "even": self.traffic.is_even,
            "frames": self.observed.frames,
            "seconds": round(self.observed.seconds, 9),
            "false_alarm": FALSE_ALARM,
            "verdict": self.verdict,
            "text": self.sentence,
            "cause": self.cause or None,
            "within": None if self.verdict == UNDECIDED else round(self.within, 6),
            "links": [link.to_json() for link in self.links],
            "route": None if self.route is None else self.route.to_json(),
            "use": self.use.to_json(),
        }

    def as_difference(self, header: Header) -> RecordingDifference:
        """Return the comparison in the form in which the map shows the change between two recordings."""
        side = {
            "machine": header.machine,
            "started": header.started,
            "frames": self.observed.frames,
            "seconds": round(self.observed.seconds, 9),
        }
        bus = "the link belongs to a bus, whose load is not predicted"
        changes = [UseChange("link", i, name, why=bus) for i, name in enumerate(header.names("link"))]
        for i, link in zip(self.index, self.links, strict=True):
            half = link.half_width
            low, high = (None, None) if half is None else (link.difference - half, link.difference + half)
            changes[i] = UseChange("link", i, link.name, link.expected, link.observed, low, high)
        expected = {"name": f"expected ({self.traffic.name})", **side}
        return RecordingDifference(expected, {"name": self.name, **side}, {"link": changes})


def compare_with_expected(name: str, header: Header, frames: Iterable[Frame], traffic: NodeTraffic) -> ExpectedLoads:
    """Compare the loads of the links in some frames with those that the topology and the traffic predict.

    Raises:
        MeshmarkError: The machine has no links between routers, a use is unknown, or there are too few frames.
    """
    window = list(frames)
    network = network_of(header)
    observed = observe(header, window)
    use = link_use(header, network, window)
    mean, tested = observed.mean, ~network.is_bus
    half_widths = _half_widths(observed, tested)
    route: WrongRoute | None = None
    if traffic.is_even:
        volumes = vertex_volumes(network, traffic)
        prediction = predict(network, volumes, observed)
        expected = prediction.expected
        differs = tested & (np.abs(mean - expected) > half_widths)
        if observed.is_independent and np.any(differs):
            route = route_in_even_traffic(network, volumes, prediction, observed, half_widths)
    else:
        closest = closest_loads(network, traffic, mean, half_widths)
        expected = closest.use
        differs = closest.beyond > _NEGLIGIBLE
        if observed.is_independent and np.any(differs):
            route = route_in_uneven_traffic(network, traffic, mean, half_widths, closest.beyond)
    index = tuple(int(i) for i in np.flatnonzero(tested))
    is_known = observed.is_independent
    links = tuple(
        LinkLoad(
            network.names[i],
            network.ends[i],
            network.direction_name(i),
            network.classes[i],
            float(mean[i]),
            float(expected[i]),
            float(half_widths[i]) if is_known else None,
            bool(differs[i]) and is_known,
        )
        for i in index
    )
    verdict = UNDECIDED if not is_known else DIFFER if np.any(differs) else AGREE
    within = float(np.max(np.abs(mean - expected)[tested] + half_widths[tested])) / max(_mean(mean, tested), 1e-12)
    return ExpectedLoads(name, traffic, observed, verdict, within, links, index, route, use)


def _half_widths(observed: ObservedUse, tested: NDArray[np.bool_]) -> Floats:
    """Return half-widths of intervals that together cover with probability 1 - FALSE_ALARM, shape (links,)."""
    from scipy import stats

    quantile = stats.t.ppf(
        1 - FALSE_ALARM / (2 * max(1, int(np.count_nonzero(tested)))), observed.effective_batches - 1
    )
    return np.asarray(quantile * observed.error + TOLERANCE * _mean(observed.mean, tested))


def _mean(mean: Floats, tested: NDArray[np.bool_]) -> float:
    return float(mean[tested].mean()) if np.any(tested) else 0.0


def _percent(share: float) -> str:
    return percent(share).replace("\u00a0", " ")


def _path(path: tuple[int, ...]) -> str:
    return " → ".join(map(str, path))
