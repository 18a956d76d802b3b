"""Campaigns: every node measures once, whatever its engine does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.fleet.campaigns.campaign import JOURNAL, Campaign, CampaignProgress, NodeSelection, begin, new_campaign
from meshmark.fleet.campaigns.events import events_in
from meshmark.fleet.engines.engine import EngineError, EngineNode, JobWork
from meshmark.fleet.engines.slurm import Slurm
from meshmark.fleet.folder import Fleet
from meshmark.fleet.plan import load_plan, node_plan
from meshmark.measure.runs.spec import Spec
from meshmark.store.session import Journal
from meshmark.values.inputs import checked
from support.made_fleet import PLAN, MadeEngine, lines_of, work_in, write_result

NAMES = [f"n{i}" for i in range(1, 9)]


def measure(node: str, work: JobWork) -> None:
    write_result(work.inbox, node, lines_of(node))


class Clock:
    """A clock that advances only while a campaign sleeps."""

    gmtime, strftime = time.gmtime, time.strftime

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.fleet.campaigns.campaign.time", Clock())


def begun(folder: Path, engine: MadeEngine, **wanted: Any) -> str:
    name = new_campaign("check")
    begin(Fleet(folder), name, PLAN, engine, NodeSelection(**wanted), {"cluster": "hawk", "beside": False})
    return name


def drive(folder: Path, name: str, engine: MadeEngine, **options: Any) -> CampaignProgress:
    campaign = Campaign.load(Fleet(folder), name)
    limits = {"max_jobs": 3, "max_nodes": 4, **options}
    return campaign.drive(engine, work_in(folder, name), **limits)


def test_idle_nodes_measure_in_few_jobs(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure)
    progress = drive(tmp_path, begun(tmp_path, engine), engine)
    assert progress.counts()["done"] == 8
    assert [nodes for _, nodes in engine.submitted] == [NAMES[:4], NAMES[4:]]


def test_nodes_that_are_down_are_left_out_with_the_reason(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure, n3=EngineNode("n3", "out", "drain: bad DIMM"))
    name = begun(tmp_path, engine)
    progress = drive(tmp_path, name, engine)
    assert progress.counts() == {"waiting": 0, "running": 0, "done": 7, "failed": 0, "out": 1}
    assert progress.nodes["n3"].why == "drain: bad DIMM"
    assert Campaign.load(Fleet(tmp_path), name).left == {"n3": "drain: bad DIMM"}


def test_a_node_that_dies_is_tried_twice_and_named(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, lambda node, work: measure(node, work) if node != "n5" else None)
    progress = drive(tmp_path, begun(tmp_path, engine), engine)
    assert progress.counts()["done"] == 7
    assert progress.nodes["n5"].status == "failed" and "without its result" in progress.nodes["n5"].why
    assert sum("n5" in nodes for _, nodes in engine.submitted) == 2


def test_a_node_that_a_signal_interrupted_is_tried_again(tmp_path: Path) -> None:
    attempts: list[str] = []

    def interrupted(node: str, work: JobWork) -> None:
        is_first = node == "n5" and node not in attempts
        attempts.append(node)
        write_result(work.inbox, node, lines_of(node, status="interrupted" if is_first else "ok"))

    engine = MadeEngine.of(NAMES, interrupted)
    progress = drive(tmp_path, begun(tmp_path, engine), engine)
    assert progress.counts()["done"] == 8
    assert {name: s.tries for name, s in progress.nodes.items()} == {name: 1 + (name == "n5") for name in NAMES}


def test_a_job_that_a_dead_node_keeps_alive_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "meshmark.fleet.campaigns.campaign.GRACE_S", -60.0
    )  # so that jobs are over time at once: the limit of their plan is 60 s
    engine = MadeEngine.of(NAMES[:4], lambda node, work: measure(node, work) if node != "n3" else None)
    engine.lasting = True
    progress = drive(tmp_path, begun(tmp_path, engine), engine)
    assert progress.counts() == {"waiting": 0, "running": 0, "done": 3, "failed": 1, "out": 0}
    assert len(engine.cancelled) == 2


def test_busy_nodes_wait_in_jobs_of_their_own(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure, n2=EngineNode("n2", "busy", "alloc"))
    name = begun(tmp_path, engine)
    progress = drive(tmp_path, name, engine, wait_s=-1.0)
    assert progress.nodes["n2"].status == "waiting" and progress.counts()["done"] == 7
    assert [nodes for _, nodes in engine.submitted][-1] == ["n2"]
    engine.states["n2"] = EngineNode("n2", "idle")
    measure("n2", work_in(tmp_path, name))  # the job of n2 starts
    assert drive(tmp_path, name, engine).counts()["done"] == 8
    assert sum("n2" in nodes for _, nodes in engine.submitted) == 1


def test_nodes_that_are_off_share_jobs_with_one_another_until_one_fails(tmp_path: Path) -> None:
    powered_off = {n: EngineNode(n, "off", "idle~: powered off") for n in ("n2", "n5", "n7")}
    engine = MadeEngine.of(NAMES, measure, **powered_off)
    assert drive(tmp_path, begun(tmp_path, engine), engine).counts()["done"] == 8
    assert [nodes for _, nodes in engine.submitted] == [["n1", "n3", "n4", "n6"], ["n8"], ["n2", "n5", "n7"]]

    def start_alone(node: str, work: JobWork) -> None:
        if len(engine.submitted[-1][1]) == 1:
            measure(node, work)

    folder = tmp_path / "one does not start"
    engine = MadeEngine.of(["n2", "n5", "n7"], start_alone, **powered_off)
    assert drive(folder, begun(folder, engine), engine).counts()["done"] == 3
    assert [nodes for _, nodes in engine.submitted] == [["n2", "n5", "n7"], ["n2"], ["n5"], ["n7"]]


def test_a_job_that_waits_for_one_node_gives_the_others_back(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES[:4], measure)
    name = begun(tmp_path, engine)
    looks: list[int] = []

    def busy_after_the_first_look(node: str, work: JobWork) -> None:
        engine.states["n2"] = EngineNode("n2", "busy")
        if looks or node != "n1":
            measure(node, work)

    def look(progress: CampaignProgress) -> None:
        looks.append(1)
        if len(looks) > 4:
            engine.states["n2"] = EngineNode("n2", "idle")

    engine.measure = busy_after_the_first_look
    progress = drive(tmp_path, name, engine, show=look)
    assert engine.cancelled and progress.counts()["done"] == 4


def test_a_campaign_goes_on_where_it_was_and_measures_nothing_twice(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure)
    name = begun(tmp_path, engine)

    def killed(progress: CampaignProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(tmp_path, name, engine, max_jobs=1, show=killed)
    assert drive(tmp_path, name, engine).counts()["done"] == 8
    assert sorted(n for _, nodes in engine.submitted for n in nodes) == NAMES


def test_a_torn_journal_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure)
    name = begun(tmp_path, engine)
    journal = Fleet(tmp_path).campaign(name) / "journal.jsonl"
    with journal.open("a") as file:
        file.write('{"event": "submitting", "job": "x", "no')
    assert drive(tmp_path, name, engine).counts()["done"] == 8
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_refused_job_is_submitted_again_and_does_not_count(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure)
    engine.refuses = ["QOSMaxSubmitJobPerUserLimit"] * 5
    progress = drive(tmp_path, begun(tmp_path, engine), engine)
    assert progress.counts()["done"] == 8 and all(s.tries == 1 for s in progress.nodes.values())


def test_a_job_whose_submission_failed_is_found_by_its_name(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES[:4], measure)
    engine.refuses = ["silent"]
    name = begun(tmp_path, engine)
    progress = drive(tmp_path, name, engine)
    assert progress.counts()["done"] == 4 and all(s.tries == 1 for s in progress.nodes.values())
    assert len(engine.submitted) == 1
    events = events_in(Journal(Fleet(tmp_path).campaign(name) / JOURNAL))
    assert "submitted" in {event["event"] for _, event in events}


def test_a_job_that_comes_to_exist_late_is_waited_for(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure, late=3)
    engine.refuses = ["silent"]
    assert drive(tmp_path, begun(tmp_path, engine), engine).counts()["done"] == 8
    assert sorted(n for _, nodes in engine.submitted for n in nodes) == NAMES


def test_a_job_that_comes_to_exist_after_it_was_given_up_is_cancelled(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES[:4], lambda *_: None, late=11)
    engine.refuses = ["silent"]
    drive(tmp_path, begun(tmp_path, engine), engine)
    (first, _), *_ = [job for job in engine.submitted if job[0].endswith("-1")]
    assert engine.cancelled == [f"id of {first}"]


def test_a_campaign_killed_while_it_submitted_finds_the_job(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES[:4], measure)
    name = begun(tmp_path, engine)

    def killed(job: str, nodes: Sequence[str], work: JobWork) -> str:
        MadeEngine.submit(engine, job, nodes, work)
        raise KeyboardInterrupt

    engine.submit = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        drive(tmp_path, name, engine)
    del engine.submit
    progress = drive(tmp_path, name, engine)
    assert all((s.status, s.tries) == ("done", 1) for s in progress.nodes.values()) and len(engine.submitted) == 1


def test_a_node_whose_jobs_are_refused_does_not_keep_the_others(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure, refused={"n3"})
    name = begun(tmp_path, engine)
    troubles = set[str]()
    progress = drive(tmp_path, name, engine, show=lambda p: troubles.add(p.trouble))
    assert progress.counts()["done"] == 7 and troubles == {"Requested node configuration is not available"}
    assert "Requested node configuration" in Campaign.load(Fleet(tmp_path), name).left["n3"]
    engine.refused = ()
    assert drive(tmp_path, name, engine).counts()["done"] == 8


def test_a_limit_on_the_number_of_jobs_is_waited_for(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure, lasting=True)
    looks: list[int] = []

    def one_job_at_once(progress: CampaignProgress) -> None:
        looks.append(1)
        running = progress.counts()["running"]
        engine.refuses = ["QOSMaxSubmitJobPerUserLimit"] if running else []
        engine.lasting = len(looks) < 5

    progress = drive(tmp_path, begun(tmp_path, engine), engine, show=one_job_at_once)
    assert progress.counts()["done"] == 8


def test_nodes_that_are_out_after_the_engine_was_away_may_come_back(tmp_path: Path) -> None:
    class Restarted(MadeEngine):
        looks = 0

        def nodes(self) -> list[EngineNode]:
            self.looks += 1
            if self.looks == 3:
                raise EngineError("sinfo: Unable to contact slurm controller")
            is_out = 3 < self.looks < 7
            return [EngineNode(n, "out", "idle*") for n in NAMES] if is_out else super().nodes()

    engine = Restarted({n: EngineNode(n, "idle") for n in NAMES}, measure)
    assert drive(tmp_path, begun(tmp_path, engine), engine, max_nodes=1).counts()["done"] == 8


def test_idle_nodes_do_not_wait_behind_busy_ones(tmp_path: Path) -> None:
    busy_nodes = {name: EngineNode(name, "busy") for name in NAMES}
    engine = MadeEngine.of(NAMES, measure, **busy_nodes)
    name = begun(tmp_path, engine)

    def look(_: CampaignProgress) -> None:
        engine.states["n8"] = EngineNode("n8", "idle")

    progress = drive(tmp_path, name, engine, show=look, wait_s=0.0, max_jobs=4)
    assert progress.nodes["n8"].status == "done" and progress.counts()["done"] == 1


def test_a_look_asks_the_engine_once_however_many_nodes_there_are(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(1, 401)]
    engine = MadeEngine.of(names, lambda *_: None, lasting=True)
    calls: list[list[str]] = []

    def look(_: CampaignProgress) -> None:
        calls.append([c for c in engine.calls if c != "submit"])
        engine.calls.clear()
        if len(calls) == 1:  # now every job waits for a busy node
            engine.states |= {n: EngineNode(n, "busy") for n in names[::2]}
        if len(calls) == 3:
            raise KeyboardInterrupt

    name = begun(tmp_path, engine)
    engine.calls.clear()
    with pytest.raises(KeyboardInterrupt):
        drive(tmp_path, name, engine, show=look, max_jobs=50, max_nodes=8)
    assert calls[:2] == [["nodes", "jobs"], ["nodes", "jobs", "cancel"]] and len(engine.cancelled) == 50


def test_an_engine_that_stops_answering_ends_the_campaign(tmp_path: Path) -> None:
    engine = MadeEngine.of(NAMES, measure)
    name = begun(tmp_path, engine)
    engine.refuses = ["Unable to contact slurm controller"] * 1000
    with pytest.raises(MeshmarkError, match=r"Unable to contact.*can be resumed"):
        drive(tmp_path, name, engine)


class Short(MadeEngine):
    """An engine that limits how long its jobs run."""

    limit_s = 20.0

    def longest_s(self) -> float:
        return self.limit_s


def test_a_plan_is_limited_to_what_the_engine_allows(tmp_path: Path) -> None:
    engine = Short({n: EngineNode(n, "idle") for n in NAMES}, measure)
    name = begun(tmp_path, engine)
    campaign = Campaign.load(Fleet(tmp_path), name)
    assert campaign.begun["limit_s"] == 20.0
    assert load_plan(tmp_path / "plans" / f"{campaign.begun['plan']}.json").limit_s == 20.0
    engine.limit_s = 5.0
    with pytest.raises(UsageError, match=r"made-up: found steps that take 8\S* s on a node; allowed .*: 5\S* s"):
        begun(tmp_path, engine)


@pytest.mark.parametrize(("count", "seed"), [(3, 0), (3, 1), (100, 0)])
def test_random_nodes_are_chosen_by_their_seed(tmp_path: Path, count: int, seed: int) -> None:
    engine = MadeEngine.of(NAMES, measure)
    node_sets = [
        set(Campaign.load(Fleet(tmp_path), begun(tmp_path, engine, random=count, seed=seed)).nodes) for _ in range(2)
    ]
    assert node_sets[0] == node_sets[1] and len(node_sets[0]) == min(count, 8)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"nodes": "n[1-3],n99"}, "found n99, which made-up does not list"),
        ({"nodes": "n[1-"}, "nodes: found 'n\\[1-'"),
        ({"nodes": "n1", "idle_only": True}, "found no node that is idle"),
    ],
)
def test_unknown_nodes_are_refused(tmp_path: Path, wanted: dict[str, Any], why: str) -> None:
    engine = MadeEngine.of(NAMES, measure, n1=EngineNode("n1", "busy"))
    with pytest.raises(UsageError, match=why):
        begun(tmp_path, engine, **wanted)


def test_a_queue_without_nodes_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slurm, "nodes", lambda _: [])
    with pytest.raises(UsageError, match="slurm: found no node") as error:
        begin(Fleet(tmp_path), new_campaign("check"), PLAN, Slurm("nope"), NodeSelection(nodes="n1"), {})
    assert "queue" in error.value.hint


def test_a_folder_that_is_no_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match="not a campaign"):
        Campaign.load(Fleet(tmp_path), new_campaign("check"))
    with pytest.raises(UsageError, match="campaign: found"):
        Fleet(tmp_path).campaign("../../etc")


def test_a_plan_cannot_have_instruments_that_need_a_launcher() -> None:
    spec = checked(Spec, {"name": "pairs", "step": [{"instrument": "pingpong", "options": {"ranks": "2"}}]}, "pairs")
    with pytest.raises((UsageError, AbsentError), match=r"pingpong|MPI"):
        node_plan(spec, "survey")
