"""Switches as Slurm describes them, and distances between nodes below them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshmark.errors import UsageError
from meshmark.fleet.engines.local import Local
from meshmark.fleet.engines.slurm import Slurm
from meshmark.fleet.folder import Fleet
from meshmark.fleet.network.pairs import tree_of
from meshmark.fleet.network.topology import SwitchTree, TreePlaces, load_tree, read_tree
from meshmark.fleet.site import Site

CONF = """\
# three levels, of which one branch is short
SwitchName=s0 Nodes=n[1-2]
switchname=s1 nodes=n[3-4] LinkSpeed=100
SwitchName=mid Switches=s[0-1]
SwitchName=s9 \\
  Nodes=n[5-6]
SwitchName=top Switches=mid,s9
"""
SHOWN = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=s9 Level=0 LinkSpeed=1 Nodes=n[5-6]
SwitchName=mid Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]
SwitchName=top Level=2 LinkSpeed=1 Nodes=n[1-6] Switches=mid,s9
"""
NAMES = [f"n{i}" for i in range(1, 8)]  # n7 is not below any switch
DISTANCES = [
    [0, 1, 2, 2, 3, 3, 4],
    [1, 0, 2, 2, 3, 3, 4],
    [2, 2, 0, 1, 3, 3, 4],
    [2, 2, 1, 0, 3, 3, 4],
    [3, 3, 3, 3, 0, 1, 4],
    [3, 3, 3, 3, 1, 0, 4],
    [4, 4, 4, 4, 4, 4, 0],
]


@pytest.mark.parametrize("text", [CONF, SHOWN])
def test_the_distance_is_the_height_of_the_lowest_common_switch(text: str) -> None:
    tree = read_tree(text, "topology.conf")
    places = TreePlaces.from_tree(tree, NAMES)
    indices = np.arange(len(NAMES))
    assert places.levels(indices[:, None], indices[None, :]).tolist() == DISTANCES
    assert [NAMES[i] for i in places.below("mid")] == ["n1", "n2", "n3", "n4"]
    assert tree.missing(NAMES) == ["n7"]


def test_without_switches_all_nodes_are_at_one_distance() -> None:
    places = TreePlaces.from_tree(SwitchTree(), NAMES[:3])
    assert places.levels(np.arange(3)[:, None], np.arange(3)).tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_blocks_are_switches() -> None:
    tree = read_tree("BlockName=b1 Nodes=n[1-3]\nBlockName=b2 Nodes=n[4-6]\nBlockSizes=3\n", "topology.conf")
    assert TreePlaces.from_tree(tree, NAMES).levels(np.array([0, 0]), np.array([1, 3])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Nodes=n1", "line 1: found 'Nodes=n1'; allowed: lines such as"),
        ("SwitchName=s1 Nodes=n1\nrubbish", "line 2: found 'rubbish'"),
        ("SwitchName=s1", "line 1: found s1 without Nodes and Switches"),
        ("SwitchName=s1 Nodes=n1\nSwitchName=s1 Nodes=n2", "line 2: found a second s1"),
        ("SwitchName=s1 Nodes=n[1", r"line 1: Nodes: found 'n\[1'"),
        ("SwitchName=a Switches=b", "a: found Switches=b; allowed: its switches, a"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "found a loop of switches, a, b"),
        ("SwitchName=a Switches=a", "found a loop of switches, a; allowed: a tree"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]", "found n2 below a and below b; allowed: a tree"),
        (
            "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a",
            "found a below b and below c; allowed: a tree",
        ),
    ],
)
def test_what_is_no_tree_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"^topology.conf: {message}"):
        load_tree(path)


def test_a_chain_of_very_many_switches_is_refused(tmp_path: Path) -> None:
    chain = "".join(f"SwitchName=s{i} Switches=s{i - 1}\n" for i in range(1, 5000))
    with pytest.raises(UsageError, match=r"found switches above 32 others, .*; allowed: up to 32 levels"):
        read_tree("SwitchName=s0 Nodes=n1\n" + chain, "topology.conf")


def test_all_lines_together_name_a_limited_number_of_nodes() -> None:
    lines = "".join(f"SwitchName=s{i} Nodes=n{i}x[1-199999]\n" for i in range(9))
    with pytest.raises(UsageError, match="line 5: found 999,995 names so far; allowed: up to 800,000 in all lines"):
        read_tree(lines, "topology.conf")


def test_the_file_of_the_site_comes_before_what_slurm_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for topology, height in ((SHOWN, 3), ("No topology information available\n", 0)):
        scontrol.write_text(f"#!/bin/sh\ncat <<EOF\n{topology}EOF\n")
        scontrol.chmod(0o755)
        assert tree_of(Fleet(tmp_path), Site(), Slurm()).height == height
    (tmp_path / "t.conf").write_text("SwitchName=s Nodes=n[1-4]\n")
    assert tree_of(Fleet(tmp_path), Site(topology="t.conf"), Slurm()).height == 1
    assert tree_of(Fleet(tmp_path), Site(), Local()).height == 0
