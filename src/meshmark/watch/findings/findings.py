"""Collects what frames show about a machine: oversubscribed CPUs, saturated memory and hot spots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshmark.watch.findings.hotspots import Detector, HotSpot, SaturatedMemory
from meshmark.watch.findings.oversubscription import OversubscribedCpus, Oversubscription
from meshmark.watch.frames import Frame, Header

Finding = OversubscribedCpus | SaturatedMemory | HotSpot


class Findings:
    """Collects the findings from a stream of frames."""

    def __init__(self, header: Header) -> None:
        self._oversubscription = Oversubscription(header)
        self._detector = Detector(header)

    def add(self, frame: Frame) -> list[Finding]:
        """Add a frame and return the findings from the frames so far, the most important first."""
        crowd = self._oversubscription.add(frame)
        spots = self._detector.add(frame)
        saturated = self._detector.saturated
        return [*([crowd] if crowd else []), *([saturated] if saturated else []), *spots]


def frame_json(frame: Frame, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return a frame as JSON, with its findings as `spots` if there are any."""
    return frame.to_json() | ({"spots": [finding.to_json() for finding in findings]} if findings else {})
