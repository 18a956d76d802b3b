"""The names of files and folders of a store.

    date=2026-11-25/machine=n042/RUN.parquet              a finished run
    date=2026-11-25/machine=n042/RUN--STEP.parquet        a step that is not joined into RUN.parquet yet
    date=2026-11-01/machine=n042/compacted~….parquet      many runs of that month, made by compaction
    date=2026-11-01/compacted.json                        the runs in each compacted file of the month
    machines/MACHINE--TIME.machine.parquet                a row of the table of machines

The results and the nodes of a fleet (`fleet.folder`) have the same layout; their runs are campaigns:

    date=2026-11-25/cluster=hawk/RUN--CLAIM~….parquet      what one ingestion read
    date=2026-11-25/cluster=hawk/RUN--compacted~….parquet  all ingestions of RUN, made by compaction

The date is the one in the name of the run, or else the date of its first result. If a step is in several files, the
file of the step takes precedence over the finished run, and the finished run over the compacted file. Duplicates occur
only if a writer was killed, or a step was added again. With `compacted.json`, the search for a run need not read the
compacted files of all machines; compacted files without an entry are read.

A name with `~` is never used again. The metadata of a compacted file lists all files with such names that it replaces,
so that readers ignore files that a killed compaction has not removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import quote

from meshmark.store.parquet import COMPACTED, replaced_file_names

MACHINES: Final = "machines"
INDEX: Final = "compacted.json"
_DATE: Final = re.compile(r"(?<!\d)(\d{4})(\d\d)(\d\d)T\d{4,6}")


def file_name(name: str) -> str:
    """Return `name` escaped and shortened for use in a file name: unique, without path separators and without `--`."""
    dashes = re.sub(r"^-|-(?=-)|-$", "%2D", quote(name, safe="", errors="surrogatepass").replace("~", "%7E"))
    whole = "%2E" + dashes[1:] if dashes.startswith(".") else dashes or "%"
    return (
        whole if len(whole) <= 110 else f"{whole[:90]}%{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"
    )


def date_of(run: str, start: str = "") -> str:
    """Return the date under which a run is filed: the date in its name, the date of its start, or "unknown"."""
    for match in (_DATE.search(run), re.match(r"(\d{4})-(\d\d)-(\d\d)", start)):
        if match:
            try:
                return date(*map(int, match.groups())).isoformat()
            except ValueError:
                continue
    return "unknown"


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file with results.

    Attributes:
        run: The escaped name of its run; "" for a compacted file of several runs.
        step: The escaped name of its step; "" for a finished run or a compacted file of several runs. A name with
            `UNIQUE` is not a step, but a part of a campaign.
    """

    path: Path
    run: str
    step: str


def result_files(folder: Path, run: str = "", partition: str = "") -> list[StoreFile]:
    """Return the files that may have results of a run and a machine or cluster, sorted by path.

    Args:
        folder: Folder of the store, which need not exist.
        run: Name of the run; "" for all runs.
        partition: Name of the folder of the machine or cluster, such as `machine=n042`; "" for all.
    """
    day = date_of(run) if run else "unknown"
    # A run without a date in its name may be filed under any date.
    dates = [folder / f"date={d}" for d in sorted({day, f"{day[:7]}-01"})] if day != "unknown" else None
    stem = file_name(run) if run else ""
    files = []
    for dated in dates or _folders(folder, "date="):
        excluded = _files_without(dated, run) if run else frozenset()
        for partition_folder in [dated / partition] if partition else _folders(dated, ("machine=", "cluster=")):
            candidates = _files(partition_folder)
            if run:
                candidates = [f for f in candidates if f.run in {"", stem} and f.path.name not in excluded]
            files += _without_replaced(candidates)
    return sorted(files, key=lambda one: str(one.path))


def _without_replaced(files: list[StoreFile]) -> list[StoreFile]:
    """Return the files of a folder, except those that compacted files replace."""
    if len(files) < 2:
        return files
    names = frozenset[str]().union(*(replaced_file_names(file.path) for file in files))
    return [file for file in files if file.path.name not in names]


def read_index(dated: Path) -> dict[str, list[str]]:
    """Return the runs in each compacted file of a date, by the name of the file; empty if the index cannot be read.

    A run may have been removed from a file since the index was written.
    """
    try:
        index = json.loads((dated / INDEX).read_bytes())
    except (OSError, ValueError):
        return {}
    is_valid = isinstance(index, dict) and all(isinstance(names, list) for names in index.values())
    return index if is_valid else {}


def _files_without(dated: Path, run: str) -> frozenset[str]:
    """Return the names of the compacted files of a date whose index entry does not contain a run."""
    return frozenset(name for name, runs in read_index(dated).items() if run not in runs)


def _folders(folder: Path, prefixes: str | tuple[str, ...]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(prefixes) and entry.is_dir():
                    yield folder / entry.name
    except (FileNotFoundError, NotADirectoryError):
        return


def _files(folder: Path) -> list[StoreFile]:
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    files = []
    for name in names:
        stem = name.removesuffix(".parquet")
        if stem == name or name.startswith("."):
            continue
        run, _, step = ("", "", "") if stem.startswith(COMPACTED) else stem.partition("--")
        files.append(StoreFile(folder / name, run, step))
    return files
