"""Generates the candidates of `advise`: combinations of policies, memory, page sizes, threads and wait policies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine.tree import format_list, parse_list
from meshmark.place import native
from meshmark.store.files import write_json
from meshmark.store.session import load_plan

BASELINE: Final = "as it is"
POLICIES: Final = ("none", "balance", "pack", "compact", "scatter")
WAITS: Final = ("active", "passive")  # values of OMP_WAIT_POLICY
WAIT_POLICIES: Final = ("default", *WAITS)
SCHEDULERS: Final = ("other", "batch", "idle", "fifo")  # scheduling classes
LAUNCHERS: Final = frozenset(
    {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun", "flux", "jsrun", "aprun", "blaunch", "pbsdsh"}
)
BUSY: Final = 0.1  # a thread that computes at least this share of the time needs a CPU


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the command. `parts` are the CPUs of each slot; empty if nothing is bound."""

    name: str
    policy: str = "none"
    slots: str = "cores"
    threads: int | None = None  # OMP_NUM_THREADS; None leaves it unchanged
    memory: str = "default"
    pages: str = "default"
    wait: str = "default"
    pinned: bool = False  # each OpenMP thread is bound to its own part
    parts: tuple[tuple[int, ...], ...] = ()

    def options(self) -> list[str]:
        """Return the options of `meshmark run` before `--`."""
        argv = ["--bind", self.policy]
        if self.parts:
            argv += ["-n", str(len(self.parts)), "--slots", self.slots]
        if self.memory != "default":
            argv += ["--memory", self.memory]
        if self.pages != "default":
            argv += ["--pages", self.pages]
        return [*argv, "--openmp"] if self.pinned else argv

    def environment(self) -> dict[str, str]:
        """Return the variables of OpenMP that the candidate sets."""
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        return threads if self.wait == "default" else {**threads, "OMP_WAIT_POLICY": self.wait.upper()}

    def line(self, command: Sequence[str]) -> str:
        """Return the shell command that runs the candidate."""
        assignments = [f"{k}={v}" for k, v in self.environment().items()]
        if self.name == BASELINE:
            return shlex.join(command)
        return " ".join([*assignments, "meshmark run", *self.options(), "--", shlex.join(command)])


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The values to try for each option. An empty tuple stands for a default that suits the machine."""

    policies: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    smt: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class InheritedPlacement:
    """The placement inherited from the parent process: a shell, numactl or a batch system."""

    cpus: str = ""  # the allowed CPUs as a list; "" for all CPUs of the machine
    memory: str = "default"  # as a value of `meshmark run --memory`

    def __str__(self) -> str:
        cpus = [f"CPUs {self.cpus}"] if self.cpus else []
        return ", ".join(cpus + ([f"memory {self.memory}"] if self.memory != "default" else []))


# Policies in numa_maps may have two words and mode flags: `prefer (many):0-1`, `bind=static:0`.
_POLICY: Final = re.compile(
    r"[0-9a-f]+ (default|local|prefer \(many\)|prefer|bind|weighted interleave|interleave)(?:=[^: ]*)?(?::(\S+))?"
)


def inherited_memory(numa_maps: str) -> str:
    """Return the memory policy of a process, from its /proc/PID/numa_maps.

    The first mapping is the program's text, which has no separate policy. The result is `default` if `numa_maps`
    contains no policy.
    """
    match = _POLICY.match(numa_maps)
    if match is None or match[1] in {"default", "local"}:
        return "default" if match is None else match[1]
    name = {"prefer": "preferred", "prefer (many)": "preferred", "weighted interleave": "weighted"}
    # Modes with nodes relative to a cpuset may list no nodes, or have a suffix.
    nodes = re.match(r"[0-9,-]*", match[2] or "")
    return f"{name.get(match[1], match[1])}={nodes[0]}" if nodes and nodes[0] else name.get(match[1], match[1])


@dataclass(frozen=True, slots=True)
class PlacementResources:
    """The resources of this machine, which determine the candidates."""

    cpus: int  # number of CPUs that this process may use
    threads_per_core: int
    memory_nodes: int
    thp: str  # mode of transparent huge pages; "" if not supported
    inherited: InheritedPlacement = InheritedPlacement()
    node_of: Mapping[int, int] = field(default_factory=dict)  # node of each CPU if it has memory; empty if unknown


@dataclass(slots=True)
class AdvicePlan:
    """The plan of `meshmark advise`: the command, the candidates and the limits.

    Attributes:
        left_out: The equivalent candidate of each skipped candidate, or why this machine does not support it.
        application: File or name of an application; "" for a command.
        run: Name of the run in the store.
    """

    command: list[str]
    budget_s: float
    seed: int
    figure: str  # regular expression of the figure of merit; "" for the elapsed time
    higher: bool
    candidates: list[Candidate]
    left_out: dict[str, str] = field(default_factory=dict)
    pilot_s: float = 0.0
    inherited: InheritedPlacement = InheritedPlacement()
    run: str = ""
    application: str = ""

    def save(self, path: Path) -> None:
        """Write the plan into a file."""
        write_json(path, self)

    @staticmethod
    def load(path: Path) -> AdvicePlan:
        """Read a plan.

        Raises:
            UsageError: The file does not exist.
            MeshmarkError: The file is not a plan.
        """
        hint = "meshmark advise without --resume starts a new one"
        return load_plan(path, _advice_plan, "meshmark advise", hint)


def _advice_plan(raw: Any) -> AdvicePlan:
    entries = [Candidate(**{**c, "parts": tuple(tuple(map(int, p)) for p in c["parts"])}) for c in raw["candidates"]]
    return AdvicePlan(**{**raw, "candidates": entries, "inherited": InheritedPlacement(**raw.get("inherited", {}))})


# ------------------------------------------------------------------ candidates


def candidates(
    space: SearchSpace,
    resources: PlacementResources,
    busy: int,
    pinned: bool,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> tuple[list[Candidate], dict[str, str]]:
    """Return all candidates with different effects, the baseline first.

    Args:
        space: The values to try.
        resources: The machine.
        busy: Number of threads that computed in the warm-up; the default number of slots.
        pinned: True if the command is one process with OpenMP threads, rather than a launcher of ranks.
        parts_of: Function that plans a placement; see `native.parts_of`.
        missing: Function that returns why options of `meshmark run` are not available here, or ""; by default the
            native program checks this.

    Returns:
        The candidates, and the reasons for skipped candidates by name.
    """
    unavailable = missing or _why_unavailable
    retained, left_out = [Candidate(BASELINE)], dict[str, str]()
    seen: dict[tuple[object, ...], str] = {_effect(retained[0], resources): BASELINE}
    reasons: dict[tuple[str, ...], str] = {}
    for candidate in _product(space, resources, busy, pinned):
        if candidate.policy != "none":
            try:
                parts = parts_of(candidate.policy, candidate.threads or busy, candidate.slots)
            except MeshmarkError as error:
                left_out[candidate.name] = f"absent: {error}"
                continue
            candidate = Candidate(**{**asdict(candidate), "parts": tuple(map(tuple, parts))})  # noqa: PLW2901
        equivalent = seen.setdefault(_effect(candidate, resources), candidate.name)
        if equivalent != candidate.name:
            left_out[candidate.name] = f"the same as '{equivalent}'"
            continue
        for argv in (("--memory", candidate.memory), ("--pages", candidate.pages)):
            if argv[1] != "default" and argv not in reasons:
                reasons[argv] = unavailable(argv)
        reason = reasons.get(("--memory", candidate.memory)) or reasons.get(("--pages", candidate.pages))
        if reason:
            left_out[candidate.name] = f"absent: {reason}"
        else:
            retained.append(candidate)
    return retained, left_out


def _product(space: SearchSpace, resources: PlacementResources, busy: int, pinned: bool) -> Iterator[Candidate]:
    memory = space.memory or (("default", "interleave", "bind") if resources.memory_nodes > 1 else ("default",))
    pages = space.pages or (("default", "4KiB") if resources.thp == "always" else ("default", "thp"))
    smt = space.smt or ((False, True) if resources.threads_per_core > 1 else (False,))
    for threads in space.threads or (None,):
        count = threads or busy
        for policy in space.policies or POLICIES:
            for siblings in smt if policy != "none" else (False,):
                for mem in memory:
                    for page in pages:
                        for wait in space.wait or ("default",):
                            slots = "threads" if siblings else "cores"
                            argv = [policy]
                            argv += [f"{threads} threads"] if threads and len(space.threads) > 1 else []
                            argv += ["siblings"] if siblings else []
                            argv += [w for w in (mem, page) if w != "default"]
                            argv += [f"wait {wait}"] if wait != "default" else []
                            yield Candidate(
                                ", ".join(argv),
                                policy,
                                slots,
                                threads,
                                mem,
                                page,
                                wait,
                                pinned and count > 1 and policy != "none",
                            )


def _effect(candidate: Candidate, resources: PlacementResources) -> tuple[object, ...]:
    """Return the effective settings of a candidate on this machine; candidates with equal effects are duplicates."""
    all_cpus = sorted({c for p in candidate.parts for c in p})
    # A single mask of all allowed CPUs has no effect.
    cpus: object = (
        candidate.parts if candidate.pinned else None if len(all_cpus) in {0, resources.cpus} else tuple(all_cpus)
    )
    memory = _memory_effect(candidate, resources)
    pages = "default" if candidate.pages == "thp" and resources.thp == "always" else candidate.pages
    return cpus, candidate.threads, memory, pages, candidate.wait


def _memory_effect(candidate: Candidate, resources: PlacementResources) -> str:
    """Return the effective memory policy: `local`, which is also the default of Linux, or a policy and its nodes."""
    policy_text = resources.inherited.memory if candidate.memory == "default" else candidate.memory
    policy, _, node_list = policy_text.partition("=")
    if resources.memory_nodes < 2 or policy in {"default", "local"}:
        return "local"
    if policy == "weighted":
        return policy_text
    if node_list:
        nodes = set(parse_list(node_list))
    else:
        nodes = {resources.node_of[c] for part in candidate.parts for c in part if c in resources.node_of}
        if candidate.parts and not resources.node_of:
            return policy  # applies to the nodes of its CPUs, which are unknown
    all_nodes = not nodes or len(nodes) >= resources.memory_nodes
    if all_nodes and policy in {"bind", "preferred"}:
        return "local"  # all nodes are allowed, so the nearest one is used
    return f"{policy}={'all' if all_nodes else format_list(sorted(nodes))}"


def _why_unavailable(options: Sequence[str]) -> str:
    try:
        native.ask(["run", "--bind", "none", "--no-claim", *options, "--", "true"])
    except MeshmarkError as error:
        if isinstance(error, UsageError):
            raise
        return str(error) + (f" (would help: {error.hint})" if error.hint else "")
    return ""
