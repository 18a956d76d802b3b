"""Random pairs of nodes: every node has a partner in each round, at all distances."""

from __future__ import annotations

import numpy as np
import pytest

from meshmark.fleet.network.rounds import draw_confirmation, draw_rounds
from meshmark.fleet.network.topology import SwitchTree, TreePlaces, read_tree
from support.made_network import leaves


def places(tree: SwitchTree, count: int) -> TreePlaces:
    return TreePlaces.from_tree(tree, [f"n{i + 1}" for i in range(count)])


@pytest.mark.parametrize("count", [2, 3, 10, 101])
def test_every_node_has_one_partner_in_each_round(count: int) -> None:
    rounds = draw_rounds(places(SwitchTree(), count), 5, seed=1)
    assert len(rounds) == 5
    for pairs in rounds:
        members = [i for pair in pairs for i in pair]
        assert len(members) == len(set(members)) == count // 2 * 2


def test_partners_are_other_ones_in_each_round_if_there_are_enough() -> None:
    rounds = draw_rounds(places(SwitchTree(), 40), 8, seed=1)
    assert len({frozenset(pair) for pairs in rounds for pair in pairs}) == 8 * 20


def test_each_round_prefers_one_distance() -> None:
    tree = read_tree(
        "".join(f"SwitchName=s{i} Nodes=n[{4 * i + 1}-{4 * i + 4}]\n" for i in range(8))
        + "".join(f"SwitchName=m{i} Switches=s[{4 * i}-{4 * i + 3}]\n" for i in range(2))
        + "SwitchName=top Switches=m[0-1]\n",
        "made-up",
    )
    node_places = places(tree, 32)
    for r, pairs in enumerate(draw_rounds(node_places, 6, seed=3)):
        assert {int(node_places.levels(np.array(a), np.array(b))) for a, b in pairs} == {r % 3 + 1}


def test_a_large_branch_does_not_keep_its_nodes_alone() -> None:
    tree = read_tree("SwitchName=a Nodes=n[1-9]\nSwitchName=b Nodes=n[10-11]\nSwitchName=t Switches=a,b\n", "made-up")
    for pairs in draw_rounds(places(tree, 11), 4, seed=0):
        assert len(pairs) == 5


def test_suspects_meet_healthy_nodes_only() -> None:
    node_places = places(leaves(8, 8), 64)
    suspects, healthy = [3, 4], list(range(8, 40))
    for pairs in draw_confirmation(node_places, suspects, healthy, 16, 8, seed=0):
        assert [a for a, _ in pairs if a in suspects] and all(b in healthy[16:] for a, b in pairs if a in suspects)
        members = [i for pair in pairs for i in pair]
        assert len(members) == len(set(members)) == 2 * 2 + 16


def test_another_node_is_left_out_in_each_round() -> None:
    rounds = draw_rounds(places(SwitchTree(), 9), 9, seed=1)
    assert {*range(9)} == {i for pairs in rounds for i in {*range(9)} - {j for pair in pairs for j in pair}}
