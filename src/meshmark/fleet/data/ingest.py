"""Converts the files of nodes to immutable Parquet files.

Any number of ingestions may run at once, and any of them may be killed. A file is claimed by renaming it into a folder
of the ingestion, whose lock shows whether the ingestion is still running; the file is removed after its rows have been
written. Parquet files are named after the claim: an ingestion that resumes a claim removes results whose nodes were not
written, since it writes these rows again. Each row has a hash of the file it came from (`attempt`), so that no file is
ingested twice.

Each file is checked on its own: a file that cannot be ingested is reported with the reason and moved to the folder
`refused`, and the others are ingested.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.application_records import ApplicationOutcome, verdicts_of
from meshmark.fleet.data.facts import node_facts
from meshmark.fleet.data.results import (
    INTERRUPTED,
    REFUSED,
    SUFFIX,
    NodeResult,
    ResultError,
    parse_result,
    read_packed,
    read_result,
)
from meshmark.fleet.data.values import query
from meshmark.fleet.data.workers import signals_deferred
from meshmark.fleet.folder import NODE_TEXTS, NODE_TYPES, Fleet
from meshmark.measure.repetitions import point_key
from meshmark.process import die_with_parent
from meshmark.store.columns import COLUMN_TYPES, row_of, row_of_absence
from meshmark.store.files import ASIDE, make_folder, unlink
from meshmark.store.parquet import UNIQUE, write_parquet
from meshmark.store.record import Record
from meshmark.store.session import NoLocksError, lock
from meshmark.values.arrow import listed, table_of
from meshmark.values.inputs import fields_of

if TYPE_CHECKING:
    from arro3.core import Table

_MOST_PROCESSES: Final = 16
_OLD_S: Final = 3600.0  # a claim on a file system without locks is abandoned after this time
_CLOCK_S: Final = 60.0  # a clock that differs by more is reported


@dataclass
class IngestResult:
    """The outcome of an ingestion of a campaign.

    Attributes:
        nodes: Nodes that were ingested, each once, even if it left several files.
        again: Nodes whose files had been ingested before.
        skipped: Reasons why files were not ingested, by the name of the file.
        doubts: What is suspicious about ingested nodes, by name.
        refusals: Nodes that were ingested but did not measure because of other work, with that work.
        failures: Reasons why applications gave no result, each with the nodes.
    """

    nodes: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, other: IngestResult) -> IngestResult:
        """Return the outcome of two ingestions; files that were half-written at the first may be complete now."""
        skipped = {name: reason for name, reason in self.skipped.items() if not ASIDE.fullmatch(name)}
        return IngestResult(
            list(dict.fromkeys([*self.nodes, *other.nodes])),
            [*self.again, *other.again],
            {**skipped, **other.skipped},
            {**self.doubts, **other.doubts},
            {**self.refusals, **other.refusals},
            {
                reason: sorted({*self.failures.get(reason, ()), *other.failures.get(reason, ())})
                for reason in (*self.failures, *other.failures)
            },
        )


def ingest(
    fleet: Fleet,
    campaign: str,
    cluster: str,
    known: frozenset[str] = frozenset(),
    tick: Callable[[int, int], None] = lambda read, of: None,
    at_once: int = 250,
) -> IngestResult:
    """Ingest the files that the nodes of a campaign left.

    Args:
        fleet: Folder of the fleet.
        campaign: Name of the campaign.
        cluster: Name of the cluster.
        known: The nodes of the campaign; files of others are skipped. Empty: all nodes are accepted.
        tick: Called with the number of files that were read so far, and the number of all files.
        at_once: Largest number of files of nodes in one Parquet file; if there are more, several processes read them.

    Raises:
        MeshmarkError: The folder cannot be written; no file is lost then.
    """
    folder = fleet.campaign(campaign)
    ingested, read, total = IngestResult(), 0, 0
    skipped: dict[str, str] = {}
    with contextlib.closing(_claims(folder, skipped)) as claims:
        for token, files in claims:
            if not files:
                continue
            total += len(files)
            tick(read, total)
            _remove_incomplete(fleet, campaign, cluster, token)
            have = frozenset(taken(fleet, campaign, cluster, "attempt"))
            work = _IngestContext(fleet, campaign, cluster, known, have)
            chunks = [
                (f"{campaign}--{token}{UNIQUE}{secrets.token_hex(4)}", files[start : start + at_once])
                for start in range(0, len(files), at_once)
            ]
            with contextlib.closing(_interpreted(work, chunks)) as parts:  # closing ends the processes at once
                for stem, part in parts:
                    _complete(work, stem, part)
                    ingested = ingested.joined(part.outcome)
                    read += len(part.done) + len(part.refused)
                    tick(read, total)
    ingested.skipped |= skipped
    for path in _inbox(folder).glob(".*"):
        if ASIDE.fullmatch(path.name):
            ingested.skipped.setdefault(path.name, _half(path))
    return ingested


def measured_nodes(fleet: Fleet, campaign: str, cluster: str) -> set[str]:
    """Return the nodes of a campaign whose results were ingested.

    Nodes that refused or were interrupted are left out, since a resumed campaign tries them again.
    """
    condition = f"NOT starts_with(status, '{REFUSED}') AND status <> 'interrupted'"
    return taken(fleet, campaign, cluster, "node", condition)


def taken(fleet: Fleet, campaign: str, cluster: str, column: str, condition: str = "true") -> set[str]:
    """Return the nodes, or the attempts, of a campaign that were ingested.

    Args:
        fleet: Folder of the fleet.
        campaign: Name of the campaign.
        cluster: Name of the cluster.
        column: `node` or `attempt`.
        condition: SQL that is true for the rows of these nodes.
    """
    text = f"SELECT DISTINCT {column} FROM read_parquet(?) WHERE {condition}"
    table = query(fleet, "nodes", [campaign], cluster, text)
    return {*listed(table[column])} if table is not None else set()


# ------------------------------------------------------------------ claims


def _inbox(folder: Path) -> Path:
    return folder / "inbox"


def _claims(folder: Path, skipped: dict[str, str]) -> Generator[tuple[str, list[Path]]]:
    """Yield the claims of ingestions that were killed, and then a new claim of the files of the inbox.

    Each claim is locked until the next one is requested, or the generator is closed.

    Args:
        folder: Folder of the campaign.
        skipped: Receives the reasons why files of the inbox, or entries of the folder of claims, are left where they
            are.
    """
    for claim in sorted((folder / "taken").glob("*")):
        handle: int | None = None
        try:
            status = claim.lstat()
            if not stat.S_ISDIR(status.st_mode):
                skipped[f"taken/{claim.name}"] = "is not the folder of an ingestion"
                continue
            (claim / ".lock").touch()  # the ingestion may have been killed before it created the lock
            if (handle := lock(claim / ".lock")) is None:
                continue
        except NoLocksError:
            if time.time() - status.st_mtime < _OLD_S:
                continue
        except FileNotFoundError:  # another ingestion was faster
            continue
        except OSError as error:
            skipped[f"taken/{claim.name}"] = f"cannot be read: {error.strerror}"
            continue
        yield from _claimed(claim, handle)
    claim, handle = _new_claim(folder / "taken")
    for path in sorted(_inbox(folder).glob(f"*{SUFFIX}")):
        try:
            path.rename(claim / path.name)
        except FileNotFoundError:  # another ingestion was faster
            continue
        except OSError as error:  # such as a mount point, or a file of another user in a folder with the sticky bit
            skipped[path.name] = f"cannot be moved: {error.strerror}"
    yield from _claimed(claim, handle)


def _claimed(claim: Path, handle: int | None) -> Generator[tuple[str, list[Path]]]:
    """Yield the token and the files of a claim, and remove its folder when it is empty."""
    try:
        yield claim.name, sorted(claim.glob(f"*{SUFFIX}"))
        with contextlib.suppress(OSError):
            if not any(claim.glob(f"*{SUFFIX}")):
                (claim / ".lock").unlink()
                claim.rmdir()
    finally:
        if handle is not None:
            os.close(handle)


def _new_claim(folder: Path) -> tuple[Path, int | None]:
    while True:
        claim = folder / secrets.token_hex(6)
        try:
            make_folder(claim)
            (claim / ".lock").touch()
        except FileNotFoundError:  # another ingestion considered the folder abandoned and removed it
            continue
        except OSError as error:
            raise MeshmarkError(f"cannot write {claim}: {error.strerror}") from error
        try:
            if (handle := lock(claim / ".lock")) is not None:  # otherwise another ingestion considered it abandoned
                return claim, handle
        except NoLocksError:
            return claim, None  # only its age shows whether the claim is abandoned


def _remove_incomplete(fleet: Fleet, campaign: str, cluster: str, token: str) -> None:
    """Remove the results of a claim whose nodes are missing."""
    results, nodes = (fleet.table(kind, campaign, cluster) for kind in ("results", "nodes"))
    files = sorted(results.glob(f"{campaign}--{token}{UNIQUE}*.parquet"))
    unlink(path for path in files if not (nodes / path.name).exists())


# ------------------------------------------------------------------ rows


@dataclass(frozen=True, slots=True)
class _IngestContext:
    """The context that all files of a claim share.

    Attributes:
        have: The attempts that were ingested before.
    """

    fleet: Fleet
    campaign: str
    cluster: str
    known: frozenset[str]
    have: frozenset[str]


@dataclass(slots=True)
class _ChunkResult:
    """The outcome of a chunk of files.

    Attributes:
        rows: Rows of nodes.
        done: Files that are no longer needed once the rows are written.
        refused: Files that cannot be ingested.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    done: list[Path] = field(default_factory=list)
    refused: list[Path] = field(default_factory=list)
    outcome: IngestResult = field(default_factory=IngestResult)


_Chunk = tuple[str, list[Path]]  # name of a Parquet file without its suffix, and the files of its nodes


def _interpreted(work: _IngestContext, chunks: Sequence[_Chunk]) -> Generator[tuple[str, _ChunkResult]]:
    """Yield the parts of chunks as they are completed.

    As many processes run as there are CPUs for them; they are ended at once if the generator is closed.
    """
    processes = min(len(chunks), len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if processes < 2:
        for chunk in chunks:
            yield chunk[0], _interpret(work, chunk)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context, resource_tracker

    # Forked processes would keep the lock of the claim, and locks of Arrow's threads.
    with ProcessPoolExecutor(processes, get_context("spawn"), die_with_parent, (os.getpid(),)) as pool:
        try:
            resource_tracker.ensure_running()  # before signals are deferred, since it changes the signal mask
            with signals_deferred():
                names = {pool.submit(_interpret, work, chunk): chunk[0] for chunk in chunks}
            for future in as_completed(names):
                yield names[future], future.result()
        except BrokenProcessPool as error:
            raise MeshmarkError("a process that reads results was killed, perhaps for lack of memory") from error
        except BaseException:
            for child in active_children():
                child.kill()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _interpret(work: _IngestContext, chunk: _Chunk) -> _ChunkResult:
    """Read the files of a chunk, write their results, and return the outcome."""
    stem, files = chunk
    part, results, attempts = _ChunkResult(), list["Table"](), set(work.have)
    for path in files:
        try:
            results += _interpret_file(work, path, part, attempts)
        except Exception as error:  # a defect of this program must not block the results of the other nodes
            part.refused.append(path)
            unexpected = f"{quoted(path.name)}: unexpected {type(error).__name__}: {quoted(error)}"
            part.outcome.skipped[path.name] = str(error) if isinstance(error, ResultError) else unexpected
    if part.rows:
        _doubts(part.rows, part.outcome)
        # Sorted by point and node, so that the values of a point are adjacent.
        path = work.fleet.table("results", work.campaign, work.cluster) / f"{stem}.parquet"
        write_parquet(path, *results, order=("point", "node"))
    return part


def _interpret_file(work: _IngestContext, path: Path, part: _ChunkResult, attempts: set[str]) -> list[Table]:
    """Read the file of a node, and add the outcome to a part.

    Args:
        work: Campaign and plans that the file is read with.
        path: The file.
        part: Outcome of the files that were read so far.
        attempts: Attempts of the files that were ingested before; the attempt of this file is added.

    Returns:
        A list with the table of its results; an empty list if the file was ingested before.

    Raises:
        ResultError: The file cannot be ingested; the part is unchanged.
    """
    name = path.name.removesuffix(INTERRUPTED).removesuffix(SUFFIX)
    packed = read_packed(path)
    attempt = hashlib.sha256(packed).hexdigest()[:16]
    if attempt in attempts:
        part.outcome.again.append(name)
        part.done.append(path)
        return []
    result = parse_result(path.name, packed)
    _check_name(result, name, work.known)
    verdicts = verdicts_of(work.fleet.plans, result)
    identity = {"campaign": work.campaign, "node": name, "attempt": attempt}
    row = _node_row(result, identity, [text for verdict in verdicts.values() for text in verdict.wrong])
    table_of([row], NODE_TYPES)  # raises an error for a value of another type than its column, as the next line does
    table = table_of(list(_rows(result, identity, verdicts)), COLUMN_TYPES)
    part.rows.append(row)
    part.outcome.nodes.append(name)
    if result.status.startswith(REFUSED):
        part.outcome.refusals[name] = result.status.removeprefix(REFUSED)
    for reason in {absence.reason for verdict in verdicts.values() for absence in verdict.absences}:
        part.outcome.failures.setdefault(reason, []).append(name)
    part.done.append(path)
    attempts.add(attempt)
    return [table]


def _complete(work: _IngestContext, stem: str, part: _ChunkResult) -> None:
    """Write the rows of nodes, which completes a part, and remove or move their files."""
    if part.rows:
        path = work.fleet.table("nodes", work.campaign, work.cluster) / f"{stem}.parquet"
        write_parquet(path, table_of(part.rows, NODE_TYPES))
    unlink(part.done)
    folder = work.fleet.campaign(work.campaign) / "refused"  # where a person can inspect them
    for path in part.refused:
        with contextlib.suppress(OSError):
            make_folder(folder)
            path.rename(folder / f"{path.name}.{secrets.token_hex(4)}")


def _check_name(result: NodeResult, name: str, known: frozenset[str]) -> None:
    """Raise ResultError if the file of a node names another node than its file name, or an unknown node."""
    if result.name != name:
        raise ResultError(f"{quoted(name)}{SUFFIX}: the file names the node {quoted(result.name)}")
    if known and name not in known:
        raise ResultError(f"{quoted(name)}{SUFFIX}: no node of this campaign has this name")


def _rows(
    result: NodeResult, of: dict[str, str], verdicts: Mapping[str, ApplicationOutcome]
) -> Iterator[dict[str, Any]]:
    for step in result.steps:
        judged = verdicts.get(step.id, ApplicationOutcome())
        for record in (*step.reading.records, *judged.records):
            yield {**row_of(record, of["campaign"], step.id), **of, "point": _point(record)}
        for absence in (*step.reading.absences, *judged.absences):
            row = row_of_absence(absence, of["campaign"], step.id, result.header.machine)
            yield {**row, **of, "point": None}


def _point(record: Record) -> str | None:
    """Return the key of a point, which is the same on equal nodes.

    None for derived values, whose conditions are results.
    """
    return None if "derived_from" in record.conditions else point_key(record)


def _node_row(result: NodeResult, of: dict[str, str], wrong: Sequence[str]) -> dict[str, Any]:
    numbers = {key: getattr(result.finished, key, None) for key in ("elapsed_s", "cpu_s", "peak_bytes")}
    return {
        **of,
        **{key: text for key, text in fields_of(result.header).items() if key in NODE_TEXTS},
        **numbers,
        "status": result.status,
        "damage": result.damage,
        "doubt": "",
        "facts": json.dumps(node_facts(result.files)),
        "steps": float(len(result.steps)),
        "steps_ok": float(sum(step.status == "ok" for step in result.steps)),
        "wrong": list(dict.fromkeys([*result.wrong, *wrong])),
    }


def _doubts(nodes: Sequence[dict[str, Any]], outcome: IngestResult) -> None:
    """Note what is suspicious about nodes: other host names, a machine with two names, wrong clocks, other builds."""
    now = datetime.now(UTC)
    same_name_count = sum(row["hostname"].partition(".")[0] == row["node"].partition(".")[0] for row in nodes)
    builds = Counter(row["build"] for row in nodes)
    boots = Counter(row["boot"] for row in nodes)
    for row in nodes:
        texts = []
        host = row["hostname"].partition(".")[0]
        if same_name_count * 2 > len(nodes) and host != row["node"].partition(".")[0]:
            texts.append(f"its host is named {quoted(row['hostname'])}")
        if row["boot"] and boots[row["boot"]] > 1 and len(boots) > 1:
            others = sorted(r["node"] for r in nodes if r["boot"] == row["boot"] and r is not row)
            texts.append(f"it is the same machine as {', '.join(others[:3])}")
        if (clock_error := _ahead(row["started"], row["campaign"], now)) is not None:
            texts.append(f"its clock differs by {clock_error:+.0f} s")
        if row["build"] != builds.most_common(1)[0][0]:
            texts.append(f"its runner is of another build, {quoted(row['build'] or 'unknown')}")
        row["doubt"] = "; ".join(texts)
        if doubt := "; ".join(filter(None, (*texts, row["damage"]))):
            outcome.doubts[row["node"]] = doubt


def _ahead(started: str, campaign: str, now: datetime) -> float | None:
    """Return the least number of seconds by which a clock is ahead (negative: behind); None if it may be right."""
    try:
        start = datetime.fromisoformat(started)
        campaign_start = datetime.strptime(campaign.split("-")[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    if (error := (start - campaign_start).total_seconds()) < -_CLOCK_S:
        return error
    lead = (start - now).total_seconds()
    return lead if lead > _CLOCK_S else None


def _half(path: Path) -> str:
    """Describe a half-written file."""
    try:
        result = read_result(path)
    except ResultError as error:
        return f"half-written: {error}"
    return f"half-written by {result.name}, with {len(result.steps)} steps"
