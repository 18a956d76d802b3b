"""Choosing nodes near each other: the set is as good as the best of all sets, and better than the first by name."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.fleet.cases import NETWORK, CasesState, NamedNode
from meshmark.fleet.folder import Fleet
from meshmark.fleet.network.links import TimeTerms, without_noise
from meshmark.fleet.network.placing import Distances, choose, exported, random_spread
from meshmark.fleet.network.topology import SwitchTree, read_tree
from support.made_network import MadeNetwork, leaves

TOPOLOGY = "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n[5-12]\nSwitchName=top Switches=s[0-1]\n"


def made(seed: int, count: int = 11) -> Distances:
    """Return the distances of nodes that are distributed randomly below switches, one of which has a slow uplink."""
    rng = np.random.default_rng(seed)
    switches = np.sort(rng.integers(0, 4, count))
    lines = [
        f"SwitchName=s{s} Nodes={','.join(f'n{i}' for i in np.flatnonzero(switches == s))}"
        for s in np.unique(switches).tolist()
    ]
    text = "\n".join([*lines, f"SwitchName=top Switches={','.join(f's{s}' for s in np.unique(switches).tolist())}"])
    names = [f"n{i}" for i in range(count)]
    terms = TimeTerms(
        np.array([[0.0], [0.1], [0.1 + rng.uniform(0, 0.6)]]),
        rng.normal(0, 0.15, (count, 1)),
        {f"s{switches[0]}": np.array([0.3])},
    )
    return Distances(read_tree(text, "made-up"), names, terms, names)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_small_sets_are_as_good_as_the_best(count: int) -> None:
    for seed in range(12):
        distances = made(seed)
        best = min(distances.spread(np.array(subset)).mean for subset in combinations(range(11), count))
        indices = choose(distances, np.arange(11), count)
        assert len(set(indices.tolist())) == count
        assert distances.spread(indices).mean <= best * 1.01


def test_a_slow_node_is_left_out_and_the_set_is_below_one_switch() -> None:
    network = MadeNetwork(64, leaves(8, 8), 5, slow={"n3": 0.4})
    findings = network.look()
    distances = Distances(network.tree, network.nodes, findings.terms, network.nodes)
    indices = choose(distances, np.arange(64), 7)
    assert len({i // 8 for i in indices.tolist()}) == 1 and 2 not in indices
    assert distances.spread(indices).mean < random_spread(distances, np.arange(64), 7).mean


def test_expected_times_are_as_far_apart_as_those_of_other_messages() -> None:
    """The expected time of the chosen nodes holds: measurement noise does not count as a difference of nodes."""
    for between in (0.0, 0.05):
        network = MadeNetwork(200, SwitchTree(), 7, between=between)
        findings = network.look()
        terms = without_noise(findings.seen.pair_times, findings.places, findings.terms)
        distances = Distances(network.tree, network.nodes, terms, network.nodes)
        indices = choose(distances, np.arange(200), 20)
        true_time = np.mean([network.own[f"n{i + 1}"][0] for i in indices.tolist()]) - np.median(
            [times[0] for times in network.own.values()]
        )
        promised_time = np.log(distances.spread(indices).mean / distances.spread(np.arange(200)).median) / 2
        assert promised_time == pytest.approx(true_time, abs=0.008)


def test_options_of_batch_systems() -> None:
    tree = read_tree(TOPOLOGY, "made-up")
    options = exported(tree, ["n1", "n2", "n7"])
    assert options["slurm"] == "--nodes=3 --nodelist=n[1-2,7]"
    assert options["pbs"] == "-l select=1:host=n1+1:host=n2+1:host=n7 -l place=scatter"
    assert options["lsf"] == '-n 3 -R "span[ptile=1]" -m "n1 n2 n7"'
    assert options["flux"] == "--nodes=3 --requires=hosts:n1,n2,n7"
    assert options["mpirun"] == "-H n1:1,n2:1,n7:1"
    assert options["slurm, any nodes as near"] == "--nodes=3 --switches=2"
    assert "slurm, any nodes as near" not in exported(SwitchTree(), ["n1"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "topology.conf").write_text(TOPOLOGY)
    (tmp_path / "fleet.toml").write_text('engine = "local"\nnodes = "n[1-12]"\ntopology = "topology.conf"\n')
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["fleet", "place", *words])


def test_without_measurements_switches_decide(folder: Path) -> None:
    answer = json.loads(run(str(folder), "--nodes", "6", "--json").stdout)
    assert set(answer["nodes"]) <= {f"n{i}" for i in range(5, 13)} and answer["unit"] == "levels"
    assert answer["spreads"]["chosen"]["worst"] == 1.0 and answer["spreads"]["first by name"]["worst"] == 2.0


def test_nodes_with_an_open_case_are_avoided(folder: Path) -> None:
    state = CasesState()
    for name in ("n6", "switch:s0"):
        state.open[name] = NamedNode(name, "network", 0.0, [], [], {}, "pairs-20261126T120000-aaaaaa", "")
    (folder / "judgements").mkdir()
    state.save(Fleet(folder), "cluster", NETWORK)
    answer = json.loads(run(str(folder), "--nodes", "7", "--json").stdout)
    assert answer["nodes"] == ["n5", *(f"n{i}" for i in range(7, 13))] and answer["avoided"] == ["n6"]
    assert "allowed: at most 11 of 12 nodes (1 with an open case)" in str(run(str(folder), "--nodes", "12").exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "13"), "--nodes: found 13; allowed: at most 12 of 12 nodes, all that"),
        (("--nodes", "2", "--among", "n["), "--among: found 'n['; allowed: a set"),
        (("--nodes", "2", "--bytes", "8"), "--bytes: found 8, but no messages were measured"),
    ],
)
def test_what_cannot_be_chosen_is_named(folder: Path, words: tuple[str, ...], message: str) -> None:
    assert str(run(str(folder), *words).exception).startswith(message)
