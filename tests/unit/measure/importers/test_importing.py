"""Importing: the output of Meshmark can be imported once, and replaces nothing."""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.measure.importers.importing import STEP, StepImport, add_to, read_output
from meshmark.store.export import to_csv, to_jsonl
from meshmark.store.layout import file_name
from meshmark.store.record import Record, median_interval
from meshmark.store.run import Absence
from meshmark.store.store import Store
from support.cli import meshmark
from support.imports import FIXTURES


def result(machine: str = "n1", n: int = 0, **more: Any) -> dict[str, Any]:
    samples = tuple(1e-9 * (n + 1) * (1 + i / 100) for i in range(7))
    record = Record(
        source="host",
        machine=machine,
        instrument="latency",
        metric="load_latency",
        unit="s",
        better="lower",
        samples=samples,
        value=sorted(samples)[3],
        interval=median_interval(samples),
        conditions={"footprint_bytes": 4096, "pages": "thp"},
        flags=frozenset({"disturbed"}),
        provenance={"start": "2026-11-21T00:00:00.5Z", "build": "x"},
    )
    return {**record.to_json(), **more}


def journal(machine: str = "n1", n: int = 0, resumed: int = 0, ended: bool = True) -> str:
    """Return the text that meshmark-probe prints."""
    lines = [
        {"type": "header", "schema": 1, "instrument": "latency", "machine": machine, "parameters": {"pages": "thp"}},
        {"type": "result", "schema": 1, "point": n, **result(machine, n)},
        {"type": "absent", "instrument": "latency", "reason": "no pages of 1GiB", "enable": "root"},
    ] + [{"type": "end", "status": "ok", "resumed": resumed}] * ended
    return "".join(json.dumps(line) + "\n" for line in lines)


def bare(*results: dict[str, Any]) -> str:
    return "".join(json.dumps(r) + "\n" for r in results)


def imported(store: Store, tmp_path: Path, text: str, name: str = "") -> list[tuple[str, int]]:
    file = tmp_path / "some" / "latency.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return add_to(store, read_output(file).parts, name)


def test_files_of_one_name_from_two_machines_stay_two_runs(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for machine in ("n1", "n2"):
        ((run, count),) = imported(store, tmp_path, journal(machine))
        assert run.startswith(f"{machine}-20261121T000000-") and count == 1
    assert {r.machine for r in store.query()} == {"n1", "n2"}
    assert len(store.absences()) == 2


def test_importing_twice_is_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for text in (journal(), bare(result("m"), result("m", 1)), bare(result("m", 1), result("m"), result("m"))):
        first, second = imported(store, tmp_path, text), imported(store, tmp_path, text)
        assert [run for run, _ in first] == [run for run, _ in second]
        assert all(count == 0 for _, count in second)
    assert len(store.query()) == 3, "the order of lines and a line that stands twice are no new content"


def test_no_name_replaces_another_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for name in ("a/b", "a_b", "a%2Fb", ".a_b", "a--b", "ü", "x" * 300, "x" * 301):
        assert imported(store, tmp_path, journal(), name) == [(name, 1)]
    assert len(store.query()) == 8
    with pytest.raises(UsageError, match="'a/b', which is another run"):
        imported(store, tmp_path, journal(n=5), "a/b")
    assert imported(store, tmp_path, journal(), "a/b") == [("a/b", 0)]


def test_files_of_one_call_replace_nothing_of_each_other(tmp_path: Path) -> None:
    """Two instruments of one survey that are exported separately have the same run and the same step."""
    whole_store, store = Store(tmp_path / "whole"), Store(tmp_path / "s")
    for instrument in ("latency", "gups"):
        whole_store.add("survey", instrument, [Record.from_json(result(instrument=instrument))])
    files = []
    for instrument in ("latency", "gups"):
        lines = [
            json.loads(line) | {"step": "import"}
            for line in to_jsonl(whole_store.rows(instrument=instrument)).splitlines()
        ]
        files.append(tmp_path / f"{instrument}.jsonl")
        files[-1].write_text(bare(*lines))
    parts = [part for file in files for part in read_output(file).parts]
    for counts in ([1, 1, 0, 0], [0, 0, 0, 0]):
        assert [n for _, n in add_to(store, parts + parts)] == counts
    assert {r.instrument for r in store.query()} == {"latency", "gups"}
    # The run is named by the caller, or, without a name, by its part.
    for name, runs in (("night", {"night", "night-2"}), ("", {part.name for part in parts})):
        other = Store(tmp_path / f"other{name}")
        bare_parts = [StepImport(part.records, step=part.step) for part in parts]
        for count in (2, 0):
            assert sum(n for _, n in add_to(other, bare_parts + bare_parts, name)) == count
        assert {run for run, _, _ in other.rows()} == runs


def test_a_damaged_file_is_not_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    assert imported(store, tmp_path, bare(result(run="r", step="a"))) == [("r", 1)]
    (file,) = store.files()
    file.write_bytes(content := file.read_bytes()[:-20])
    ((run, count),) = imported(store, tmp_path, bare(result(run="r", step="a")))
    assert run.startswith("r-") and count == 1 and file.read_bytes() == content


def test_importers_of_one_run_wait_for_one_another(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    parts = [StepImport([Record.from_json(result(n=n))], run="r", step="a") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: add_to(Store(store.folder), [part]), parts))
    assert len(store.query()) == 8


def test_runs_in_one_file_stay_apart_unless_one_resumed_the_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    assert len(imported(store, tmp_path, journal(n=1) + journal(n=2) + journal("n2"))) == 3
    assert len(store.query()) == 3
    cut = journal(n=3, ended=False)
    assert len(imported(store, tmp_path, cut + journal(n=4, resumed=1))) == 1
    assert len(imported(store, tmp_path, cut + journal(n=4, resumed=0))) == 2
    assert len(imported(store, tmp_path, journal(n=5) + journal(n=6, resumed=1))) == 2
    assert len(imported(store, tmp_path, journal("n2", n=7, ended=False) + journal(n=8, resumed=1))) == 2


@pytest.mark.parametrize("form", [to_jsonl, to_csv])
def test_an_export_can_be_imported_with_its_runs(tmp_path: Path, form: Any) -> None:
    store, copy = Store(tmp_path / "s"), Store(tmp_path / "copy")
    odd_conditions = {
        "a": "5",
        "b": "true",
        "c": "",
        "d": '"q"',
        "e": None,
        "f": True,
        "g": 1.5,
        "h": "null",
        "i": "a,b\nc",
        "j": "ü",
    }
    for run in ("one", "two"):
        records = [Record.from_json(result(run, n, conditions={**odd_conditions, "n": n})) for n in range(2)]
        store.add(run, "step", records, [Absence(instrument="io", reason="no fio")])
    assert sorted(imported(copy, tmp_path, form(store.rows()))) == [("one", 2), ("two", 2)]
    assert copy.rows() == store.rows()
    assert sorted(imported(copy, tmp_path, form(store.rows()))) == [("one", 0), ("two", 0)]
    # Different content under the name of an existing run gets another name.
    other = Store(tmp_path / "other")
    other.add("one", "step", [Record.from_json(result("one", 9))])
    ((name, count),) = imported(copy, tmp_path, form(other.rows()))
    assert name.startswith("one-") and count == 1 and len(copy.query()) == 5


def test_what_measure_prints_can_be_imported(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path)}
    out_path = tmp_path / "out.jsonl"
    with out_path.open("wb") as file:
        words = ["measure", "latency", "--on", "gs1280-4", "--footprint", "1MiB", "--json", "--no-store"]
        assert meshmark(*words, stdout=file, env=env).returncode == 0
    completed = meshmark("store", "import", out_path, env=env)
    count = len(out_path.read_bytes().splitlines())
    assert completed.stderr.splitlines() == [f"imported {count}"]
    assert completed.stdout.startswith("gs1280-4-")


def test_the_last_line_needs_no_newline_and_damage_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    assert imported(store, tmp_path, bare(result()).rstrip("\n"))[0][1] == 1
    text = bare(result("m", value=3.0), result("m")) + "not json\n" + '{"type": "progress"}\n'
    file = tmp_path / "wrong.jsonl"
    file.write_text(text)
    output = read_output(file)
    assert (len(output.parts[0].records), output.left_out_count, output.other_lines) == (1, 1, 2)
    assert str(output.left_out[0]).startswith("line 1: value: found 3.0")
    absent_line = '{"type": "absent", "instrument": "gups", "metric": "update_rate", "reason": "none", "enable": ""}\n'
    file.write_text(text + absent_line)
    assert read_output(file).other_lines == 3
    file.write_text(bare(result(conditions={"a": "\ud800"})))
    with pytest.raises(MeshmarkError, match="conditions"):
        read_output(file)


def test_what_is_left_out_is_counted_with_its_line_and_the_rest_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "n042.txt"
    text = (Path(__file__).parent / "fixtures/stream.txt").read_text(encoding="utf-8")
    file.write_text(text.replace("26412.7", "26..12"), encoding="utf-8")
    env = {"XDG_DATA_HOME": str(tmp_path)}
    completed = meshmark("store", "import", file, env=env)
    reason = "line 28: rate of scale: found '26..12', a number is required"
    assert (completed.returncode, completed.stderr) == (0, f"imported 3, left out 1: {reason}\n")
    strict = meshmark("store", "import", file, "--strict", "--json", env=env)
    rows = [json.loads(line) for line in strict.stdout.splitlines()]
    assert strict.returncode == 1 and [row["type"] for row in rows] == ["run", "left_out", "summary"]
    assert rows[1] == {"type": "left_out", "file": str(file), "where": "line 28", "reason": reason.partition(": ")[2]}
    assert rows[2] == {"type": "summary", "imported": 0, "already_present": 3, "left_out": 1, "other_lines": 0}
    assert meshmark("store", "import", file, "--replace", "nosuch", env=env).returncode == 2


def test_a_comparison_says_what_was_left_out_of_a_file(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "fixtures/stream.txt").read_text(encoding="utf-8")
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    (tmp_path / "b.txt").write_text(text.replace("26412.7", "26..12"), encoding="utf-8")
    completed = meshmark("compare", tmp_path / "a.txt", tmp_path / "b.txt", env={"XDG_DATA_HOME": str(tmp_path)})
    assert completed.returncode == 0 and "file b.txt, left out 1: line 28: rate of scale" in completed.stdout


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_lines_of_meshmark_may_be_in_the_encodings_of_powershell(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "n1.jsonl"
    file.write_bytes(journal().replace("\n", "\r\n").encode(encoding))
    assert [len(part.records) for part in read_output(file).parts] == [1]


def test_a_record_with_an_impossible_value_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "n1.jsonl"
    bad = result("m", samples=[-1.0], value=-1.0, interval=None)
    file.write_text(bare(result("m"), bad))
    output = read_output(file)
    assert len(output.parts[0].records) == 1
    assert [str(item) for item in output.left_out] == ["line 2: value: found -1.0 s, at least 0 is required"]


def test_a_source_without_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="a regular file is required"):
            read_output(path)


@given(st.text(), st.text())
def test_other_names_give_other_files(a: str, b: str) -> None:
    pairs = [(a, b), (b, a), (a + "-", b), (a, "-" + b), (f"{a}--{b}", ""), (a, "")]
    stems = {f"{file_name(run)}--{file_name(step)}" for run, step in pairs}
    assert len(stems) == len(set(pairs))
    for stem in stems:
        assert "/" not in stem and not stem.startswith(".") and len(stem.encode()) < 230


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused_in_one_line(data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"run,step" * (data[:1] == b"r") + data + (b"\n" + journal().encode()) * (data[:1] == b"{"))
        file.flush()
        try:
            read_output(Path(file.name))
        except MeshmarkError as error:
            assert "\n" not in str(error)


def test_what_another_tool_prints_is_imported_and_marked(tmp_path: Path) -> None:
    file = tmp_path / "n042.txt"
    file.write_text((Path(__file__).parent / "fixtures/stream.txt").read_text(encoding="utf-8"), encoding="utf-8")
    store = Store(tmp_path / "s")
    for _ in range(2):
        add_to(store, read_output(file).parts)
    assert len(store.query(machine="n042", source="tool")) == 4
    (part,) = read_output(file, "n043").parts
    assert part.machine == "n043"


def test_damaged_and_unknown_formats_are_told_apart(tmp_path: Path) -> None:
    damaged, unknown = tmp_path / "d.txt", tmp_path / "u.txt"
    text = (Path(__file__).parent / "fixtures/stream.txt").read_text(encoding="utf-8")
    damaged.write_text(text[: len(text) // 2], encoding="utf-8")
    unknown.write_text("dear diary", encoding="utf-8")
    with pytest.raises(UsageError, match=r"d\.txt: line 2: the run has no rate of copy"):
        read_output(damaged)
    with pytest.raises(MeshmarkError, match="the format is not known") as error:
        read_output(unknown)
    assert "stream" in error.value.hint


def test_a_refused_import_removes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for run in ("base", "base-old"):
        store.add(run, "x", [Record.from_json(result(machine=run))])
    parts = [StepImport([Record.from_json(result())])]
    with pytest.raises(UsageError, match="another run of the store"):
        add_to(store, parts, "base", ["base-old"])
    assert {row["run"] for row in store.runs()} == {"base", "base-old"}
    assert add_to(store, parts, "base", ["base", "base-old"]) == [("base", 1)]
    assert [r.machine for r in store.query()] == [parts[0].machine]


def test_a_csv_file_may_have_records_with_many_samples(tmp_path: Path) -> None:
    record = replace(Record.from_json(result()), samples=(1 / 3,) * 20_001, value=1 / 3, interval=(1 / 3, 1 / 3))
    file = tmp_path / "many.csv"
    file.write_text(to_csv([("run", "step", record)]), encoding="utf-8")
    output = read_output(file)
    assert output.left_out_count == 0 and len(output.parts[0].records.first.samples) == 20_001


def test_compressed_lines_are_read_and_those_before_the_end_of_a_file_that_was_cut_off(tmp_path: Path) -> None:
    lines = [json.dumps(result(machine=f"n{i}")) for i in range(2000)]
    packed = gzip.compress("\n".join(lines).encode())
    file = tmp_path / "survey.jsonl.gz"
    file.write_bytes(packed)
    assert len(read_output(file).parts) == len(lines)
    file.write_bytes(packed[: len(packed) // 2])
    cut_off = read_output(file)
    assert 0 < len(cut_off.parts) < len(lines)
    assert cut_off.left_out_count == 1 and "cut off" in str(cut_off.left_out[0])
    file.write_bytes(packed[:200] + bytes(40) + packed[240:])
    with pytest.raises(UsageError, match="the compressed data are damaged"):
        read_output(file)


def test_a_header_names_the_run_and_the_step(tmp_path: Path) -> None:
    header = {"type": "header", "schema": 1, "instrument": "latency", "machine": "n1", "run": "s", "step": "one"}
    file = tmp_path / "survey.jsonl"
    for names, expected in (({}, ("s", "one")), ({"run": "\ud800"}, ("", STEP)), ({"step": 3}, ("", STEP))):
        file.write_text(
            "\n".join(json.dumps(line) for line in ({**header, **names}, result(type="result", schema=1))),
            encoding="utf-8",
        )
        (part,) = read_output(file).parts
        assert (part.run, part.step) == expected


def test_all_members_of_a_compressed_file_are_read(tmp_path: Path) -> None:
    whole = (FIXTURES / "stream.txt").read_bytes()
    file = tmp_path / "stream.txt.gz"
    file.write_bytes(gzip.compress(whole[:700]) + gzip.compress(whole[700:]))
    assert [r.value for r in read_output(file).parts[0].records] == [
        r.value for r in read_output(FIXTURES / "stream.txt").parts[0].records
    ]


@pytest.mark.parametrize(("run", "name"), [("", ""), ("one", ""), ("", "base"), ("one", "base")])
def test_what_a_full_disk_cut_off_is_added_by_the_next_import(
    run: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part has two machines, and the file of the second one was not written."""
    store = Store(tmp_path / "s")
    part = StepImport([Record.from_json(result(machine=name)) for name in ("n1", "n2")], run=run)
    write, paths = Store.write, list[Path]()

    def fail_second(self: Store, path: Path, *tables: Any) -> None:
        paths.append(path)
        if len(paths) == 2:
            raise MeshmarkError("no space left on device")
        write(self, path, *tables)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", fail_second)
        with pytest.raises(MeshmarkError, match="no space"):
            add_to(store, [part], name)
    assert [r.machine for r in store.query()] == ["n1"]
    assert add_to(store, [part], name) == [(name or run or part.name, 2)]
    assert sorted(r.machine for r in store.query()) == ["n1", "n2"]
    assert [count for _, count in add_to(store, [part], name)] == [0]
