"""Judges whether a running program is placed well, and names the one command that would help.

Verdicts are conservative: a change is suggested only if it lets the program reach much more of its memory on its own
node, or use CPUs that are idle. docs/explanation/placed.md describes each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from meshmark.explain.access_cost import AccessSlowdown, bandwidth_slowdown, slowdown
from meshmark.explain.actions import Action
from meshmark.explain.notes import notes
from meshmark.explain.situation import CONCENTRATED, Situation, main_node
from meshmark.machine.tree import format_list
from meshmark.values.units import number

Kind = Literal["well placed", "badly placed", "could not tell"]
_IDLE: Final = 0.02  # CPUs; a program that uses less says nothing about its placement
_REMOTE: Final = 0.25  # share of accesses to other nodes from which a change is considered
_SLOWER: Final = 1.05  # least ratio of the mean costs of access
_WAITING: Final = 0.25  # share of the time in which threads could run, but waited
_IDLE_INSIDE: Final = 0.25  # share of their own CPUs that is idle, from which threads wait for something else
_WAITING_CPUS: Final = 0.5  # CPUs for which threads waited, on average
_ROOM: Final = 0.95  # share of the free memory of a node that may be filled
_FILLED: Final = 0.9  # share of the CPUs of a node that a program may use
_PAGES: Final = 50  # least number of pages for a judgement


@dataclass(frozen=True, slots=True)
class PlacementVerdict:
    """The answer about one program.

    Attributes:
        kind: The verdict.
        cause: A word for programs, such as `remote-memory`; see docs/explanation/placed.md.
        sentence: The verdict in one sentence.
        action: The one change that helps; None if none is needed or known.
        gain: How many times longer memory access takes now than after the command; None if it is unknown.
        notes: Sentences about what the command leaves as it is, and about what else slows the program.
    """

    kind: Kind
    cause: str
    sentence: str
    action: Action | None = None
    gain: AccessSlowdown | None = None
    notes: tuple[str, ...] = ()


def judge(s: Situation) -> PlacementVerdict:
    """Return the verdict of the first rule that applies."""
    verdict = next((v for rule in _RULES if (v := rule(s)) is not None), None) or _well(s)
    return replace(verdict, notes=tuple(notes(s, verdict.action, verdict.cause)))


# ------------------------------------------------------------------ rules


def _one_node(s: Situation) -> PlacementVerdict | None:
    if len(s.memory_nodes) > 1:
        return None
    return PlacementVerdict(
        "well placed", "one-node", "no change suggested: this machine has one memory node, equally near to all CPUs"
    )


def _idle(s: Situation) -> PlacementVerdict | None:
    used = s.observation.ran_s / s.observation.seconds
    if s.demand >= _IDLE:
        return None
    sentence = (
        f"could not tell: it used {100 * used:.1f} % of a CPU in {s.observation.seconds:.1f} s, which is too little"
    )
    return PlacementVerdict("could not tell", "idle", sentence + "; observe it while it works, or longer (--duration)")


def _unknown_pages(s: Situation) -> PlacementVerdict | None:
    if s.judged and s.sampled >= _PAGES:
        return None
    reason = next((p.pages_absent for p in s.observation.processes if p.pages_absent), "")
    if not reason:
        reason = f"only {s.sampled} of its pages are in memory, too few for a judgement"
    return PlacementVerdict("could not tell", "pages", f"could not tell: {reason}")


def _waits_for_cpus(s: Situation) -> PlacementVerdict | None:
    """Threads that share few CPUs although others that they may use are idle."""
    worst = max(s.observation.masks, key=lambda m: m.waited_s, default=None)
    if worst is None or worst.waited_s < _WAITING * (worst.ran_s + worst.waited_s):
        return None
    cpus, idle_by_cpu = set(worst.cpus), s.observation.idle_by_cpu
    outside = [c for c in s.topology.allowed_cpus if c not in cpus]
    idle = sum(idle_by_cpu.get(c, 0.0) for c in outside)
    if sum(idle_by_cpu.get(c, 0.0) for c in cpus) >= _IDLE_INSIDE * len(cpus):
        return None
    if not outside or idle < 1 or worst.waited_s < _WAITING_CPUS * s.observation.seconds:
        return None
    share = worst.waited_s / (worst.ran_s + worst.waited_s)
    sentence = (
        f"its {worst.threads} threads may run on CPUs {format_list(worst.cpus)} only and waited "
        f"{100 * share:.0f} % of the time in which they could run, while {idle:.0f} other CPUs were idle"
    )
    needed = max(len(worst.cpus) + 1, round((worst.ran_s + worst.waited_s) / s.observation.seconds + 0.5))
    target = _nearest_cpus(s, worst.cpus, needed)
    action = Action("widen", tuple(s.memory_nodes), target, binds=True)
    return PlacementVerdict("badly placed", "few-cpus", sentence, action)


def _nearest_cpus(s: Situation, cpus: tuple[int, ...], needed: int) -> tuple[int, ...]:
    """Return at least `needed` CPUs: whole nodes, beginning with that of the present CPUs."""
    first = next((n.os_index for n in s.topology.nodes if set(n.cpus) & set(cpus)), s.memory_nodes[0])
    order = sorted((n.os_index for n in s.topology.nodes if n.cpus), key=lambda n: (n != first, _cost(s, first, n), n))
    chosen: list[int] = []
    for node in order:
        if len(chosen) >= needed:
            break
        chosen += s.cpus_of(node)
    return tuple(sorted(chosen))


def _cost(s: Situation, a: int, b: int) -> float:
    return s.cost.value.get((a, b), 0.0) if s.cost else float(a != b)


def _remote_memory(s: Situation) -> PlacementVerdict | None:
    """Many accesses must go to other nodes, and one node could hold the threads and the pages."""
    if 1 - s.most_local < _REMOTE:
        return None
    ran, pages = s.observation.ran_by_node, s.observation.pages_by_node
    threads_at, pages_at = main_node(ran), main_node(pages)
    concentrated = ran[threads_at] >= CONCENTRATED * sum(ran.values())
    node = _target_node(s, threads_at)
    if node is None and not concentrated:
        return _spread(s)
    gain = _gain(s, threads_at if node is None else node)
    if gain is not None and gain.low < _SLOWER:
        return None
    if threads_at == pages_at and concentrated:
        sentence = f"only {_share_text(pages, threads_at)} of its pages are on node {threads_at}, where its threads ran"
    elif concentrated:
        sentence = f"{_share_text(pages, pages_at)} of its pages are on node {pages_at}, "
        sentence += f"but its threads ran on node {threads_at}"
    else:
        sentence = f"{_share_text(pages, pages_at)} of its pages are on node {pages_at}, "
        sentence += f"but its threads ran on nodes {format_list(sorted(ran))}"
    sentence += _slower_text(gain)
    cpuset, permitted = s.observation.surroundings.cpuset, None
    if node is None and cpuset and (permitted := _target_node(s, threads_at, lifted=True)) is not None:
        limits = f"CPUs {format_list(cpuset.cpus)} and memory of nodes {format_list(cpuset.nodes)}"
        sentence += f"; its control group {cpuset.path} permits only {limits}"
        action = Action("permit", (permitted,), s.cpus_of(permitted), group=cpuset.path)
        return PlacementVerdict("badly placed", "cpuset", sentence, action, _gain(s, permitted))
    if node is None:
        return PlacementVerdict("badly placed", "no-room", f"{sentence}; no node has room for its threads and memory")
    bound = all(set(m.cpus) <= set(s.cpus_of(node)) for p in s.judged for m in p.masks)
    action = Action("move", (node,), s.cpus_of(node), binds=not bound, shared=_moves_shared(s))
    return PlacementVerdict("badly placed", "remote-memory", sentence, action, gain)


def _gain(s: Situation, node: int) -> AccessSlowdown | None:
    """Return what it costs that the pages are not on the memory node nearest to a node of CPUs; None if unknown."""
    if s.cost is None:
        return None
    cost = s.cost
    nearest = min(s.memory_nodes, key=lambda n: (cost.value.get((node, n), float("inf")), n))
    return slowdown(cost, s.accesses(), {(node, nearest): 1.0}, s.sampled)


def _spread(s: Situation) -> PlacementVerdict | None:
    """Threads on several nodes, which they need, but the pages on one: the first touch of a single thread."""
    ran, pages = s.observation.ran_by_node, s.observation.pages_by_node
    nodes = [n for n, t in ran.items() if t >= 0.1 * sum(ran.values()) and n in s.memory_nodes]
    pages_at = main_node(pages)
    if len(nodes) < 2 or pages[pages_at] < CONCENTRATED * sum(pages.values()):
        return None
    share = pages[pages_at] / sum(pages.values())
    if share < 1.5 / len(nodes):
        return None
    sentence = (
        f"{100 * share:.0f} % of its pages are on node {pages_at}, but its threads run on nodes "
        f"{format_list(nodes)}, so that one node's memory serves all of them; "
        f"probably one thread touched the pages first"
    )
    gain = bandwidth_slowdown(s.bandwidth, pages, nodes)
    return PlacementVerdict(
        "badly placed", "first-touch", sentence, Action("spread", tuple(nodes), shared=_moves_shared(s)), gain
    )


def _moves_shared(s: Situation) -> bool:
    """Return whether pages that the processes of the program share are to move, such as the buffers of a database."""
    return s.privileged and len(s.target.processes) > 1


def _target_node(s: Situation, preferred: int, *, lifted: bool = False) -> int | None:
    """Return the node with room for all threads and pages of the program: the preferred node, or the node of its pages.

    Args:
        s: The program.
        preferred: The node that is tried first.
        lifted: Whether its control group permits every node.
    """
    pages = s.observation.pages_by_node
    ran = s.observation.ran_by_node
    others = sorted(s.memory_nodes, key=lambda n: (-pages.get(n, 0.0), n))
    for node in dict.fromkeys([preferred, *others]):
        cpus = s.cpus_of(node)
        bound = all(set(m.cpus) <= set(cpus) for p in s.judged for m in p.masks)
        usable = s.observation.idle_by_node.get(node, 0.0) + ran.get(node, 0.0) / s.observation.seconds
        fits = bound or s.demand <= _FILLED * min(float(len(cpus)), usable)
        arriving = sum(b for n, b in pages.items() if n != node)
        if cpus and (lifted or s.permits(node)) and fits and arriving <= _ROOM * s.free_by_node.get(node, 0):
            return node
    return None


def _well(s: Situation) -> PlacementVerdict:
    ran, pages = s.observation.ran_by_node, s.observation.pages_by_node
    threads_at = main_node(ran)
    if ran[threads_at] >= CONCENTRATED * sum(ran.values()):
        sentence = f"its threads ran on node {threads_at}, where {_share_text(pages, threads_at)} of its pages are"
    else:
        sentence = (
            f"its threads ran on nodes {format_list(sorted(ran))} and its pages are spread over nodes "
            f"{format_list(sorted(pages))}, so that up to {100 * s.most_local:.0f} % of its accesses are local"
        )
    return PlacementVerdict("well placed", "local", f"no change suggested: {sentence}")


_RULES: Final[tuple[Callable[[Situation], PlacementVerdict | None], ...]] = (
    _one_node,
    _idle,
    _waits_for_cpus,
    _unknown_pages,
    _remote_memory,
)


# ------------------------------------------------------------------ texts


def _share_text(by_node: Mapping[int, float], node: int) -> str:
    return f"{100 * by_node.get(node, 0.0) / sum(by_node.values()):.0f} %"


def _slower_text(gain: AccessSlowdown | None) -> str:
    if gain is None:
        return ""
    if not gain.measured:
        return f": memory access takes longer than necessary, by the firmware's distances {number(gain.ratio)} times"
    interval = f"{number(gain.low)} to {number(gain.high)}"
    return f": memory access takes about {number(gain.ratio)} times as long as necessary ({interval})"
