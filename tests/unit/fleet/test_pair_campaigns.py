"""Campaigns of pairs, with a launcher that only prints the output of two ranks."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.fleet.engines.engine import JobWork
from meshmark.fleet.folder import Fleet
from meshmark.fleet.known import nodes_of
from meshmark.fleet.network.pairs import PairMessages, script_maker
from meshmark.fleet.site import PairSite, Site, SshSite
from meshmark.measure.runs.launch import Launcher
from support.made_fleet import lines_of, write_result
from support.made_run import record

TOML = 'engine = "local"\nnodes = "n[1-9]"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a fleet whose ranks do not exchange messages."""
    lines = [json.dumps({"type": "header", "schema": 1, "instrument": "pingpong", "machine": "m"})]
    for size, value in ((8, 2e-6), (4 << 20, 1e-3)):
        message_record = record("pingpong", "message_latency", value, (), message_bytes=size, protocol="send")
        lines.append(json.dumps({"type": "result", "schema": 1, **message_record.to_json(), "machine": "m"}))
    lines.append(json.dumps({"type": "end", "status": "ok"}))
    program = tmp_path / "mpirun"
    program.write_text(
        f"#!/bin/sh\ntest -e {tmp_path}/broken && echo no network >&2 && exit 3\nprintf '%s\\n' {shlex.join(lines)}\n"
    )
    program.chmod(0o755)
    fake = Launcher("mpi", program, program)
    monkeypatch.setattr("meshmark.fleet.campaigns.campaign.time.sleep", lambda _: threading.Event().wait(0.02))
    monkeypatch.setattr("meshmark.fleet.network.pairs.chosen", lambda _: ["mpi"])
    monkeypatch.setattr("meshmark.fleet.network.pairs.launcher", lambda _: fake)
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / "fleet.toml").write_text(TOML)
    return fleet


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["fleet", *words], catch_exceptions=True)


def test_pairs_are_measured_and_summarized(folder: Path) -> None:
    result = run("pairs", str(folder), "--rounds", "2", "--nodes", "n[1-6]", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["nodes"], summary["pairs"], summary["judged"]) == (6, 6, False)
    warnings: list[str] = []
    assert nodes_of(Fleet(folder), Site(), warnings.append) == [f"n{i}" for i in range(1, 7)]
    assert not warnings
    (level,) = summary["levels"]
    assert level["times"] == {"8": pytest.approx(2e-6, rel=0.02), str(4 << 20): pytest.approx(1e-3, rel=0.02)}


def test_a_damaged_journal_does_not_stop_the_page_of_the_fleet(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    campaign = fleet.campaign("pairs-20261128T120000-1a2b")
    campaign.mkdir(parents=True)
    (campaign / "journal.jsonl").write_text('{"event": "begin"}\n')
    warnings: list[str] = []
    assert nodes_of(fleet, Site(nodes="n[1-2]"), warnings.append) == ["n1", "n2"]
    assert len(warnings) == 1 and campaign.name in warnings[0] and "journal.jsonl" in warnings[0]


def test_what_the_launcher_says_is_the_reason(folder: Path) -> None:
    (folder.parent / "broken").touch()
    result = run("pairs", str(folder), "--rounds", "1", "--nodes", "n[1-2]")
    assert str(result.exception).endswith(": no pair was measured: no network")


def test_a_killed_campaign_measures_only_the_pairs_that_it_lacks(folder: Path) -> None:
    (folder.parent / "broken").touch()
    run("pairs", str(folder), "--rounds", "1", "--nodes", "n[1-6]")
    (folder.parent / "broken").unlink()
    fleet = Fleet(folder)
    (name,) = fleet.campaigns()
    journal = fleet.campaign(name) / "journal.jsonl"
    first_line, *_ = journal.read_text().splitlines(keepends=True)
    journal.write_text(first_line)  # the journal of a campaign that was killed at once
    pair = next(iter(json.loads(first_line)["groups"]))
    write_result(fleet.campaign(name) / "inbox", pair, lines_of(pair))
    result = run("pairs", str(folder), "--resume", "--json")
    assert result.exit_code == 0, result.output
    assert pair not in "".join(journal.read_text().splitlines()[1:])
    assert (
        json.loads(result.stdout.splitlines()[-1])["nodes"] == 4
    )  # the file of the other two nodes has no results of messages


def test_what_a_killed_ingestion_had_claimed_is_not_measured_again(folder: Path) -> None:
    run("pairs", str(folder), "--rounds", "1", "--nodes", "n[1-4]", "--suspects")
    fleet = Fleet(folder)
    (name,) = fleet.campaigns()
    shutil.rmtree(folder / "results")
    shutil.rmtree(folder / "nodes")
    for pair in json.loads((fleet.campaign(name) / "journal.jsonl").read_text().splitlines()[0])["groups"]:
        write_result(fleet.campaign(name) / "taken" / "abandoned", pair, lines_of(pair))
    (fleet.campaign(name) / "taken" / "abandoned" / ".lock").touch()
    run("pairs", str(folder), "--resume")
    events = [json.loads(line) for line in (fleet.campaign(name) / "journal.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "submitting" for event in events) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "n1"), "--nodes: found one node, n1; allowed: at least two"),
        (("--nodes", "n[8"), "--nodes: found 'n[8'; allowed: a set"),
        (("--resume",), "has no campaign of pairs"),
        (("--rounds", "0"), ""),
        (("--bytes", "4XB"), "--bytes: found '4XB'; allowed: "),
    ],
)
def test_bad_requests_are_refused(folder: Path, words: tuple[str, ...], message: str) -> None:
    result = run("pairs", str(folder), *words)
    assert result.exit_code != 0 and message in str(result.exception)
    assert not list(folder.glob("campaigns/*/journal.jsonl"))


def test_each_batch_system_starts_two_ranks_on_two_nodes() -> None:
    plan = PairMessages().plan()
    work = JobWork(Path("/f/comm"), Path("/f/plan"), Path("/f/in box"), Path("/f/logs"), plan.limit_s)
    launcher = Launcher("openmpi", Path("/usr/bin/mpirun"), Path("/f/comm"))

    def lines(site: Site, engine: str, kind: str = "openmpi") -> list[str]:
        script = script_maker(plan, work, replace(launcher, kind=kind), site, engine)(["r1+n1+n2", "r1+n3+n4"])
        return [line for line in script.splitlines() if line.startswith("pair r1")]

    first, second = lines(Site(pairs=PairSite(options=("--tune", "x"))), "slurm")
    assert first.startswith("pair r1+n1+n2 /usr/bin/mpirun -n 2 -H n1:1,n2:1 ") and first.endswith("--tune x /f/comm &")
    assert "n3:1,n4:1" in second
    assert "srun --mpi=pmix --nodes=2" in lines(Site(pairs=PairSite(srun="pmix")), "slurm")[0]
    assert "flux run --nodes=2 --ntasks=2 --requires=host:n1,n2" in lines(Site(), "flux")[0]
    assert "-hosts n1,n2 -ppn 1" in lines(Site(), "pbs", "mpich")[0]
    assert (
        "plm_rsh_args '-p 2222 -oBatchMode=yes -oConnectTimeout=30'"
        in lines(Site(ssh=SshSite(("-p", "2222"))), "ssh")[0]
    )
