"""What a site allows to be done with nodes that were named, in policy.toml beside fleet.toml; by default nothing.

[drain]
wrong = true       # nodes that compute wrongly
worse_by = 0.10    # nodes that are at least so much worse in a metric
most = 2           # nodes after one judgement
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol, runtime_checkable

from pydantic import Field

from meshmark.errors import UsageError
from meshmark.fleet.cases import Named
from meshmark.fleet.engines.engine import Engine, EngineError
from meshmark.fleet.folder import Fleet
from meshmark.fleet.journal import Journal
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import Input, checked

_MAX_REASON: Final = 120  # characters


@dataclass(frozen=True, slots=True)
class Drain(Input):
    """Which named nodes get no more jobs.

    Attributes:
        wrong: Those that compute wrongly.
        worse_by: Those that are at least so much worse in a metric, such as 0.1; 0: none.
        most: How many after one judgement, those that compute wrongly first.
    """

    wrong: bool = False
    worse_by: Annotated[float, Field(ge=0, le=10)] = 0.0
    most: Annotated[int, Field(ge=1, le=1000)] = 2


@dataclass(frozen=True, slots=True)
class Policy(Input):
    """What a site allows."""

    drain: Drain | None = None


@dataclass
class Drained:
    """What was done with nodes.

    Attributes:
        done: Nodes that were drained, and the reason that was given.
        beyond: Nodes beyond the most that the policy allows.
        failed: Nodes that could not be drained, and why; they are tried again after the next judgement.
        out: Nodes that were out of service already, drained by hand for example, and what the engine says.
    """

    done: dict[str, str] = field(default_factory=dict)
    beyond: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)


@runtime_checkable
class Draining(Protocol):
    """An engine that can take nodes out of service."""

    def drain(self, node: str, reason: str) -> None:
        """Start no more jobs on a node.

        Raises:
            EngineError: The engine refuses, or does not answer.
        """
        ...


def load_policy(fleet: Fleet) -> Policy:
    """The policy of a site; without a file, nothing is allowed.

    Raises:
        UsageError: It is not such a file; the message names the key, what was found and what is allowed.
    """
    path = fleet.root / "policy.toml"
    if not path.exists():
        return Policy()
    policy = checked(Policy, parse_toml(read_text(path), path.name), path.name)
    if policy.drain and not policy.drain.wrong and not policy.drain.worse_by:
        raise UsageError(f"{path.name}: drain: found neither wrong nor worse_by; allowed: at least one of them")
    return policy


def check_policy(policy: Policy, engine: Engine) -> None:
    """Raises UsageError if the engine cannot do what the policy says."""
    if policy.drain is not None and not isinstance(engine, Draining):
        raise UsageError(f"policy.toml: drain: found with {engine.name}; allowed with: slurm, pbs, lsf, flux")


def drain_cases(fleet: Fleet, policy: Policy, engine: Engine, cases: Mapping[str, Named]) -> Drained:
    """Take open cases out of service, as far as the policy allows, and never twice. Those that are out already are left
    alone, with the reason that they have.

    Raises:
        UsageError: The engine cannot drain nodes.
        MeshmarkError: The folder cannot be written.
    """
    found = Drained()
    if policy.drain is None:
        return found
    check_policy(policy, engine)
    assert isinstance(engine, Draining)
    journal = Journal(fleet.root / "judgements" / "drained.jsonl")
    before = {(str(e.get("node")), str(e.get("case"))) for e in journal.read() if e.get("event") == "drained"}
    chosen = [c for c in _in_order(cases) if (c.node, c.campaign) not in before and _allowed(policy.drain, c)]
    try:
        out = {node.name: node.why for node in engine.nodes() if node.state == "out"} if chosen else {}
    except EngineError as why:
        found.failed = {case.node: str(why) for case in chosen}
        return found
    found.out = {case.node: out[case.node] for case in chosen if case.node in out}
    chosen = [case for case in chosen if case.node not in out]
    for case in chosen[: policy.drain.most]:
        event = {"node": case.node, "case": case.campaign, "reason": reason(case)}
        journal.write({"event": "draining", **event})
        try:
            engine.drain(case.node, event["reason"])
        except EngineError as why:
            found.failed[case.node] = str(why)
            continue
        journal.write({"event": "drained", **event})
        found.done[case.node] = event["reason"]
    found.beyond = [case.node for case in chosen[policy.drain.most :]]
    return found


def _in_order(cases: Mapping[str, Named]) -> Sequence[Named]:
    """Those that compute wrongly first, then the worst."""
    return sorted(cases.values(), key=lambda c: (not c.wrong, -max((m.by for m in c.metrics), default=0.0), c.node))


def _allowed(drain: Drain, case: Named) -> bool:
    worst = max((m.by for m in case.metrics), default=0.0)
    return (drain.wrong and bool(case.wrong)) or (drain.worse_by > 0 and worst >= drain.worse_by)


def reason(case: Named) -> str:
    """Why a node is drained, for administrators: printable ASCII on one line."""
    if case.wrong:
        text = case.wrong[0]
    else:
        worst = max(case.metrics, key=lambda m: m.by)
        text = f"{worst.instrument} {worst.metric} {100 * worst.by:.0f}% worse than its class"
    clean = "".join(c if c.isascii() and c.isprintable() else " " for c in text)
    return f"meshmark: {clean}"[:_MAX_REASON]
