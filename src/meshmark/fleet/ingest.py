"""Turns the files that nodes left into immutable Parquet.

Any number of ingestions may run at once, and any may be killed: a file is claimed by renaming it into a folder of the
ingestion, whose lock tells whether it is still at work; it is removed after the Parquet file with its content has been
written. A row names the content it came from (`attempt`), so that nothing is taken twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.fleet.facts import node_facts
from meshmark.fleet.folder import NODE_TEXTS, Fleet, nodes_schema, results_schema
from meshmark.fleet.results import SUFFIX, NodeResult, ResultError, read_result
from meshmark.measure.repetitions import point_key
from meshmark.store.columns import row_of, row_of_absence
from meshmark.store.files import ASIDE, NoLocksError, lock, open_regular, read_bytes, unlink, write_file
from meshmark.store.record import Record

_MAX_FILE: Final = 64 << 20  # compressed
_AT_ONCE: Final = 250  # files of nodes in one Parquet file
_OLD_S: Final = 3600.0  # a claim on a file system without locks is abandoned after this time
_CLOCK_S: Final = 60.0  # a clock that differs by more is named


@dataclass
class Ingested:
    """What became of the files of a campaign.

    Attributes:
        nodes: That were taken in.
        again: That had been taken in before.
        skipped: Why files were not, by the name of the file.
        doubts: What is strange about nodes that were taken in, by name.
    """

    nodes: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)


def ingest(
    fleet: Fleet,
    campaign: str,
    cluster: str,
    known: frozenset[str] = frozenset(),
    tick: Callable[[int], None] = lambda _: None,
) -> Ingested:
    """Take in what the nodes of a campaign left.

    Args:
        known: The nodes of the campaign; files of others are skipped. Empty: all are known.
        tick: Called with the number of files that were read.

    Raises:
        MeshmarkError: The folder cannot be written; nothing is lost then.
    """
    folder = fleet.campaign(campaign)
    found = Ingested()
    have = taken(fleet, campaign, cluster, "attempt")
    for claim in (*_abandoned(folder), _claim(folder)):
        with claim as files:
            for at in range(0, len(files), _AT_ONCE):
                chunk = files[at : at + _AT_ONCE]
                _take(fleet, campaign, cluster, chunk, known, have, found)
                tick(len(chunk))
    for path in _inbox(folder).glob(".*"):
        if ASIDE.fullmatch(path.name):
            found.skipped.setdefault(path.name, _half(path))
    return found


def taken(fleet: Fleet, campaign: str, cluster: str, column: str) -> set[str]:
    """The nodes, or the attempts, of a campaign that were taken in.

    Args:
        column: `node` or `attempt`.
    """
    import pyarrow.parquet as pq

    found: set[str] = set()
    for path in fleet.files_of("nodes", campaign, cluster):
        with contextlib.suppress(OSError), open_regular(path) as file:
            found.update(pq.ParquetFile(file).read(columns=[column])[column].to_pylist())
    return found


def _inbox(folder: Path) -> Path:
    return folder / "inbox"


@contextlib.contextmanager
def _claimed(own: Path, handle: int | None) -> Iterator[list[Path]]:
    try:
        yield sorted(own.glob(f"*{SUFFIX}"))
        with contextlib.suppress(OSError):
            (own / ".lock").unlink()
            own.rmdir()
    finally:
        if handle is not None:
            os.close(handle)


def _claim(folder: Path) -> contextlib.AbstractContextManager[list[Path]]:
    """Rename the files of the inbox into a folder of our own, which is locked first."""
    waiting = sorted(_inbox(folder).glob(f"*{SUFFIX}"))
    own = folder / "taken" / secrets.token_hex(6)
    try:
        own.mkdir(parents=True)
        (own / ".lock").touch()
    except OSError as why:
        raise MeshmarkError(f"cannot write {own}: {why.strerror}") from why
    handle = None
    with contextlib.suppress(NoLocksError):  # the claim is then known by its age
        handle = lock(own / ".lock")
    for path in waiting:
        with contextlib.suppress(FileNotFoundError):  # another ingestion was faster
            path.rename(own / path.name)
    return _claimed(own, handle)


def _abandoned(folder: Path) -> list[contextlib.AbstractContextManager[list[Path]]]:
    """The claims of ingestions that were killed."""
    found: list[contextlib.AbstractContextManager[list[Path]]] = []
    for own in sorted((folder / "taken").glob("*")):
        handle: int | None = None
        try:
            if (handle := lock(own / ".lock")) is None:
                continue
        except NoLocksError:
            if time.time() - own.stat().st_mtime < _OLD_S:
                continue
        found.append(_claimed(own, handle))
    return found


def _take(
    fleet: Fleet,
    campaign: str,
    cluster: str,
    files: Sequence[Path],
    known: frozenset[str],
    have: set[str],
    found: Ingested,
) -> None:
    """Write one Parquet file with the results of some nodes, and then one with the nodes, which completes it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    results: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    done: list[Path] = []
    for path in files:
        name = path.name.removesuffix(SUFFIX)
        try:
            attempt = hashlib.sha256(read_bytes(path, _MAX_FILE)).hexdigest()[:16]
            if attempt in have:
                found.again.append(name)
                done.append(path)
                continue
            result = read_result(path)
            _check_name(result, name, known)
        except (ResultError, UsageError, OSError) as why:
            found.skipped[path.name] = str(why)
            _set_aside(fleet, campaign, path)
            continue
        of = {"cluster": cluster, "campaign": campaign, "node": name, "attempt": attempt}
        results += list(_rows(result, of))
        nodes.append(_node_row(result, of))
        have.add(attempt)
        found.nodes.append(name)
        done.append(path)
    if nodes:
        _doubts(nodes, found)
        stem = f"{campaign}-{hashlib.sha256(''.join(row['attempt'] for row in nodes).encode()).hexdigest()[:12]}"
        for kind, rows, of_kind in (("results", results, results_schema()), ("nodes", nodes, nodes_schema())):
            sink = pa.BufferOutputStream()
            # By point and node, so that the values of a point lie together.
            ordered = sorted(rows, key=lambda row: (row.get("point") or "", row["node"]))
            pq.write_table(pa.Table.from_pylist(ordered, schema=of_kind), sink, compression="zstd")
            write_file(fleet.table(kind, campaign, cluster) / f"{stem}.parquet", sink.getvalue().to_pybytes())
    unlink(done)


def _check_name(result: NodeResult, name: str, known: frozenset[str]) -> None:
    """Raises ResultError if a file is not of the node that its name says."""
    if result.name != name:
        raise ResultError(f"{name}{SUFFIX}: the node says that it is {result.name}")
    if known and name not in known:
        raise ResultError(f"{name}{SUFFIX}: no node of this campaign has this name")


def _set_aside(fleet: Fleet, campaign: str, path: Path) -> None:
    """Move a file that cannot be taken out of the way, where a person can look at it."""
    folder = fleet.campaign(campaign) / "refused"
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        path.rename(folder / f"{path.name}.{secrets.token_hex(4)}")


def _rows(result: NodeResult, of: dict[str, str]) -> Iterator[dict[str, Any]]:
    for step in result.steps:
        for record in step.reading.records:
            yield {**row_of(record, of["campaign"], step.id), **of, "point": _point(record)}
        for absence in step.reading.absences:
            row = row_of_absence(absence, of["campaign"], step.id, str(result.header["machine"]))
            yield {**row, **of, "point": None}


def _point(record: Record) -> str | None:
    """The key of a point that is the same on equal nodes; None for derived values, whose conditions are results."""
    return None if "derived_from" in record.conditions else point_key(record)


def _node_row(result: NodeResult, of: dict[str, str]) -> dict[str, Any]:
    header, finished = result.header, result.finished
    numbers = {k: finished.get(k) for k in ("elapsed_s", "cpu_s", "peak_bytes")}
    return {
        **of,
        **{k: str(header[k]) for k in NODE_TEXTS if k in header},
        **{k: float(v) for k, v in numbers.items() if isinstance(v, int | float)},
        "status": result.status,
        "damage": result.damage,
        "doubt": "",
        "facts": json.dumps(node_facts(result.files)),
        "steps": float(len(result.steps)),
        "steps_ok": float(sum(step.status == "ok" for step in result.steps)),
        "wrong": result.wrong,
    }


def _doubts(nodes: Sequence[dict[str, Any]], found: Ingested) -> None:
    """Note what is strange about nodes: names of other hosts, one machine under two names, wrong clocks, old builds."""
    now = datetime.now(UTC)
    mine = sum(row["hostname"].partition(".")[0] == row["node"].partition(".")[0] for row in nodes)
    builds = Counter(row.get("build", "") for row in nodes)
    boots = Counter(row["boot"] for row in nodes)
    for row in nodes:
        texts = []
        host = row["hostname"].partition(".")[0]
        if mine * 2 > len(nodes) and host != row["node"].partition(".")[0]:
            texts.append(f"its host is named {row['hostname']}")
        if row["boot"] and boots[row["boot"]] > 1 and len(boots) > 1:
            others = sorted(r["node"] for r in nodes if r["boot"] == row["boot"] and r is not row)
            texts.append(f"it is the same machine as {', '.join(others[:3])}")
        if (late := _ahead(row["started"], row["campaign"], now)) is not None:
            texts.append(f"its clock differs by {late:+.0f} s")
        if row.get("build", "") != builds.most_common(1)[0][0]:
            texts.append(f"its runner is of another build, {row.get('build', 'unknown')}")
        row["doubt"] = "; ".join(texts)
        if texts:
            found.doubts[row["node"]] = row["doubt"]


def _ahead(started: str, campaign: str, now: datetime) -> float | None:
    """By how many seconds a clock is at least ahead or behind; None if it may be right."""
    try:
        at = datetime.fromisoformat(started)
        begun = datetime.strptime(campaign.split("-")[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if (before := (at - begun).total_seconds()) < -_CLOCK_S:
        return before
    after = (at - now).total_seconds()
    return after if after > _CLOCK_S else None


def _half(path: Path) -> str:
    """What a half-written file has."""
    try:
        result = read_result(path)
    except ResultError as why:
        return f"half-written: {why}"
    return f"half-written by {result.name}, with {len(result.steps)} steps"
