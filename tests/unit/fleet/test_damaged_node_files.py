"""Damaged and hostile node files: each is checked alone, and the results of the other nodes are ingested."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import os
import random
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from meshmark.fleet.campaigns.campaign import new_campaign
from meshmark.fleet.data.ingest import IngestResult, ingest
from meshmark.fleet.data.results import ResultError, read_result
from meshmark.fleet.engines.processes import Processes
from meshmark.fleet.folder import Fleet
from meshmark.store.files import make_folder
from support.made_application import lines_with, plan_of, run_line
from support.made_fleet import lines_of, write_result

RAW = "RAW:"  # prefix of a text that is written to the file as it is, since `json` does not write such values
HOSTILE: tuple[Any, ...] = (
    RAW + "1" + "0" * 399,
    RAW + "1e400",
    RAW + "NaN",
    RAW + "-Infinity",
    RAW + "[" * 5000 + "]" * 5000,
    RAW + "[" * 900 + "]" * 900,
    2**31,
    -(2**63),
    2**64,
    1e308,
    -1,
    True,
    None,
    "",
    "\ud800",
    "x" * 20_000,
    "\n\x1b[31m",
    "9" * 400,
    "../n1",
    [],
    {},
    [[]],
    {"a": []},
    ["\ud800"],
)
ABSENT = {"type": "absent", "instrument": "clock", "metric": "m", "reason": "r", "enable": "e", "conditions": {"a": 1}}


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield, for each value within a line, the keys that lead to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from places(inner, (*at, key))


def written(lines: list[dict[str, Any]]) -> bytes:
    texts = (json.dumps(line, separators=(",", ":")) for line in lines)
    return gzip.compress("".join(re.sub(rf'"{RAW}([^"]*)"', r"\1", text) + "\n" for text in texts).encode(), 1)


def damaged(lines: list[dict[str, Any]], name: str, seed: int) -> bytes:
    """Return a node file with one or two hostile values; the seed determines their places and the values."""
    rng = random.Random(seed)
    copies = copy.deepcopy(lines)
    copies[0]["name"] = name
    kinds = sorted({line["type"] for line in lines})
    for _ in range(rng.randint(1, 2)):
        kind = rng.choice(kinds)
        index = rng.choice([i for i, line in enumerate(lines) if line["type"] == kind])
        *parents, last = rng.choice(list(places(lines[index])))
        inner: Any = copies[index]
        with contextlib.suppress(
            TypeError, LookupError
        ):  # an earlier change replaced the value that contains this place
            for key in parents:
                inner = inner[key]
            inner[last] = rng.choice(HOSTILE)
    return written(copies)


def taken_in(folder: Path, files: dict[str, bytes]) -> IngestResult:
    """Ingest these files beside the files of three sound nodes, which are always ingested; return the outcome."""
    fleet, name = Fleet(folder), new_campaign("check")
    inbox = fleet.campaign(name) / "inbox"
    sound_nodes = ["a1", "a2", "z9"]
    for node in sound_nodes:
        write_result(inbox, node, lines_of(node))
    for node, data in files.items():
        (inbox / f"{node}.jsonl.gz").write_bytes(data)
    ingested = ingest(fleet, name, "hawk", frozenset({*sound_nodes, *files}), at_once=10**6)
    assert set(sound_nodes) <= set(ingested.nodes)
    assert not list(inbox.iterdir()) and not list((fleet.campaign(name) / "taken").iterdir())
    assert set(ingested.nodes) | {name.partition(".")[0] for name in ingested.skipped} == {*sound_nodes, *files}
    refused_folder = fleet.campaign(name) / "refused"
    assert len(list(refused_folder.iterdir()) if refused_folder.exists() else []) == len(ingested.skipped)
    assert not ingest(fleet, name, "hawk").skipped  # the next ingestion finds nothing to skip
    return ingested


def test_no_value_in_the_file_of_a_node_keeps_those_of_others(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    plan = plan_of(tmp_path)
    fleet.plans.mkdir()
    (fleet.plans / f"{plan.id}.json").write_bytes(plan.to_bytes())
    run = run_line(2, verify={"how": "status", "code": 0, "out": "ok"}, file="")
    for label, lines in (
        ("i", [*lines_of("n"), ABSENT]),
        ("p", lines_with(lines_of("n"), plan, run_line(1), run)),
    ):
        lines.append(lines.pop(lines.index(next(line for line in lines if line["type"] == "finished"))))
        files = {f"{label}{seed}": damaged(lines, f"{label}{seed}", seed) for seed in range(250)}
        ingested = taken_in(tmp_path, files)
        assert 20 < len(ingested.skipped) < 200  # in the other files, the hostile value does no harm
        for reason in (*ingested.skipped.values(), *ingested.doubts.values()):
            assert "unexpected" not in reason and reason.isprintable() and len(reason) < 1000, reason


@pytest.mark.parametrize(
    ("line", "key", "value", "field"),
    [
        (0, "hostname", 7, "hostname: found 7"),
        (0, "boot", ["x"], "boot: found"),
        (0, "machine", "\ud800", "machine: found"),
        (-1, "problems", 7, "last line: problems: found 7"),
        (-1, "problems", [7], r"last line: problems\[0\]: found 7"),
        (-1, "status", None, "last line: status: found None"),
        (-1, "elapsed_s", RAW + "1" + "0" * 399, "last line: elapsed_s: found"),
        (-1, "peak_bytes", RAW + "NaN", "last line: peak_bytes: found"),
        (-2, "elapsed_s", "1", "step end: elapsed_s: found '1'"),
        (-2, "id", {}, "step end: id: found {}"),
    ],
)
def test_a_line_of_the_runner_with_another_type_refuses_the_file_and_names_the_field(
    tmp_path: Path, line: int, key: str, value: object, field: str
) -> None:
    lines = lines_of("n1")
    lines[line][key] = value
    (path := tmp_path / "n1.jsonl.gz").write_bytes(written(lines))
    with pytest.raises(ResultError, match=field):
        read_result(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("value", RAW + "1" + "0" * 399),
        ("samples", [RAW + "1" + "0" * 399]),
        ("better", ["higher"]),
        ("better", {}),
        ("unit", "\ud800"),
        ("flags", 7),
        ("conditions", {"size": RAW + "1" + "0" * 399}),
        ("provenance", {"build": []}),
    ],
)
def test_an_invalid_result_is_left_out_and_counted(tmp_path: Path, key: str, value: object) -> None:
    lines = lines_of("n1")
    results = [line for line in lines if line["type"] == "result"]
    results[2][key] = value
    (path := tmp_path / "n1.jsonl.gz").write_bytes(written(lines))
    result = read_result(path)
    assert len(result.steps[0].reading.records) == len(results) - 1
    assert re.match(f"1 result left out: {key}: found ", result.damage), result.damage


def test_a_node_cannot_say_that_its_results_are_of_another(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    lines = lines_of("n1")
    lines[0] |= {"node": "n2", "campaign": "survey-20260101T000000-0000", "attempt": "0" * 16, "doubt": "x"}
    write_result(fleet.campaign(name) / "inbox", "n1", lines)
    ingest(fleet, name, "hawk")
    (path,) = fleet.table("nodes", name, "hawk").iterdir()
    (row,) = pq.ParquetFile(path).read().to_pylist()
    assert (row["node"], row["campaign"], row["doubt"]) == ("n1", name, "") and row["attempt"] != "0" * 16


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (b"{}\n" * 100_001, "more than 100000 lines"),
        (b"\n" * 100_001, "more than 100000 lines"),
        ((b"[" + b" " * (1 << 20) + b"]\n") * 33, "more than 32 MiB of results"),
        (b" " * (17 << 20), "a line of more than 16 MiB"),
        (b'{"type":"run"' + b" " * (17 << 20), "a line of more than 16 MiB"),
    ],
)
def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, content: bytes, limit: str) -> None:
    content_before = gzip.decompress(write_result(tmp_path, "n1", lines_of("n1")).read_bytes())
    (path := tmp_path / "n1.jsonl.gz").write_bytes(gzip.compress(content_before + content, 1))
    with pytest.raises(ResultError, match=f"found {limit}, which is the limit"):
        read_result(path)


def test_what_is_no_file_is_set_aside(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    inbox = fleet.campaign(name) / "inbox"
    write_result(inbox, "n1", lines_of("n1"))
    (inbox / "folder.jsonl.gz").mkdir()
    os.mkfifo(inbox / "pipe.jsonl.gz")
    (inbox / "endless.jsonl.gz").symlink_to("/dev/zero")
    (inbox / "nothing.jsonl.gz").symlink_to("nothing")
    (inbox / "circle.jsonl.gz").symlink_to("circle.jsonl.gz")
    (inbox / os.fsdecode(b"\xff\n.jsonl.gz")).write_bytes(b"")
    ingested = ingest(fleet, name, "hawk")
    assert ingested.nodes == ["n1"] and len(ingested.skipped) == 6
    assert all(reason.isprintable() for reason in ingested.skipped.values())
    assert len(list((fleet.campaign(name) / "refused").iterdir())) == 6
    assert ingest(fleet, name, "hawk") == IngestResult()


def test_what_an_ingestion_and_a_job_create_is_for_their_owner_only(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path / "fleet"), new_campaign("check")
    folder = fleet.campaign(name)
    make_folder(folder / "inbox")
    (folder / "inbox" / "empty.jsonl.gz").write_bytes(b"")
    ingest(fleet, name, "hawk")
    Processes().start("job", ["true"], folder / "job.log")
    modes = {path: stat.S_IMODE((folder / path).stat().st_mode) for path in ("taken", "refused", "job.log")}
    assert modes == {"taken": 0o700, "refused": 0o700, "job.log": 0o600}


def test_what_is_no_claim_is_named_and_left(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    claims_folder = fleet.campaign(name) / "taken"
    other_folder = tmp_path / "elsewhere"
    write_result(other_folder, "n3", lines_of("n3"))
    claims_folder.mkdir(parents=True)
    (claims_folder / "file").touch()
    (claims_folder / "link").symlink_to(other_folder)
    (claims_folder / "nothing").symlink_to("nothing")
    os.mkfifo(claims_folder / "pipe")
    (claims_folder / "lock-is-a-folder" / ".lock").mkdir(parents=True)
    (claims_folder / "lock-is-a-link").mkdir()
    (claims_folder / "lock-is-a-link" / ".lock").symlink_to("../file")
    write_result(claims_folder / "without-a-lock", "n2", lines_of("n2"))
    write_result(fleet.campaign(name) / "inbox", "n1", lines_of("n1"))
    ingested = ingest(fleet, name, "hawk")
    assert sorted(ingested.nodes) == ["n1", "n2"]
    names = ("file", "link", "nothing", "pipe", "lock-is-a-folder", "lock-is-a-link")
    assert set(ingested.skipped) == {f"taken/{entry}" for entry in names}
    assert (other_folder / "n3.jsonl.gz").exists() and (claims_folder / "link").is_symlink()


def test_one_content_under_two_names_counts_once(tmp_path: Path) -> None:
    fleet, name = Fleet(tmp_path), new_campaign("check")
    path = write_result(fleet.campaign(name) / "inbox", "n1", lines_of("n1"))
    path.with_name("n1+interrupted.jsonl.gz").write_bytes(path.read_bytes())
    ingested = ingest(fleet, name, "hawk")
    assert ingested.nodes == ["n1"] and ingested.again == ["n1"]
