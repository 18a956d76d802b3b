"""Lists the use of links by direction and class, and the observed beside the expected loads, as tables."""

from __future__ import annotations

from typing import Final

from meshmark.values.units import counted, number, percent
from meshmark.views.tables import TableSection, TextCell, TextTable
from meshmark.watch.links.expected import FALSE_ALARM, UNDECIDED, ExpectedLoads, LinkLoad
from meshmark.watch.links.use import LinkUse

MAX_AGREEING: Final = 8  # links without a significant difference that are listed


def use_section(use: LinkUse) -> TableSection:
    """Return the table of the use of links by direction and by class."""
    rows = [
        [g.kind, g.name, str(g.links), *(f"{100 * v:.1f}" for v in (g.mean, g.peak, g.busiest)), g.busiest_link]
        for g in use.groups
    ]
    head = ["by", "group", "links", "mean (%)", "peak (%)", "busiest (%)", "busiest link"]
    notes = [
        "peak: highest mean over the links of the group in one frame; busiest: highest mean of a link over the window"
    ]
    notes += [f"{name}: absent: {reason}" for name, reason in use.absent.items()]
    title = f"use of the links, {counted(use.frames, 'frame')}"
    return TableSection(title, TextTable(head, rows, numbers=(2, 3, 4, 5)), notes=notes)


def expected_section(loads: ExpectedLoads) -> TableSection:
    """Return the table of the observed and the expected use of links, the largest differences first."""
    ordered = sorted(loads.links, key=lambda link: (not link.differs, -abs(link.difference)))
    differing = sum(link.differs for link in ordered)
    listed = ordered[: differing + MAX_AGREEING]
    rows = [_row(link) for link in listed]
    head = ["link", "direction", "class", "observed (%)", "interval", "expected (%)", "difference (points)", ""]
    notes = []
    if len(listed) < len(ordered):
        rest = max(abs(link.difference) for link in ordered[len(listed) :])
        notes.append(
            f"{counted(len(ordered) - len(listed), 'more link')} differ by at most {number(100 * rest, 2)} points"
        )
    if loads.verdict != UNDECIDED:
        share = percent(FALSE_ALARM)
        notes.append(f"intervals hold for all links together: at most {share} of healthy recordings show a difference")
    title = f"observed and expected use of the links, {counted(loads.observed.frames, 'frame')}"
    return TableSection(title, TextTable(head, rows, numbers=(3, 4, 5, 6)), notes=notes)


def _row(link: LinkLoad) -> list[TextCell | str]:
    half = link.half_width
    interval = "" if half is None else f"{100 * (link.observed - half):.1f} to {100 * (link.observed + half):.1f}"
    return [
        link.name,
        link.direction,
        link.link_class,
        f"{100 * link.observed:.1f}",
        interval,
        f"{100 * link.expected:.1f}",
        f"{100 * link.difference:+.1f}",
        TextCell("differs", "bad") if link.differs else "",
    ]
