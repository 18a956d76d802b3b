"""The live map as one file: script, style and a recording in a page that opens without a server or a network.

The numbers are packed for web/src/packed.ts: thousandths in 16 bits (0 is not known), one component after the other, as
steps from tick to tick, low bytes first and high bytes after; with what else frames say as JSON before them; gzip, and
base64, since a page is text. Only what the page shows is packed: the metrics that colour the map and their bounds.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.report.render import render
from meshmark.store.files import utf8, write_file
from meshmark.watch.difference import Difference
from meshmark.watch.frames import Frame, Header
from meshmark.watch.hotspots import Detector
from meshmark.web.hub import Load, page_header

STATIC: Final = Path(__file__).parent / "static"
MOST_FRAMES: Final = 36_000  # as many as the page keeps of a live machine
MOST_NUMBERS: Final = 8_000_000  # of all frames: 64 MB in the reader's browser
POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_MARKS: Final = {
    "title": "<title>Meshmark</title>",
    "style": '<link rel="stylesheet" href="main.css" />',
    "script": '<script type="module" src="main.js"></script>',
    "end": "</body>",
}


def thinned_by(frames: int, numbers: int) -> int:
    """How many frames become one, so that a page can hold a recording.

    Args:
        numbers: that each frame has.
    """
    most = min(MOST_FRAMES, max(600, MOST_NUMBERS // max(1, numbers)))
    return max(1, math.ceil(frames / most))


def means(frames: Iterable[Frame], by: int) -> Iterator[Frame]:
    """So many frames as one each: means over their windows of what was known; what else they say is the last one's."""
    waiting = iter(frames)
    while some := list(islice(waiting, by)):
        last = some[-1]
        weights = np.array([f.window_s or 1e-12 for f in some])  # a moment counts as little, and not as unknown
        values: dict[str, list[float | None]] = {}
        for name, now in last.values.items():
            rows = [f.values.get(name, []) for f in some]
            table = np.array([r if len(r) == len(now) else [None] * len(now) for r in rows], dtype=np.float64)
            weight = np.where(np.isfinite(table), weights[:, None], 0.0)
            known = weight.sum(axis=0)
            total = (np.where(np.isfinite(table), table, 0.0) * weight).sum(axis=0)
            values[name] = [s / k if k else None for s, k in zip(total.tolist(), known.tolist(), strict=True)]
        yield replace(
            last,
            window_s=sum(f.window_s for f in some),
            values=values,
            cost_s=sum(f.cost_s for f in some),
            dropped=sum(f.dropped for f in some),
        )


def thinned(header: Header, count: int, load: Load) -> tuple[Header, int, Load]:
    """A recording as a page can hold it: the same, or means, with what a header needs to say so.

    Args:
        count, load: of the recording, as in `Past`.
    """
    by = thinned_by(count, sum(shown_metrics(header).values()))
    if by == 1:
        return header, count, load
    more = {**header.more, "thinned": {"by": by, "frames": count}}
    return (
        replace(header, period_s=header.period_s * by, more=more),
        math.ceil(count / by),
        lambda begin, some: list(means(load(begin * by, some * by), by)),
    )


def shown_metrics(header: Header) -> dict[str, int]:
    """The metrics that the page shows, with how many numbers each has in a frame."""
    wanted = [name + end for name in header.use.values() for end in ("", "_low", "_high")]
    there = {m.name for m in header.metrics}
    return {n: header.count(n.partition(".")[0]) for n in wanted if n in there and header.count(n.partition(".")[0])}


def packed_table(values: NDArray[np.float64]) -> bytes:
    """Numbers of `[component, tick]` as the page unpacks them; NaN is not known."""
    known = np.isfinite(values)
    clipped = np.clip(np.rint(np.where(known, values, 0.0) * 1000), 0, 65534)
    words = np.where(known, clipped + 1, 0).astype(np.uint16)
    steps = np.diff(words, axis=1, prepend=np.zeros((len(words), 1), np.uint16)).astype(np.int16)
    # Small steps down become small numbers too: 0, -1, 1, -2 … are 0, 1, 2, 3 …
    folded = ((steps << 1) ^ (steps >> 15)).astype(np.uint16)
    return (folded & 0xFF).astype(np.uint8).tobytes() + (folded >> 8).astype(np.uint8).tobytes()


def _changes(lists: Iterable[list[Any]]) -> list[tuple[int, list[Any]]]:
    """Of a list a frame, those that differ from the one before, with their number."""
    made: list[tuple[int, list[Any]]] = []
    before: list[Any] = []
    for i, now in enumerate(lists):
        if now != before:
            made.append((i, now))
            before = now
    return made


def packed_recording(header: Header, frames: Iterable[Frame], count: int) -> bytes:
    """The header and frames of a recording, to be unpacked by the page.

    Args:
        count: how many frames there are; what a growing recording gets meanwhile is left out.

    Raises:
        MeshmarkError: there is no frame.
    """
    if count == 0:
        raise MeshmarkError("replay --html: the recording has no frame")
    begun = iter(frames)
    of, bins, load = thinned(header, count, lambda _, some: list(islice(begun, some)))
    metrics = shown_metrics(of)
    tables = {n: np.full((c, bins), np.nan) for n, c in metrics.items()}
    t_s, window_s, at = [0.0] * bins, [0.0] * bins, [0.0] * bins
    processes: list[list[Any]] = []
    spots: list[list[Any]] = []
    detector = Detector(of)
    places = 5 if header.period_s >= 1e-3 else 12  # a model's time is in nanoseconds
    for b in range(bins):
        frame = load(b, 1)[0]
        t_s[b], window_s[b], at[b] = round(frame.t_s, places), round(frame.window_s, places), round(frame.at, 3)
        processes.append(frame.processes)
        spots.append([s.to_json() for s in detector.add(frame)])
        for name, table in tables.items():
            values = np.array(frame.values.get(name, ()), dtype=np.float64)
            if values.size == len(table):
                table[:, b] = values
    head = page_header(of, live=False, frames=bins)
    head["metrics"] = [m for m in head["metrics"] if m["name"] in metrics]
    said = {
        "header": head,
        "t_s": t_s,
        "window_s": window_s,
        "at": at,
        "processes": _changes(processes),
        "spots": _changes(spots),
        "metrics": [{"name": n, "count": c} for n, c in metrics.items()],
    }
    return _packed(said, [packed_table(table) for table in tables.values()])


def packed_difference(header: Header, difference: Difference) -> bytes:
    """Two recordings compared, to be unpacked by the page."""
    head = page_header(header, live=False, frames=0, change=difference.to_json())
    empty: list[Any] = []
    said = {"header": head, **dict.fromkeys(("t_s", "window_s", "at", "processes", "spots", "metrics"), empty)}
    return _packed(said, [])


def _packed(said: dict[str, Any], tables: list[bytes]) -> bytes:
    words = json.dumps(said, separators=(",", ":")).encode()
    return gzip.compress(struct.pack("<I", len(words)) + words + b"".join(tables), compresslevel=9, mtime=0)


def one_file(title: str, packed: bytes) -> str:
    """The page with all that it needs.

    Args:
        title: of the page before its script has run.
        packed: by `packed_recording` or `packed_difference`.

    Raises:
        MeshmarkError: the page is not built.
    """
    try:
        index, script, style = ((STATIC / n).read_text(encoding="utf-8") for n in ("index.html", "main.js", "main.css"))
    except OSError as why:
        raise MeshmarkError(f"the page is not built: {STATIC.name}/ lacks it", "make setup builds it") from why
    found = sorted((index.find(text), mark) for mark, text in _MARKS.items())
    if found[0][0] < 0:
        lacking = _MARKS[found[0][1]]
        raise MeshmarkError(f"the page was built otherwise: index.html lacks {lacking}", "make setup builds it")
    # From the index alone: what is put in is not searched again.
    begins = [0, *(at + len(_MARKS[mark]) for at, mark in found)]
    before, *after = (index[a:b] for a, b in zip(begins, [*(at for at, _ in found), len(index)], strict=True))
    page = render(
        "site/one_file.html",
        before=before,
        parts=[{"mark": mark, "after": text} for (_, mark), text in zip(found, after, strict=True)],
        title=title,
        policy=POLICY,
        style=style,
        script=script,
        data=base64.b64encode(packed).decode(),
    )
    return str(page)


def check_out(out: Path) -> None:
    """Refuses a file that is there already, before the work is done.

    Raises:
        MeshmarkError: it is.
    """
    if out.exists():
        raise MeshmarkError(f"{out}: is there already", "name another with --html")


def write_page(out: Path, title: str, packed: bytes) -> int:
    """Writes the page, whole or not at all; its size in bytes.

    Raises:
        MeshmarkError: the file is there already or cannot be written, or the page is not built.
    """
    check_out(out)
    data = utf8(one_file(title, packed))
    write_file(out, data)
    return len(data)
