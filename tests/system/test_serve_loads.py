"""Runs and studies in the browser: listed, linked and shown; no other file is reachable."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest

from meshmark.cli.serve import LoadFolders
from meshmark.load.scenario.journal import JOURNAL
from meshmark.web.server import NotFoundError
from support.made_load import made_load, made_study
from support.made_site import Site


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made_load(tmp_path / "load" / "first", {"x": [1.0, 1.0], "y": [2.0]})
    made_load(tmp_path / "load" / "second <i>", {"x": [1.5, 1.6]}, died=["x"])
    made_load(tmp_path / "load" / "cut", {"x": [1.5]}, cut=True)
    made_load(tmp_path / "load" / "alien", {"z": [1.5]})
    made_study(tmp_path / "studies" / "done")
    made_study(tmp_path / "studies" / "half", finished=False)
    made_load(tmp_path / "outside" / "secret", {"x": [1.0]}, name="root:secret")
    (tmp_path / "load" / "link").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "load" / "notes").mkdir()
    for n, name in enumerate(("first", "second <i>", "cut", "alien")):
        os.utime(tmp_path / "load" / name / JOURNAL, (1e9 + n, 1e9 + n))
    return tmp_path


def folders(home: Path) -> LoadFolders:
    return LoadFolders((home / "load", home / "studies"))


def test_runs_and_studies_are_listed_the_newest_first(home: Path) -> None:
    rows, page_count = folders(home).rows()
    assert page_count == 0
    assert [r.name for r in rows if r.kind == "run"] == ["alien", "cut", "second <i>", "first"]
    errors = {r.name: r for r in rows}
    assert errors["first"].what == "x × 2, y" and errors["first"].state == "3 of 3 succeeded"
    assert errors["first"].length_s == pytest.approx(2.0)
    assert errors["second <i>"].state == "0 of 2 succeeded" and errors["cut"].state == "running, or interrupted"
    assert errors["done"].what == "shared bus" and errors["done"].runs == 4 and errors["done"].flags == ["disturbed"]
    assert errors["done"].shown and not errors["half"].shown and errors["half"].state == "running, or interrupted"
    assert "link" not in errors and "notes" not in errors
    two_folders = LoadFolders((home / "load", home / "outside"))
    assert {r.name for r in two_folders.rows()[0]} >= {"first", "secret"}
    assert LoadFolders((home / "nowhere",)).rows() == ([], 0)


def test_a_row_is_read_again_only_when_its_run_has_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import meshmark.load.scenario.journal as module

    read: list[str] = []
    real = module.read_run
    monkeypatch.setattr(module, "read_run", lambda p, samples=True: (read.append(p.name), real(p, samples))[1])
    own_folders = folders(home)
    own_folders.rows()
    assert sorted(read) == ["alien", "cut", "first", "second <i>"]
    own_folders.rows()
    assert len(read) == 4
    with (home / "load" / "cut" / JOURNAL).open("a") as journal:
        journal.write('{"type":"sample"}\n')
    own_folders.rows()
    assert read[4:] == ["cut"]


def test_what_cannot_be_read_is_listed_with_its_reason(home: Path) -> None:
    (home / "load" / "empty").mkdir()
    (home / "load" / "empty" / JOURNAL).write_text("")
    (home / "studies" / "torn").mkdir()
    (home / "studies" / "torn" / "study.json").write_text("{")
    (home / "studies" / "list").mkdir()
    (home / "studies" / "list" / "study.json").write_text("[]")
    errors = {r.name: r for r in folders(home).rows()[0]}
    for name in ("empty", "torn", "list"):
        assert errors[name].broken and not errors[name].shown and "\n" not in errors[name].broken
    text = Site(home, loads=folders(home)).get("load/")[1].decode()
    assert "no program was started yet" in text and "cannot be read" in text


def test_the_pages_are_linked_and_shown(home: Path) -> None:
    site = Site(home, loads=folders(home))
    front = site.get("")[1].decode()
    assert 'href="load/"' in front and "4 scenario runs, 2 studies" in front
    status, body, headers = site.get("load/")
    text = body.decode()
    assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
    links = {html.unescape(h) for h in re.findall(r'href="([^"]+)"', text)}
    assert {"run/first", "run/second%20%3Ci%3E", "run/cut", "study/done", "../", "../page.css"} <= links
    assert "study/half" not in links and "second &lt;i&gt;" in text and "<i>" not in text
    assert text.count("<option") == 8
    for path, words in (
        ("run/first", b"Gantt chart"),
        ("run/second%20%3Ci%3E", b"SIGKILL"),
        ("run/cut", b"killed"),
        ("study/done", b"vegaEmbed"),
        ("compare?a=first&b=cut", b"common time axis"),
    ):
        status, body, headers = site.get("load/" + path)
        assert status == 200 and words in body, path
        assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert "Loads" not in Site(home).get("")[1].decode() and Site(home).get("load/run/first")[0] == 404


def test_runs_without_a_common_program_are_refused(home: Path) -> None:
    status, body, _ = Site(home, loads=folders(home)).get("load/compare?a=first&b=alien")
    assert status == 404 and b"no program of first" in body and body.count(b"\n") == 1
    rows = {r.name: r for r in folders(home).rows()[0]}
    with pytest.raises(NotFoundError):
        folders(home).page(rows["first"])  # a row of another listing


@pytest.mark.parametrize(
    "path",
    [
        "run/../../outside/secret",
        "run/..%2f..%2foutside%2fsecret",
        "run/%2e%2e",
        "run/..",
        "run/.",
        "run/",
        "run/link",
        "run//etc/passwd",
        "run/%00",
        "run/first%00",
        "run/first%2frun.jsonl",
        "run/first/scenario.json",
        "study/first",
        "run/done",
        "study/half",
        "study/..%2fload%2ffirst",
        "other/first",
        "compare?a=first&b=..%2foutside%2fsecret",
        "compare?a=link&b=first",
        "compare?a=first",
        "compare",
        "run/%ff%fe",
        "run/notes",
        "run/secret",
    ],
)
def test_no_path_leads_out(home: Path, path: str) -> None:
    status, body, _ = Site(home, loads=folders(home)).get("load/" + path)
    assert status in {400, 404, 405}, body[:200]
    assert b"root:" not in body and b"user_s" not in body


def test_loads_ask_for_the_token_and_the_host(home: Path) -> None:
    for path in ("load/", "load/run/first", "load/study/done", "load/compare?a=first&b=cut"):
        assert Site(home, loads=folders(home)).get(path, Host="evil.example")[0] == 421
        assert Site(home, token="secret", loads=folders(home)).get(path)[0] == 401
