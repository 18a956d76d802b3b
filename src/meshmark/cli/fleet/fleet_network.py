"""`meshmark fleet pairs` and `fleet place`: measure messages between nodes, and choose nodes near one another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.console import interruptible, print_rows, say
from meshmark.cli.fleet.fleet import (
    EngineOption,
    FolderArgument,
    IdleOption,
    NodesOption,
    RandomOption,
    ResumeOption,
    SeedOption,
    WaitOption,
    fleet_app,
    print_named,
    say_ingested,
)
from meshmark.cli.fleet.fleet_progress import fleet_progress
from meshmark.cli.options import JsonOption, time_option
from meshmark.errors import AbsentError
from meshmark.values.units import counted, plain
from meshmark.values.units import size as sized

if TYPE_CHECKING:
    from meshmark.fleet.engines.engine import Engine
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.network.slow_links import NetworkState
    from meshmark.fleet.network.topology import SwitchTree
    from meshmark.fleet.site import Site


def register() -> None:
    """Add the commands to `meshmark fleet`."""
    fleet_app.command("pairs")(pairs)
    fleet_app.command("place")(place)


def pairs(
    folder: FolderArgument,
    rounds: Annotated[int, typer.Option("--rounds", help="partners of each node", min=1, max=64)] = 8,
    sizes: Annotated[str, typer.Option("--bytes", help="sizes of messages, such as 8,4MiB")] = "8,4MiB",
    budget_s: Annotated[float, time_option("--budget", "time for each pair", default="2s")] = 2.0,
    nodes: NodesOption = "",
    random: RandomOption = 0,
    seed: SeedOption = 0,
    idle: IdleOption = False,
    confirm: Annotated[
        bool, typer.Option("--confirm/--suspects", help="measure suspects again and name nodes, or only list suspects")
    ] = True,
    wait_s: WaitOption = float("inf"),
    engine: EngineOption = "",
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure messages between nodes, and name nodes and switches that are slow with any partner.

    In each round, every node exchanges messages with one other, chosen at random: never all pairs measure.
    Suspects measure again with other partners before they are named.

    example: meshmark fleet pairs /shared/fleet --nodes n[1-16]
    """
    from meshmark.fleet.campaigns.campaign import Campaign, NodeSelection
    from meshmark.fleet.network.pairs import KIND, PairMessages, begin_pairs, measure_pairs, tree_of
    from meshmark.fleet.network.rounds import draw_rounds
    from meshmark.fleet.network.slow_links import look_at_network
    from meshmark.fleet.network.topology import TreePlaces
    from meshmark.fleet.nodesets import fold
    from meshmark.fleet.site import engine_of, fleet_and_site
    from meshmark.values.grammar import sizes as sizes_of

    fleet, site = fleet_and_site(folder, may_be_new=True)
    if resume:
        name = _newest(fleet)
        campaign_start = Campaign.load(fleet, name).begun
        node_engine = engine_of(site, engine or str(campaign_start["engine"]), str(campaign_start["nodes"]))
        tree = tree_of(fleet, site, node_engine)
    else:
        node_engine = engine_of(site, engine, nodes)
        tree = tree_of(fleet, site, node_engine)
        selection = NodeSelection(nodes=nodes or site.nodes, random=random, seed=seed, idle_only=idle)
        sizes_of("--bytes", sizes)  # rejects an invalid list here, before each node rejects it twice
        plan = PairMessages(sizes=sizes, budget_s=budget_s).plan()

        def draw(names: list[str]) -> Any:
            if missing := tree.missing(names):
                say(f"warning: the switches have no {fold(missing)}")
            return draw_rounds(TreePlaces.from_tree(tree, names), rounds, seed)

        name = begin_pairs(fleet, site, node_engine, selection, plan, draw, KIND)
    with interruptible(f"jobs continue; meshmark fleet pairs {folder} --resume"):
        with fleet_progress("pairs") as show:
            _, ingested = measure_pairs(fleet, site, node_engine, name, show, wait_s)
        say_ingested(ingested, "pair")
        for pair, reason in Campaign.load(fleet, name).left.items():
            say(f"warning: {pair} was not measured: {reason}")
        network_look = look_at_network(fleet, site.cluster, name, tree)
        _report(fleet, site, node_engine, tree, network_look, confirm=confirm, as_json=as_json)


def _newest(fleet: Fleet) -> str:
    from meshmark.fleet.network.pairs import KIND

    names = [name for name in fleet.campaigns() if name.startswith(f"{KIND}-")]
    if not names:
        raise AbsentError(f"{fleet.root}: has no campaign of pairs", f"meshmark fleet pairs {fleet.root}")
    return names[-1]


def _report(
    fleet: Fleet, site: Site, used: Engine, tree: SwitchTree, seen: NetworkState, *, confirm: bool, as_json: bool
) -> None:
    from meshmark.fleet.cases import SWITCH
    from meshmark.fleet.network.network_confirm import confirm_network
    from meshmark.fleet.network.slow_links import decide_network, summary

    slow_nodes = []
    suspects = seen.suspects()
    if confirm and seen.screening:
        with fleet_progress("confirmation") as show:
            tests = confirm_network(fleet, site, used, seen, show) if suspects else []
        slow_nodes = decide_network(fleet, site.cluster, seen, tests)
    if as_json:
        print(json.dumps(summary(seen, slow_nodes)))
        return
    print_rows(_levels(seen), as_json=False)
    if seen.screening is None:
        say(f"meshmark: {counted(len(seen.seen.nodes), 'node')}: too few to compare")
    elif not confirm:
        print_rows([{"suspect": name.removeprefix(SWITCH)} for name in suspects], as_json=False)
    else:
        for node in slow_nodes:
            print_named(node)
        say(f"meshmark: {len(slow_nodes)} of {len(seen.seen.nodes)} nodes and {len(tree.switches)} switches are slow")


def _levels(seen: NetworkState) -> list[dict[str, Any]]:
    from meshmark.fleet.network.slow_links import levels

    rows = []
    for row in levels(seen):
        texts = {sized(size): plain(time, "s") for size, time in row["times"].items()}
        rows.append({"level": row["level"], "pairs": row["pairs"], **texts})
    return rows


def place(
    folder: FolderArgument,
    count: Annotated[int, typer.Option("--nodes", help="how many", metavar="N", min=1, show_default=False)],
    among: Annotated[str, typer.Option("--among", help="set of nodes to choose from [all]", metavar="SET")] = "",
    idle: IdleOption = False,
    size: Annotated[str, typer.Option("--bytes", help="size of the messages that should be fast [the smallest]")] = "",
    engine: EngineOption = "",
    as_json: JsonOption = False,
) -> None:
    """Choose nodes near one another, and print the options that request them from a batch system.

    Distances are times that the last `fleet pairs` measured, or else levels of the switches. Nodes with an open case
    are avoided.

    example: meshmark fleet place /shared/fleet --nodes 16
    """
    from meshmark.fleet.network.choice import choose_nodes
    from meshmark.fleet.network.pairs import tree_of
    from meshmark.fleet.nodesets import expand
    from meshmark.fleet.site import engine_of, fleet_and_site
    from meshmark.values.grammar import size as size_of

    fleet, site = fleet_and_site(folder, may_be_new=True)
    if among:
        expand(among, "--among")
    node_engine = engine_of(site, engine, among)
    message_bytes = size_of("--bytes", size) if size else None
    choice = choose_nodes(
        fleet, site, node_engine, tree_of(fleet, site, node_engine), count, among or site.nodes, idle, message_bytes
    )
    if as_json:
        print(json.dumps(choice.to_json()))
        return
    for batch, options in choice.options.items():
        print(f"{batch}: {options}")
    print()
    print_rows(choice.rows(), as_json=False)
    say(f"meshmark: {choice.source}")
