"""Node names are single words and are never parsed by a shell; a set of nodes is counted before it is built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.errors import MeshmarkError, UsageError
from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.engines.local import Local
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import MAX_NODES, checked_names, expand, fold
from meshmark.fleet.site import load_site
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
    completed = meshmark("fleet", "check", "fleet", "--engine", engine, "--nodes", name, cwd=tmp_path)
    assert completed.returncode == 2
    lines = [line for line in completed.stderr.splitlines() if not line.startswith("hint: ")]
    assert len(lines) == 1 and "nodes: found " in lines[0], completed.stderr
    assert not list(tmp_path.rglob("x"))


def test_a_name_in_the_file_of_a_site_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(f"engine = 'local'\nnodes = {json.dumps(ATTACKS[0])}\n")
    completed = meshmark("fleet", "check", tmp_path, cwd=tmp_path)
    assert completed.returncode == 2 and "fleet.toml: nodes: found " in completed.stderr
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999]",
        "n[1-9999999]",
        "n[1-99999999999999]",
        "n[1-9999]c[1-9999]",
        "n[1-99999999999999999999]",
        "a,n[0-200000]",
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
        ({**BEGIN, "groups": {"../x": ["n1", "n2"]}}, "groups"),
        ({**BEGIN, "groups": {"r1+n1+n2": ["n1", "n3"]}}, "groups"),
        ({**BEGIN, "groups": {"rx+n1+n2": ["n1", "n2"]}}, "groups"),
        ({**BEGIN, "scratch": "/a\nb"}, "scratch"),
        ({**BEGIN, "plan": "\ud800"}, "plan"),
    ],
)
def test_a_damaged_beginning_of_a_campaign_is_one_line_with_its_field(
    tmp_path: Path, event: dict[str, object], field: str
) -> None:
    with pytest.raises(MeshmarkError, match=rf"journal\.jsonl: line 1: {field}") as error:
        load(tmp_path, event)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({**SUBMITTING, "job": 3}, "job"),
        ({**SUBMITTING, "nodes": 3}, "nodes"),
        ({"event": "submitted", "job": "j1"}, "id"),
        ({"event": "submitted", "job": "j1", "id": ["1"]}, "id"),
        ({"event": "submitted", "job": "j1", "id": "-a"}, "id"),
        ({"event": "submitting", "job": "../j", "nodes": "n1"}, "job"),
        ({"event": "ended"}, "job"),
        ({"event": "end", "left": {"n1": "failed"}}, "left"),
        ({"event": "end", "left": 3}, "left"),
    ],
)
def test_a_damaged_event_is_one_line_with_its_field(tmp_path: Path, event: dict[str, object], field: str) -> None:
    with pytest.raises(MeshmarkError, match=rf"journal\.jsonl: line 3: .*{field}"):
        load(tmp_path, BEGIN, SUBMITTING, event)


def test_lines_that_are_no_events_are_ignored(tmp_path: Path) -> None:
    nested = "[" * 10_000 + "]" * 10_000 + "\n"
    campaign = load(tmp_path, BEGIN, nested, "{\n", '"text"\n', {"event": "of a later version"}, SUBMITTING)
    assert list(campaign.nodes) == ["n1", "n2"]
    assert campaign.nodes["n1"].tries == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('nodes = "n[1-99999999]"', "nodes: found 'n[1-99999999]' with 99,999,999 nodes; allowed: up to 200,000"),
        ('[racks]\nr1 = "n[1-99999999]"', "racks.r1: found 'n[1-99999999]' with"),
        ('[racks]\na = "n[1-150000]"\nb = "n[1-150000]"', "racks.b: found 300,000 nodes in racks so far"),
        ('[slurm]\nqueue = "a\\u0000b"', "slurm.queue: found "),
        ('[ssh]\noptions = ["a\\u0000b"]', "ssh.options[0]: found "),
        ('[psij]\npin = "a\\u0000b"', "psij.pin: found "),
        ('topology = "a\\u0000b"', "topology: found "),
        ('topology = "nosuch"', "topology: found no file nosuch"),
        (f'topology = "{"x" * 300}"', "topology: found no file"),
    ],
)
def test_the_file_of_a_site_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(f"fleet.toml: {message}")):
        load_site(path)


def test_a_link_to_nothing_is_not_a_site_without_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.symlink_to("nosuch")
    with pytest.raises(UsageError, match=r"fleet\.toml"):
        load_site(path)
    assert load_site(tmp_path / "other.toml").cluster == "cluster"


def test_a_list_of_very_many_ranges_is_refused_by_its_length() -> None:
    with pytest.raises(UsageError, match="with 400,001 nodes; allowed: up to 200,000"):
        expand("n[" + "1," * 400_000 + "1]")


def test_a_name_of_very_many_ranges_is_refused_without_multiplying_them_all() -> None:
    with pytest.raises(UsageError, match="with too many nodes; allowed: up to 200,000"):
        expand("n[1-2]" * 100_000)


@pytest.mark.parametrize("text", ["n1-" * 100_000, "n[1]" * 20_000])
def test_a_set_whose_names_would_be_too_long_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(UsageError, match="a name of a node has up to 200 letters"):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "r[1-9]n[01-12]",
        "n[1-2,100,01-02,08-10]",
        "a[1-2]b[2-3],a2,b",
        "n[98-99,099-100]",
    ],
)
def test_a_folded_set_has_the_same_names(text: str) -> None:
    names = expand(text)
    assert expand(fold(names)) == names and len(set(names)) == len(names)


@pytest.mark.parametrize(("names", "text"), [(["n2", "n10", "n1"], "n[1-2,10]"), (["r1n1", "r2n1"], "r[1-2]n1")])
def test_sets_are_folded_as_administrators_write_them(names: list[str], text: str) -> None:
    assert fold(names) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [("n[1-4]&n[3-9]", "n[3-4]"), ("n[1-3]^n[3-4]", "n[1-2,4]"), ("n[1-9]!n[2-8],x", "n[1,9],x")],
)
def test_sets_are_combined_from_left_to_right(text: str, names: str) -> None:
    assert fold(expand(text)) == names


@pytest.mark.parametrize(
    "text", ["n[5-1]", "n[01-5]", "n[1-5/0]", "n[1,", "n]", "n,,m", "n1,", "!n1", "n[a]", "n[[1]]"]
)
def test_a_text_that_is_not_a_set_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="SET: found "):
        expand(text, "SET")


@pytest.mark.parametrize("text", ["", " ", "n1!n1"])
def test_no_case_is_closed_by_a_set_without_nodes(tmp_path: Path, text: str) -> None:
    result = CliRunner().invoke(app, ["fleet", "close", str(tmp_path), text])
    assert isinstance(result.exception, UsageError) and "a set without nodes" in str(result.exception)


def test_a_host_whose_own_name_is_not_one_of_a_node_is_named_by_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "my host.example")
    with pytest.raises(UsageError, match="nodes: found this host's name 'my host'") as error:
        Local()
    assert error.value.hint == "--nodes NAME"
    assert [node.name for node in Local(["n1"]).nodes()] == ["n1"]
    with pytest.raises(UsageError, match="--nodes: found 'a;b'"):
        Local(["a;b"])
