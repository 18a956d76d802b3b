"""Messages between pairs of nodes: campaigns whose jobs start two MPI ranks on two nodes each.

A pair leaves a file like a node; its name is `rROUND+NODE+NODE`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.fleet.campaigns.campaign import Campaign, CampaignProgress, NodeSelection, begin, new_campaign
from meshmark.fleet.campaigns.carry_out import (
    UNSEEN,
    ProgressDisplay,
    logs,
    measured,
    nothing_measured,
    shared_copy,
    work_of,
)
from meshmark.fleet.data.ingest import IngestResult
from meshmark.fleet.data.results import FORMAT
from meshmark.fleet.engines.engine import Engine, JobWork, answer
from meshmark.fleet.engines.ssh import CONNECT_S
from meshmark.fleet.folder import Fleet
from meshmark.fleet.network.rounds import Pair
from meshmark.fleet.network.topology import SwitchTree, load_tree, read_tree
from meshmark.fleet.plan import NodePlan, load_plan
from meshmark.fleet.site import Site
from meshmark.measure.runs.launch import Launcher, chosen, cpus, failure_message, launch_argv, launcher
from meshmark.store.files import read_bytes

KIND: Final = "pairs"
CONFIRMING: Final = "confirmpairs"
_STEP: Final = "01-pingpong"
_START_S: Final = 30.0  # time for the start of two ranks
_SLACK: Final = 3.0  # factor by which a run may exceed its budget
_HERE: Final = 64  # largest number of nodes at once whose launchers run on this host
_LOCAL: Final = 16  # nodes in one job of this host, whose pairs run one after the other
# A file appears in the inbox only after the ranks have ended successfully.
_SCRIPT: Final = """\
#!/bin/sh
inbox={inbox}
pair() {{
    name=$1
    shift
    part="$inbox/.$name.$(printf %08x $$)"
    {{
        printf '{head}\\n' "$name" "$name"
        echo "$name" >&2
        timeout -k 5 {limit} "$@" {arguments} < /dev/null || {{
            rm -f "$part"
            return 1
        }}
        printf '%s\\n' '{end}' '{finished}'
    }} > "$part" && gzip -f -S .gz "$part" && sync "$part.gz" && mv "$part.gz" "$inbox/$name.jsonl.gz"
}}
{setting}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMessages:
    """The messages that each pair exchanges.

    Attributes:
        sizes: Sizes of messages, in the syntax of `pingpong --bytes`.
        budget_s: Time for each pair.
    """

    sizes: str = "8,4MiB"
    budget_s: float = 2.0

    def plan(self) -> NodePlan:
        """Return the plan of a pair, with one step: ping-pong of all sizes."""
        argv = ["pingpong", "--protocol", "send", "--bytes", self.sizes, "--budget", f"{self.budget_s:g}s"]
        limit_s = _START_S + _SLACK * self.budget_s
        return NodePlan(
            "pairs", "pairs", alone=False, limit_s=limit_s, steps=[{"id": _STEP, "argv": argv, "limit_s": limit_s}]
        )


def tree_of(fleet: Fleet, site: Site, engine: Engine) -> SwitchTree:
    """Return the tree of switches, from the file that the site names, or else from Slurm.

    Raises:
        MeshmarkError: The file, or the output of Slurm, does not describe a tree.
    """
    if site.topology:
        return load_tree(fleet.root / site.topology)
    if engine.name != "slurm":
        return SwitchTree()
    text = answer(["scontrol", "show", "topology"])
    lines = [line for line in text.splitlines() if line.startswith(("SwitchName=", "BlockName="))]
    return read_tree("\n".join(lines), "scontrol show topology")


def begin_pairs(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    selection: NodeSelection,
    plan: NodePlan,
    draw: Callable[[list[str]], list[list[Pair]]],
    kind: str = KIND,
    **settings: Any,
) -> str:
    """Choose nodes and their pairs, write the journal of a campaign, and return its name.

    Args:
        fleet: Folder of the fleet.
        site: Settings of the site.
        engine: Engine that knows the nodes.
        selection: The requested nodes.
        plan: Plan of a pair.
        draw: Returns the pairs of each round, as indices of names.
        kind: Beginning of the name of the campaign.
        settings: Additional values for the first event of the journal.

    Raises:
        UsageError: A node does not exist, or there is only one node.
        MeshmarkError: The engine does not answer, or the folder cannot be written.
    """
    if engine.name == "psij":
        raise UsageError("--engine: found psij, whose jobs have one node; allowed for pairs: all others")

    def groups(names: list[str]) -> dict[str, list[str]]:
        if len(names) < 2:
            raise UsageError(f"--nodes: found one node, {names[0]}; allowed: at least two")
        return {
            f"r{r}+{names[a]}+{names[b]}": [names[a], names[b]]
            for r, pairs in enumerate(draw(names), 1)
            for a, b in pairs
        }

    name = new_campaign(kind)
    begin(fleet, name, plan, engine, selection, {"cluster": site.cluster, **settings}, groups)
    return name


def measure_pairs(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    name: str,
    show: ProgressDisplay = UNSEEN,
    wait_s: float = float("inf"),
) -> tuple[CampaignProgress, IngestResult]:
    """Drive a campaign of pairs to its end, or resume it.

    Raises:
        AbsentError: There is no MPI library.
        MeshmarkError: No pair has measured, or `carry_out` raises this error.
    """
    mpi_launcher = launcher(chosen(site.pairs.mpi or "any")[0])
    program = shared_copy(fleet, mpi_launcher.program)
    jobs, nodes = site.max_jobs, site.max_nodes
    if engine.name == "ssh":  # launchers run on this host
        nodes = min(nodes, _HERE)
        jobs = min(jobs, max(1, _HERE // nodes))
    elif engine.name == "local":
        jobs, nodes = 1, _LOCAL

    def work(campaign: Campaign) -> JobWork:
        node_work = work_of(campaign, program)
        script = script_maker(
            load_plan(node_work.plan),
            node_work,
            Launcher(mpi_launcher.kind, mpi_launcher.path, program),
            site,
            engine.name,
        )
        turns = nodes // 2 if engine.name == "local" else 1
        return replace(node_work, limit_s=node_work.limit_s * turns, together=script)

    progress, ingested = measured(fleet, site, engine, name, work, (jobs, nodes), show, wait_s)
    if not progress.counts()["done"]:
        failure = _last_failure(logs(fleet, name))
        raise MeshmarkError(f"{name}: no pair was measured: {failure}") if failure else nothing_measured(fleet, name)
    return progress, ingested


def script_maker(
    plan: NodePlan, work: JobWork, known: Launcher, site: Site, engine: str
) -> Callable[[Sequence[str]], str]:
    """Return a function that returns the script of a job for pairs.

    The pairs measure at the same time, but on one host one after the other.
    """
    arguments = shlex.join(plan.steps[0]["argv"])
    header = {"plan": plan.id, "kind": plan.kind, "name": "%s", "hostname": "", "machine": "%s"}
    header |= {"hash": "", "boot": "", "started": ""}
    lines = (
        {"type": "node", "format": FORMAT, "version": 1, **header},
        {"type": "step end", "id": _STEP, "status": "ok", "reason": ""},
        {"type": "finished", "status": "ok", "problems": []},
    )
    head, end, finished = (json.dumps(line, separators=(",", ":")) for line in lines)
    step = json.dumps({"type": "step", "id": _STEP}, separators=(",", ":"))
    is_root = known.kind == "openmpi" and os.geteuid() == 0
    preamble = _SCRIPT.format(
        inbox=shlex.quote(str(work.inbox)),
        head=f"{head}\\n{step}",
        limit=round(plan.limit_s),
        arguments=arguments,
        end=end,
        finished=finished,
        setting="export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" if is_root else "",
    )

    def script(pairs: Sequence[str]) -> str:
        lines = []
        for pair in pairs:
            _, a, b = pair.split("+")
            words = shlex.join(["pair", pair, *_launch(known, a, b, site, engine)])
            lines.append(words if engine == "local" else f"{words} &")
        return preamble + "\n".join([*lines, "wait", ""])

    return script


def _launch(known: Launcher, a: str, b: str, site: Site, engine: str) -> list[str]:
    """Return the command that starts one rank on each of two nodes."""
    options = site.pairs.options
    if engine == "local":
        return launch_argv(known, 2, cpus(), options)
    if engine == "flux":
        return ["flux", "run", "--nodes=2", "--ntasks=2", f"--requires=host:{a},{b}", *options, str(known.program)]
    if engine == "slurm" and site.pairs.srun:
        request = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", f"--nodelist={a},{b}"]
        return ["srun", f"--mpi={site.pairs.srun}", *request, *options, str(known.program)]
    if known.kind == "openmpi":
        placement = ["-H", f"{a}:1,{b}:1", "--mca", "opal_common_ucx_opal_mem_hooks", "0"]
        if engine == "ssh":
            agent = shlex.join([*site.ssh.options, "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}"])
            placement += ["--mca", "plm_rsh_args", agent]
    else:
        placement = ["-hosts", f"{a},{b}", *(["-ppn", "1", "-bind-to", "core"] if known.kind == "mpich" else [])]
    return [str(known.path), "-n", "2", *placement, *options, str(known.program)]


def _last_failure(folder: Path) -> str:
    """Return the error message in the newest output of a job."""
    newest = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    text = read_bytes(newest[-1], 64 << 20).decode(errors="replace") if newest else ""
    return quoted(failure_message(text), 300)


def pairs_of(campaign: Mapping[str, Any]) -> dict[str, tuple[int, str, str]]:
    """Return the round and both nodes of each pair of a campaign, from the first event of its journal."""
    return {name: (int(name.partition("+")[0][1:]) - 1, a, b) for name, (a, b) in campaign["groups"].items()}
