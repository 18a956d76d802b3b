"""A name of a node is a word and no part of a shell's text; a set of nodes is counted before it is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.fleet.campaign import Campaign
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import MAX_NODES, checked_names, expand, fold
from support.cli import meshmark

ATTACKS = [
    "a$(touch x)",
    "a;touch x",
    "a`touch x`",
    "a|touch x",
    "a>x",
    "a\ntouch x",
    "a&touch x",
    "'a' x",
    "-oProxyCommand=touch x",
    "../x",
    "%host",
    "a\\x",
    "n1{x,y}",
    "~root",
]


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("engine", ["local", "ssh"])
def test_a_name_that_runs_a_command_is_refused_and_runs_none(tmp_path: Path, name: str, engine: str) -> None:
    done = meshmark("fleet", "check", "fleet", "--engine", engine, "--nodes", name, cwd=tmp_path)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if not line.startswith("hint: ")]
    assert len(lines) == 1 and "nodes: found " in lines[0], done.stderr
    assert not list(tmp_path.rglob("x"))


def test_a_name_in_the_file_of_a_site_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(f"engine = 'local'\nnodes = {json.dumps(ATTACKS[0])}\n")
    done = meshmark("fleet", "check", tmp_path, cwd=tmp_path)
    assert done.returncode == 2 and "fleet.toml: nodes: found " in done.stderr
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999]",
        "n[1-9999999]",
        "n[1-99999999999999]",
        "n[1-9999]c[1-9999]",
        "n[99999999999999999999]",
        "a,n[0-100000]",
    ],
)
def test_a_set_that_is_too_large_is_counted_and_not_built(text: str) -> None:
    with pytest.raises(UsageError, match=f"allowed: up to {MAX_NODES:,}"):
        expand(text)


@pytest.mark.parametrize("text", ["@all", "*", "@rack:1", "n*", "@"])
def test_groups_and_wildcards_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="groups and wildcards are not allowed"):
        expand(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[001-003,7]", ["n001", "n002", "n003", "n7"]),
        ("n[1-9/4]", ["n1", "n5", "n9"]),
        ("n[1-2]c[1-2]", ["n1c1", "n1c2", "n2c1", "n2c2"]),
        ("n[1-4]!n[2-3]", ["n1", "n4"]),
        ("login.site.org,gpu-3", ["gpu-3", "login.site.org"]),
        ("", []),
    ],
)
def test_sets_are_read_as_administrators_write_them(text: str, names: list[str]) -> None:
    assert sorted(expand(text)) == sorted(names)
    assert not names or sorted(expand(fold(names))) == sorted(names)


@pytest.mark.parametrize("name", [*ATTACKS, "", "n1[0]", 7, None, "a" * 300, "n\u0661"])
def test_names_from_files_are_checked(name: object) -> None:
    with pytest.raises(UsageError, match=r"journal: found .*; a name of a node has"):
        checked_names(["n1", name], "journal")


BEGIN = {
    "event": "begin",
    "plan": "p",
    "kind": "check",
    "limit_s": 60,
    "engine": "local",
    "nodes": "n[1-2]",
    "cluster": "c",
}
SUBMITTING = {"event": "submitting", "job": "j1", "nodes": "n[1-2]"}


def load(folder: Path, *events: object) -> Campaign:
    fleet = Fleet(folder)
    name = "check-20260101T000000-abcdef"
    path = fleet.campaign(name) / "journal.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(event if isinstance(event, str) else json.dumps(event) + "\n" for event in events))
    return Campaign.load(fleet, name)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({k: v for k, v in BEGIN.items() if k != "nodes"}, "nodes"),
        ({k: v for k, v in BEGIN.items() if k != "cluster"}, "cluster"),
        ({**BEGIN, "nodes": ["n1"]}, "nodes"),
        ({**BEGIN, "nodes": "n1;touch x"}, "nodes"),
        ({**BEGIN, "nodes": "n[1-99999999]"}, "nodes"),
        ({**BEGIN, "limit_s": "60"}, "limit_s"),
        ({**BEGIN, "limit_s": 1e300}, "limit_s"),
        ({**BEGIN, "plan": "../p"}, "plan"),
        ({**BEGIN, "cluster": "../../c"}, "cluster"),
        ({**BEGIN, "engine": 3}, "engine"),
        ({**BEGIN, "groups": {"a": ["$(x)"]}}, "groups"),
        ({**BEGIN, "groups": [["n1"]]}, "groups"),
    ],
)
def test_a_damaged_beginning_of_a_campaign_is_one_line_with_its_field(
    tmp_path: Path, event: dict[str, object], field: str
) -> None:
    with pytest.raises(MeshmarkError, match=rf"journal\.jsonl: event 1: {field}") as error:
        load(tmp_path, event)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({**SUBMITTING, "job": 3}, "job"),
        ({**SUBMITTING, "nodes": 3}, "nodes"),
        ({"event": "submitted", "job": "j1"}, "id"),
        ({"event": "submitted", "job": "j1", "id": ["1"]}, "id"),
        ({"event": "ended"}, "job"),
        ({"event": "end", "left": {"n1": "failed"}}, "left"),
        ({"event": "end", "left": 3}, "left"),
    ],
)
def test_a_damaged_event_is_one_line_with_its_field(tmp_path: Path, event: dict[str, object], field: str) -> None:
    with pytest.raises(MeshmarkError, match=rf"journal\.jsonl: event 3: .*{field}"):
        load(tmp_path, BEGIN, SUBMITTING, event)


def test_lines_that_are_no_events_are_ignored(tmp_path: Path) -> None:
    nested = "[" * 10_000 + "]" * 10_000 + "\n"
    campaign = load(tmp_path, BEGIN, nested, "{\n", '"text"\n', {"event": "of a later version"}, SUBMITTING)
    assert list(campaign.nodes) == ["n1", "n2"]
    assert campaign.nodes["n1"].tries == 1
