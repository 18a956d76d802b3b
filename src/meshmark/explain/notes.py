"""Notes that follow a verdict: what the command leaves as it is, and what else slows the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from meshmark.explain.actions import Action
from meshmark.explain.situation import CONCENTRATED, Situation, main_node
from meshmark.machine.tree import format_list, parse_list
from meshmark.values.units import counted, number, plain

_STOPPED: Final = 0.25  # share of the observation for which the quota stopped threads
_INTERRUPTS_PER_S: Final = 1000  # of a device, from which it matters on which node they are handled


def notes(s: Situation, action: Action | None, cause: str) -> Iterator[str]:
    """Yield sentences about a program.

    Args:
        s: The program.
        action: The change that the verdict suggests.
        cause: The cause that the verdict names.
    """
    nodes = action.nodes if action else ()
    binding = {policy for p in s.judged for policy in (p.pages.policies if p.pages else ()) if policy != "default"}
    elsewhere = sorted(p for p in binding if nodes and ":" in p and set(parse_list(p.partition(":")[2])) - set(nodes))
    if elsewhere:
        yield f"its memory policy ({', '.join(elsewhere)}) remains, so that new pages may again be on other nodes"
    if action and action.change == "spread":
        again = f"meshmark run --memory interleave={format_list(nodes)} -- COMMAND"
        yield f"memory that it touches later follows its own policy; to spread that, too, start it with: {again}"
    if action and action.change in {"move", "spread"} and len(s.target.processes) > 1 and not action.shared:
        yield "pages that its processes share stay where they are, unless root runs the command with --shared"
    swapped = sum(p.swapped_bytes for p in s.observation.processes)
    if swapped:
        yield f"{plain(swapped, 'B')} of its memory are in swap; touching them again waits for a disk"
    yield from _limits(s)
    yield from _distant_interrupts(s)
    if any(p.pages and p.pages.truncated for p in s.observation.processes):
        yield "only the first mappings of its memory were read, because Linux before 6.11 cannot search them"
    unseen = {p.pages_absent for p in s.observation.processes if p.pages_absent}
    if unseen and cause not in {"pages", "one-node"}:
        yield f"of some processes, the pages are unknown: {min(unseen)}"


def _limits(s: Situation) -> Iterator[str]:
    around, seconds = s.observation.surroundings, s.observation.seconds
    if around.throttled_s > _STOPPED * seconds:
        stopped = f"for {around.throttled_s:.2f} s of thread time"
        yield f"its CPU quota stopped it {stopped}: meshmark doctor --pid {s.process}"
    if around.reclaims:
        times = counted(around.reclaims, "time")
        yield f"it reached memory.high {times} in {seconds:.1f} s, and waited until memory was freed"
    postponed = sum(n for (kind, _), n in around.scheduling.items() if kind == "idle")
    if postponed:
        threads = counted(postponed, "of its threads has", "of its threads have")
        yield f"{threads} the scheduling class idle, and run only on CPUs that nothing else needs"


def _distant_interrupts(s: Situation) -> Iterator[str]:
    """Name devices whose interrupts are handled on a node where the program hardly runs."""
    ran = s.observation.ran_by_node
    for device, by_node in s.observation.surroundings.interrupts.items():
        node, rate = main_node(by_node), sum(by_node.values()) / s.observation.seconds
        there = by_node[node] >= CONCENTRATED * sum(by_node.values())
        runs_there = ran.get(node, 0.0) >= (1 - CONCENTRATED) * sum(ran.values())
        if ran and rate >= _INTERRUPTS_PER_S and there and not runs_there:
            handled = f"node {node} handles the interrupts of {device} ({number(rate)} per second)"
            yield f"{handled}, but its threads ran on node {main_node(ran)}: /proc/irq/*/smp_affinity_list moves them"
