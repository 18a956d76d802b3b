"""The common part of the engines that start jobs on nodes: batch systems, ssh, and this host.

An engine starts the native runner on named nodes and lists which of its jobs exist. Whether a node has measured is
known only from its file in the inbox.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError, quoted
from meshmark.values.node_names import NODE_NAME, is_node_name

State = Literal["idle", "off", "busy", "out"]
STATES: Final[tuple[State, ...]] = ("idle", "off", "busy", "out")  # from best to worst
TIMEOUT_S: Final = 60.0
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class EngineNode:
    """A node as its engine reports it.

    Attributes:
        state: `idle`; `off`: powered off until a job needs it; `busy` with jobs; `out`: down, draining, reserved …
        why: How the engine describes the state.
    """

    name: str
    state: State
    why: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that waits or runs.

    Attributes:
        waits: Whether it waits.
        why: The reason why it waits.
        boots: Whether its nodes are booting, so that it does not run yet.
    """

    id: str
    name: str
    waits: bool
    why: str = ""
    boots: bool = False


@dataclass(frozen=True, slots=True)
class JobWork:
    """The work of a job on each of its nodes: `runner plan --out inbox --name NODE`.

    Attributes:
        limit_s: Time after which the engine may end the job.
        logs: Folder of the output of jobs.
        together: Returns a shell script for groups of nodes, which their job runs on its first node; None: each node
            works alone.
        script: The shell script of this job; "": no script.
    """

    runner: Path
    plan: Path
    inbox: Path
    logs: Path
    limit_s: float
    options: tuple[str, ...] = ()
    together: Callable[[Sequence[str]], str] | None = None
    script: str = ""

    def for_groups(self, groups: Sequence[str]) -> JobWork:
        """Return the work of a job for these groups."""
        return replace(self, script=self.together(groups)) if self.together else self

    def command(self, node: str) -> str:
        """Return the command of a node for a shell.

        Args:
            node: Name of the node, or a shell expression that expands to it, such as `"$SLURMD_NODENAME"`.
        """
        words = [self.runner, self.plan, "--out", self.inbox, *self.options]
        return " ".join([*(shlex.quote(str(word)) for word in words), "--name", node])


def own_name(nodes: Sequence[str]) -> str:
    """Return a shell expression that expands to the name of the node on which it runs, one of `nodes`.

    Names of nodes in batch systems and names of hosts may or may not include the domain.
    """
    names = " ".join(shlex.quote(node) for node in nodes)
    return f'"$(h=$(hostname); for n in {names}; do [ "${{n%%.*}}" = "${{h%%.*}}" ] && echo "$n"; done)"'


def node(name: str, state: State, reason: str = "") -> EngineNode:
    """Return a node that an engine reports; an invalid name is replaced, and its node is out."""
    if is_node_name(name):
        return EngineNode(name, state, reason)
    return EngineNode(
        re.sub(r"[^A-Za-z0-9._-]", "_", f"unusable-{name[:200]}"), "out", f"a name of a node has {NODE_NAME}"
    )


class Engine(Protocol):
    """A program that starts jobs on nodes."""

    @property
    def name(self) -> str:
        """Return its name, as in `--engine`."""
        ...

    def nodes(self) -> list[EngineNode]:
        """Return all nodes that the engine knows.

        Raises:
            MeshmarkError: The engine does not answer.
        """
        ...

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Start a job on all of these nodes as soon as they are idle, and return its id.

        Args:
            name: Name of the job, by which `jobs` finds it again.
            nodes: Names of the nodes, at least one.
            work: What the job runs.

        Raises:
            EngineError: The engine refuses, or does not answer; then the job may exist nevertheless.
        """
        ...

    def jobs(self, names: Mapping[str, str]) -> list[Job]:
        """Return the jobs with these names that wait or run.

        Args:
            names: Names of jobs, each with its id, or with "" if the id is not known.

        Raises:
            MeshmarkError: The engine does not answer.
        """
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; jobs that have already ended are ignored."""
        ...


@runtime_checkable
class TimeLimitEngine(Protocol):
    """An engine that limits how long jobs run."""

    def longest_s(self) -> float:
        """Return the maximum of `JobWork.limit_s`; inf without a limit.

        Raises:
            EngineError: The engine does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """The common part of batch systems.

    Attributes:
        queue: Queue, or partition, to which jobs are submitted; "": the default.
        account: Account, project or bank to which jobs are charged; "": the default.
        options: Additional options of the command that submits jobs.
    """

    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()


class EngineError(MeshmarkError):
    """An engine refuses or does not answer."""


def answer(argv: Sequence[str], text: str | None = None, tries: int = _TRIES) -> str:
    """Run a command of an engine and return what it prints.

    Args:
        argv: The command.
        text: Its standard input.
        tries: How often a command that fails or does not answer in time is run; 1 if it must not be repeated.

    Raises:
        AbsentError: The command is not installed.
        EngineError: The command fails, or does not answer.
    """
    for attempt in range(tries):
        try:
            completed = process.run_text(argv, timeout_s=TIMEOUT_S, input=text)
        except FileNotFoundError as error:
            raise AbsentError(f"{argv[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            if attempt + 1 < tries:
                continue
            raise EngineError(f"{argv[0]} did not answer within {TIMEOUT_S:g} s, {tries} times") from error
        except OSError as error:
            raise EngineError(f"cannot run {argv[0]}: {error.strerror}") from error
        if completed.returncode == 0:
            return completed.stdout
        if attempt + 1 == tries:
            lines = (
                completed.stderr.strip() or completed.stdout.strip() or f"status {completed.returncode}"
            ).splitlines()
            reasons = [line for line in lines if "--help" not in line] or lines
            raise EngineError(
                f"{argv[0]}: {quoted(reasons[-1].removeprefix(f'{argv[0]}: '))}",
                "choose another engine with --engine, or with engine in fleet.toml",
            )
    raise AssertionError("unreachable")


def cancel_by(argv: Sequence[str], ids: Sequence[str], ended: Sequence[str]) -> None:
    """End jobs by a command; a failure with one of the texts `ended` is ignored, since a job has already ended then."""
    try:
        if ids:
            answer([*argv, *ids], tries=1)
    except EngineError as error:
        if not any(text in str(error) for text in ended):
            raise


def last_words(log: Path, nodes: Collection[str]) -> dict[str, list[str]]:
    """Return the last line of each node in the output of a job; lines of nodes begin with their names."""
    last_lines = {}
    with contextlib.suppress(OSError), log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines if nodes else ():
            node, _, text = line.partition(": ")
            if node in nodes and text.strip():
                last_lines[node] = [quoted(text.strip())]
    return last_lines


def parsed(argv: Sequence[str], text: str) -> Any:
    """Parse the JSON that a command printed; {} if it printed nothing, as some commands do if there are no jobs.

    Raises:
        EngineError: The text is not JSON.
    """
    try:
        return json.loads(text, strict=False) if text.strip() else {}  # texts may have line breaks and tabs
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{' '.join(argv[:2])}: did not print JSON: {quoted(error)}") from error


def table(found: Any, key: str) -> dict[str, dict[str, Any]]:
    """Return an object of objects in the answer of a command; {} if it is missing."""
    value = found.get(key) if isinstance(found, dict) else None
    return {str(k): v for k, v in value.items() if isinstance(v, dict)} if isinstance(value, dict) else {}


def records(found: Any, key: str) -> list[dict[str, Any]]:
    """Return a list of objects in the answer of a command; [] if it is missing."""
    value = found.get(key) if isinstance(found, dict) else None
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
