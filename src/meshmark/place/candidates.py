"""The ways in which `advise` runs a command: policies, page sizes, threads and wait policies that make sense here."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine.tree import format_list, parse_list
from meshmark.place import native
from meshmark.store.files import read_json, write_file

BASELINE: Final = "as it is"
POLICIES: Final = ("none", "balance", "pack", "compact", "scatter")
WAIT_POLICIES: Final = ("default", "active", "passive")
LAUNCHERS: Final = frozenset(
    {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun", "flux", "jsrun", "aprun"}
)
BUSY: Final = 0.1  # a thread that computes at least this share of the time wants a CPU


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the command. `parts` are the CPUs of each slot; none where nothing is bound."""

    name: str
    policy: str = "none"
    slots: str = "cores"
    threads: int | None = None  # OMP_NUM_THREADS; None leaves it
    memory: str = "default"
    pages: str = "default"
    wait: str = "default"
    pinned: bool = False  # each OpenMP thread on a part of its own
    parts: tuple[tuple[int, ...], ...] = ()

    def options(self) -> list[str]:
        """Of `meshmark run`, before `--`."""
        words = ["--bind", self.policy]
        if self.parts:
            words += ["-n", str(len(self.parts)), "--slots", self.slots]
        if self.memory != "default":
            words += ["--memory", self.memory]
        if self.pages != "default":
            words += ["--pages", self.pages]
        return [*words, "--openmp"] if self.pinned else words

    def environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        return threads if self.wait == "default" else {**threads, "OMP_WAIT_POLICY": self.wait.upper()}

    def line(self, command: Sequence[str]) -> str:
        """As one would type it."""
        before = [f"{k}={v}" for k, v in self.environment().items()]
        if self.name == BASELINE:
            return shlex.join(command)
        return " ".join([*before, "meshmark run", *self.options(), "--", shlex.join(command)])


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to try. Empty: what makes sense here."""

    policies: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    smt: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited:
    """What the command has without our doing, from whoever starts us: its shell, numactl, a batch system."""

    cpus: str = ""  # a list, where not all of the machine's are allowed
    memory: str = "default"  # as `meshmark run --memory` says it

    def __str__(self) -> str:
        said = [f"CPUs {self.cpus}"] if self.cpus else []
        return ", ".join(said + ([f"memory {self.memory}"] if self.memory != "default" else []))


# Of numa_maps, whose policy may have two words and flags of the mode: `prefer (many):0-1`, `bind=static:0`.
_POLICY: Final = re.compile(
    r"[0-9a-f]+ (default|local|prefer \(many\)|prefer|bind|weighted interleave|interleave)(?:=[^: ]*)?(?::(\S+))?"
)


def inherited_memory(numa_maps: str) -> str:
    """This process's memory policy, by the text of its /proc/PID/numa_maps: its first mapping is a program's text,
    which has no policy of its own. `default` where the kernel tells of none."""
    found = _POLICY.match(numa_maps)
    if found is None or found[1] in {"default", "local"}:
        return "default" if found is None else found[1]
    name = {"prefer": "preferred", "prefer (many)": "preferred", "weighted interleave": "weighted"}
    # A mode that remembers nodes relative to a cpuset may have none, or a tail.
    nodes = re.match(r"[0-9,-]*", found[2] or "")
    return f"{name.get(found[1], found[1])}={nodes[0]}" if nodes and nodes[0] else name.get(found[1], found[1])


@dataclass(frozen=True, slots=True)
class Here:
    """What this machine has to choose from. `thp` is the kernel's mode, or empty."""

    cpus: int  # that this process may use
    threads_per_core: int
    memory_nodes: int
    thp: str
    inherited: Inherited = Inherited()
    node_of: Mapping[int, int] = field(default_factory=dict)  # of CPUs whose node has memory; empty: not known


def _plan_in(path: Path) -> Any:
    if not path.exists():
        raise UsageError(f"--resume: found no plan.json in {path.parent}", "meshmark advise starts anew")
    try:
        return read_json(path)
    except UsageError as why:  # it is ours
        raise MeshmarkError(f"cannot read the plan: {why}") from why


@dataclass(slots=True)
class Plan:
    """What an advice runs.

    Attributes:
        left_out: name of a candidate that would not differ, and the one it equals; or why it cannot be had here.
        run: what it is called in the store; empty in plans of an older version, which went by their folder's name.
    """

    command: list[str]
    budget_s: float
    seed: int
    figure: str  # regular expression of the figure of merit; empty: the time
    higher: bool
    candidates: list[Candidate]
    left_out: dict[str, str] = field(default_factory=dict)
    pilot_s: float = 0.0
    inherited: Inherited = Inherited()
    run: str = ""

    def save(self, path: Path) -> None:
        write_file(path, json.dumps(asdict(self), indent=1).encode() + b"\n")

    @staticmethod
    def load(path: Path) -> Plan:
        """Raises UsageError where there is none, MeshmarkError where it is none."""
        try:
            raw = _plan_in(path)
            made = [
                Candidate(**{**c, "parts": tuple(tuple(map(int, p)) for p in c["parts"])}) for c in raw["candidates"]
            ]
            return Plan(**{**raw, "candidates": made, "inherited": Inherited(**raw.get("inherited", {}))})
        except (KeyError, TypeError, AttributeError, ValueError):
            raise MeshmarkError(f"{path} is no plan of an advice") from None


# ------------------------------------------------------------------ candidates


def candidates(
    wishes: Wishes,
    here: Here,
    busy: int,
    pinned: bool,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> tuple[list[Candidate], dict[str, str]]:
    """All ways to run it that differ, the baseline first.

    Args:
        busy: threads that computed in the pilot run; so many slots are taken where no number of threads is asked for.
        pinned: whether the command is one process with OpenMP threads rather than a launcher of ranks.
        parts_of: the native plan, see `native.parts_of`.
        missing: why options of `meshmark run` cannot be had here, or ""; None: the native program is asked.

    Returns:
        the candidates, and why others were left out, by their names.
    """
    cannot = missing or _missing
    made, left_out = [Candidate(BASELINE)], dict[str, str]()
    seen: dict[tuple[object, ...], str] = {_effect(made[0], here): BASELINE}
    reasons: dict[tuple[str, ...], str] = {}
    for one in _product(wishes, here, busy, pinned):
        if one.policy != "none":
            try:
                parts = parts_of(one.policy, one.threads or busy, one.slots)
            except MeshmarkError as why:
                left_out[one.name] = f"absent: {why}"
                continue
            one = Candidate(**{**asdict(one), "parts": tuple(map(tuple, parts))})  # noqa: PLW2901
        same = seen.setdefault(_effect(one, here), one.name)
        if same != one.name:
            left_out[one.name] = f"the same as '{same}'"
            continue
        for words in (("--memory", one.memory), ("--pages", one.pages)):
            if words[1] != "default" and words not in reasons:
                reasons[words] = cannot(words)
        why_not = reasons.get(("--memory", one.memory)) or reasons.get(("--pages", one.pages))
        if why_not:
            left_out[one.name] = f"absent: {why_not}"
        else:
            made.append(one)
    return made, left_out


def _product(wishes: Wishes, here: Here, busy: int, pinned: bool) -> Iterator[Candidate]:
    memory = wishes.memory or (("default", "interleave", "bind") if here.memory_nodes > 1 else ("default",))
    pages = wishes.pages or (("default", "4KiB") if here.thp == "always" else ("default", "thp"))
    smt = wishes.smt or ((False, True) if here.threads_per_core > 1 else (False,))
    for threads in wishes.threads or (None,):
        count = threads or busy
        for policy in wishes.policies or POLICIES:
            for siblings in smt if policy != "none" else (False,):
                for mem in memory:
                    for page in pages:
                        for wait in wishes.wait or ("default",):
                            slots = "threads" if siblings else "cores"
                            words = [policy]
                            words += [f"{threads} threads"] if threads and len(wishes.threads) > 1 else []
                            words += ["siblings"] if siblings else []
                            words += [w for w in (mem, page) if w != "default"]
                            words += [f"wait {wait}"] if wait != "default" else []
                            yield Candidate(
                                ", ".join(words),
                                policy,
                                slots,
                                threads,
                                mem,
                                page,
                                wait,
                                pinned and count > 1 and policy != "none",
                            )


def _effect(one: Candidate, here: Here) -> tuple[object, ...]:
    """What of a candidate makes a difference here: two with the same effect are one."""
    every = sorted({c for p in one.parts for c in p})
    # One mask over all that is allowed binds nothing.
    cpus: object = one.parts if one.pinned else None if len(every) in {0, here.cpus} else tuple(every)
    memory = _memory_effect(one, here)
    pages = "default" if one.pages == "thp" and here.thp == "always" else one.pages
    return cpus, one.threads, memory, pages, one.wait


def _memory_effect(one: Candidate, here: Here) -> str:
    """Where pages go: `local` (the kernel's own default, too), or a policy and its nodes."""
    said = here.inherited.memory if one.memory == "default" else one.memory
    policy, _, named = said.partition("=")
    if here.memory_nodes < 2 or policy in {"default", "local"}:
        return "local"
    if policy == "weighted":
        return said
    if named:
        nodes = set(parse_list(named))
    else:
        nodes = {here.node_of[c] for part in one.parts for c in part if c in here.node_of}
        if one.parts and not here.node_of:
            return policy  # to its own nodes, whichever they are
    every = not nodes or len(nodes) >= here.memory_nodes
    if every and policy in {"bind", "preferred"}:
        return "local"  # on the nearest of all nodes
    return f"{policy}={'all' if every else format_list(sorted(nodes))}"


def _missing(options: Sequence[str]) -> str:
    try:
        native.ask(["run", "--bind", "none", "--no-claim", *options, "--", "true"])
    except MeshmarkError as why:
        if isinstance(why, UsageError):
            raise
        return str(why) + (f" (would help: {why.hint})" if why.hint else "")
    return ""
