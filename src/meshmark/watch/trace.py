"""Writes a recording as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open.

Every component and metric becomes a counter track, and every class of components a process. Source: Trace Event Format,
counter events (phase C) and metadata events (phase M). A counter holds its value until its next event. Therefore, the
value of a window begins with the window, and values that do not change are written once. The format cannot express that
a value is unknown: a track then keeps the last known value.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from meshmark.store.files import written
from meshmark.watch.recording import RecordingFile


def events(recording: RecordingFile) -> Iterator[dict[str, Any]]:
    """Yield the events; times are in µs since the start of the recording, shares in %."""
    header = recording.header
    classes = [c for c in header.components if any(m.component_class == c for m in header.metrics)]
    for number, name in enumerate(classes, start=1):
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{name} ({header.machine})"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    tracks = []
    for m in header.metrics:
        if m.component_class in classes:
            what, pid = m.name.partition(".")[2], classes.index(m.component_class) + 1
            components = header.components[m.component_class]
            names = [f"{component.get('name', i)} {what}" for i, component in enumerate(components)]
            tracks.append((m.name, pid, names, "%" if m.is_share else m.unit, 100.0 if m.is_share else 1.0))
    last_values: dict[tuple[str, int], float] = {}
    for frame in recording.frames():
        begin_us = max(0.0, round(1e6 * (frame.t_s - frame.window_s), 3))  # Perfetto drops negative times, even -0.0
        for metric, pid, names, unit, factor in tracks:
            for i, value in enumerate(frame.values.get(metric, ())):
                if value is None or not math.isfinite(value) or last_values.get((metric, i)) == value:
                    continue
                last_values[metric, i] = value
                counter = {unit: float(f"{factor * value:.6g}")}
                yield {"ph": "C", "name": names[i], "pid": pid, "ts": begin_us, "args": counter}


def write_trace(recording: RecordingFile, out: Path) -> int:
    """Write the trace atomically, compressed if the file name ends with `.gz`, and return the number of events.

    Raises:
        MeshmarkError: the recording is corrupt, or the file is not writable.
    """
    header, count = recording.header, 0
    metadata = {"machine": header.machine, "started": header.started, "source": header.source}
    with written(out) as file, ExitStack() as stack:
        stream: IO[bytes] | gzip.GzipFile = file
        if out.suffix == ".gz":
            stream = stack.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
        stream.write(f'{{"otherData":{json.dumps(metadata)},"traceEvents":['.encode())
        for count, event in enumerate(events(recording), start=1):
            stream.write((",\n" if count > 1 else "\n").encode() + json.dumps(event, separators=(",", ":")).encode())
        stream.write(b"\n]}\n")
    return count
