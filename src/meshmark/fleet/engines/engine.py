"""What the engines that start jobs on nodes have in common: batch systems, ssh, and this host.

An engine starts the native runner on named nodes and tells which of its jobs exist. It never tells whether a node has
measured: the file in the inbox does.
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

from meshmark.errors import AbsentError, MeshmarkError, quoted
from meshmark.values.node_names import NODE_NAME, is_node_name

State = Literal["idle", "off", "busy", "out"]
STATES: Final[tuple[State, ...]] = ("idle", "off", "busy", "out")  # from best to worst
TIMEOUT_S: Final = 60.0
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Node:
    """A node as its engine sees it.

    Attributes:
        state: `idle`; `off`: powered off until a job needs it; `busy` with jobs; `out`: down, draining, reserved …
        why: The engine's words for it.
    """

    name: str
    state: State
    why: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that exists: it waits, or it runs.

    Attributes:
        why: Why it waits.
        boots: It has nodes that boot for it, and does not run yet.
    """

    id: str
    name: str
    waits: bool
    why: str = ""
    boots: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What a job does on each of its nodes: `runner plan --out inbox --name NODE`.

    Attributes:
        limit_s: Time after which the engine may end it.
        logs: Folder of its output.
        together: Makes a script of the shell, which a job of groups of nodes runs on its first node; None: each node
            works alone.
        script: That of this job; "": none.
    """

    runner: Path
    plan: Path
    inbox: Path
    logs: Path
    limit_s: float
    options: tuple[str, ...] = ()
    together: Callable[[Sequence[str]], str] | None = None
    script: str = ""

    def of(self, groups: Sequence[str]) -> Work:
        """The work of a job for these groups."""
        return replace(self, script=self.together(groups)) if self.together else self

    def command(self, node: str) -> str:
        """For a shell.

        Args:
            node: The name, or an expression of the shell that gives it, such as `"$SLURMD_NODENAME"`.
        """
        words = [self.runner, self.plan, "--out", self.inbox, *self.options]
        return " ".join([*(shlex.quote(str(word)) for word in words), "--name", node])


def own_name(nodes: Sequence[str]) -> str:
    """An expression of the shell that gives the name of the node on which it runs, of these nodes.

    Batch systems name nodes with or without the domain, and so do hosts name themselves.
    """
    names = " ".join(shlex.quote(node) for node in nodes)
    return f'"$(h=$(hostname); for n in {names}; do [ "${{n%%.*}}" = "${{h%%.*}}" ] && echo "$n"; done)"'


def node(name: str, state: State, why: str = "") -> Node:
    """Return a node that an engine reports; a name that no node may have is changed, and its node is out."""
    if is_node_name(name):
        return Node(name, state, why)
    return Node(re.sub(r"[^A-Za-z0-9._-]", "_", f"unusable-{name[:200]}"), "out", f"a name of a node has {NODE_NAME}")


class Engine(Protocol):
    """An engine."""

    @property
    def name(self) -> str: ...

    def nodes(self) -> list[Node]:
        """All nodes it knows.

        Raises:
            MeshmarkError: It does not answer.
        """
        ...

    def submit(self, name: str, nodes: Sequence[str], work: Work) -> str:
        """Start a job on all of these nodes, which are idle, or wait until they are. Returns its id.

        Args:
            name: Of the job, by which `jobs` finds it again.

        Raises:
            EngineError: The engine refuses, or does not answer; then the job may exist all the same.
        """
        ...

    def jobs(self, names: Mapping[str, str]) -> list[Job]:
        """Those jobs of these names that wait or run.

        Args:
            names: And their ids, "" where those are not known.

        Raises:
            MeshmarkError: It does not answer.
        """
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended are ignored."""
        ...


@runtime_checkable
class Limited(Protocol):
    """An engine that limits how long jobs run."""

    def longest_s(self) -> float:
        """The maximum of `Work.limit_s`; inf without a limit.

        Raises:
            EngineError: It does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What batch systems have in common.

    Attributes:
        queue, account: Their partition and project or bank, where they call them so; "": the default.
        options: More options of the command that submits.
    """

    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()


class EngineError(MeshmarkError):
    """An engine refuses or does not answer."""


def answer(argv: Sequence[str], text: str | None = None, tries: int = _TRIES) -> str:
    """What a command of an engine prints.

    Args:
        text: For its standard input.
        tries: Of a command that does not answer in time; 1 for commands that may not be repeated.

    Raises:
        AbsentError: The command is not installed.
        EngineError: It fails, or does not answer.
    """
    for attempt in range(tries):
        try:
            done = subprocess.run(
                argv,
                input=text,
                stdin=subprocess.DEVNULL if text is None else None,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as why:
            raise AbsentError(f"{argv[0]} is not installed") from why
        except subprocess.TimeoutExpired as why:
            if attempt + 1 < tries:
                continue
            raise EngineError(f"{argv[0]} did not answer within {TIMEOUT_S:g} s, {tries} times") from why
        except OSError as why:
            raise EngineError(f"cannot run {argv[0]}: {why.strerror}") from why
        if done.returncode == 0:
            return done.stdout
        if attempt + 1 == tries:
            lines = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
            reasons = [line for line in lines if "--help" not in line] or lines
            raise EngineError(
                f"{argv[0]}: {quoted(reasons[-1].removeprefix(f'{argv[0]}: '))}",
                "another engine: --engine, or engine in fleet.toml",
            )
    raise AssertionError("unreachable")


def cancel_by(argv: Sequence[str], ids: Sequence[str], ended: Sequence[str]) -> None:
    """End jobs by a command that fails if one of them has ended, with one of these texts."""
    try:
        if ids:
            answer([*argv, *ids], tries=1)
    except EngineError as why:
        if not any(text in str(why) for text in ended):
            raise


def last_words(log: Path, nodes: Collection[str]) -> dict[str, list[str]]:
    """The last line in the output of a job that begins with a node's name, for nodes that have one."""
    found = {}
    with contextlib.suppress(OSError), log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines if nodes else ():
            node, _, text = line.partition(": ")
            if node in nodes and text.strip():
                found[node] = [quoted(text.strip())]
    return found


def parsed(argv: Sequence[str], text: str) -> Any:
    """JSON that a command printed; {} if it printed nothing, as some do without jobs.

    Raises:
        EngineError: It is not JSON.
    """
    try:
        return json.loads(text, strict=False) if text.strip() else {}  # texts may have line breaks and tabs
    except (ValueError, RecursionError) as why:
        raise EngineError(f"{' '.join(argv[:2])}: did not print JSON: {quoted(why)}") from why


def table(found: Any, key: str) -> dict[str, dict[str, Any]]:
    """An object of objects in the answer of a command; {} if it is missing."""
    value = found.get(key) if isinstance(found, dict) else None
    return {str(k): v for k, v in value.items() if isinstance(v, dict)} if isinstance(value, dict) else {}


def records(found: Any, key: str) -> list[dict[str, Any]]:
    """A list of objects in the answer of a command; [] if it is missing."""
    value = found.get(key) if isinstance(found, dict) else None
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
