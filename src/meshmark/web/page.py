"""Writes the live map as one HTML file with script, style and a recording, which opens without a server or network.

Numbers are packed for web/src/packed.ts: thousandths in 16 bits (0: unknown), component by component, as differences
between ticks, first all low bytes and then all high bytes. JSON with the rest of the frames precedes them. The data are
compressed by gzip and encoded in base64. Only the metrics that colour the map, and their bounds, are included.
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
from meshmark.watch.findings import Findings
from meshmark.watch.frames import Frame, Header
from meshmark.web.hub import Load, page_header

STATIC: Final = Path(__file__).parent / "static"
MAX_FRAMES: Final = 36_000  # as many as the page keeps of a live machine
MAX_NUMBERS: Final = 8_000_000  # in all frames: 64 MB in the browser
POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_MARKS: Final = {
    "title": "<title>Meshmark</title>",
    "style": '<link rel="stylesheet" href="main.css" />',
    "script": '<script type="module" src="main.js"></script>',
    "end": "</body>",
}


def thinned_by(frames: int, numbers: int) -> int:
    """The number of frames to average into one, so that a recording fits in a page.

    Args:
        frames: Number of frames.
        numbers: Number of values per frame.
    """
    max_frames = min(MAX_FRAMES, max(600, MAX_NUMBERS // max(1, numbers)))
    return max(1, math.ceil(frames / max_frames))


def means(frames: Iterable[Frame], by: int) -> Iterator[Frame]:
    """Average each `by` frames into one: means of known values, weighted by window; the rest from the last."""
    waiting = iter(frames)
    while some := list(islice(waiting, by)):
        last = some[-1]
        weights = np.array([f.window_s or 1e-12 for f in some])  # frames without a window keep a small weight
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
    """A recording that fits in a page: unchanged, or averaged, which its header then states.

    Args:
        header: Header of the recording.
        count: Number of frames, as in `Past`.
        load: Loads frames, as in `Past`.
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
    """The metrics that the page shows, with their numbers of values per frame."""
    wanted = [name + end for name in header.use.values() for end in ("", "_low", "_high")]
    present = {m.name for m in header.metrics}
    return {n: header.count(n.partition(".")[0]) for n in wanted if n in present and header.count(n.partition(".")[0])}


def packed_table(values: NDArray[np.float64]) -> bytes:
    """Values of shape `(components, ticks)` in the packed format; NaN is unknown."""
    known = np.isfinite(values)
    clipped = np.clip(np.rint(np.where(known, values, 0.0) * 1000), 0, 65534)
    codes = np.where(known, clipped + 1, 0).astype(np.uint16)
    steps = np.diff(codes, axis=1, prepend=np.zeros((len(codes), 1), np.uint16)).astype(np.int16)
    # Zigzag encoding, so that small negative steps become small numbers: 0, -1, 1, -2 … are 0, 1, 2, 3 …
    folded = ((steps << 1) ^ (steps >> 15)).astype(np.uint16)
    return (folded & 0xFF).astype(np.uint8).tobytes() + (folded >> 8).astype(np.uint8).tobytes()


def _changes(lists: Iterable[list[Any]]) -> list[tuple[int, list[Any]]]:
    """From one list per frame, those that differ from the previous one, with the number of the frame."""
    made: list[tuple[int, list[Any]]] = []
    before: list[Any] = []
    for i, now in enumerate(lists):
        if now != before:
            made.append((i, now))
            before = now
    return made


def packed_recording(header: Header, frames: Iterable[Frame], count: int) -> bytes:
    """The header and frames of a recording in the packed format.

    Args:
        header: Header of the recording.
        frames: The frames.
        count: Number of frames to pack; a growing recording may have more.

    Raises:
        MeshmarkError: There is no frame.
    """
    if count == 0:
        raise MeshmarkError("replay --html: the recording has no frames")
    begun = iter(frames)
    of, bins, load = thinned(header, count, lambda _, some: list(islice(begun, some)))
    metrics = shown_metrics(of)
    tables = {n: np.full((c, bins), np.nan) for n, c in metrics.items()}
    t_s, window_s, at = [0.0] * bins, [0.0] * bins, [0.0] * bins
    processes: list[list[Any]] = []
    spots: list[list[Any]] = []
    findings = Findings(of)
    places = 5 if header.period_s >= 1e-3 else 12  # a model's time is in nanoseconds
    for b in range(bins):
        frame = load(b, 1)[0]
        t_s[b], window_s[b], at[b] = round(frame.t_s, places), round(frame.window_s, places), round(frame.at, 3)
        processes.append(frame.processes)
        spots.append([s.to_json() for s in findings.add(frame)])
        for name, table in tables.items():
            values = np.array(frame.values.get(name, ()), dtype=np.float64)
            if values.size == len(table):
                table[:, b] = values
    head = page_header(of, live=False, frames=bins)
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


def packed_difference(header: Header, difference: Difference) -> bytes:
    """The difference of two recordings in the packed format."""
    head = page_header(header, live=False, frames=0, change=difference.to_json())
    empty: list[Any] = []
    content = {"header": head, **dict.fromkeys(("t_s", "window_s", "at", "processes", "spots", "metrics"), empty)}
    return _packed(content, [])


def _packed(content: dict[str, Any], tables: list[bytes]) -> bytes:
    text = json.dumps(content, separators=(",", ":")).encode()
    return gzip.compress(struct.pack("<I", len(text)) + text + b"".join(tables), compresslevel=9, mtime=0)


def one_file(title: str, packed: bytes) -> str:
    """The self-contained page.

    Args:
        title: Title of the page until its script runs.
        packed: Result of `packed_recording` or `packed_difference`.

    Raises:
        MeshmarkError: The page has not been built.
    """
    try:
        index, script, style = ((STATIC / n).read_text(encoding="utf-8") for n in ("index.html", "main.js", "main.css"))
    except OSError as why:
        raise MeshmarkError(f"the page is not built: files missing in {STATIC.name}/", "make setup builds it") from why
    found = sorted((index.find(text), mark) for mark, text in _MARKS.items())
    if found[0][0] < 0:
        missing = _MARKS[found[0][1]]
        raise MeshmarkError(f"the page has another version: no {missing} in index.html", "make setup builds it")
    # Positions in the original index, because inserted text may contain the marks.
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
    """Check early that the output file does not exist.

    Raises:
        MeshmarkError: The file exists.
    """
    if out.exists():
        raise MeshmarkError(f"{out}: the file exists", "use another name with --html")


def write_page(out: Path, title: str, packed: bytes) -> int:
    """Write the page atomically; returns its size in bytes.

    Raises:
        MeshmarkError: The file exists or cannot be written, or the page has not been built.
    """
    check_out(out)
    data = utf8(one_file(title, packed))
    write_file(out, data)
    return len(data)
