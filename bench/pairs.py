"""Measures how well messages between random pairs find slow nodes and switches of a network.

    bench/pairs.py [FLEETS] [--record]    simulated fleets of each kind

Nodes differ by 1 %, times of a pair by 2 %, and one in 20 pairs is disturbed by about 20 %; every node has eight
partners.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from results import add_row, bench_parser, recording

from meshmark.fleet.health.assessment import SMALLEST
from meshmark.fleet.health.screening import Discoveries
from meshmark.fleet.network.topology import SwitchTree

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.made_network import MadeNetwork, leaves  # type: ignore[import-not-found]


def campaign(
    nodes: int, tree: SwitchTree, seed: int, slow: Mapping[str, float], uplinks: Mapping[str, float]
) -> tuple[set[str], set[str]]:
    """Return the suspects and the named nodes."""
    network = MadeNetwork(nodes, tree, seed, slow, uplinks)
    observations = network.look()
    suspects = observations.suspects()
    findings = network.confirmed(observations) if suspects else []
    decisions = Discoveries().decide([t.p for t in findings], nodes + len(tree.switches))
    names = {
        t.name
        for t, is_named in zip(findings, decisions, strict=True)
        if is_named and any(m.by >= SMALLEST for m in t.metrics)
    }
    return set(suspects), names


def main() -> None:
    """Measure what the command line requests."""
    parser = bench_parser(__doc__)
    parser.add_argument("fleets", nargs="?", type=int, default=200)
    options = parser.parse_args()
    with recording("Fleets", options):
        look_for_faults(options.fleets)


def look_for_faults(fleets: int) -> None:
    """Simulate fleets of each kind and print the shares of suspected, named and falsely named nodes."""
    for nodes, nodes_per_leaf in ((16, 16), (64, 8), (512, 32)):
        tree = leaves(nodes // nodes_per_leaf, nodes_per_leaf) if nodes_per_leaf < nodes else SwitchTree()
        cases: dict[str, tuple[dict[str, float], dict[str, float]]] = {"healthy": ({}, {})}
        cases |= {f"node {factor:.0%} slow": ({"n3": factor}, {}) for factor in (0.05, 0.10, 0.20)}
        if tree.switches:
            cases |= {f"uplink {factor:.0%} slow": ({}, {"s1": factor}) for factor in (0.05, 0.10)}
        for title, (slow, uplinks) in cases.items():
            start_s, found, false, suspected, named = time.time(), 0, 0, 0, 0
            true = {*slow, *(f"switch:{s}" for s in uplinks)}
            for seed in range(fleets):
                suspects, names = campaign(nodes, tree, seed, slow, uplinks)
                suspected += true <= suspects
                found += true <= names
                false += bool(names - true)
                named += len(names - true)
            print(
                f"{nodes} nodes, {len(tree.switches)} switches, {title}: "
                + (f"suspected {suspected / fleets:.3f}, found {found / fleets:.3f}, " if true else "")
                + f"fleets with false names {false / fleets:.3f} ({named} names), "
                f"{(time.time() - start_s) / fleets:.2f} s each",
                flush=True,
            )
            label = f"{nodes} nodes, {len(tree.switches)} switches, {title}"
            add_row(f"{label}: fleets with false names", f"of {fleets}", false, notes=f"{named} names")
            if true:
                notes = f"suspected in {100 * suspected / fleets:.0f} %"
                add_row(f"{label}: named", "%", 100 * found / fleets, notes=notes)


if __name__ == "__main__":
    main()
