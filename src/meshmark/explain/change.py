"""Carries out the change that a verdict suggests, and undoes it.

What was before is written to a file first, so that a change can be undone even if it was interrupted halfway.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from meshmark import process
from meshmark.errors import MeshmarkError, UsageError
from meshmark.explain.actions import Action, command_of, for_this_user
from meshmark.explain.situation import Situation
from meshmark.explain.targets import Target, setting_command
from meshmark.machine.activity import process_stat
from meshmark.machine.tree import FileTree, format_list, parse_list
from meshmark.place.native import answer
from meshmark.store.files import read_json, write_json
from meshmark.values.inputs import LIST, Input, checked
from meshmark.values.paths import data_home
from meshmark.values.units import plain

_LIMIT_S: Final = 600.0  # for the command of a manager


@dataclass(frozen=True, slots=True)
class ProcessBefore(Input):
    """One process before a change: its start in clock ticks, the CPUs of its threads, and its memory by node in B."""

    process: Annotated[int, Field(ge=1)]
    started: str
    masks: dict[str, str] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before(Input):
    """The placement before a change.

    Attributes:
        undo: Command that restores the limits of a control group; "" if they were not changed.
        shared: Whether pages moved that processes share.
    """

    kind: str
    name: str
    command: str
    undo: str = ""
    shared: bool = False
    processes: Annotated[tuple[ProcessBefore, ...], LIST] = ()


def carry_out(situation: Situation, action: Action) -> list[str]:
    """Change the placement of a program, and return what was done, one line each.

    Raises:
        UsageError: A running program of this kind cannot be changed.
        MeshmarkError: The change failed; the message says what was changed before that.
    """
    target, tree = situation.target, FileTree(Path("/"))
    command = command_of(action, target, situation.process)
    if action.change == "permit":
        raise UsageError(
            f"--fix: found limits of a control group, which hold for all its processes; allowed: {command}"
        )
    by_manager = target.kind != "process" and action.change != "spread"
    if by_manager and target.kind in {"pod", "slurm-job"}:
        raise UsageError(f"--fix: found a {target.kind}, whose manager sets its CPUs; allowed: {command.lstrip('# ')}")
    manages = by_manager and bool(command)
    undo = for_this_user(setting_command(target, *_limits(tree, target))) if manages else ""
    before = Before(
        kind=target.kind,
        name=_key(target),
        command=command,
        undo=undo,
        shared=action.shared,
        processes=tuple(_before(tree, pid, situation.memory_nodes[0]) for pid in target.processes),
    )
    write_json(_file(target), before)
    if manages:
        return [_run(command)]
    lines: list[str] = []
    if action.binds:
        lines += _bind(target.processes, action.cpus)
    for pid in target.processes if action.nodes and action.change != "widen" else ():
        lines += _move(pid, action.nodes, spread=action.change == "spread", shared=action.shared)
    return lines


def undo(target: Target) -> list[str]:
    """Restore the placement before the last change of a program, and return what was done, one line each.

    Masks of threads that still run are restored exactly. Memory returns to the node where most of it was.

    Raises:
        UsageError: The program was not changed, or other processes run in its place.
    """
    path, tree = _file(target), FileTree(Path("/"))
    if not path.exists():
        raise UsageError(f"--undo: found no change of {_key(target)}; allowed: a program that --fix has changed")
    before = checked(Before, read_json(path), str(path))
    lines = [_run(before.undo)] if before.undo else []
    same = [p for p in before.processes if _started(tree, p.process) == p.started]
    if not same:
        raise UsageError(f"--undo: the processes of {_key(target)} that were changed have ended")
    for one in same:
        for thread, cpus in one.masks.items():
            _set_mask(int(thread), parse_list(cpus))
        if one.pages:
            main_node = int(max(one.pages, key=lambda n: one.pages[n]))
            lines += _move(one.process, (main_node,), shared=before.shared)
    lines.append(f"restored the CPUs of {sum(len(p.masks) for p in same)} threads")
    path.unlink()
    return lines


def _key(target: Target) -> str:
    return target.identifier or target.name


def _file(target: Target) -> Path:
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in _key(target))[:100]
    folder = data_home() / "placed"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{target.kind}-{name}.json"


def _limits(tree: FileTree, target: Target) -> tuple[str, str]:
    """Return the CPUs and memory nodes that the control group of a target permits now."""
    folder = target.cpusets[0] if target.cpusets else ""
    return tuple(  # type: ignore[return-value]
        tree.text(f"{folder.lstrip('/')}/{file}.effective") or tree.text(f"{folder.lstrip('/')}/{file}") or ""
        for file in ("cpuset.cpus", "cpuset.mems")
    )


def _before(tree: FileTree, pid: int, node: int) -> ProcessBefore:
    """Return the placement of a process; `node` is any memory node. Pages that nobody may see are left out."""
    masks = {str(tid): format_list(sorted(mask)) for tid in _threads(tree, pid) if (mask := _mask(tid))}
    try:
        (counted,) = answer(["migrate", str(pid), "--to", str(node), "--dry-run"], timeout_s=None)["processes"]
    except MeshmarkError:
        return ProcessBefore(pid, _started(tree, pid), masks)
    return ProcessBefore(pid, _started(tree, pid), masks, counted["before"])


def _started(tree: FileTree, pid: int) -> str:
    """Return when a process started, in clock ticks since boot; "" if it has ended."""
    stat = process_stat(tree, pid)
    return stat.fields[19] if stat else ""


def _threads(tree: FileTree, pid: int) -> list[int]:
    return tree.numbered(f"proc/{pid}/task", "")


def _mask(thread: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread)
    except OSError:
        return set()


def _set_mask(thread: int, cpus: Sequence[int]) -> str:
    """Bind a thread, and return why this failed; "" if it did not, or if the thread has ended."""
    try:
        os.sched_setaffinity(thread, cpus)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _bind(processes: Sequence[int], cpus: Sequence[int]) -> Iterator[str]:
    """Bind all threads, also those that start meanwhile."""
    tree, bound, failures = FileTree(Path("/")), set[int](), dict[int, str]()
    for _ in range(3):
        for thread in [t for pid in processes for t in _threads(tree, pid) if t not in bound]:
            bound.add(thread)
            if reason := _set_mask(thread, cpus):
                failures[thread] = reason
    yield f"bound {len(bound) - len(failures)} of {len(bound)} threads to CPUs {format_list(list(cpus))}"
    if failures:
        thread, reason = next(iter(failures.items()))
        yield f"{len(failures)} threads could not be bound, such as {thread}: {reason}"


def _move(pid: int, nodes: Sequence[int], *, spread: bool = False, shared: bool = False) -> Iterator[str]:
    """Move the memory of one process.

    Args:
        pid: The process.
        nodes: Where to.
        spread: Whether pages also move between `nodes`, until each has its share.
        shared: Whether pages move that other processes share.
    """
    options = ["--to", format_list(list(nodes)), *(["--spread"] if spread else []), *(["--shared"] if shared else [])]
    where = f"{'nodes' if len(nodes) > 1 else 'node'} {format_list(list(nodes))}"
    try:
        result = answer(["migrate", str(pid), *options], timeout_s=None)
    except MeshmarkError as error:
        yield f"memory of {pid} was not moved: {error}"
        return
    for one in result["processes"]:
        text = f"moved {plain(one['moved_bytes'], 'B')} of process {pid} to {where}"
        if left := one["left_bytes"]:
            text += "; not moved: " + ", ".join(f"{plain(b, 'B')} ({reason})" for reason, b in left.items())
        yield text


def _run(command: str) -> str:
    """Run the command of a manager.

    Raises:
        MeshmarkError: It failed; the message is its last line.
    """
    try:
        completed = process.run_text(["sh", "-c", command], timeout_s=_LIMIT_S)
    except OSError as error:
        raise MeshmarkError(f"--fix: {shlex.split(command)[0]} cannot be run: {error.strerror or error}") from error
    if completed.returncode != 0:
        lines = completed.stderr.strip().splitlines() or [f"status {completed.returncode}"]
        raise MeshmarkError(f"--fix: the command failed, nothing was changed: {lines[-1]}", command)
    return f"ran: {command}"
