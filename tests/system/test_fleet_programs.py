"""Programs of users on the nodes of a fleet, from the command line to the names of nodes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from meshmark.fleet.data.values import query
from meshmark.fleet.folder import Fleet
from support.cli import meshmark, start
from support.made_application import SPEC, SUM, write_sum
from support.waiting import alive, until

# A rate that is common to the nodes up to noise, and smaller on n5; all nodes are this host. In a shorter time, the
# smallest work of another process would be a large share.
RATE = """\
sleep 0.2
case $MESHMARK_NODE_RUN in n5) rate=200 ;; *) rate=250 ;; esac
echo "rate: $rate.$(($$ % 5)) MB/s"
echo sum: 5050
"""
# Run until a file is deleted, and then leave a process for which nobody waits.
HELD = """\
if [ -e "$0.hold" ]; then
    setsid sleep 600 &
    echo $! > "$0.left"
    while [ -e "$0.hold" ]; do sleep 0.05; done
fi
echo 'rate: 250 MB/s'
echo sum: 5050
"""


def fleet_of(folder: Path, nodes: str) -> Path:
    """Return the folder of a fleet whose nodes are names of this host."""
    fleet = folder / "fleet"
    fleet.mkdir()
    (fleet / "fleet.toml").write_text(f'engine = "local"\nnodes = "{nodes}"\nscratch = "{folder}"\n', encoding="utf-8")
    return fleet


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def disturbed(folder: Path) -> int:
    """Return the number of flagged results."""
    fleet = Fleet(folder)
    rows = query(fleet, "results", fleet.campaigns(), "cluster", "SELECT 1 FROM read_parquet(?) WHERE len(flags) > 0")
    return len(rows) if rows is not None else 0


def test_a_program_that_a_node_has_not_is_absent_and_the_campaign_goes_on(tmp_path: Path) -> None:
    spec = write_sum(tmp_path, SUM.replace("sh {source}", "no-such-shell {source}"))
    fleet = fleet_of(tmp_path, "n[1-2]")
    completed = meshmark("fleet", "check", fleet, "--spec", spec, "--beside")
    assert completed.returncode == 0, completed.stderr
    assert "ingested the results of 2 nodes" in completed.stderr
    assert "n[1-2]: sum: found no program no-such-shell; it is in the package sum-tools" in completed.stderr


def test_what_nodes_cannot_do_is_refused_before_a_campaign_begins(tmp_path: Path) -> None:
    spec = write_sum(tmp_path, SUM.replace("size = 100", "size = 100\nranks = 2"))
    fleet = fleet_of(tmp_path, "n1")
    completed = meshmark("fleet", "run", fleet, "--spec", spec)
    assert (
        completed.returncode == 2
        and "sum.toml: dimensions.ranks: found 2; allowed on nodes: 1; a launcher" in completed.stderr
    )
    assert "Traceback" not in completed.stderr and not list(fleet.glob("campaigns/*"))


def test_a_killed_campaign_and_a_killed_runner_are_resumed_and_leave_nothing(tmp_path: Path) -> None:
    spec = write_sum(tmp_path, script=HELD, spec=SPEC + "warmup = 0\n")
    hold, leftover = tmp_path / "sum.sh.hold", tmp_path / "sum.sh.left"
    hold.touch()
    fleet = fleet_of(tmp_path, "n1")
    first = start("fleet", "check", fleet, "--spec", spec, "--beside")
    assert until(lambda: leftover.exists() and leftover.read_text().endswith("\n"))
    first.kill()
    first.communicate()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if words and b"/bin/meshmark-node" in words[0] and words[0].startswith(os.fsencode(fleet)):
            os.kill(int(path.parent.name), signal.SIGKILL)
    process = int(leftover.read_text())
    assert alive(process), "nobody else would end it"
    hold.unlink()
    completed = meshmark("fleet", "check", fleet, "--resume", "--json")
    assert completed.returncode == 0, completed.stderr
    results = {line["type"]: line for line in lines(completed.stdout)}
    assert results["node"]["status"] == "done" and results["ingested"]["failures"] == {}
    assert not alive(process) and not list(tmp_path.glob("meshmark-node-*"))


@pytest.mark.slow
def test_nodes_are_judged_by_programs_of_users(tmp_path: Path) -> None:
    spec = write_sum(tmp_path, script=RATE, spec=SPEC.replace("runs = 2", "runs = 1\nwarmup = 0\nrepetitions = 3"))
    fleet = fleet_of(tmp_path, "n[1-12]")
    completed = meshmark("fleet", "check", fleet, "--spec", spec, "--beside", timeout_s=300)
    assert completed.returncode == 0, completed.stderr
    result = meshmark("fleet", "judge", fleet, "--json", timeout_s=600)
    assert result.returncode == 0, result.stderr
    named_nodes = {node["node"]: node for node in json.loads(result.stdout)["named"]}
    if disturbed(fleet):
        pytest.skip("another process disturbed the measurement")
    assert list(named_nodes) == ["n5"]
    worst = named_nodes["n5"]["metrics"][0]
    assert (worst["instrument"], worst["metric"]) == ("app", "figure_of_merit") and 0.2 < worst["by"] < 0.3
    page = meshmark("fleet", "report", fleet, "--output", tmp_path / "page.html")
    assert page.returncode == 0 and "app figure of merit: 2" in (tmp_path / "page.html").read_text()
    # A wrong result names the nodes that have it, unless most nodes have it: n10 to n12 have longer names than the
    # others.
    wrong_on_some = RATE.replace("sum: 5050", "sum: $((${#MESHMARK_NODE_RUN} + 5048))")
    for script, code in ((wrong_on_some, 3), (RATE.replace("5050", "7"), 12)):
        (tmp_path / "sum.sh").write_text(script, encoding="utf-8")
        completed = meshmark("fleet", "check", fleet, "--spec", spec, "--beside", "--json", timeout_s=300)
        assert sum(len(nodes) for nodes in lines(completed.stdout)[-1]["failures"].values()) == code
        report = meshmark("fleet", "judge", fleet, "--suspects", timeout_s=300)
        assert ("sum: results are wrong on most nodes" in report.stderr) == (code == 12)
        assert ("n11" in report.stdout) == (code == 3)
