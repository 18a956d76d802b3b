"""A campaign: every node of a set, or every pair of nodes, carries out one plan, whatever happens meanwhile.

Each decision is written to a journal before it is carried out, and each node writes what it measures to its own file. A
campaign that was killed therefore resumes where it stopped, and measures nothing twice.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.fleet.campaigns.events import (
    EVENTS,
    BeginEvent,
    EndEvent,
    Event,
    SubmittedEvent,
    SubmittingEvent,
    events_in,
    record,
)
from meshmark.fleet.data.results import SUFFIX
from meshmark.fleet.engines.engine import (
    STATES,
    Batch,
    Engine,
    EngineError,
    EngineNode,
    Job,
    JobWork,
    TimeLimitEngine,
    last_words,
)
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import expand, fold
from meshmark.fleet.plan import NodePlan
from meshmark.store.files import make_folder, write_file
from meshmark.store.session import Journal, held
from meshmark.values.inputs import checked

JOURNAL: Final = "journal.jsonl"
Status = Literal["waiting", "running", "done", "failed", "out"]
TRIES: Final = 2  # jobs for a node that leaves no result
_FULL: Final = 1 << 20  # a disk with fewer free bytes counts as full
GRACE_S: Final = 20.0  # time for start and end of a job, beyond the limit of its plan
_POLL_S: Final = (0.5, 15.0)  # shortest and longest time between queries of the engine
SILENT_S: Final = 600.0  # a campaign ends if its engine does not answer, or refuses all remaining jobs, for this long
BACK_S: Final = 60.0  # time for which nodes that are out are waited for after the engine did not answer
DOUBT_S: Final = 30.0  # time after a failed submission within which the job may still appear


@dataclass
class NodeState:
    """A node of a campaign, or a pair of nodes.

    Attributes:
        why: The reason why it waits, failed or is out; "" otherwise.
        tries: Number of its jobs.
        job: Name of its last job.
        refused: Number of submissions that failed.
    """

    status: Status = "waiting"
    why: str = ""
    tries: int = 0
    job: str = ""
    refused: int = 0


@dataclass
class CampaignProgress:
    """The state of a campaign, for views.

    Attributes:
        nodes: States by the names of nodes or of groups.
        trouble: The reason why the engine does not answer, or refuses jobs; "" otherwise.
    """

    campaign: str
    nodes: Mapping[str, NodeState]
    elapsed_s: float
    trouble: str = ""

    def counts(self) -> dict[Status, int]:
        """Return the number of nodes in each state, including states that no node is in."""
        counts: dict[Status, int] = dict.fromkeys(("waiting", "running", "done", "failed", "out"), 0)
        for state in self.nodes.values():
            counts[state.status] += 1
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """Which nodes take part.

    Attributes:
        nodes: A set of nodes; "": all nodes that the engine knows.
        random: Number of nodes that are chosen from the set at random; 0: all of them.
        seed: Seed of the random choice.
        idle_only: Whether busy nodes are left out.
    """

    nodes: str = ""
    random: int = 0
    seed: int = 0
    idle_only: bool = False


def new_campaign(kind: str) -> str:
    """Return a unique name for a campaign."""
    return f"{kind}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


class NodeSource(Protocol):
    """An object that knows nodes: an engine, or a list."""

    @property
    def name(self) -> str:
        """Return its name in messages."""
        ...

    def nodes(self) -> list[EngineNode]:
        """Return all nodes that it knows.

        Raises:
            MeshmarkError: The engine does not answer.
        """
        ...


def begin(
    fleet: Fleet,
    name: str,
    plan: NodePlan,
    engine: NodeSource,
    selection: NodeSelection,
    settings: Mapping[str, Any],
    groups: Callable[[list[str]], Mapping[str, Sequence[str]]] | None = None,
) -> None:
    """Choose the nodes of a campaign and write its journal.

    Args:
        fleet: Folder of the fleet.
        name: Name of the new campaign.
        plan: Plan that each node carries out.
        engine: Source of the names of all nodes.
        selection: The requested nodes; all if it names none.
        settings: Additional values for the first event of the journal.
        groups: Returns the groups of nodes that measure together, by name; None: each node measures alone.

    Raises:
        UsageError: A node does not exist, or the plan takes longer than the engine allows.
        MeshmarkError: The engine does not answer, or the folder cannot be written.
    """
    node_by_name = {node.name: node for node in engine.nodes()}
    names = expand(selection.nodes, "--nodes") if selection.nodes else sorted(node_by_name)
    if not node_by_name and isinstance(engine, Batch):
        raise UsageError(f"{engine.name}: found no node", "check the queue or partition in fleet.toml")
    if unknown := [n for n in names if n not in node_by_name]:
        raise UsageError(
            f"--nodes: found {fold(unknown)}, which {engine.name} does not list", f"it lists {fold(node_by_name)[:200]}"
        )
    if selection.idle_only:
        names = [n for n in names if node_by_name[n].state == "idle"]
    if selection.random:
        names = sorted(random.Random(selection.seed).sample(names, min(selection.random, len(names))))
    if not names:
        raise UsageError("--nodes: found no node that is idle" if selection.idle_only else "--nodes: found no node")
    if isinstance(engine, TimeLimitEngine):
        plan = plan.within(engine.longest_s())
    group_setting = {"groups": groups(names)} if groups else {}
    folder = fleet.campaign(name)
    write_file(fleet.plans / f"{plan.id}.json", plan.to_bytes(), private=True)
    for subfolder in ("inbox", "logs"):
        make_folder(folder / subfolder)
    record(
        Journal(folder / JOURNAL),
        "begin",
        plan=plan.id,
        spec=plan.spec,
        kind=plan.kind,
        limit_s=plan.limit_s,
        engine=engine.name,
        nodes=fold(names),
        **group_setting,
        **settings,
    )


@dataclass
class Campaign:
    """A campaign that is being driven.

    Attributes:
        begun: The first event of its journal.
        nodes: The states of nodes, or of groups of nodes that measure together.
        groups: The nodes of each group, by its name.
        taken: Nodes whose results were ingested.
        left: Nodes that had not measured when the campaign was last driven, each with the reason.
    """

    fleet: Fleet
    name: str
    begun: Mapping[str, Any]
    nodes: dict[str, NodeState]
    groups: dict[str, tuple[str, ...]]
    taken: frozenset[str] = frozenset()
    left: dict[str, str] = field(default_factory=dict)
    _live: dict[str, list[str]] = field(default_factory=dict)  # names of jobs → their nodes
    _ids: dict[str, str] = field(default_factory=dict)  # names of jobs → their ids
    _since: dict[str, float] = field(default_factory=dict)  # names of jobs → time at which they were first seen running
    # Names of live jobs that may not exist, since their submission failed or was interrupted → time of the submission.
    _unsure: dict[str, float] = field(default_factory=dict)
    _void: set[str] = field(default_factory=set)  # jobs that do not count, and are cancelled if they exist
    _refusal: str = ""  # error message of the last submission that failed
    _count: int = 0

    @staticmethod
    def load(fleet: Fleet, name: str, taken: Iterable[str] = ()) -> Campaign:
        """Return a campaign in the state that its journal describes; the results of the nodes `taken` were ingested.

        Raises:
            MeshmarkError: There is no such campaign, or its journal is damaged.
        """
        journal = Journal(fleet.campaign(name) / JOURNAL)
        events = events_in(journal)
        line, first_event = events[0] if events else (0, {})
        if first_event.get("event") != "begin":
            raise MeshmarkError(f"{name}: not a campaign, or its journal is damaged")
        begin_event = checked(BeginEvent, first_event, f"{journal.path}: line {line}", MeshmarkError)
        groups = begin_event.members(f"{journal.path}: line {line}")
        campaign = Campaign(fleet, name, first_event, {n: NodeState() for n in groups}, groups, frozenset(taken))
        for number, raw in events[1:]:
            if kind := EVENTS.get(str(raw.get("event"))):
                _replay(campaign, checked(kind, raw, f"{journal.path}: line {number}", MeshmarkError))
        return campaign

    def members(self) -> list[str]:
        """Return the names of all nodes that take part."""
        return list(dict.fromkeys(node for members in self.groups.values() for node in members))

    def _record(self, event: str, **values: Any) -> None:
        record(Journal(self.fleet.campaign(self.name) / JOURNAL), event, **values)

    # -------------------------------------------------------------- driving

    def drive(
        self,
        engine: Engine,
        work: JobWork,
        max_jobs: int,
        max_nodes: int,
        show: Callable[[CampaignProgress], None] = lambda _: None,
        wait_s: float = float("inf"),
    ) -> CampaignProgress:
        """Submit jobs until every node has measured, failed or is out.

        Args:
            engine: Engine that runs the jobs.
            work: What a job runs on its nodes.
            max_jobs: Largest number of jobs that wait or run at once.
            max_nodes: Largest number of nodes in a job.
            show: Called after each query of the engine.
            wait_s: Time for which busy nodes are waited for; nodes that are still busy then are left to a later resume.

        Raises:
            MeshmarkError: The engine does not answer for ten minutes, or refuses the jobs of all nodes; another process
                drives the campaign, or the disk is full. Jobs continue, and a resumed campaign finds them.
        """
        started = answered_at = time.monotonic()
        silent_at = -BACK_S  # when the engine last did not answer
        pause = _POLL_S[0]
        with held(self.fleet.campaign(self.name), resumed=True):
            while True:
                try:
                    changed, trouble = self._step(engine, work, max_jobs, max_nodes), self._refusal
                    is_stuck = bool(trouble) and len(self._live) == len(self._unsure)
                except EngineError as error:
                    changed, trouble, is_stuck = False, str(error), True
                    silent_at = time.monotonic()
                now = time.monotonic()
                answered_at = answered_at if is_stuck else now
                progress = CampaignProgress(self.name, self.nodes, now - started, trouble)
                show(progress)
                counts = progress.counts()
                is_silent = now - answered_at > SILENT_S
                if is_silent and not (self._refusal and counts["done"]):
                    raise MeshmarkError(f"{trouble}; the campaign can be resumed")
                may_wait = (counts["waiting"] and now - started <= wait_s) or (
                    counts["out"] and now - silent_at < BACK_S
                )
                if is_silent or not (counts["running"] or may_wait or self._unsure):
                    unmeasured = {n: [s.status, s.why] for n, s in self.nodes.items() if s.status != "done"}
                    self._record("end", left=unmeasured)
                    return progress
                pause = _POLL_S[0] if changed else min(pause * 1.5, _POLL_S[1])
                time.sleep(pause)

    def _step(self, engine: Engine, work: JobWork, max_jobs: int, max_nodes: int) -> bool:
        """Query the engine once, submit as many jobs as it has room for, and return whether anything changed.

        For any number of nodes and jobs, one step queries the engine once for its jobs and once for its nodes, and
        cancels jobs once.
        """
        before = [(s.status, s.tries) for s in self.nodes.values()]
        # Nodes first: the nodes of a job that starts between the two queries would seem to be busy while it waits.
        states = self._states(engine)
        jobs = {
            job.name: job for job in engine.jobs({name: self._ids.get(name, "") for name in (*self._live, *self._void)})
        }
        finished = self._finished(work.inbox)
        self._settle(jobs, finished, states)
        self._update(states, jobs, finished)
        self._withdraw(states, jobs)
        self._cancel(engine, jobs, work.limit_s + GRACE_S)
        if not self._unsure:  # otherwise the engine does not answer or refuses jobs
            self._refusal = ""
            waits = sum(job.waits for name, job in jobs.items() if name in self._live)
            for batch in self._batches(states, max_nodes, max_jobs - len(self._live), max(1, max_jobs // 2) - waits):
                if not self._submit(engine, batch, work):
                    break
        return before != [(s.status, s.tries) for s in self.nodes.values()]

    def _settle(self, jobs: Mapping[str, Job], finished: frozenset[str], known: Mapping[str, EngineNode]) -> None:
        """Find out which of our jobs still exist, and record the others as ended."""
        now = time.monotonic()
        for name, nodes in list(self._live.items()):
            failed_at = self._unsure.get(name)
            if name in jobs:
                if self._unsure.pop(name, None) is not None:
                    self._record("submitted", job=name, id=jobs[name].id)
            elif failed_at is None or not finished.isdisjoint(nodes):
                self._end(name, finished, known)
            elif now - failed_at > DOUBT_S:
                self._forget(name, f"not submitted: {quoted(self._refusal)}" if self._refusal else "not submitted")

    def _batches(self, known: Mapping[str, EngineNode], max_nodes: int, room: int, busy_room: int) -> list[list[str]]:
        """Return the nodes of as many jobs as there is room for.

        Args:
            known: The nodes that the engine knows, by name.
            max_nodes: Largest number of nodes in a job.
            room: Largest number of jobs.
            busy_room: Largest number of jobs of busy nodes; the rest is reserved for nodes that become idle.
        """
        free = self._free()
        nodes_at_once = max(1, max_nodes // max(map(len, self.groups.values())))
        # A job that is refused because of one of its nodes is halved, and submitted after jobs that were not refused.
        # Nodes that are off share a job only with one another, and only once: if one does not start, the others do not
        # measure, either.
        batched: dict[tuple[bool, int], list[str]] = {}
        singles = []  # nodes with a job of their own, which waits in the queue of the engine
        for name in free:
            at, state = known[name].state, self.nodes[name]
            if at == "idle" or (at == "off" and not state.tries):
                batched.setdefault((at == "off", state.refused), []).append(name)
            elif at != "out":
                singles.append([name])
        batches = []
        for (_, refused), names in sorted(batched.items()):
            size = max(1, nodes_at_once >> refused)
            batches += [names[at : at + size] for at in range(0, len(names), size)]
        return [*batches, *singles[: max(0, busy_room)]][: max(0, room)]

    def _states(self, engine: Engine) -> dict[str, EngineNode]:
        """Return the state of each group: the worst state of its nodes."""
        node_by_name = {node.name: node for node in engine.nodes()}
        states = {}
        for name, members in self.groups.items():
            nodes = [node_by_name.get(n, EngineNode(n, "out", "the engine no longer lists it")) for n in members]
            worst = max(nodes, key=lambda node: STATES.index(node.state))
            reason = f"{worst.name}: {worst.why}" if worst.why and len(members) > 1 else worst.why
            states[name] = EngineNode(name, worst.state, reason)
        return states

    def _free(self) -> list[str]:
        """Return the groups that wait and are in no job, each node at most once."""
        used = {node for live in self._live.values() for name in live for node in self.groups[name]}
        free = []
        for name, state in self.nodes.items():
            if state.status == "waiting" and used.isdisjoint(self.groups[name]):
                free.append(name)
                used.update(self.groups[name])
        return free

    def _finished(self, inbox: Path) -> frozenset[str]:
        """Return the nodes whose files exist or were ingested; the file of an interrupted node has another name."""
        try:
            with os.scandir(inbox) as entries:
                files = [e.name for e in entries if e.name.endswith(SUFFIX) and not e.name.startswith(".")]
        except OSError as error:
            raise MeshmarkError(f"cannot read {inbox}: {error.strerror}") from error
        return self.taken.union(name.removesuffix(SUFFIX) for name in files)

    def _end(self, job: str, finished: frozenset[str], known: Mapping[str, EngineNode]) -> None:
        """Record the end of a job; its nodes without a file wait for another try or, after `TRIES`, have failed."""
        nodes = self._live.pop(job)
        self._unsure.pop(job, None)
        self._record("ended", job=job)
        messages = last_words(self.fleet.campaign(self.name) / "logs" / f"{job}.log", set(nodes) - finished)
        disk_note = "; the disk is full" if shutil.disk_usage(self.fleet.root).free < _FULL else ""
        for node in nodes:
            if node not in finished:
                state = self.nodes[node]
                cause = f", whose node is {known[node].why}" if known[node].why else ""
                state.why = ": ".join(
                    [f"job {job}{cause} ended without its result{disk_note}", *messages.get(node, ())]
                )
                state.status = "failed" if state.tries >= TRIES else "waiting"

    def _update(self, known: Mapping[str, EngineNode], jobs: Mapping[str, Job], finished: frozenset[str]) -> None:
        running = {node: jobs[name] for name, nodes in self._live.items() for node in nodes if name in jobs}
        for name, state in self.nodes.items():
            engine_node = known[name]
            if name in finished:
                state.status, state.why = "done", ""
            elif name in running:
                state.status = "waiting" if running[name].waits else "running"
                state.why = f"job {running[name].id} waits: {running[name].why}" if running[name].waits else ""
            elif engine_node.state == "out":
                state.status, state.why = "out", engine_node.why
            elif state.status in {"running", "out"}:
                state.status = "waiting"
            if state.status == "waiting" and engine_node.state in {"off", "busy"} and name not in running:
                state.why = engine_node.why
            if state.status == "failed" and engine_node.why and engine_node.why not in state.why:
                state.why += f"; the engine reports: {engine_node.why}"

    def _withdraw(self, known: Mapping[str, EngineNode], jobs: Mapping[str, Job]) -> None:
        """Give up jobs that wait for a node that is out, and jobs of several nodes that wait for a busy node.

        The other nodes of such a job would not measure.
        """
        for name, job in jobs.items():
            nodes = self._live.get(name, [])
            states = {known[n].state for n in nodes}
            if job.waits and ("out" in states or (len(nodes) > 1 and "busy" in states)):
                self._forget(name, "one of its nodes was busy or out of service")

    def _cancel(self, engine: Engine, jobs: Mapping[str, Job], limit_s: float) -> None:
        """Cancel jobs that do not count, and jobs that run for longer than their limit.

        A node that died may keep its job alive for minutes.
        """
        now = time.monotonic()
        late = [
            job.id
            for name, job in jobs.items()
            if name in self._void
            or (not job.waits and not job.boots and now - self._since.setdefault(name, now) > limit_s)
        ]
        if late:
            engine.cancel(late)

    def _submit(self, engine: Engine, nodes: Sequence[str], work: JobWork) -> bool:
        """Submit a job and return whether the engine accepted it.

        If not, the job may exist nevertheless; the next queries of the engine show whether it does.
        """
        self._count += 1
        job = f"mm-{self.name.rpartition('-')[2]}-{self._count}"
        is_single = all(self.groups[n] == (n,) for n in nodes)
        self._record("submitting", job=job, nodes=fold(nodes) if is_single else list(nodes))
        self._live[job] = list(nodes)
        for node in nodes:
            state = self.nodes[node]
            state.tries += 1
            state.job, state.status = job, "running"
        try:
            id_ = engine.submit(job, [node for n in nodes for node in self.groups[n]], work.for_groups(nodes))
        except EngineError as error:
            self._refusal, self._unsure[job] = str(error), time.monotonic()
            for node in nodes:
                state = self.nodes[node]
                state.refused, state.status, state.why = state.refused + 1, "waiting", f"not submitted: {quoted(error)}"
            return False
        self._record("submitted", job=job, id=id_)
        self._ids[job] = id_
        return True

    def _forget(self, job: str, reason: str) -> None:
        """End a job that measures nothing, and do not count it as a try of its nodes."""
        nodes = self._live.pop(job)
        self._unsure.pop(job, None)
        self._void.add(job)
        self._record("ended", job=job, why=reason, counts=False)
        for node in nodes:
            state = self.nodes[node]
            state.tries, state.status, state.why = state.tries - 1, "waiting", reason


def _replay(campaign: Campaign, event: Event) -> None:
    if isinstance(event, EndEvent):
        campaign.left = {node: str(reason or status) for node, (status, reason) in event.left.items()}
    elif isinstance(event, SubmittingEvent):
        nodes = [n for n in event.names() if n in campaign.nodes]
        campaign._live[event.job] = nodes
        campaign._unsure[event.job] = time.monotonic()
        campaign._count += 1
        for node in nodes:
            campaign.nodes[node].tries += 1
            campaign.nodes[node].job = event.job
    elif isinstance(event, SubmittedEvent):
        campaign._unsure.pop(event.job, None)
        campaign._ids[event.job] = event.id
    else:
        campaign._unsure.pop(event.job, None)
        if event.counts is False:
            campaign._void.add(event.job)
        for node in campaign._live.pop(event.job, []):
            campaign.nodes[node].tries -= event.job in campaign._void
