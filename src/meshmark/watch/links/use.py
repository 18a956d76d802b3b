"""Summarises the use of links by direction and by class over a window of a recording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame, Header
from meshmark.watch.links.network import DIRECTIONS, LinkNetwork

Floats = NDArray[np.float64]
NO_DIRECTION: Final = "the links of this machine have no direction: it is not a grid, or its recording does not say so"


@dataclass(frozen=True, slots=True)
class LinkGroupUse:
    """The use of a group of links, as shares of their bandwidth.

    Attributes:
        kind: `direction` or `class`.
        links: Number of links whose use is known.
        mean: Mean over the links and the window.
        busiest: Highest mean of a link over the window.
        peak: Highest mean over the links in one frame.
    """

    kind: str
    name: str
    links: int
    mean: float
    busiest: float
    busiest_link: str
    peak: float

    def to_json(self) -> dict[str, Any]:
        """Return the group as JSON; shares are rounded to six digits."""
        return {
            "by": self.kind,
            "name": self.name,
            "links": self.links,
            "mean": round(self.mean, 6),
            "peak": round(self.peak, 6),
            "busiest": round(self.busiest, 6),
            "busiest_link": self.busiest_link,
        }


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The use of all links over a window.

    Attributes:
        absent: Why a statistic is missing, by its name.
    """

    frames: int
    seconds: float
    groups: tuple[LinkGroupUse, ...]
    absent: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON, of type `links`."""
        return {
            "type": "links",
            "format": 1,
            "unit": "1",
            "frames": self.frames,
            "seconds": round(self.seconds, 9),
            "groups": [g.to_json() for g in self.groups],
            "absent": self.absent,
        }


def link_use(header: Header, network: LinkNetwork, frames: Iterable[Frame]) -> LinkUse:
    """Return the use of the links by direction and by class, weighted by the length of the frames.

    Raises:
        MeshmarkError: The use of no link is known.
    """
    metric = header.use["link"]
    rows, lengths = [], []
    for frame in frames:
        values = frame.values.get(metric, ())
        if len(values) == len(network.ends):
            rows.append([np.nan if v is None else v for v in values])
            lengths.append(frame.window_s)
    use = np.array(rows, dtype=np.float64)
    if not rows or not np.any(np.isfinite(use)):
        raise MeshmarkError(f"links: the use of the links is unknown: {header.why_unknown(metric)}")
    weights = np.array(lengths) if sum(lengths) > 0 else np.ones(len(lengths))
    groups = [
        _group(kind, name, members, network, use, weights)
        for kind, named in (("direction", _directions(network)), ("class", _classes(network)))
        for name, members in named.items()
        if np.any(np.isfinite(use[:, members]))
    ]
    absent = {} if any(network.directions) else {"direction": NO_DIRECTION}
    return LinkUse(len(rows), float(sum(lengths)), tuple(groups), absent)


def _group(
    kind: str, name: str, members: Sequence[int], network: LinkNetwork, use: Floats, weights: Floats
) -> LinkGroupUse:
    chosen = use[:, list(members)]
    known = np.isfinite(chosen)
    sums = weights @ np.where(known, chosen, 0.0)
    lengths = weights @ known
    means = np.where(lengths > 0, sums / np.maximum(lengths, 1e-300), -1.0)
    counts = known.sum(axis=1)
    by_frame = np.where(known, chosen, 0.0).sum(axis=1)[counts > 0] / counts[counts > 0]
    top = int(np.argmax(means))
    return LinkGroupUse(
        kind,
        name,
        int(np.count_nonzero(lengths > 0)),
        float(sums.sum() / lengths.sum()),
        float(means[top]),
        network.names[members[top]],
        float(by_frame.max()),
    )


def _directions(network: LinkNetwork) -> dict[str, list[int]]:
    """Return the links of each direction; both directions of a dimension precede each of them."""
    named: dict[str, list[int]] = {}
    known = sorted({d for d in network.directions if d is not None}, key=lambda d: (d[0], -d[1]))
    for dimension in sorted({d[0] for d in known}):
        both = [i for i, d in enumerate(network.directions) if d is not None and d[0] == dimension]
        named["-".join(_pair(network, both))] = both
        for sign in (1, -1):
            members = [i for i in both if network.directions[i] == (dimension, sign)]
            if members:
                named[network.direction_name(members[0])] = members
    return named


def _pair(network: LinkNetwork, links: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the two directions of a dimension, such as east and west or north and south."""
    names = {network.direction_name(i) for i in links}
    pair = next((p for p in DIRECTIONS if names <= set(p)), None)
    if pair is None:
        return (next(iter(sorted(names))).rpartition(" ")[0],)
    return pair if pair[0] == "east" else pair[::-1] if pair[0] == "south" else pair


def _classes(network: LinkNetwork) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for link, name in enumerate(network.classes):
        if not network.is_bus[link]:
            named.setdefault(name, []).append(link)
    return named
