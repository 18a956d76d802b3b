"""Provokes a spill: fills a node briefly and finds the nodes on which further pages are allocated."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from meshmark import process
from meshmark.doctor.finding import HostFinding
from meshmark.doctor.settings import NEARLY, NODE, full_nodes
from meshmark.doctor.trials import MPOL_PREFERRED, NO_HUGE_PAGES, give_policy, node_of_pages
from meshmark.machine.memory import group_available_bytes, machine_available_bytes
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, format_list, kilobytes

_LEFT: Final = 64 << 20  # B left available, or 1/20 of the memory if that is more
_FILLING_S: Final = 60.0  # time limit per node


@dataclass(frozen=True, slots=True)
class Spill:
    """Result of filling a node: bytes allocated on it before the first spill, and the number of spilled pages by node.

    `why` is the reason why no pages spilled; "" if some did.
    """

    filled: int
    elsewhere: Mapping[int, int]
    why: str = ""


def _room(tree: FileTree) -> int:
    """Return how many bytes may be allocated: available on the machine and in its cgroups, less the reserve."""
    total = kilobytes(tree.text("proc/meminfo"), "MemTotal") or 0
    room = machine_available_bytes(tree) - max(_LEFT, total // 20)
    group = group_available_bytes(tree)
    return room if group is None else min(room, group - _LEFT)


def fill_node(tree: FileTree, node: int) -> Spill:
    """Allocate pages that prefer a node until the node spills. Run it in a child process, whose exit frees them."""
    blocks: list[mmap.mmap] = []
    filled, deadline = 0, time.monotonic() + _FILLING_S
    while True:
        free = kilobytes(tree.text(f"{NODE}/node{node}/meminfo"), "MemFree") or 0
        step = max(4 << 20, min(256 << 20, free // 8)) // mmap.PAGESIZE * mmap.PAGESIZE
        if step > _room(tree):
            return Spill(filled, {}, f"stopped at {filled >> 20} MiB: too little memory left")
        if time.monotonic() > deadline:
            return Spill(filled, {}, f"not full after {_FILLING_S:.0f} s and {filled >> 20} MiB")
        blocks.append(block := mmap.mmap(-1, step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        block.madvise(NO_HUGE_PAGES)
        base = ctypes.addressof(ctypes.c_char.from_buffer(block))
        give_policy(base, step, MPOL_PREFERRED, node)
        ctypes.memset(base, 1, step)
        pages_by_node = node_of_pages(base, step)
        filled += pages_by_node.pop(node, 0) * mmap.PAGESIZE
        if pages_by_node:
            return Spill(filled, pages_by_node)


def in_child(work: Callable[[], Spill]) -> Spill:
    """Run `work` in a new process, which the kernel kills first if memory runs out.

    Args:
        work: A function that can be pickled, since the process is a new interpreter, not a fork of this one.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(work, sender, os.getpid()))
    child.start()
    sender.close()
    try:
        spill: Spill = receiver.recv()
    except EOFError:
        return Spill(0, {}, "the filling process was killed")
    except BaseException:
        child.kill()  # otherwise, it would keep filling the node
        raise
    finally:
        child.join()
        receiver.close()
    return spill


def _send_result(work: Callable[[], Spill], sender: Connection, parent: int) -> None:
    try:
        process.die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        spill = work()
    except Exception as error:
        spill = Spill(0, {}, getattr(error, "strerror", None) or str(error))
    sender.send(spill)


def provoked(tree: FileTree, topology: Topology) -> HostFinding:
    """Return a finding about whether pages of a full node go to the nearest node with free memory.

    Only a live system is tested.
    """
    name, effect = "spill, provoked", "pages of a full node go to the nearest node with free memory"
    nodes = [n.os_index for n in topology.nodes if n.memory_bytes != 0]
    table = topology.distances
    if not tree.live:
        return HostFinding(name, "tested on live systems only", "unknown", effect)
    if len(nodes) < 2 or table is None:
        reason = (
            "one node has memory: nothing to spill to" if len(nodes) < 2 else "the nodes have no matrix of distances"
        )
        return HostFinding(name, reason, "unknown", effect)
    index_by_node = {n.os_index: i for i, n in enumerate(topology.nodes)}
    texts: list[str] = []
    wrong_nodes: list[int] = []
    tested_count = 0
    for node in nodes:
        free, room = (kilobytes(tree.text(f"{NODE}/node{node}/meminfo"), "MemFree") or 0), _room(tree)
        if free > room:
            texts.append(f"node {node} not tested: {free >> 20} MiB free, {max(0, room) >> 20} MiB may be used")
            continue
        full = set(full_nodes(tree))
        spill = in_child(partial(fill_node, tree, node))
        if spill.why:
            texts.append(f"node {node}: {spill.why}")
            continue
        tested_count += 1
        distances = {
            n: table[index_by_node[node]][index_by_node[n]]
            for n in nodes
            if n != node and (n not in full or n in spill.elsewhere)
        }
        targets = ", ".join(
            f"{n} (distance {distances[n]})" if n in distances else f"{n}" for n in sorted(spill.elsewhere)
        )
        texts.append(f"node {node} spills to {targets} after {spill.filled >> 20} MiB")
        if any(distances.get(n, 0) > min(distances.values()) + NEARLY for n in spill.elsewhere):
            wrong_nodes.append(node)
    observation = "; ".join(texts)
    if wrong_nodes:
        return HostFinding(
            name,
            observation + f": from node {format_list(wrong_nodes)} not to the nearest node",
            "wrong",
            effect,
            "check whether the firmware changed node distances; bind with --memory bind",
        )
    return HostFinding(name, observation, "ok" if tested_count else "unknown", effect)
