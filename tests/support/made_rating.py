"""Records of a rating, which no instrument describes."""

from __future__ import annotations

from meshmark.store.record import Metric, Record


def rated(setting: str, group: str, *samples: float) -> Record:
    """Return the runs of a setting of a rating."""
    return Record.from_samples(
        Metric("figure_of_merit", "MB/s", "higher", "rate"),
        samples,
        source="host",
        machine="made-up",
        instrument="rating",
        conditions={"setting": setting},
        provenance={"group": group, "command": "rate N=1 N=2 -- a.out", "build": "0"},
    )
