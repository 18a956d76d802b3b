"""The one change that a verdict suggests: what it does, and the command that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshmark.explain.targets import Target, setting_command
from meshmark.machine.tree import format_list

Change = Literal["move", "restart", "widen"]


@dataclass(frozen=True, slots=True)
class Action:
    """A change of the placement of a program.

    Attributes:
        change: `move`: its memory to `nodes`, and its threads to `cpus` if `binds`; `restart`: start it again with its
            memory spread over `nodes`; `widen`: its threads may run on `cpus`.
        nodes: Memory nodes; for `widen`, those that remain allowed.
        cpus: The CPUs on which its threads may run afterwards; empty for `restart`.
        binds: Whether threads are bound.
    """

    change: Change
    nodes: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    binds: bool = False


def command_of(action: Action, target: Target, process: int) -> str:
    """Return the command for a target.

    A manager, such as Docker or systemd, is told its new limits, because it would reset what others change.

    Args:
        action: The change.
        target: The program.
        process: The process from which the others descend.
    """
    if action.change == "restart":
        return f"meshmark run --memory interleave={format_list(action.nodes)} -- COMMAND"
    if target.kind != "process":
        return setting_command(target, format_list(action.cpus), format_list(action.nodes))
    if action.change == "widen":
        return f"taskset -acp {format_list(action.cpus)} {process}"
    options = ["--to", format_list(action.nodes)]
    options += ["--with-threads"] if action.binds else []
    options += ["--children"] if len(target.processes) > 1 else []
    return " ".join(["meshmark migrate", str(process), *options])
