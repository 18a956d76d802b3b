"""The actions that a site allows on named nodes, in policy.toml beside fleet.toml; by default none.

[drain]
wrong = true       # nodes that compute wrongly
worse_by = 0.10    # nodes that are worse in a metric by at least this relative difference
most = 2           # largest number of nodes after one judgement
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, runtime_checkable

from pydantic import Field

from meshmark.errors import UsageError
from meshmark.fleet.campaigns.events import events_in, record
from meshmark.fleet.cases import NamedNode
from meshmark.fleet.engines.engine import Engine, EngineError
from meshmark.fleet.folder import Fleet
from meshmark.store.files import parse_toml, read_text
from meshmark.store.session import Journal
from meshmark.values.inputs import Input, checked

_MAX_REASON: Final = 120  # characters


@dataclass(frozen=True, slots=True)
class DrainTable(Input):
    """The named nodes that are drained.

    Attributes:
        wrong: Whether nodes that compute wrongly are drained.
        worse_by: Relative difference, such as 0.1, from which nodes that are worse in a metric are drained; 0: never.
        most: Largest number of nodes that are drained after one judgement; nodes that compute wrongly come first.
    """

    wrong: bool = False
    worse_by: Annotated[float, Field(ge=0, le=10)] = 0.0
    most: Annotated[int, Field(ge=1, le=1000)] = 2


@dataclass(frozen=True, slots=True)
class ActionPolicy(Input):
    """The actions that a site allows."""

    drain: DrainTable | None = None


@dataclass
class DrainResult:
    """The outcome of draining nodes.

    Attributes:
        done: Nodes that were drained, each with the reason that was given.
        beyond: Nodes beyond the largest number that the policy allows.
        failed: Nodes that could not be drained, each with the error; they are tried again after the next judgement.
        out: Nodes that were already out of service, drained by hand for example, each with the reason of the engine.
    """

    done: dict[str, str] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class DrainEngine(Protocol):
    """An engine that can take nodes out of service."""

    def drain(self, node: str, reason: str) -> None:
        """Start no more jobs on a node.

        Raises:
            EngineError: The engine refuses, or does not answer.
        """
        ...


def load_policy(fleet: Fleet) -> ActionPolicy:
    """Read the policy of a site; without a file, nothing is allowed.

    Raises:
        UsageError: The file is invalid; the message names the key, what was found and what is allowed.
    """
    path = fleet.root / "policy.toml"
    if not path.exists():
        return ActionPolicy()
    policy = checked(ActionPolicy, parse_toml(read_text(path), path.name), path.name)
    if policy.drain and not policy.drain.wrong and not policy.drain.worse_by:
        raise UsageError(f"{path.name}: drain: found neither wrong nor worse_by; allowed: at least one of them")
    return policy


def check_policy(policy: ActionPolicy, engine: Engine) -> None:
    """Raise UsageError if the engine cannot carry out the policy."""
    if policy.drain is not None and not isinstance(engine, DrainEngine):
        raise UsageError(f"policy.toml: drain: found with {engine.name}; allowed with: slurm, pbs, lsf, flux")


def drain_cases(fleet: Fleet, policy: ActionPolicy, engine: Engine, cases: Mapping[str, NamedNode]) -> DrainResult:
    """Take the nodes of open cases out of service, as far as the policy allows, and never twice for the same case.

    Nodes that are already out keep their reason.

    Raises:
        UsageError: The engine cannot drain nodes.
        MeshmarkError: The folder cannot be written.
    """
    drained = DrainResult()
    if policy.drain is None:
        return drained
    check_policy(policy, engine)
    assert isinstance(engine, DrainEngine)
    journal = Journal(fleet.root / "judgements" / "drained.jsonl")
    events = [event for _, event in events_in(journal)]
    drained_before = {(str(e.get("node")), str(e.get("case"))) for e in events if e.get("event") == "drained"}
    chosen = [c for c in _in_order(cases) if (c.node, c.campaign) not in drained_before and _allowed(policy.drain, c)]
    try:
        reason_by_node = {node.name: node.why for node in engine.nodes() if node.state == "out"} if chosen else {}
    except EngineError as error:
        drained.failed = {case.node: str(error) for case in chosen}
        return drained
    drained.out = {case.node: reason_by_node[case.node] for case in chosen if case.node in reason_by_node}
    chosen = [case for case in chosen if case.node not in reason_by_node]
    for case in chosen[: policy.drain.most]:
        event = {"node": case.node, "case": case.campaign, "reason": reason(case)}
        record(journal, "draining", **event)
        try:
            engine.drain(case.node, event["reason"])
        except EngineError as error:
            drained.failed[case.node] = str(error)
            continue
        record(journal, "drained", **event)
        drained.done[case.node] = event["reason"]
    drained.beyond = [case.node for case in chosen[policy.drain.most :]]
    return drained


def _in_order(cases: Mapping[str, NamedNode]) -> Sequence[NamedNode]:
    """Sort cases: nodes that compute wrongly first, then the worst."""
    return sorted(cases.values(), key=lambda c: (not c.wrong, -max((m.by for m in c.metrics), default=0.0), c.node))


def _allowed(drain: DrainTable, case: NamedNode) -> bool:
    worst = max((m.by for m in case.metrics), default=0.0)
    return (drain.wrong and bool(case.wrong)) or (drain.worse_by > 0 and worst >= drain.worse_by)


def reason(case: NamedNode) -> str:
    """Return why a node is drained, for administrators: printable ASCII on one line."""
    if case.wrong:
        text = case.wrong[0]
    else:
        worst = max(case.metrics, key=lambda m: m.by)
        text = f"{worst.instrument} {worst.metric} {100 * worst.by:.0f}% worse than its class"
    printable = "".join(c if c.isascii() and c.isprintable() else " " for c in text)
    return f"meshmark: {printable}"[:_MAX_REASON]
