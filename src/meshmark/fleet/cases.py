"""Nodes that were named, and what is stored about them from day to day.

    judgements/CLUSTER.state.json            the discoveries so far and the open cases
    judgements/CLUSTER.network.state.json    the same for messages between nodes

A node that is named is an open case until it has recovered, or until a person closes the case; meanwhile it is not
suspected again. A node that computed a wrong result does not recover by itself.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.fleet.folder import Fleet
from meshmark.store.files import read_json, write_file
from meshmark.store.session import held
from meshmark.values.inputs import LIST, Excerpt, checked
from meshmark.values.node_names import is_node_name

NETWORK: Final = ".network"
SWITCH: Final = "switch:"  # prefix of the names of switches among names of nodes
RECOVERED_AFTER: Final = 3  # campaigns in a row
Real = Annotated[float, Field(allow_inf_nan=True)]


@dataclass(frozen=True, slots=True)
class WorseMetric(Excerpt):
    """A metric in which a node is worse than its class.

    Attributes:
        key: Key of its point, as in the column `point` of results.
        by: Relative difference, such as 0.05 for 5 % slower.
        low, high: The 95 % interval of `by`.
        p: Probability that a healthy node has at least such a difference.
    """

    key: str
    instrument: str
    metric: str
    conditions: Mapping[str, Any]
    by: Real
    low: Real
    high: Real
    p: float


@dataclass(frozen=True, slots=True)
class NamedNode(Excerpt):
    """A node that is worse than its class.

    Attributes:
        kind: The name of its class.
        p: Probability that a healthy node has such fresh values.
        metrics: Metrics in which it is worse, the clearest first.
        wrong: Kernels that computed wrong results.
        differs: Facts that differ from its class: the value of the node and the value of the class.
        campaign: The campaign in which it was named.
        since: The first campaign in which it was as it is now; "": it was in all stored campaigns.
        well: Number of campaigns in a row in which it has been healthy again.
    """

    node: str
    kind: str
    p: float
    metrics: list[WorseMetric]
    wrong: list[str]
    differs: Mapping[str, Sequence[str]]
    campaign: str
    since: str
    well: int = 0


@dataclass
class CasesState(Excerpt):
    """The state of the judgements, which lasts from day to day.

    Attributes:
        discoveries: State of `judging.Discoveries`; None before the first day.
        open: Open cases by node.
        closed: Earlier cases, each with the campaign after which it was closed.
        judged: Campaigns that were decided on; each is decided on once.
    """

    discoveries: Mapping[str, Any] | None = None
    open: dict[str, NamedNode] = field(default_factory=dict)
    closed: list[Annotated[tuple[NamedNode, str], LIST]] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)

    @staticmethod
    def path(fleet: Fleet, cluster: str, of: str = "") -> Path:
        """Return the path of the state of a cluster.

        Args:
            fleet: Folder of the fleet.
            cluster: Name of the cluster.
            of: What was measured: `NETWORK`, or "" for nodes alone.
        """
        return fleet.root / "judgements" / f"{cluster}{of}.state.json"

    @staticmethod
    def load(fleet: Fleet, cluster: str, of: str = "") -> CasesState:
        """Return the state, which is empty at first.

        Raises:
            MeshmarkError: The file is damaged; decisions without it would ignore earlier decisions.
        """
        path = CasesState.path(fleet, cluster, of)
        if not path.exists():
            return CasesState()
        try:
            raw = read_json(path)
            if isinstance(raw, dict) and (
                missing := [name for name in CasesState.__dataclass_fields__ if name not in raw]
            ):
                raise UsageError(f"{missing[0]}: found nothing")
            state = checked(CasesState, raw, "state")
            for node, case in state.open.items():
                if node != case.node or not (node.startswith(SWITCH) or is_node_name(node)):
                    raise UsageError(f"open: found the case of '{quoted(case.node, 60)}' under '{quoted(node, 60)}'")
            return state
        except UsageError as error:
            hint = "restore it; without it, open cases and earlier decisions are lost"
            message = str(error).removeprefix("state: ")
            raise MeshmarkError(f"{path}: not the state of a fleet: {message}", hint) from error

    def save(self, fleet: Fleet, cluster: str, of: str = "") -> None:
        """Write the state where `path` says, atomically.

        Raises:
            MeshmarkError: The folder cannot be written.
        """
        write_file(CasesState.path(fleet, cluster, of), json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n")

    def close(self, node: str, campaign: str) -> None:
        """Close a case, so that the node is judged like any other."""
        self.closed.append((self.open.pop(node), campaign))


def close_cases(fleet: Fleet, cluster: str, nodes: Sequence[str]) -> None:
    """Close the cases of nodes by the decision of a person, for example after a repair.

    Raises:
        UsageError: A node has no open case.
        MeshmarkError: Another process judges the fleet.
    """
    with held(CasesState.path(fleet, cluster).parent):
        states = {kind: CasesState.load(fleet, cluster, kind) for kind in ("", NETWORK)}
        open_nodes = {node for state in states.values() for node in state.open}
        if unknown := [n for n in nodes if n not in open_nodes]:
            allowed = ", ".join(sorted(open_nodes)) or "none, since no case is open"
            raise UsageError(f"SET: found {quoted(unknown[0])}, which has no open case; allowed: {allowed}")
        for kind, state in states.items():
            cases = [node for node in nodes if node in state.open]
            for node in cases:
                state.close(node, state.judged[-1] if state.judged else "")
            if cases:
                state.save(fleet, cluster, kind)


def follow(state: CasesState, campaign: str, now: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Update open cases, and close the cases that have recovered.

    A case has recovered if, in each of the last campaigns, the node was at most half as much worse as
    when it was named.

    Args:
        state: Open cases, which are updated.
        campaign: Name of the campaign.
        now: For each measured node, by how much its metrics are worse, by the keys of their points.

    Returns:
        Nodes whose cases were closed.
    """
    closed = []
    for node, case in list(state.open.items()):
        measured = [(m, now[node][m.key]) for m in case.metrics if m.key in now.get(node, {})]
        if case.wrong or not measured:
            continue
        well = case.well + 1 if all(by <= m.by / 2 for m, by in measured) else 0
        state.open[node] = dataclasses.replace(case, well=well)
        if well >= RECOVERED_AFTER:
            state.close(node, campaign)
            closed.append(node)
    return closed
