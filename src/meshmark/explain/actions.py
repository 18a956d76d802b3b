"""The one change that a verdict suggests: what it does, and the command that does it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import Literal

from meshmark.explain.targets import Target, setting_command
from meshmark.machine.tree import format_list

Change = Literal["move", "spread", "widen", "permit"]


@dataclass(frozen=True, slots=True)
class Action:
    """A change of the placement of a program.

    Attributes:
        change: `move`: its memory to `nodes`, and its threads to `cpus` if `binds`; `spread`: its memory in equal
            parts over `nodes`; `widen`: its threads may run on `cpus`; `permit`: the
            control group `group` permits `nodes` and `cpus`, for all its processes.
        nodes: Memory nodes; for `widen`, those that remain allowed.
        cpus: The CPUs on which its threads may run afterwards; empty for `spread`.
        binds: Whether threads are bound.
        shared: Whether pages move that several processes share, which needs a privilege.
        group: Path of the control group, for `permit`.
    """

    change: Change
    nodes: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    binds: bool = False
    shared: bool = False
    group: str = ""


def for_this_user(command: str) -> str:
    """Return a command without `sudo` if this user is root, on whose machine there may be none."""
    return command.replace("| sudo tee", "| tee") if os.geteuid() == 0 else command


def command_of(action: Action, target: Target, process: int) -> str:
    """Return the command for a target.

    A manager, such as Docker or systemd, is told its new limits, because it would reset what others change. No manager
    spreads memory.

    Args:
        action: The change.
        target: The program.
        process: The process from which the others descend.
    """
    if action.change == "permit":
        return f"meshmark placed --cgroup {shlex.quote(action.group)} --fix"
    if action.change == "spread" and target.root is None and len(target.processes) > 1:
        return f"meshmark placed --{target.kind} {shlex.quote(target.identifier or target.name)} --fix"
    if action.change != "spread" and target.kind != "process":
        return for_this_user(setting_command(target, format_list(action.cpus), format_list(action.nodes)))
    if action.change == "widen":
        return f"taskset -acp {format_list(action.cpus)} {process}"
    options = ["--to", format_list(action.nodes)]
    options += ["--spread"] if action.change == "spread" else []
    options += ["--with-threads"] if action.binds else []
    options += ["--children"] if len(target.processes) > 1 else []
    options += ["--shared"] if action.shared else []
    return " ".join(["meshmark migrate", str(process), *options])
