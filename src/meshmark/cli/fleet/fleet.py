"""`meshmark fleet`: surveys, checks and judges the nodes of a cluster."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from meshmark.cli import completion
from meshmark.cli.console import interruptible, print_rows, say, say_undrawn
from meshmark.cli.fleet import fleet_data, fleet_serve
from meshmark.cli.fleet.fleet_progress import fleet_progress
from meshmark.cli.options import JsonOption, time_option, writable
from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.values.units import counted

if TYPE_CHECKING:
    from meshmark.fleet.actions import DrainResult
    from meshmark.fleet.campaigns.campaign import CampaignProgress, NodeSelection
    from meshmark.fleet.cases import NamedNode
    from meshmark.fleet.data.ingest import IngestResult
    from meshmark.fleet.folder import Fleet

_FAILURES: Final = 10  # maximum number of printed failures of applications
fleet_app = typer.Typer(no_args_is_help=True)
FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="folder of the fleet, which all nodes can write", file_okay=False)
]
NodesOption = Annotated[
    str,
    typer.Option(
        "--nodes",
        help="set of nodes, such as n[1-16] [all]",
        metavar="SET",
        show_default=False,
        autocompletion=completion.nodes,
    ),
]
RandomOption = Annotated[int, typer.Option("--random", help="number of nodes to choose at random; 0: all", min=0)]
SeedOption = Annotated[int, typer.Option("--seed", help="seed of the random choice")]
IdleOption = Annotated[bool, typer.Option("--idle", help="leave out nodes that are busy now")]
WaitOption = Annotated[
    float, time_option("--wait", "maximum time to wait for busy nodes", default="until they are free")
]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="slurm, pbs, lsf, flux, ssh, psij or local [the one that is installed]",
        show_default=False,
        autocompletion=completion.engines,
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="resume the last campaign")]
CampaignOption = Annotated[
    str, typer.Option("--campaign", help="name of a campaign, or latest", autocompletion=completion.campaigns)
]


def register(app: typer.Typer) -> None:
    """Add the group `fleet`."""
    fleet_app.command("compact")(fleet_data.compact)
    fleet_app.command("serve")(fleet_serve.serve)
    app.add_typer(fleet_app, name="fleet", help="Survey, check and judge the nodes of a cluster.")


@fleet_app.command("run")
def run(
    folder: FolderArgument,
    spec: Annotated[str, typer.Option("--spec", help="the steps to run: quick, full or a file (TOML)")] = "node-survey",
    nodes: NodesOption = "",
    random: RandomOption = 0,
    seed: SeedOption = 0,
    idle: IdleOption = False,
    wait_s: WaitOption = float("inf"),
    engine: EngineOption = "",
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Survey nodes, each alone, through the installed batch system.

    Idle nodes come first; nodes that are down are left out. --resume continues an interrupted campaign
    and measures no node twice.

    example: meshmark fleet run /shared/fleet --nodes n[1-16]
    """
    from meshmark.fleet.campaigns.campaign import NodeSelection

    selection = NodeSelection(nodes=nodes, random=random, seed=seed, idle_only=idle)
    _measure("survey", folder, spec, selection, engine, wait_s=wait_s, resume=resume, as_json=as_json)


@fleet_app.command("check")
def check(
    folder: FolderArgument,
    spec: Annotated[str, typer.Option("--spec", help="the steps to run: a file (TOML)")] = "node-check",
    nodes: NodesOption = "",
    random: RandomOption = 0,
    seed: SeedOption = 0,
    idle: IdleOption = False,
    beside: Annotated[bool, typer.Option("--beside", help="also check nodes that run other work")] = False,
    wait_s: WaitOption = float("inf"),
    engine: EngineOption = "",
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check each node in half a minute, with little memory.

    Nodes that run other work are not measured, unless --beside is given.

    example: meshmark fleet check /shared/fleet --random 50
    """
    from meshmark.fleet.campaigns.campaign import NodeSelection

    selection = NodeSelection(nodes=nodes, random=random, seed=seed, idle_only=idle)
    _measure("check", folder, spec, selection, engine, wait_s=wait_s, resume=resume, as_json=as_json, beside=beside)


@fleet_app.command("ingest")
def ingest_command(folder: FolderArgument, campaign: CampaignOption = "latest", as_json: JsonOption = False) -> None:
    """Ingest the results that nodes have written, even while a campaign runs.

    example: meshmark fleet ingest /shared/fleet
    """
    from meshmark.fleet.campaigns.campaign import Campaign
    from meshmark.fleet.data.ingest import ingest
    from meshmark.fleet.folder import Fleet

    fleet = Fleet(folder.absolute())
    fleet.check()
    name = _campaign(fleet, campaign)
    loaded = Campaign.load(fleet, name)
    with fleet_progress("ingestion") as show:
        result = ingest(fleet, name, str(loaded.begun["cluster"]), frozenset(loaded.nodes), show.took_in)
    if as_json:
        print(json.dumps(_ingested(name, result)))
    else:
        say_ingested(result)


def _measure(
    kind: Literal["survey", "check"],
    folder: Path,
    spec: str,
    selection: NodeSelection,
    named: str,
    *,
    wait_s: float,
    resume: bool,
    as_json: bool,
    beside: bool = False,
) -> None:
    from meshmark.fleet.campaigns.campaign import Campaign, begin, new_campaign
    from meshmark.fleet.campaigns.carry_out import carry_out, nothing_measured
    from meshmark.fleet.plan import node_plan
    from meshmark.fleet.site import ENGINES, engine_of, fleet_and_site
    from meshmark.measure.runs.spec import load_spec

    fleet, site = fleet_and_site(folder, may_be_new=True)
    if resume:
        name = _campaign(fleet, "latest")
        start = Campaign.load(fleet, name).begun
        if start["kind"] != kind:
            raise UsageError(
                f"--resume: the last campaign is of kind {start['kind']}",
                _again(folder, start["kind"]),
            )
        if not named and start["engine"] not in ENGINES:
            message = f"--resume: the last campaign belongs to {start['engine']}, whose jobs are not started from here"
            raise UsageError(message, f"meshmark fleet ingest {folder}")
        engine = engine_of(site, named or str(start["engine"]), str(start["nodes"]))
    else:
        name = new_campaign(kind)
        engine = engine_of(site, named, selection.nodes)
        selection = dataclasses.replace(selection, nodes=selection.nodes or site.nodes)
        settings = {"cluster": site.cluster, "beside": beside, "scratch": site.scratch}
        plan = node_plan(load_spec(spec, applications=True), kind, folder=Path(spec).absolute().parent)
        begin(fleet, name, plan, engine, selection, settings)
    if beside:
        say("warning: results that other work disturbs are flagged, and flagged results cannot be judged")
    with interruptible(f"jobs continue; {_again(folder, kind)}"), fleet_progress(kind) as show:
        progress, result = carry_out(fleet, site, engine, name, _runner(fleet), show, wait_s)
    _report(progress, result, as_json)
    if progress.counts()["done"] == len(result.refusals):
        raise nothing_measured(fleet, name)


def _again(folder: Path, kind: str) -> str:
    return f"meshmark fleet {'run' if kind == 'survey' else kind} {folder} --resume"


def _campaign(fleet: Fleet, name: str) -> str:
    if name != "latest":
        fleet.campaign(name)
        return name
    names = fleet.campaigns()
    if not names:
        raise AbsentError(f"{fleet.root}: has no campaign", f"meshmark fleet check {fleet.root}")
    return names[-1]


def _runner(fleet: Fleet) -> Path:
    from meshmark.fleet.campaigns.carry_out import shared_copy
    from meshmark.native import find_native

    return shared_copy(fleet, find_native("meshmark-node"))


def _ingested(name: str, ingestion: IngestResult) -> dict[str, Any]:
    return {"type": "ingested", "campaign": name, **dataclasses.asdict(ingestion)}


def say_ingested(ingestion: IngestResult, what: str = "node") -> None:
    """Print how many results were ingested, and warnings about refusals, skipped files and failures."""
    from meshmark.fleet.nodesets import fold

    say(f"meshmark: ingested the results of {counted(len(ingestion.nodes) - len(ingestion.refusals), what)}")
    if ingestion.refusals:
        nodes, reason = counted(len(ingestion.refusals), "node"), next(iter(ingestion.refusals.values()))
        names = fold(ingestion.refusals)
        say(f"warning: {nodes} refused to measure beside other work without --beside ({reason}): {names}")
    for name, reason in ingestion.skipped.items():
        say(f"warning: {name} was skipped: {reason}")
    for name, reason in ingestion.doubts.items():
        say(f"warning: {name}: {reason}")
    for reason, failed_nodes in list(ingestion.failures.items())[:_FAILURES]:
        say(f"warning: {fold(failed_nodes)}: {reason}")
    if (unlisted := len(ingestion.failures) - _FAILURES) > 0:
        say(f"warning: and {counted(unlisted, 'other failure')} of applications; --json lists all")


def _report(progress: CampaignProgress, ingestion: IngestResult, as_json: bool) -> None:
    if as_json:
        for name, state in progress.nodes.items():
            print(json.dumps({"type": "node", "node": name, **dataclasses.asdict(state)}))
        print(json.dumps(_ingested(progress.campaign, ingestion)))
        return
    say_ingested(ingestion)
    rows = [
        {"node": name, "status": state.status, "why": state.why}
        for name, state in progress.nodes.items()
        if state.status != "done"
    ]
    print_rows(rows, as_json=False)


@fleet_app.command("judge")
def judge(
    folder: FolderArgument,
    confirm: Annotated[
        bool, typer.Option("--confirm/--suspects", help="measure suspects again and name nodes, or only list suspects")
    ] = True,
    engine: EngineOption = "",
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Name the nodes that are worse than others of the same hardware.

    Suspects and some healthy nodes measure again; a node is named by these fresh values alone. At most 5 % of the named
    nodes are expected to be healthy, over all nodes, metrics and days.

    example: meshmark fleet judge /shared/fleet
    """
    from meshmark.fleet.actions import check_policy, drain_cases, load_policy
    from meshmark.fleet.campaigns.campaign import Campaign
    from meshmark.fleet.campaigns.confirm import confirm_suspects
    from meshmark.fleet.cases import CasesState
    from meshmark.fleet.health.assessment import decide, look, summary
    from meshmark.fleet.nodesets import fold
    from meshmark.fleet.site import ENGINES, engine_of, fleet_and_site

    fleet, site = fleet_and_site(folder)
    policy, drain_result = load_policy(fleet), None
    latest = look(fleet, site.cluster)
    for group in latest.classes:
        if reason := latest.reason(group):
            say(f"meshmark: {counted(len(group.of.members), 'node')} of {group.of.name}: {reason}")
    for subject in sorted(latest.common):
        say(f"warning: {subject}: results are wrong on most nodes, so no node is named for them")
    suspects = latest.suspects()
    say(f"meshmark: {latest.campaign}: {counted(len(latest.panel.nodes), 'node')}, {counted(len(suspects), 'suspect')}")
    named_nodes = []
    if confirm:
        earlier_engine = str(Campaign.load(fleet, latest.campaign).begun["engine"])
        engine = engine or site.engine or (earlier_engine if earlier_engine in ENGINES else "")
        node_engine, confirmation = engine_of(site, engine, fold(latest.panel.nodes)), None
        check_policy(policy, node_engine)  # fails before nodes are measured and named
        if suspects:
            with (
                interruptible(f"jobs continue; meshmark fleet judge {folder} --resume"),
                fleet_progress("confirmation") as show,
            ):
                confirmation = confirm_suspects(fleet, site, node_engine, latest, _runner(fleet), show, resume)
        named_nodes = decide(fleet, site.cluster, latest, confirmation)
        drain_result = drain_cases(fleet, policy, node_engine, CasesState.load(fleet, site.cluster).open)
    if as_json:
        drained_json = dataclasses.asdict(drain_result) if drain_result else {}
        print(json.dumps({"type": "judgement", **summary(latest, named_nodes), "drained": drained_json}))
        return
    if not confirm:
        print_rows([{"suspect": name} for name in suspects], as_json=False)
        return
    for node in named_nodes:
        print_named(node)
    if drain_result:
        _say_drained(drain_result)
    say(f"meshmark: {counted(len(named_nodes), 'node is worse than its class', 'nodes are worse than their class')}")


def print_named(node: NamedNode) -> None:
    """Print a node or a switch, and the metrics in which it is worse."""
    print(
        node.node.replace("switch:", "switch ")
        + (f": computes wrongly: {'; '.join(node.wrong)}" if node.wrong else ":")
    )
    for m in node.metrics:
        conditions = " ".join(f"{k}={v}" for k, v in m.conditions.items())
        interval = f"{100 * m.low:.1f} to {100 * m.high:.1f}"
        print(f"  {m.instrument} {m.metric} {conditions}: {100 * m.by:.1f} % worse ({interval})")
    if node.metrics:
        print(f"  since {node.since}" if node.since else "  in all stored campaigns")
    for fact, (value, class_value) in node.differs.items():
        print(f"  {fact}: {value}; its class has {class_value}")


def _say_drained(drained: DrainResult) -> None:
    for node, reason in drained.done.items():
        say(f"meshmark: drained {node}: {reason}")
    for node, reason in drained.failed.items():
        say(f"warning: {node} could not be drained: {reason}")
    for node, reason in drained.out.items():
        say(f"meshmark: {node} is out of service already: {reason}")
    if drained.beyond:
        say(f"warning: not drained, since policy.toml allows no more: {', '.join(drained.beyond)}")


@fleet_app.command("close")
def close(
    folder: FolderArgument,
    nodes: Annotated[
        str, typer.Argument(metavar="SET", help="set of nodes, such as n[3,7]", autocompletion=completion.cases)
    ],
) -> None:
    """Close the cases of nodes, for example after a repair, so that they are judged like all others.

    The case of a node that has been healthy for three campaigns is closed automatically.

    example: meshmark fleet close /shared/fleet n7
    """
    from meshmark.fleet.cases import close_cases
    from meshmark.fleet.nodesets import expand
    from meshmark.fleet.site import fleet_and_site

    names = expand(nodes, "SET")
    if not names:
        raise UsageError(f"SET: found '{quoted(nodes)}', a set without nodes; allowed: a set such as n[3,7]")
    fleet, site = fleet_and_site(folder)
    close_cases(fleet, site.cluster, names)
    say(f"meshmark: closed {counted(len(names), 'case')}")


@fleet_app.command("report")
def report(
    folder: FolderArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="page to write [FOLDER/reports/CAMPAIGN.html]", callback=writable, show_default=False
        ),
    ] = None,
    campaign: CampaignOption = "latest",
    days: Annotated[int, typer.Option("--days", help="days of history", min=1, max=3660)] = 30,
    as_json: JsonOption = False,
) -> None:
    """Write a page with the open cases, a map of the nodes, their classes, and what changed when.

    example: meshmark fleet report /shared/fleet --days 365
    """
    from meshmark.fleet.overview import overview
    from meshmark.fleet.site import fleet_and_site

    fleet, site = fleet_and_site(folder)
    until = "" if campaign == "latest" else _campaign(fleet, campaign)
    contents = overview(fleet, site, until, days)
    if as_json:
        print(json.dumps(contents.to_json()))
        return
    from meshmark.store.files import write_text
    from meshmark.views.charts.drawing import last_undrawn
    from meshmark.views.pages.fleet import fleet_page

    page, text = out or fleet.root / "reports" / f"{contents.seen.campaign}.html", fleet_page(contents)
    write_text(page, text)
    print(page)
    say_undrawn(last_undrawn())


@fleet_app.command("limits")
def limits(
    folder: FolderArgument,
    out: Annotated[
        Path, typer.Option("--output", "-o", help="plan to write (JSON)", callback=writable, show_default=False)
    ],
) -> None:
    """Write a plan by which nodes check their own health, with limits far from the results of their class.

    With it, `meshmark-node PLAN --out DIR --health` prints one line and ends with status 0 (healthy), 1 (a problem) or
    2 (unknown).

    example: meshmark fleet limits /shared/fleet -o health.json
    """
    from meshmark.fleet.health.assessment import look
    from meshmark.fleet.health.limits import with_limits
    from meshmark.fleet.site import fleet_and_site
    from meshmark.store.files import write_file

    fleet, site = fleet_and_site(folder)
    plan = with_limits(fleet, site.cluster, look(fleet, site.cluster))
    write_file(out, plan.to_bytes())
    say(f"meshmark: {out}: limits for {counted(len(plan.limits), 'kind')} of hardware")


@fleet_app.command("manifests")
def manifests(
    folder: FolderArgument,
    image: Annotated[str, typer.Option("--image", help="image with a shell and a C library", show_default=False)],
    nodes: NodesOption = "",
    spec: Annotated[str, typer.Option("--spec", help="the steps to run: a file (TOML)")] = "node-check",
    claim: Annotated[
        str,
        typer.Option("--claim", help="PersistentVolumeClaim of the volume that contains the folder", metavar="NAME"),
    ] = "",
    path: Annotated[str, typer.Option("--host-path", help="path of the folder on all hosts", metavar="DIR")] = "",
    health: Annotated[
        Path | None,
        typer.Option("--health", help="print a DaemonSet with this plan of `fleet limits` instead", show_default=False),
    ] = None,
    every_s: Annotated[float, time_option("--every", "time between health checks", default="1h")] = 3600.0,
) -> None:
    """Print manifests for Kubernetes: a Job for each node, or a DaemonSet that checks the health of all.

    The Jobs write their results to the folder; `fleet ingest` imports them.

    example: meshmark fleet manifests /shared/fleet --image debian:12-slim --claim fleet --nodes n[1-16]
    """
    from meshmark.fleet.campaigns.campaign import Campaign, NodeSelection, begin, new_campaign
    from meshmark.fleet.campaigns.carry_out import work_of
    from meshmark.fleet.engines.engine import JobWork
    from meshmark.fleet.manifests import KubernetesNodes, Volume, check_programs, daemon, jobs
    from meshmark.fleet.nodesets import expand
    from meshmark.fleet.plan import load_plan, node_plan
    from meshmark.fleet.site import fleet_and_site
    from meshmark.measure.runs.spec import load_spec
    from meshmark.store.files import write_file

    (fleet, site), volume = fleet_and_site(folder, may_be_new=True), Volume(image, claim, path)
    if health is not None:
        plan = load_plan(health)
        plan_file = fleet.plans / f"{plan.id}.json"
        write_file(plan_file, plan.to_bytes())
        (fleet.root / "health").mkdir(exist_ok=True)
        work = JobWork(_runner(fleet), plan_file, fleet.root / "health", fleet.root / "health", plan.limit_s)
        print(json.dumps(daemon(fleet, work, volume, every_s), indent=1))
        return
    node_list = KubernetesNodes(expand(nodes or site.nodes, "--nodes"))
    name = new_campaign("check")
    settings = {"cluster": site.cluster, "beside": False, "scratch": site.scratch}
    plan = node_plan(load_spec(spec, applications=True), "check", folder=Path(spec).absolute().parent)
    check_programs(plan)
    begin(fleet, name, plan, node_list, NodeSelection(nodes=nodes or site.nodes), settings)
    work = work_of(Campaign.load(fleet, name), _runner(fleet))
    print(json.dumps(jobs(fleet, name, node_list.names, work, volume, site.scratch), indent=1))
    say(f"meshmark: {name}: {len(node_list.names)} Jobs; then: meshmark fleet ingest {folder}")
