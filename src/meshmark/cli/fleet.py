"""`meshmark fleet`: surveys, checks and judges the nodes of a cluster."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from meshmark.cli.console import interruptible, print_rows, say
from meshmark.cli.options import JsonOption, time_option
from meshmark.errors import AbsentError, MeshmarkError, UsageError

if TYPE_CHECKING:
    from meshmark.fleet.campaign import Progress
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.ingest import Ingested

fleet_app = typer.Typer(no_args_is_help=True)
FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="folder of the fleet, which all nodes can write", file_okay=False)
]
NodesOption = Annotated[
    str, typer.Option("--nodes", help="set of nodes, such as n[1-16] [all]", metavar="SET", show_default=False)
]
RandomOption = Annotated[int, typer.Option("--random", help="only so many of them, chosen at random", min=0)]
SeedOption = Annotated[int, typer.Option("--seed", help="of that choice")]
IdleOption = Annotated[bool, typer.Option("--idle", help="leave out nodes that are busy now")]
WaitOption = Annotated[float, time_option("--wait", "how long to wait for busy nodes", default="until they are free")]
EngineOption = Annotated[
    str,
    typer.Option("--engine", help="slurm, pbs, lsf, flux, ssh or local [the one that is found]", show_default=False),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="go on with the last campaign")]
CampaignOption = Annotated[str, typer.Option("--campaign", help="name of a campaign, or latest")]


def register(app: typer.Typer) -> None:
    app.add_typer(fleet_app, name="fleet", help="Survey, check and judge the nodes of a cluster.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The options that a survey and a check have in common."""

    folder: Path
    nodes: str
    random: int
    seed: int
    idle: bool
    wait_s: float
    engine: str
    resume: bool
    as_json: bool


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
    """Survey nodes, each alone, through the batch system that is there.

    Idle nodes come first; those that are down are left out. A campaign that was interrupted goes on with --resume, and
    measures no node twice.

    example: meshmark fleet run /shared/fleet --nodes n[1-16]
    """
    _measure(
        "survey",
        spec,
        _Request(
            folder=folder,
            nodes=nodes,
            random=random,
            seed=seed,
            idle=idle,
            wait_s=wait_s,
            engine=engine,
            resume=resume,
            as_json=as_json,
        ),
    )


@fleet_app.command("check")
def check(
    folder: FolderArgument,
    spec: Annotated[str, typer.Option("--spec", help="the steps to run: a file (TOML)")] = "node-check",
    nodes: NodesOption = "",
    random: RandomOption = 0,
    seed: SeedOption = 0,
    idle: IdleOption = False,
    beside: Annotated[bool, typer.Option("--beside", help="check nodes also beside the work of others")] = False,
    wait_s: WaitOption = float("inf"),
    engine: EngineOption = "",
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check nodes in half a minute and little memory each.

    A node that does other work refuses, unless --beside is given.

    example: meshmark fleet check /shared/fleet --random 50
    """
    _measure(
        "check",
        spec,
        _Request(
            folder=folder,
            nodes=nodes,
            random=random,
            seed=seed,
            idle=idle,
            wait_s=wait_s,
            engine=engine,
            resume=resume,
            as_json=as_json,
        ),
        beside,
    )


@fleet_app.command("ingest")
def ingest_command(folder: FolderArgument, campaign: CampaignOption = "latest", as_json: JsonOption = False) -> None:
    """Take in what nodes have left, also while a campaign runs.

    example: meshmark fleet ingest /shared/fleet
    """
    from meshmark.fleet.campaign import Campaign
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.ingest import ingest

    fleet = Fleet(folder.absolute())
    name = _campaign(fleet, campaign)
    known = Campaign.load(fleet, name)
    found = ingest(fleet, name, str(known.begun["cluster"]), frozenset(known.nodes))
    if as_json:
        print(json.dumps(_ingested(name, found)))
    else:
        _say_ingested(found)


def _measure(kind: Literal["survey", "check"], spec: str, request: _Request, beside: bool = False) -> None:
    from meshmark.fleet.campaign import Campaign, Wanted, begin, new_campaign
    from meshmark.fleet.engines.engine import Work
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.ingest import ingest
    from meshmark.fleet.plan import node_plan
    from meshmark.fleet.site import engine_of, load_site
    from meshmark.measure.spec import load_spec

    fleet = Fleet(request.folder.absolute())
    site = load_site(fleet.site)
    if request.resume:
        name = _campaign(fleet, "latest")
        begun = Campaign.load(fleet, name).begun
        if begun["kind"] != kind:
            raise UsageError(f"--resume: the last campaign is a {begun['kind']}", _again(request.folder, begun["kind"]))
        engine = engine_of(site, request.engine or str(begun["engine"]), str(begun["nodes"]))
    else:
        name = new_campaign(kind)
        engine = engine_of(site, request.engine, request.nodes)
        wanted = Wanted(
            nodes=request.nodes or site.nodes, random=request.random, seed=request.seed, idle_only=request.idle
        )
        plan = node_plan(load_spec(spec), kind)
        begin(fleet, name, plan, engine, wanted, {"cluster": site.cluster, "beside": beside})
    campaign = Campaign.load(fleet, name, _taken(fleet, name, site.cluster))
    where = fleet.campaign(name)
    work = Work(
        runner=_runner(fleet),
        plan=fleet.plans / f"{campaign.begun['plan']}.json",
        inbox=where / "inbox",
        logs=where / "logs",
        limit_s=float(campaign.begun["limit_s"]),
        options=("--beside",) if campaign.begun.get("beside") else (),
    )
    with interruptible(f"jobs go on; {_again(request.folder, kind)}"), _shown(name) as show:
        progress = campaign.drive(engine, work, site.max_jobs, site.max_nodes, show, request.wait_s)
    found = ingest(fleet, name, site.cluster, frozenset(campaign.nodes))
    _report(progress, found, request.as_json)
    if not progress.counts()["done"]:
        raise MeshmarkError(f"{name}: no node has measured", f"see {where / 'logs'}")


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


def _taken(fleet: Fleet, name: str, cluster: str) -> list[str]:
    """The nodes of a campaign whose results were taken in."""
    import pyarrow.parquet as pq

    files = fleet.table("nodes", name, cluster).glob(f"{name}-*.parquet")
    return [node for path in files for node in pq.read_table(path, columns=["node"])["node"].to_pylist()]


def _runner(fleet: Fleet) -> Path:
    """A copy of the native runner in the folder of the fleet, which nodes can read."""
    from meshmark.native import find_native
    from meshmark.store.files import written

    program = find_native("meshmark-node")
    stat = program.stat()
    copy = fleet.root / "bin" / f"meshmark-node-{stat.st_size:x}-{int(stat.st_mtime):x}"
    if not copy.exists():
        with written(copy) as out, program.open("rb") as source:
            shutil.copyfileobj(source, out)
        copy.chmod(0o755)
    return copy


class _shown:  # noqa: N801 (used like a function)
    """Progress of a campaign: a line where the numbers change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: Mapping[Any, int] = {}

    def __enter__(self) -> Any:
        return self.show

    def show(self, progress: Progress) -> None:
        counts = progress.counts()
        if counts == self.last:
            return
        self.last = counts
        text = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        say(f"{self.name}: {text} ({progress.elapsed_s:.0f} s)")

    def __exit__(self, *_: object) -> None:
        pass


def _ingested(name: str, found: Ingested) -> dict[str, Any]:
    return {"type": "ingested", "campaign": name, **dataclasses.asdict(found)}


def _say_ingested(found: Ingested) -> None:
    say(f"meshmark: took in the results of {len(found.nodes)} nodes")
    for name, why in found.skipped.items():
        say(f"warning: {name} was skipped: {why}")
    for name, why in found.doubts.items():
        say(f"warning: {name}: {why}")


def _report(progress: Progress, found: Ingested, as_json: bool) -> None:
    if as_json:
        for name, state in progress.nodes.items():
            print(json.dumps({"type": "node", "node": name, **dataclasses.asdict(state)}))
        print(json.dumps(_ingested(progress.campaign, found)))
        return
    _say_ingested(found)
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
    """Name the nodes that are worse than those of the same hardware.

    Suspects and some healthy nodes measure again; a node is named by these fresh values alone. At most 5 % of all names
    are false, over all nodes, metrics and days.

    example: meshmark fleet judge /shared/fleet
    """
    from meshmark.fleet.confirm import confirm_suspects
    from meshmark.fleet.folder import Fleet
    from meshmark.fleet.judgements import decide, look, summary
    from meshmark.fleet.site import engine_of, load_site

    fleet = Fleet(folder.absolute())
    site = load_site(fleet.site)
    seen = look(fleet, site.cluster)
    for one in seen.classes:
        if one.screening is None:
            say(f"meshmark: {len(one.of.members)} nodes of {one.of.name} are too few to compare")
    suspects = seen.suspects()
    say(f"meshmark: {seen.campaign}: {len(seen.panel.nodes)} nodes, {len(suspects)} suspects")
    named = []
    if confirm:
        fresh = None
        if suspects:
            with interruptible(f"meshmark fleet judge {folder} --resume"), _shown("confirmation") as show:
                fresh = confirm_suspects(fleet, site, engine_of(site, engine), seen, _runner(fleet), show, resume)
        named = decide(fleet, site.cluster, seen, fresh)
    if as_json:
        print(json.dumps(summary(seen, named)))
        return
    if not confirm:
        print_rows([{"suspect": name} for name in suspects], as_json=False)
        return
    for node in named:
        print(node.node + (f": computes wrongly: {'; '.join(node.wrong)}" if node.wrong else ":"))
        for m in node.metrics:
            where = " ".join(f"{k}={v}" for k, v in m.conditions.items())
            interval = f"{100 * m.low:.1f} to {100 * m.high:.1f}"
            print(f"  {m.instrument} {m.metric} {where}: {100 * m.by:.1f} % worse ({interval})")
        for fact, (own, usual) in node.differs.items():
            print(f"  {fact}: {own}; its class has {usual}")
    say(f"meshmark: {len(named)} nodes are worse than their class")
