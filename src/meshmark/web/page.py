"""Writes the live map as one HTML file with script, style and a recording, which opens without a server or network.

Numbers are packed for web/src/packed.ts: thousandths in 16 bits (0: unknown), component by component, as differences
between ticks, first all low bytes and then all high bytes. JSON with the rest of the frames precedes them. The data are
compressed by gzip and encoded in base64. Only the metrics that the map shows, and their bounds, are included.
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
from meshmark.native import remedy
from meshmark.store.files import utf8, write_file
from meshmark.views.render import render
from meshmark.watch.difference import RecordingDifference
from meshmark.watch.findings.findings import Findings
from meshmark.watch.frames import Frame, Header
from meshmark.watch.rates import STALLS
from meshmark.web.hub import Load, page_header

STATIC: Final = Path(__file__).parent / "static"
MAX_FRAMES: Final = 36_000  # as many as the page keeps from a live machine
MAX_NUMBERS: Final = 8_000_000  # in all frames: 64 MB in the browser
POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_MARKS: Final = {
    "title": "<title>Meshmark</title>",
    "style": '<link rel="stylesheet" href="main.css" />',
    "script": '<script type="module" src="main.js"></script>',
    "end": "</body>",
}


def thinned_by(frames: int, numbers: int) -> int:
    """Return the number of frames to average into one frame so that a recording fits in a page.

    Args:
        frames: Number of frames.
        numbers: Number of values per frame.
    """
    max_frames = min(MAX_FRAMES, max(600, MAX_NUMBERS // max(1, numbers)))
    return max(1, math.ceil(frames / max_frames))


def means(frames: Iterable[Frame], by: int) -> Iterator[Frame]:
    """Average each `by` frames into one: means of known values, weighted by window; the rest is from the last frame."""
    stream = iter(frames)
    while group := list(islice(stream, by)):
        last_frame = group[-1]
        weights = np.array([f.window_s or 1e-12 for f in group])  # frames without a window keep a small weight
        values: dict[str, list[float | None]] = {}
        for name, row in last_frame.values.items():
            rows = [f.values.get(name, []) for f in group]
            table = np.array([r if len(r) == len(row) else [None] * len(row) for r in rows], dtype=np.float64)
            weight = np.where(np.isfinite(table), weights[:, None], 0.0)
            known_weight = weight.sum(axis=0)
            total = (np.where(np.isfinite(table), table, 0.0) * weight).sum(axis=0)
            values[name] = [s / k if k else None for s, k in zip(total.tolist(), known_weight.tolist(), strict=True)]
        yield replace(
            last_frame,
            window_s=sum(f.window_s for f in group),
            values=values,
            cost_s=sum(f.cost_s for f in group),
            dropped=sum(f.dropped for f in group),
        )


def thinned(header: Header, count: int, load: Load) -> tuple[Header, int, Load]:
    """Return a recording that fits in a page: unchanged, or averaged, which its header then states.

    Args:
        header: Header of the recording.
        count: Number of frames, as in `StoredFrames`.
        load: Loads frames, as in `StoredFrames`.
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
    """Return the metrics that the page shows, with the number of values per frame of each."""
    candidates = [*(name + end for name in header.use.values() for end in ("", "_low", "_high")), *STALLS]
    names = {m.name for m in header.metrics}
    return {
        n: header.count(n.partition(".")[0]) for n in candidates if n in names and header.count(n.partition(".")[0])
    }


def packed_table(values: NDArray[np.float64]) -> bytes:
    """Return values of shape `(components, ticks)` in the packed format; NaN is unknown."""
    is_known = np.isfinite(values)
    thousandths = np.clip(np.rint(np.where(is_known, values, 0.0) * 1000), 0, 65534)
    codes = np.where(is_known, thousandths + 1, 0).astype(np.uint16)
    steps = np.diff(codes, axis=1, prepend=np.zeros((len(codes), 1), np.uint16)).astype(np.int16)
    # Zigzag encoding, so that small negative steps become small numbers: 0, -1, 1, -2 … are 0, 1, 2, 3 …
    zigzag = ((steps << 1) ^ (steps >> 15)).astype(np.uint16)
    return (zigzag & 0xFF).astype(np.uint8).tobytes() + (zigzag >> 8).astype(np.uint8).tobytes()


def _changes(lists: Iterable[list[Any]]) -> list[tuple[int, list[Any]]]:
    """Return the lists that differ from the list of the previous frame, with the numbers of their frames."""
    changes: list[tuple[int, list[Any]]] = []
    previous: list[Any] = []
    for i, current in enumerate(lists):
        if current != previous:
            changes.append((i, current))
            previous = current
    return changes


def packed_recording(header: Header, frames: Iterable[Frame], count: int) -> bytes:
    """Return the header and frames of a recording in the packed format.

    Args:
        header: Header of the recording.
        count: Number of frames to pack; a growing recording may have more.

    Raises:
        MeshmarkError: There is no frame.
    """
    if count == 0:
        raise MeshmarkError("replay --html: the recording has no frames")
    stream = iter(frames)
    shown_header, frame_count, load = thinned(header, count, lambda _, some: list(islice(stream, some)))
    metrics = shown_metrics(shown_header)
    tables = {n: np.full((c, frame_count), np.nan) for n, c in metrics.items()}
    t_s, window_s, at = [0.0] * frame_count, [0.0] * frame_count, [0.0] * frame_count
    processes: list[list[Any]] = []
    spots: list[list[Any]] = []
    findings = Findings(shown_header)
    places = 5 if header.period_s >= 1e-3 else 12  # a model's time is in nanoseconds
    for b in range(frame_count):
        frame = load(b, 1)[0]
        t_s[b], window_s[b], at[b] = round(frame.t_s, places), round(frame.window_s, places), round(frame.at, 3)
        processes.append(frame.processes)
        spots.append([s.to_json() for s in findings.add(frame)])
        for name, table in tables.items():
            values = np.array(frame.values.get(name, ()), dtype=np.float64)
            if values.size == len(table):
                table[:, b] = values
    head = page_header(shown_header, live=False, frames=frame_count)
    head["metrics"] = [m for m in head["metrics"] if m["name"] in metrics]
    content = {
        "header": head,
        "t_s": t_s,
        "window_s": window_s,
        "at": at,
        "processes": _changes(processes),
        "spots": _changes(spots),
        "metrics": [{"name": n, "count": c} for n, c in metrics.items()],
    }
    return _packed(content, [packed_table(table) for table in tables.values()])


def packed_difference(header: Header, difference: RecordingDifference) -> bytes:
    """Return the difference of two recordings in the packed format."""
    head = page_header(header, live=False, frames=0, change=difference.to_json())
    empty: list[Any] = []
    content = {"header": head, **dict.fromkeys(("t_s", "window_s", "at", "processes", "spots", "metrics"), empty)}
    return _packed(content, [])


def _packed(content: dict[str, Any], tables: list[bytes]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return gzip.compress(struct.pack("<I", len(text)) + text + b"".join(tables), compresslevel=9, mtime=0)


def one_file(title: str, packed: bytes) -> str:
    """Return the self-contained page.

    Args:
        title: Title of the page until its script runs.
        packed: Result of `packed_recording` or `packed_difference`.

    Raises:
        MeshmarkError: The page has not been built.
    """
    try:
        index, script, style = ((STATIC / n).read_text(encoding="utf-8") for n in ("index.html", "main.js", "main.css"))
    except OSError as error:
        raise MeshmarkError(f"the page is not built: files missing in {STATIC.name}/", remedy()) from error
    marks = sorted((index.find(text), mark) for mark, text in _MARKS.items())
    if marks[0][0] < 0:
        missing_mark = _MARKS[marks[0][1]]
        raise MeshmarkError(f"the page has another version: no {missing_mark} in index.html", remedy())
    # Positions in the original index, because inserted text may contain the marks.
    begins = [0, *(at + len(_MARKS[mark]) for at, mark in marks)]
    before, *after = (index[a:b] for a, b in zip(begins, [*(at for at, _ in marks), len(index)], strict=True))
    page = render(
        "site/one_file.html",
        before=before,
        parts=[{"mark": mark, "after": text} for (_, mark), text in zip(marks, after, strict=True)],
        title=title,
        policy=POLICY,
        style=style,
        script=script,
        data=base64.b64encode(packed).decode(),
    )
    return str(page)


def check_out(out: Path) -> None:
    """Check early that the output file does not exist.

    Raises:
        MeshmarkError: The file exists.
    """
    if out.exists():
        raise MeshmarkError(f"{out}: the file exists", "use another name with --html")


def write_page(out: Path, title: str, packed: bytes) -> int:
    """Write the page atomically, and return its size in bytes.

    Raises:
        MeshmarkError: The file exists or cannot be written, or the page has not been built.
    """
    check_out(out)
    data = utf8(one_file(title, packed))
    write_file(out, data)
    return len(data)
